"""Where else in its pass a statement may stand, by what it reads, makes, writes and draws."""

from __future__ import annotations

import re
from collections.abc import Iterable

from memtrace.program.aliases import written
from memtrace.program.model import Program, Statement

# What draws random numbers, or talks to other processes, keeps its order among its like.
_RANDOM = re.compile(r"dropout|bernoulli|rand|uniform|normal_|multinomial|philox", re.IGNORECASE)
_COLLECTIVE = re.compile(
    r"all_gather|all_reduce|reduce_scatter|all_to_all|broadcast_impl|_wait|wait_"
)


def move_range(program: Program, index: int) -> range:
    """The places at which statement ``index`` may stand: before statement k, for each k of the
    range. Its own place is ``index + 1``; an empty range where it may not be moved at all.

    Deletes of its inputs that it passes have to move behind it: see ``kept_longer``.
    """
    statement = program.statements[index]
    if statement.kind != "call":
        return range(0)
    first = index
    while first > 0 and _may_swap(program, program.statements[first - 1], statement):
        first -= 1
    last = index + 1
    end = len(program.statements)
    while last < end and _may_swap(program, statement, program.statements[last]):
        last += 1
    return range(first, last + 1)


def can_move(program: Program, index: int, before: int) -> bool:
    """Whether statement ``index`` may stand directly before statement ``before``."""
    return before in move_range(program, index)


def kept_longer(program: Program, index: int, before: int) -> tuple[str, ...]:
    """The inputs of statement ``index`` whose ``del`` it passes when it moves to ``before``: they
    are deleted after it there, and their memory lives so much longer."""
    statement = program.statements[index]
    passed = program.statements[index + 1 : before]
    gone = {name for between in passed for name in between.deletes}
    return tuple(name for name in statement.inputs if name in gone)


def can_recompute(program: Program, index: int) -> bool:
    """Whether the backward can run a statement of the forward again: it draws nothing at random,
    writes into nothing, and what it reads is there (the caller's, or saved for the backward)."""
    statement = program.statements[index]
    if statement.kind != "call" or statement.phase != "forward" or is_tied(statement):
        return False
    return all(
        program.values[name].kind == "argument" or program.values[name].saved
        for name in statement.inputs
    )


def writes(program: Program, statement: Statement) -> frozenset[str]:
    """The roots of the memory that a statement writes into, beside what it makes."""
    parts = [(statement.name, statement.inputs)]
    parts += [(part.name, part.inputs) for part in statement.inside]
    found = (written(name, inputs) for name, inputs in parts)
    return _roots(program, (name for name in found if name is not None))


def _may_swap(program: Program, one: Statement, other: Statement) -> bool:
    """Whether two neighbours may change places, ``one`` being first."""
    if one.phase != other.phase or other.kind in ("return", "gap") or one.kind == "gap":
        return False
    if not set(one.outputs).isdisjoint((*other.inputs, *other.deletes, *other.outputs)):
        return False
    # Moving up past the delete of what it reads is fine; but not where a name is used anew.
    if not set(one.deletes).isdisjoint(other.outputs):
        return False
    if is_tied(one) and is_tied(other):
        return False
    one_writes, other_writes = writes(program, one), writes(program, other)
    return one_writes.isdisjoint(_touched(program, other)) and other_writes.isdisjoint(
        _touched(program, one)
    )


def is_tied(statement: Statement) -> bool:
    """Whether a statement has to keep its order among its like: see the patterns above."""
    names = (statement.name, *(part.name for part in statement.inside))
    return any(_RANDOM.search(name) or _COLLECTIVE.search(name) for name in names)


def _touched(program: Program, statement: Statement) -> frozenset[str]:
    return _roots(program, (*statement.inputs, *statement.outputs))


def _roots(program: Program, names: Iterable[str]) -> frozenset[str]:
    return frozenset(program.values[name].root for name in names if name in program.values)
