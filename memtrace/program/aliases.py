"""Which operations give another name to memory that is there, and which make new memory.

By the names that Thunder prints: its own prims, torch's functions as its torch executor calls them
(``thunder/executors/torchex.py``), and ``shallow_copy``, which returns what it is given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memtrace.program import strides
from memtrace.program.strides import Strides
from memtrace.symbols.sources import operation_name
from memtrace.symbols.statements import Tensor

_FUSION = re.compile(r"^(?:nvFusion|TorchCompile|ThunderOpaque|FusionDefinition|inductor_\w*?)\d+$")
_NAMED_FUSION = re.compile(r"^[A-Za-z_]+(?:Fusion|Compile|Region)_?\d+$")
# The same memory whatever its strides are.
_VIEWS = frozenset(
    {
        "alias", "as_strided", "broadcast_in_dim", "broadcast_to", "chunk", "detach", "diagonal",
        "expand", "expand_as", "getitem", "imag", "mT", "movedim", "narrow", "permute", "real",
        "select", "shallow_copy", "slice", "split", "squeeze", "swapaxes", "t", "tensor_split",
        "transpose", "unbind", "unfold", "unsqueeze", "update_aliases", "view", "view_as", "wait",
        "split_with_sizes", "hsplit", "vsplit", "unflatten", "T", "H", "mH", "adjoint",
    }
)  # fmt: skip
# The same memory where their result needs no other layout, dtype or device than their input has.
_VIEWS_IF_FITTING = frozenset(
    {"contiguous", "flatten", "ravel", "reshape", "reshape_as", "stride_order", "to", "type_as"}
)
# Views, or copies, that only move elements: what a fusion of nothing else does is shape.
_SHAPE_ONLY = _VIEWS | _VIEWS_IF_FITTING - {"to", "type_as"}
_REORDERINGS = frozenset(
    {
        "contiguous", "detach", "flatten", "permute", "ravel", "reshape", "shallow_copy", "squeeze",
        "stride_order", "t", "transpose", "unflatten", "unsqueeze", "view",
    }
)  # fmt: skip
_TUPLE = re.compile(r"[(\[]((?:-?\d{1,15}(?:, ?-?\d{1,15})*,?)?)[)\]]")
_INTEGERS = re.compile(r"(?<![\w.])-?\d{1,15}(?![\w.])")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a value lies in memory. ``strides`` None: not known."""

    shape: tuple[int, ...]
    dtype: str
    strides: Strides | None


def is_fusion(name: str) -> bool:
    """Whether a symbol is a region that another compiler runs as a whole: 'nvFusion0'."""
    return bool(_FUSION.match(name) or _NAMED_FUSION.match(name))


def is_nvfusion(name: str) -> bool:
    """Whether nvFuser runs it."""
    return name.startswith("nvFusion")


def is_inductor(name: str) -> bool:
    """Whether Inductor compiles it."""
    return name.startswith(("TorchCompile", "inductor_"))


def operation(name: str) -> str:
    """'torch_slice_prim_impl' → 'slice', 'prims.squeeze' → 'squeeze', '__getitem__' → 'getitem'."""
    short = operation_name(name).strip("_")
    return short.removesuffix("_prim").removesuffix("_prim_impl")


def keeps_elements(name: str) -> bool:
    """Whether a result has all elements of its input, each once: not of slices and broadcasts."""
    return operation(name) in _REORDERINGS


def is_shape_only(name: str) -> bool:
    """Whether an operation moves elements and computes none: reshape, permute, slice, …"""
    return operation(name) in _SHAPE_ONLY


def written(name: str, inputs: Sequence[str]) -> str | None:
    """The input that an operation writes into and returns; None for most, which write nowhere."""
    short = operation_name(name)
    if not inputs or not (short.endswith("_") and not short.startswith("_")):
        return None
    # Thunder's prims.copy_(from, to); torch's own in-place functions write into the first.
    return inputs[1] if short == "copy_" and len(inputs) > 1 else inputs[0]


