"""What a fusion's insides say of its outputs: which are another name for memory that is there.

nvFuser (0.2.35 and later, seen in recordings) and Inductor give no memory of its own to an output
that is only a view of an input, of another output, or of what another output is a view of, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from memtrace.program.aliases import Layout, alias_of, is_shape_only
from memtrace.program.model import Operation, Statement
from memtrace.program.strides import Strides, dense
from memtrace.symbols.statements import Tensor


def view_sources(
    statement: Statement, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, str], dict[str, Strides]]:
    """For each output of a fusion that needs no memory of its own: whose memory it is, one of the
    fusion's inputs or outputs; and the strides of those that are broadcast, along which nothing is
    stored. Nothing where the insides are not known."""
    sources: dict[str, str] = {}
    layouts: dict[str, Layout] = {}
    for name in statement.inputs:
        if (tensor := tensors.get(name)) is not None:
            layouts[name] = Layout(tensor.shape, tensor.dtype, dense(tensor.shape))
    for part in statement.inside:
        _follow(part, sources, layouts, tensors)
    inputs, outputs = set(statement.inputs), set(statement.outputs)
    found: dict[str, str] = {}
    holders: dict[str, str] = {}
    for name in statement.outputs:
        source = sources.get(name, name)
        if name in inputs:
            continue
        if source in inputs or (source in outputs and source != name):
            found[name] = source
        elif source in holders:
            found[name] = holders[source]
        elif _elements(name, tensors) >= _elements(source, tensors):
            holders[source] = name
    spread = {
        name: strides
        for name in statement.outputs
        if name in layouts and (strides := layouts[name].strides) is not None and 0 in strides
    }
    return found, spread


def is_only_shape(statement: Statement) -> bool:
    """Whether all that a fusion does is to move elements: reshape, transpose, slice, …"""
    return bool(statement.inside) and all(is_shape_only(part.name) for part in statement.inside)


def _follow(
    part: Operation,
    sources: dict[str, str],
    layouts: dict[str, Layout],
    tensors: Mapping[str, Tensor],
) -> None:
    for name in part.outputs:
        made = tensors.get(name)
        if name in part.inputs or made is None:
            continue
        base = part.inputs[0] if part.inputs else None
        shared, strides = False, dense(made.shape)
        if base is not None and is_shape_only(part.name) and len(part.outputs) == 1:
            shared, view = alias_of(part.name, part.text, layouts.get(base), made)
            strides = view if shared and view is not None else dense(made.shape)
        layouts[name] = Layout(made.shape, made.dtype, strides)
        sources[name] = sources.get(base, base) if shared and base is not None else name


def _elements(name: str, tensors: Mapping[str, Tensor]) -> int:
    tensor = tensors.get(name)
    return math.prod(tensor.shape) if tensor is not None else 0
