"""What the forward trace saves and the backward trace unpacks, changed on both sides alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Any

from thunder.core import compile_data, prims

from memtrace.transforms.fusions import remake
from memtrace.transforms.statements import finish, made_by, names, statements_of


def backward_trace() -> Any:
    """The backward that belongs to the forward trace being compiled; None if there is none."""
    # Transforms get one trace at a time; the statistics of the running compilation have both.
    _, stats = compile_data._compile_data.get()
    traces = getattr(stats, "last_backward_traces", None)
    return traces[-1] if traces else None


def saved_tensors(statements: Sequence[Any]) -> dict[str, Any]:
    """What the return statement of an augmented forward saves, by name."""
    return {p.name: p for p in statements[-1].args[1][0]}


def save_less(
    forward: Any,
    dropped: Collection[str],
    instead: Mapping[str, Any],
    extra: Sequence[Any],
    statements: Sequence[Any],
) -> Any:
    """A forward trace of ``statements`` that does not save ``dropped``.

    ``instead`` are tensors saved in the place of some of them, ``extra`` such as come on top.
    Fusions do not give out what nobody reads any more.
    """
    *body, last = statements
    output, (tensors, other) = last.args
    fewer = [*_swap(tensors, dropped, instead), *extra]
    last = last.from_bsym(args=(output, (tuple(fewer), other)))
    kept = [last]
    read = names(last.flat_proxy_args)
    for statement in reversed(body):
        unread = (made_by(statement) & set(dropped)) - read
        if unread and statement.sym.is_fusion:
            outputs = [p for p in statement.flat_proxy_outs if p.name not in unread]
            statement = remake(statement, statement.subsymbols, outputs)
            if statement is None:
                continue
        read |= names(statement.flat_proxy_args)
        kept.append(statement)
    return finish(forward, kept[::-1], "memtrace: other tensors saved")


def unpack_less(
    backward: Any, dropped: Collection[str], instead: Mapping[str, Any], extra: Sequence[Any]
) -> list[Any]:
    """The backward's statements, unpacking what ``save_less`` saves."""
    changed = []
    for statement in statements_of(backward):
        if statement.sym.id == prims.PrimIDs.UNPACK_SEQUENCE and made_by(statement) & set(dropped):
            collection = copy(statement.args[0])
            collection.coll = [*_swap(collection.coll, dropped, instead), *extra]
            statement = statement.from_bsym(
                args=(collection, len(collection.coll)),
                output=[*_swap(statement.output, dropped, instead), *extra],
            )
        changed.append(statement)
    return changed


def _swap(
    tensors: Sequence[Any], dropped: Collection[str], instead: Mapping[str, Any]
) -> list[Any]:
    there = names(p for p in tensors if hasattr(p, "name")) - set(dropped)
    result = []
    for proxy in tensors:
        name = str(getattr(proxy, "name", ""))
        if name not in dropped:
            result.append(proxy)
        elif name in instead and instead[name].name not in there:
            there.add(instead[name].name)
            result.append(instead[name])
    return result
