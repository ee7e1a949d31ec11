"""A producer moved down to its first consumer, so that its result is not held meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.core import prims

from memtrace.transforms.change import Change, Done
from memtrace.transforms.fusions import fuse, needed, next_number, remake, run_by_torch
from memtrace.transforms.shapes import path_to
from memtrace.transforms.statements import (
    finish,
    is_repeatable,
    is_shape_only,
    made_by,
    names,
    statements_of,
    views,
    written,
)


class MoveToConsumer(Change):
    """Moves what makes the chosen tensors next to the first statement that reads them.

    One result of a fusion is taken out of it: as a view by torch if it is of shapes only, else as
    a fusion of its own, if no other result needs what it consists of. What the producer reads
    lives on until then. A tensor that is returned or saved, or whose memory something writes in
    between, stays where it is.
    """

    def transform_trace_post_optimization(self, computation_trace: Any, **_: Any) -> Any:
        """The forward's and the backward's final trace, one after the other."""
        statements = statements_of(computation_trace)
        chosen = [
            proxy.name
            for statement in statements
            if statement.sym.python_impl is None  # unpacked arguments are made elsewhere
            for proxy in statement.flat_proxy_outs
            if hasattr(proxy, "shape") and self.wants(proxy)
        ]
        moved = False
        # The last first: what is moved can read what is to be moved as well.
        for name in reversed(dict.fromkeys(chosen)):
            came = move(statements, name)
            if isinstance(came, str):
                self.leave(name, came)
            else:
                self.done.append(came)
                moved = True
        if not moved:
            return computation_trace
        return finish(computation_trace, statements, "memtrace: producers moved to their consumers")


def move(statements: list[Any], name: str) -> Done | str:
    """Moves the producer of ``name`` within the list; says why not, where it does not."""
    at = next(k for k, s in enumerate(statements) if name in made_by(s))
    first = first_reader(statements, {name}, at + 1)
    if first is None:
        return "nothing reads it"
    if statements[first].sym.id == prims.PrimIDs.RETURN:
        return "it is returned or saved for the backward, and nothing else reads it"
    producer = statements[at]
    rest: list[Any] = []
    moved = [producer]
    path = path_to(producer, {name}) if producer.sym.is_fusion else [producer]
    is_view = all(is_shape_only(operation) for operation in path)
    if made_by(producer) != {name} or (producer.sym.is_fusion and is_view):
        if not producer.sym.is_fusion:
            return f"{producer.sym.name} makes other tensors with it"
        split = take_out(producer, name, next_number(statements))
        if isinstance(split, str):
            return split
        rest, moved = split
    if moved[0] is producer and first == at + 1:
        return "its first consumer is next to it"
    if not all(is_repeatable(s) for s in moved):
        return f"{producer.sym.name} draws random numbers or writes in place"
    if reason := written_between(statements, moved, at, first):
        return reason
    statements[at : first + 1] = [*rest, *statements[at + 1 : first], *moved, statements[first]]
    made = {n for s in moved for n in made_by(s)}
    sources = tuple(sorted({n for s in moved for n in names(s.flat_proxy_args)} - made))
    return Done(name, "a view" if is_view else "moved", sources)


def take_out(fusion: Any, name: str, number: int) -> tuple[list[Any], list[Any]] | str:
    """(the fusion without a result, the statements that make the result); a reason if it stays."""
    path = path_to(fusion, {name})
    result = [p for p in fusion.flat_proxy_outs if p.name == name]
    kept = [p for p in fusion.flat_proxy_outs if p.name != name]
    if not all(is_repeatable(operation) for operation in path):
        return f"{fusion.sym.name} draws random numbers or writes in place for it"
    if all(is_shape_only(operation) for operation in path):
        moved = run_by_torch(path)
    else:
        made = {n for operation in path for n in made_by(operation)}
        shared = needed(fusion.subsymbols, names(kept))
        if any(made_by(operation) & made for operation in shared):
            return f"other results of {fusion.sym.name} need what it consists of"
        moved = [fuse(fusion.sym.executor, path, result, number)]
    smaller = remake(fusion, fusion.subsymbols, kept)
    return ([smaller] if smaller else []), moved


def first_reader(statements: Sequence[Any], made: set[str], start: int) -> int | None:
    """The first statement from ``start`` on that reads one of ``made``; None if none does."""
    for k in range(start, len(statements)):
        if names(statements[k].flat_proxy_args) & made:
            return k
    return None


def written_between(statements: Sequence[Any], moved: Sequence[Any], at: int, first: int) -> str:
    """Why ``moved`` must not pass the statements between ``at`` and ``first``; '' if it may."""
    looks_at = views(statements)
    touched = {looks_at.get(n, n) for s in moved for n in names(s.flat_proxy_args) | made_by(s)}
    for statement in statements[at + 1 : first]:
        for name in sorted(written(statement)):
            if looks_at.get(name, name) in touched:
                return f"{statement.sym.name} writes {name} in place in between"
    return ""


def sink_views(statements: list[Any], made: set[str]) -> None:
    """Moves shape-only statements that read ``made``, also through each other, to their readers.

    Thunder places them as early as it can; a tensor that is made late would be made early for them.
    """
    reading = set(made)
    chain = []
    for statement in statements:
        if is_shape_only(statement) and names(statement.flat_proxy_args) & reading:
            reading |= made_by(statement)
            chain.append(next(iter(made_by(statement))))
    for name in reversed(chain):
        move(statements, name)
