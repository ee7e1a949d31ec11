"""Fusions made anew with other operations or outputs, and operations taken out of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from thunder.core import prims
from thunder.core.proxies import Variable, variableify
from thunder.core.trace import TraceCtx, tracectx
from thunder.executors.passes import _transform_for_operator_executor_execution
from thunder.extend import get_always_executors

from memtrace.transforms.statements import leaves, made_by, names, written


@dataclass(frozen=True)
class Region:
    """What Thunder's fusion executors ask of a region (thunder.executors.utils.Region)."""

    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    bound_symbols: list[Any]


def fuse(executor: Any, operations: Sequence[Any], outputs: Iterable[Any], number: int) -> Any:
    """A fusion of ``operations`` by the executor that knows them; ``outputs`` are its results."""
    made: set[str] = set()
    inputs: dict[str, Any] = {}
    for operation in operations:
        for proxy in operation.flat_proxy_args:
            if proxy.name not in made:
                inputs.setdefault(proxy.name, proxy)
        made |= names(operation.flat_proxy_outs)
    region = Region(
        tuple(variableify(p) for p in inputs.values()),
        tuple(variableify(p) for p in outputs),
        list(operations),
    )
    return executor.fuse(region, number)


def remake(fusion: Any, operations: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """``fusion`` under its own number with other operations or outputs; None where none is left."""
    kept = needed(operations, names(outputs))
    if not outputs and not any(written(operation) for operation in kept):
        return None
    return fuse(fusion.sym.executor, kept, outputs, number_of(fusion))


def needed(operations: Sequence[Any], outputs: Collection[str]) -> list[Any]:
    """Those of ``operations`` that ``outputs`` depend on, and those that write in place."""
    wanted = set(outputs)
    kept = []
    for operation in reversed(operations):
        if made_by(operation) & wanted or written(operation):
            kept.append(operation)
            wanted |= names(operation.flat_proxy_args)
    return kept[::-1]


def number_of(fusion: Any) -> int:
    """12 of 'nvFusion12'."""
    found = re.search(r"\d+$", str(fusion.sym.name))
    return int(found[0]) if found else 0


def next_number(*traces: Iterable[Any]) -> int:
    """A number that no fusion in these lists of statements has."""
    numbers = [number_of(s) for trace in traces for s in trace if s.sym.is_fusion]
    return max(numbers, default=-1) + 1


def run_by_torch(operations: Sequence[Any]) -> list[Any]:
    """Operations that were inside a fusion as statements of their own, executed by torch.

    Shape-only ones are views then. The names of all tensors stay.
    """
    made: set[str] = set()
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for operation in operations:
        for proxy in operation.flat_proxy_args:
            if proxy.name not in made:
                inputs.setdefault(proxy.name, proxy)
        made |= names(operation.flat_proxy_outs)
        outputs.update({p.name: p for p in operation.flat_proxy_outs})
    trace = TraceCtx(None)
    trace.args, trace.kwargs = tuple(inputs.values()), {}
    trace.names = {*inputs, *outputs, *(n for o in operations for p in leaves(o)
                                        for n in names(p.flat_proxy_outs))}  # fmt: skip
    with tracectx(trace):
        for proxy in inputs.values():
            prims.unpack_trivial(proxy, name=proxy.name)
    trace.bound_symbols += [operation.from_bsym() for operation in operations]
    trace.bound_symbols.append(prims.python_return.bind(tuple(outputs.values()), output=None))
    claimed = _transform_for_operator_executor_execution(trace, get_always_executors())
    *body, last = claimed.bound_symbols
    back = {
        variableify(new): outputs[old]
        for old, new in zip(outputs, last.flat_proxy_args, strict=True)
        if new.name != old
    }
    kept = [s for s in body if s.sym.id != prims.PrimIDs.UNPACK_TRIVIAL]
    with tracectx(claimed):
        return [s.from_bsym_swap_proxies(back) if back else s for s in kept]
