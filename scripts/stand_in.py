"""A stand-in for nvFuser where there is no GPU: the same partition into nvFusions, run by torch.

    from stand_in import register
    thunder.jit(model, executors=[*register(), "torch"])

What nvFuser would claim goes into fusions as nvFuser makes them (primitives of elementwise, shape
and reduction kind; no fusion of shapes only), and each fusion then runs its primitives one by one.
So transforms of the partition can be tried on a CPU, where nvFuser does not import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from thunder.core import prims, utils
from thunder.core.codeutils import SigInfo
from thunder.core.rematerialization import rematerialize
from thunder.core.symbol import BoundSymbol, Symbol
from thunder.core.trace import TraceCtx, from_trace, tracectx
from thunder.core.transform_common import dce
from thunder.executors.data_dependent_partition import Node, fuse_bound_symbols
from thunder.executors.passes import del_last_used, transform_for_execution, update_fusion_call_ctx
from thunder.executors.torchex import ex as torch_executor
from thunder.executors.utils import Region
from thunder.extend import FusionExecutor, ImplInfo, get_executor, register_executor

NAME = "stand_in"
IDS = prims.PrimIDs
# Not nvFuser's: products of matrices, gathers and scatters, convolutions, what writes in place.
CLAIMED = {
    IDS.ABS, IDS.ADD, IDS.AMAX, IDS.AMIN, IDS.BITWISE_AND, IDS.BITWISE_NOT, IDS.BITWISE_OR,
    IDS.BROADCAST_IN_DIM, IDS.CONVERT_ELEMENT_TYPE, IDS.COS, IDS.DIV, IDS.EQ, IDS.ERF, IDS.EXP,
    IDS.FULL, IDS.GE, IDS.GT, IDS.IOTA, IDS.ISFINITE, IDS.LE, IDS.LOG, IDS.LT, IDS.MAXIMUM,
    IDS.MINIMUM, IDS.MUL, IDS.NE, IDS.NEG, IDS.PAD, IDS.POW, IDS.RECIPROCAL, IDS.RESHAPE, IDS.RSQRT,
    IDS.SHALLOW_COPY, IDS.SIGN, IDS.SIN, IDS.SLICE, IDS.SQRT, IDS.SQUEEZE, IDS.SUB, IDS.SUM,
    IDS.TANH, IDS.TRANSPOSE, IDS.VAR, IDS.VAR_MEAN, IDS.WHERE,
}  # fmt: skip


class StandIn(FusionExecutor):
    """Fuses as nvFuser does and runs as torch does."""

    def __init__(self) -> None:
        super().__init__(NAME, version=torch.__version__)
        self._implmap = {key: ImplInfo() for key in torch_executor.implmap if key in CLAIMED}

    def fuse(self, region: Any, fusion_counter: int) -> BoundSymbol:
        inputs = [v.proxy for v in region.inputs]
        outputs = [v.proxy for v in region.outputs]
        operations = [flat for bound in region.bound_symbols for flat in self._flatten(bound)]
        name = f"nvFusion{fusion_counter}"
        symbol = Symbol(name, meta=None, is_fusion=True, executor=self)
        return BoundSymbol(
            symbol, inputs, {}, outputs, operations,
            _call_ctx={name: _callable(operations, inputs, outputs)},
        )  # fmt: skip

    def _flatten(self, bound: BoundSymbol) -> list[BoundSymbol]:
        if self.can_execute(bound):
            return [bound]
        return [flat for part in bound.subsymbols for flat in self._flatten(part)]

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        producers, consumers = utils.producers_and_consumers(trace)

        def claimed(node: Node) -> bool:
            return len(node.group_bsyms) > 1 or self.can_fuse(node.group_bsyms[0])

        fused: list[Any] = []
        count = 0
        for group in fuse_bound_symbols(trace, lambda a, b: claimed(a) and claimed(b)):
            alone = len(group) == 1 and not self.can_fuse(group[0])
            if alone or all(_is_shape(bound) for bound in group):
                fused += group
                continue
            fused.append(self.fuse(Region(producers, consumers, group), count))
            count += 1
        result = from_trace(trace)
        result.bound_symbols = fused
        return update_fusion_call_ctx(dce(rematerialize(result)))


def _is_shape(bound: BoundSymbol) -> bool:
    parts = bound.subsymbols
    return prims.OpTags.SHAPE_OP in (bound.sym.tags or ()) or (
        bool(parts) and all(_is_shape(part) for part in parts)
    )


def _callable(
    operations: list[BoundSymbol], inputs: list[Any], outputs: list[Any]
) -> Callable[..., Any]:
    """The operations as a function of tensors."""
    trace = TraceCtx(None)
    trace.args, trace.kwargs = inputs, {}
    trace.names = {p.name for p in inputs}
    trace.names |= {p.name for o in operations for p in o.flat_proxy_outs}
    with tracectx(trace):
        for proxy in inputs:
            prims.unpack_trivial(proxy, name=proxy.name)
    trace.bound_symbols += [o.from_bsym() for o in operations]
    trace.bound_symbols.append(prims.python_return.bind(outputs, output=None))
    trace._siginfo = SigInfo("stand_in")
    trace._siginfo.args = [(proxy.name, None) for proxy in inputs]
    final = del_last_used(transform_for_execution(trace, executors_list=(torch_executor,)))
    function = final.python_callable(include_decorators=False)
    # Like nvFuser, it shows no code of its own: what it allocates belongs to the calling line.
    function.__code__ = function.__code__.replace(co_filename="stand_in")
    return function


def register() -> list[str]:
    """The executor's name in a list, the executor being known to Thunder from then on."""
    if get_executor(NAME) is None:
        register_executor(StandIn())
    return [NAME]