def alias_of(
    name: str, text: str, given: Layout | None, made: Tensor | None
) -> tuple[bool, Strides | None]:
    """Whether the result is the memory of its (first) input, and the strides of the result.

    ``text`` is the statement's, ``given`` how the input lies, ``made`` the result. Where strides
    are not known, what torch avoids copying is taken for not copied.
    """
    short = operation(name)
    fresh = strides.dense(made.shape) if made is not None else None
    if is_fusion(name):
        return False, fresh
    if written(name, ("",)) is not None:
        return True, given.strides if given else None
    if short not in _VIEWS and short not in _VIEWS_IF_FITTING:
        return False, fresh
    if given is None or made is None:
        return True, None
    if made.dtype and given.dtype and made.dtype != given.dtype:
        return False, fresh
    if given.strides is None:
        return True, None
    if short in ("contiguous", "stride_order"):
        same = strides.is_dense(given.shape, given.strides)
        return same, given.strides if same else fresh
    if short in ("reshape", "flatten", "ravel", "reshape_as"):
        view = strides.reshape(given.shape, given.strides, made.shape)
        return view is not None, view if view is not None else fresh
    return True, _view(short, text, given.shape, given.strides, made.shape)


def _view(
    short: str, text: str, shape: Sequence[int], old: Strides, new: tuple[int, ...]
) -> Strides | None:
    numbers = [int(n) for n in _INTEGERS.findall(text.partition("(")[2].partition("  #")[0])]
    rank = len(shape)
    if short in ("to", "type_as", "detach", "shallow_copy", "alias", "wait", "update_aliases"):
        return old
    if short == "permute" or (short == "transpose" and len(numbers) == rank != 2):
        dims = [n % rank for n in numbers[-rank:]] if rank and len(numbers) >= rank else []
        return tuple(old[n] for n in dims) if sorted(dims) == list(range(rank)) else None
    if short in ("transpose", "t", "mT", "swapaxes", "T") and rank >= 2:
        one, other = (n % rank for n in (numbers[-2:] if len(numbers) >= 2 else (-2, -1)))
        order = list(range(rank))
        order[one], order[other] = order[other], order[one]
        return tuple(old[n] for n in order)
    if short in ("expand", "expand_as", "broadcast_to"):
        return strides.expand(shape, old, new)
    if short == "broadcast_in_dim":
        return _broadcast(text, shape, old, new)
    if short in ("squeeze", "unsqueeze"):
        return strides.unsqueeze(shape, old, new)
    if short == "view":
        return strides.reshape(shape, old, new)
    if short in ("slice", "split", "chunk", "narrow") and len(new) == rank:
        return old if short != "slice" or not _has_steps(text, rank) else None
    return None


def _has_steps(text: str, rank: int) -> bool:
    """Whether a slice leaves out elements: its last list of numbers has one greater than 1."""
    lists = _TUPLE.findall(text.partition("(")[2].partition("  #")[0])
    return len(lists) > 2 and any(int(n) > 1 for n in lists[2].split(",") if n.strip())


def _broadcast(
    text: str, shape: Sequence[int], old: Strides, new: tuple[int, ...]
) -> Strides | None:
    """'prims.broadcast_in_dim(t, (1, 28, 4), (1, 2))': the dimensions of t become those listed."""
    lists = _TUPLE.findall(text.partition("(")[2].partition("  #")[0])
    places = [int(n) for n in lists[-1].split(",") if n.strip()] if lists else []
    if len(places) != len(shape) or any(place >= len(new) for place in places):
        return None
    result = [0] * len(new)
    for place, length, stride in zip(places, shape, old, strict=True):
        result[place] = stride if length == new[place] else 0
    step = 1
    for k in range(len(new) - 1, -1, -1):  # a dimension of one element has no stride of meaning
        if new[k] == 1:
            result[k] = step
        step = max(step, result[k] * new[k])
    return tuple(result)
