"""A saved tensor held in a narrower dtype until the backward pass reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.core import dtypes, prims
from thunder.core.proxies import TensorProxy
from thunder.core.trace import TraceCtx, tracectx

from memtrace.transforms.again import Step, changed_in_place, steps_of
from memtrace.transforms.change import Choice
from memtrace.transforms.fusions import remake, run_by_torch
from memtrace.transforms.recompute import Plan, Recompute
from memtrace.transforms.saved import saved_tensors
from memtrace.transforms.statements import leaves, made_by, names

_CAST = prims.PrimIDs.CONVERT_ELEMENT_TYPE
_COPY = prims.PrimIDs.SHALLOW_COPY


class HoldNarrow(Recompute):
    """Saves the chosen tensors in ``dtype``, a torch dtype, and casts them back in the backward.

    Where the forward casts such a tensor anyway (a softmax in float32 whose result goes on in
    bfloat16), that copy is saved, and no other is made. Gradients change within the rounding of
    ``dtype``.
    """

    def __init__(self, tensors: Choice, dtype: Any) -> None:
        super().__init__(tensors)
        self._dtype = dtypes.to_dtype(dtype)

    def plan(self, forward: list[Any], backward: list[Any]) -> Plan:
        """Each chosen tensor that is wider than ``dtype``, and its narrow copy."""
        forward = list(forward)
        saved, made = saved_tensors(forward), steps_of(forward)
        changed = changed_in_place(forward) | changed_in_place(backward)
        steps: list[Step] = []
        instead: dict[str, Any] = {}
        for name, proxy in saved.items():
            if not self.wants(proxy):
                continue
            step = made.get(name)
            if not dtypes.is_float_dtype(proxy.dtype) or proxy.dtype.bytes <= self._dtype.bytes:
                self.leave(name, f"{proxy.dtype} is not wider than {self._dtype}")
            elif name in changed:
                self.leave(name, "it is written in place")
            elif step is None or step.operation.sym.id == prims.PrimIDs.UNPACK_TRIVIAL:
                self.leave(name, "it is an argument of the program, which holds it anyway")
            else:
                narrow = _narrow_copy(forward, proxy, self._dtype, set(saved))
                cast = prims.convert_element_type.bind(narrow, proxy.dtype, output=proxy)
                instead[name] = narrow
                steps.append(Step(cast, step.executor))
        return Plan(steps, set(instead), forward, instead)


def _narrow_copy(forward: list[Any], wide: Any, dtype: Any, saved: set[str]) -> Any:
    """``wide`` in ``dtype``: a tensor that is saved anyway or one that the forward has; else new.

    ``forward`` is changed where a fusion has to give it out.
    """
    same = {wide.name}
    copies: dict[str, Any] = {}
    for step in dict.fromkeys(steps_of(forward).values()):
        parts = {part.sym.id for part in leaves(step.operation)}
        results = step.operation.flat_proxy_outs
        if len(results) != 1:
            continue
        if parts == {_COPY}:
            if names(step.operation.flat_proxy_args) <= same:
                same.add(results[0].name)
            elif names(step.operation.flat_proxy_args) <= set(copies):
                copies[results[0].name] = results[0]
        elif (
            parts in ({_CAST}, {_CAST, _COPY})
            and results[0].dtype == dtype
            and names(step.operation.flat_proxy_args) <= same
        ):
            copies[results[0].name] = results[0]
    outside = {n for s in forward for n in made_by(s)}
    for there in (saved, outside, set(copies)):
        for name in copies:
            if name in there:
                return _give_out(forward, copies[name])
    return _add_cast(forward, wide, dtype)


def _give_out(forward: list[Any], result: Any) -> Any:
    """Makes ``result`` one of the results of the fusion that has it inside."""
    if any(result.name in made_by(s) for s in forward):
        return result
    for k, statement in enumerate(forward):
        if statement.sym.is_fusion and any(result.name in made_by(o) for o in statement.subsymbols):
            outputs = [*statement.flat_proxy_outs, result]
            forward[k] = remake(statement, statement.subsymbols, outputs)
    return result


def _add_cast(forward: list[Any], wide: Any, dtype: Any) -> Any:
    at = next(k for k, s in enumerate(forward) if wide.name in made_by(s))
    with tracectx(TraceCtx(None)):
        narrow = TensorProxy(f"{wide.name}_narrow", like=wide, dtype=dtype)
        cast = prims.convert_element_type.bind(wide, dtype, output=narrow)
    statement = forward[at]
    if statement.sym.is_fusion:
        operations: Sequence[Any] = [*statement.subsymbols, cast]
        forward[at] = remake(statement, operations, [*statement.flat_proxy_outs, narrow])
    else:
        forward[at + 1 : at + 1] = run_by_torch([cast])
    return narrow
