"""The original report's fault, made on purpose: a fusion of shapes only that copies.

    python samples/qwen2.py --attention sdpa --hoist

In the report the backward pass of Qwen2 began with ``nvFusion0``: 17 reshapes and transposes of
saved tensors, each a copy, made before the loss's own backward and held until its consumer; what
they were copied from stayed alive where something else read it, too. Thunder has since left such
operations to torch, as views at the same place. ``Hoist`` puts them back into one fusion, first in
the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from thunder.core import prims
from thunder.core.trace import TraceTag
from thunder.core.transform_common import Transform
from thunder.extend import FusionExecutor, get_executor

from memtrace.transforms.fusions import fuse, next_number
from memtrace.transforms.statements import finish, is_shape_only, made_by, names, statements_of


class Hoist(Transform):
    """Fuses all shape-only operations on saved tensors at the start of the backward pass.

    The fusion is nvFuser's, or that of the last fusion executor in the list; without one,
    torch.compile's. Its results are copies: where the executor gives a view of an input back, as
    today's nvFuser can, it is copied after that.
    """

    def transform_trace_post_optimization(self, computation_trace: Any, **options: Any) -> Any:
        if TraceTag.BACKWARD not in computation_trace.tags:
            return computation_trace
        statements = statements_of(computation_trace)
        unpacked = [s for s in statements if s.sym.id == prims.PrimIDs.UNPACK_SEQUENCE]
        there = {name for s in unpacked for name in made_by(s)}
        hoisted = []
        for statement in statements:
            if is_shape_only(statement) and names(statement.flat_proxy_args) <= there:
                there |= made_by(statement)
                hoisted.append(statement)
        if not hoisted:
            return computation_trace
        rest = [s for s in statements if all(s is not one for one in hoisted)]
        start = 1 + max(k for k, s in enumerate(rest) if any(s is one for one in unpacked))
        numbers = {s.sym.name for s in rest}
        number = 0 if "nvFusion0" not in numbers else next_number(rest)
        outputs = [proxy for s in hoisted for proxy in s.flat_proxy_outs]
        executor = _fusion_executor(options.get("executors_list", ()))
        fusion = _materialise(fuse(executor, hoisted, outputs, number))
        rest.insert(start, fusion)
        return finish(computation_trace, rest, "samples/hoist.py: shapes hoisted and copied")


def _fusion_executor(executors: Sequence[Any]) -> FusionExecutor:
    there = [e for e in executors if isinstance(e, FusionExecutor)]
    return there[-1] if there else get_executor("torchcompile")


def _materialise(fusion: Any) -> Any:
    """The fusion with results that share no memory with its inputs or with each other."""
    name = fusion.sym.name
    call = {name: _copying(fusion._call_ctx[name])}

    def bind(bound: Any) -> None:
        bound._call_ctx = call

    return replace(fusion, sym=replace(fusion.sym, _bind_postprocess=bind), _call_ctx=call)


def _copying(function: Callable[..., Any]) -> Callable[..., list[torch.Tensor]]:
    def copying(*tensors: torch.Tensor) -> list[torch.Tensor]:
        held = {t.untyped_storage().data_ptr() for t in tensors}
        results = []
        for result in function(*tensors):
            if result.untyped_storage().data_ptr() in held:
                result = result.clone(memory_format=torch.contiguous_format)
            held.add(result.untyped_storage().data_ptr())
            results.append(result)
        return results

    return copying
