"""What lifetimes have in common: each kind described once, each lifetime a row number.

A million lifetimes are of a few thousand kinds: one name, size, category, stack and place of free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from memtrace.analysis.groups import Dimension, key_of
from memtrace.analysis.peak import SLACK, Subject
from memtrace.distinct import number_rows
from memtrace.snapshot.columns import Int32, Int64
from memtrace.symbols import Attribution, Naming, Symbol
from memtrace.symbols.categories import CATEGORIES
from memtrace.symbols.sources import Sources
from memtrace.symbols.stacks import Stacks
from memtrace.symbols.table import short_path
from memtrace.timeline import Accounting, sizes

SLACK_GROUP = 0  # of every dimension: what blocks hold beyond the requests
Place = tuple[str, int]  # a generated file's whole name and a line of it
_Found = TypeVar("_Found", tuple[Place, ...], str)


@dataclass(frozen=True, slots=True)
class What:
    """What lifetimes of one name and size hold, as far as that is known; '' where it is not.

    ``tensor``: names and shapes ('t1112: float32[8, 4]'), ``shape``: the shapes alone, as rows
    have them; ``made``: the line of source that made it.
    """

    tensor: str
    shape: str
    layer: str
    made: str


@dataclass(frozen=True, slots=True)
class Kinds:
    """``of[k]`` is the kind of the replay's lifetime k; the other columns have shape (kinds,).

    ``requested`` and ``slack``, what the block holds beyond that, are bytes. ``what``, ``lines``
    and ``freed`` are places in ``whats``, ``line_sets`` (the lines of generated files that the
    allocation came through, one a file, innermost first) and ``free_lines`` (where it was freed),
    ``category`` in CATEGORIES. ``symbols[by]`` are the groups of a dimension, ``groups[by]`` the
    group of each kind. ``late`` is the category's group once the iteration that a lifetime was
    born in is over: what it saved and did not let go by then is not saved for backward any more.
    """

    of: Int64
    requested: Int64
    slack: Int64
    what: Int64
    category: Int64
    lines: Int64
    freed: Int64
    whats: list[What]
    line_sets: list[tuple[Place, ...]]
    free_lines: list[str]
    symbols: Mapping[Dimension, list[Symbol]]
    groups: Mapping[Dimension, Int64]
    late: Int64


def find_kinds(
    subject: Subject, attribution: Attribution, accounting: Accounting, sources: Sources
) -> Kinds:
    """The kinds of all lifetimes of a recording. Every dimension has a group for block slack."""
    run = subject.replay
    lifetimes = run.lifetimes
    every = np.arange(len(lifetimes), dtype=np.int64)
    category = attribution.categories.numbers(every)
    late = attribution.categories.numbers(every, at=run.n_events + 1)
    slack = np.maximum(sizes(run, accounting), 0) - lifetimes.requested
    # Where a name stands for no tensors, the size does not tell one from the other.
    telling = np.array([bool(naming.tensors) for naming in attribution.namings], dtype=bool)
    size = np.where(telling[attribution.rows], lifetimes.requested, -1)
    named, what = number_rows(attribution.rows, size)
    places = _Places(subject, sources)
    line_sets, lines = _look_up(attribution.alike[lifetimes.stack], places.lines)
    free_lines, freed = _look_up(attribution.alike[lifetimes.free_stack], places.freed)
    columns = (what, category, late, lifetimes.requested, slack, lines, freed)
    rows, of = number_rows(*columns)
    table = np.array(rows, dtype=np.int64).reshape(-1, len(columns)).T
    namings = [(attribution.namings[row], size) for row, size in named]
    symbols: dict[Dimension, list[Symbol]] = {}
    groups: dict[Dimension, Int64] = {}
    for by in ("symbol", "layer"):
        keys = (key_of(naming, size, "", by) for naming, size in namings)
        symbols[by], numbers = _number(keys)
        groups[by] = numbers[table[0]]
    pairs, pair = number_rows(np.concatenate([table[0], table[0]]), table[1:3].reshape(-1))
    keys = (key_of(*namings[row], CATEGORIES[category], "category") for row, category in pairs)
    symbols["category"], numbers = _number(keys)
    first, second = numbers[pair].reshape(2, -1)
    groups["category"] = first
    return Kinds(
        of=of,
        requested=table[3],
        slack=table[4],
        what=table[0],
        category=table[1],
        lines=table[5],
        freed=table[6],
        whats=[_describe(naming, size) for naming, size in namings],
        line_sets=line_sets,
        free_lines=free_lines,
        symbols=symbols,
        groups=groups,
        late=second,
    )


def _number(keys: Iterable[Symbol]) -> tuple[list[Symbol], Int64]:
    """Distinct symbols, that of block slack first, and which of them each key is."""
    table = {SLACK: SLACK_GROUP}
    numbers = [table.setdefault(key, len(table)) for key in keys]
    return list(table), np.array(numbers, dtype=np.int64)


def _look_up(stacks: Int32, find: Callable[[int], _Found]) -> tuple[list[_Found], Int64]:
    """What each stack tells, each different answer once, and which of them each row has."""
    rows, row = number_rows(stacks)
    table: dict[_Found, int] = {}
    numbers = [table.setdefault(find(stack), len(table)) for (stack,) in rows]
    return list(table), np.array(numbers, dtype=np.int64)[row]


def _describe(naming: Naming, size: int) -> What:
    fitting = naming.fitting(size)
    return What(
        tensor=" | ".join(dict.fromkeys(f"{tensor.name}: {tensor.text}" for tensor in fitting)),
        shape=" | ".join(dict.fromkeys(tensor.text for tensor in fitting)),
        layer=naming.layer_of(size),
        made=naming.where or naming.symbol.line,
    )


class _Places:
    """Lines of generated source in stacks."""

    def __init__(self, subject: Subject, sources: Sources) -> None:
        self._stacks = Stacks(subject.recording.stacks)
        texts = (subject.recording.meta or {}).get("sources") or {}
        # The code of FX graphs is no line that allocates: the compiled program runs in its place.
        self._files = {name for name in texts if not name.startswith("<")}
        self._sources = sources

    def lines(self, stack: int) -> tuple[Place, ...]:
        """The lines of generated files, one a file, innermost first."""
        found: dict[str, int] = {}
        for frame in self._stacks.python(stack):
            if frame.filename in self._files:
                found.setdefault(frame.filename, frame.line)
        return tuple(found.items())

    def freed(self, stack: int) -> str:
        """The line of a free: of generated source where there is one, else the innermost."""
        frames = self._stacks.python(stack)
        if not frames:
            return ""
        frame = next((f for f in frames if f.filename in self._files), frames[0])
        statement = self._sources.statement(frame.filename, frame.line)
        text = f"  {statement.text}" if statement else ""
        return f"{short_path(frame.filename)}:{frame.line}{text}"
