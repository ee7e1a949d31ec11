"""What a fusion's insides say of its outputs: which are another name for memory that is there.

nvFuser (0.2.36, by its recordings) and Inductor give no memory of its own to an output
that is only a view of an input, of another output, or of what another output is a view of, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from memtrace.program.aliases import Layout, alias_of, is_shape_only, operation
from memtrace.program.model import Operation, Statement
from memtrace.program.strides import Strides, dense
from memtrace.symbols.statements import Tensor

# The widths of prims.pad: '[(0, 1, 0), (0, 0, 0)]', for each dimension before, after and between.
_PADDING = re.compile(r"[\[(](?:\(-?\d+, -?\d+, -?\d+\)(?:, )?,?)+[\])]")


def view_sources(
    statement: Statement, tensors: Mapping[str, Tensor], lying: Mapping[str, Layout]
) -> tuple[dict[str, str], dict[str, str], dict[str, Strides]]:
    """By a fusion's outputs: whose memory it is, one of the inputs or other outputs, where that is
    not its own; which intermediate it is a view of, which then has the memory; and how it lies.

    ``lying`` are the inputs' layouts. Nothing is found where the insides are not known.
    """
    sources: dict[str, str] = {}
    layouts = dict(lying)
    for part in statement.inside:
        _follow(part, sources, layouts, tensors)
    inputs, outputs = set(statement.inputs), set(statement.outputs)
    found: dict[str, str] = {}
    holders: dict[str, str] = {}
    viewed: dict[str, str] = {}
    for name in statement.outputs:
        source = sources.get(name, name)
        if name in inputs or source == name:
            continue
        if source in inputs or source in outputs:
            found[name] = source
        elif source in holders:
            found[name] = holders[source]
        else:
            holders[source] = name
            viewed[name] = source
    strides = {
        name: layouts[name].strides or dense(layouts[name].shape)
        for name in statement.outputs
        if name in layouts and name not in inputs
    }
    return found, viewed, strides


def is_only_shape(statement: Statement) -> bool:
    """Whether all that a fusion does is to move elements: reshape, transpose, slice, …"""
    return bool(statement.inside) and all(moves_only(part) for part in statement.inside)


def moves_only(part: Operation) -> bool:
    """Whether an operation computes nothing: it changes the shape, or pads by nothing at all."""
    if operation(part.name) != "pad":
        return is_shape_only(part.name)
    widths = _PADDING.search(part.text)
    return widths is not None and not re.search("[1-9]", widths[0])


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
        if base is not None and moves_only(part) and len(part.outputs) == 1:
            given = layouts.get(base)
            shared, view = alias_of(part.name, part.text, given, made)
            if operation(part.name) == "pad" and given is not None:
                shared, view = True, given.strides
            strides = view if shared and view is not None else dense(made.shape)
        layouts[name] = Layout(made.shape, made.dtype, strides)
        sources[name] = sources.get(base, base) if shared and base is not None else name
