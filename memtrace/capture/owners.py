"""What the program itself holds by name: parameters, buffers, gradients, optimizer state.

One walk over Python's objects finds the modules and optimizers that are alive, whoever made them,
so nothing has to be hooked or kept alive for it. It takes a tenth of a second and runs twice: at
the end of the profiled iteration, while what the script holds is as in any iteration, and at the
end of the recording.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memtrace.snapshot.format import Owner


def find_owners(mark: int) -> list[Owner]:
    """The named tensors of all modules and optimizers alive, each storage under one name a kind."""
    import torch

    objects = gc.get_objects()
    modules = [o for o in objects if _is(o, torch.nn.Module)]
    optimizers = [o for o in objects if _is(o, torch.optim.Optimizer)]
    del objects
    found: list[Owner] = []
    names: dict[int, str] = {}
    seen: set[tuple[str, int, int]] = set()
    for root in _roots(modules):
        for kind, name, tensor in _named(root):
            if kind == "parameter":
                names.setdefault(id(tensor), name)
                if tensor.grad is not None:
                    _add(found, seen, mark, "gradient", name, tensor.grad)
            _add(found, seen, mark, kind, name, tensor)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for k, parameter in enumerate(group["params"]):
                name = names.get(id(parameter), f"parameter {k}")
                _add(found, seen, mark, "parameter", name, parameter)
                if parameter.grad is not None:
                    _add(found, seen, mark, "gradient", name, parameter.grad)
                for key, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, torch.Tensor):
                        _add(found, seen, mark, "optimizer", f"{name}:{key}", value)
    return found


def _is(candidate: Any, kind: type) -> bool:
    # type(), not isinstance(): that asks the object, and some proxies answer by doing work.
    try:
        return issubclass(type(candidate), kind)
    except TypeError:
        return False


def _roots(modules: list[Any]) -> list[Any]:
    """Modules that no other module holds, wrappers that compile one left out, largest first."""
    children = {id(child) for module in modules for child in module._modules.values()}
    wrapped = {id(m._orig_mod) for m in modules if "_orig_mod" in m.__dict__.get("_modules", {})}
    roots = [
        m
        for m in modules
        if "_orig_mod" not in m.__dict__.get("_modules", {})
        and (id(m) not in children or id(m) in wrapped)
    ]
    return sorted(roots, key=lambda m: -sum(1 for _ in m.modules()))


def _named(root: Any) -> Iterator[tuple[str, str, Any]]:
    for name, parameter in root.named_parameters():
        yield "parameter", name, parameter
    for name, buffer in root.named_buffers():
        yield "buffer", name, buffer


def _add(
    found: list[Owner],
    seen: set[tuple[str, int, int]],
    mark: int,
    kind: str,
    name: str,
    tensor: Any,
) -> None:
    from memtrace.snapshot.format import Owner

    try:
        storage = tensor.untyped_storage()
        address, size = int(storage.data_ptr()), int(storage.nbytes())
    except Exception:  # a fake, lazy or wrapped tensor has no memory of its own
        return
    device = -1 if tensor.device.type == "cpu" else (tensor.device.index or 0)
    if not size or not address or (kind, device, address) in seen:
        return
    seen.add((kind, device, address))
    found.append(
        Owner(
            mark=mark,
            kind=kind,
            name=name,
            device=device,
            address=address,
            bytes=size,
            shape=[int(n) for n in tensor.shape],
            dtype=str(tensor.dtype).removeprefix("torch."),
        )
    )
