"""What the program itself holds by name: parameters, buffers, gradients, optimizer state.

One walk over Python's objects finds the modules and optimizers that are alive, whoever made them,
so nothing has to be hooked or kept alive for it. It takes a tenth of a second and runs twice: at
the end of the profiled iteration, while what the script holds is as in any iteration, and at the
end of the recording. Gradients are often dropped by then: those of the parameters found are read
again, which is quick, when the next backward pass ends.
"""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memtrace.snapshot.format import Owner


class OwnerLog:
    """The rows of the capture's ``owners``."""

    def __init__(self) -> None:
        self.rows: list[Owner] = []
        self._parameters: list[tuple[str, Any]] = []  # names and weak references
        self._due = False

    def look(self, mark: int) -> None:
        """Note everything held by name, as of a mark."""
        import torch

        objects = gc.get_objects()
        modules = [o for o in objects if _is(o, torch.nn.Module)]
        optimizers = [o for o in objects if _is(o, torch.optim.Optimizer)]
        del objects
        add = _Rows(mark, self.rows).add
        names: dict[int, str] = {}
        parameters: dict[int, Any] = {}
        for root in _roots(modules):
            for name, parameter in root.named_parameters():
                names.setdefault(id(parameter), name)
                parameters[id(parameter)] = parameter
                add("parameter", name, parameter)
            for name, buffer in root.named_buffers():
                add("buffer", name, buffer)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for k, parameter in enumerate(group["params"]):
                    name = names.setdefault(id(parameter), f"parameter {k}")
                    parameters[id(parameter)] = parameter
                    add("parameter", name, parameter)
                    for key, value in optimizer.state.get(parameter, {}).items():
                        if isinstance(value, torch.Tensor):
                            add("optimizer", f"{name}:{key}", value)
        self._parameters = [(names[key], weakref.ref(p)) for key, p in parameters.items()]
        self._gradients(mark)
        self._due = True

    def backward_ended(self, mark: int) -> None:
        """Note the gradients, once after each ``look``."""
        if self._due:
            self._due = False
            self._gradients(mark)

    def _gradients(self, mark: int) -> None:
        import torch

        add = _Rows(mark, self.rows).add
        for name, reference in self._parameters:
            parameter = reference()
            if parameter is None:
                continue
            if parameter.grad is not None:
                add("gradient", name, parameter.grad)
            for key, value in vars(parameter).items():
                if "grad" in key and _is(value, torch.Tensor):
                    add("gradient", f"{name}:{key}", value)


def _is(candidate: Any, kind: type[Any]) -> bool:
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


class _Rows:
    """Adds rows of one mark, each storage once a kind."""

    def __init__(self, mark: int, rows: list[Owner]) -> None:
        self._mark = mark
        self._rows = rows
        self._seen: set[tuple[str, int, int]] = set()

    def add(self, kind: str, name: str, tensor: Any) -> None:
        from memtrace.snapshot.format import Owner

        try:
            storage = tensor.untyped_storage()
            address, size = int(storage.data_ptr()), int(storage.nbytes())
            strides = [int(n) for n in tensor.stride()]
        except Exception:  # fake, lazy, sparse or wrapped: no one memory of its own
            return
        device = -1 if tensor.device.type == "cpu" else (tensor.device.index or 0)
        if not size or not address or (kind, device, address) in self._seen:
            return
        self._seen.add((kind, device, address))
        self._rows.append(
            Owner(
                mark=self._mark,
                kind=kind,
                name=name,
                device=device,
                address=address,
                bytes=size,
                shape=[int(n) for n in tensor.shape],
                strides=strides,
                dtype=str(tensor.dtype).removeprefix("torch."),
            )
        )
