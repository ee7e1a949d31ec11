"""What lifetimes have in common: each kind described once, each lifetime a row number.

A million lifetimes are of a few thousand kinds: one name, size, category, stack and place of free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from memtrace.analysis.groups import Dimension, key_of
from memtrace.analysis.peak import SLACK, Subject
from memtrace.snapshot.columns import Frame, Int32, Int64
from memtrace.symbols import Attribution, Naming, Symbol
from memtrace.symbols.categories import CATEGORIES
from memtrace.symbols.distinct import number_rows
from memtrace.symbols.sources import Sources
from memtrace.symbols.stacks import Stacks
from memtrace.symbols.table import short_path
from memtrace.timeline import Accounting, sizes

SLACK_GROUP = 0  # of every dimension: what blocks hold beyond the requests
Place = tuple[str, int]  # a generated file's whole name and a line of it


@dataclass(frozen=True, slots=True)
class Kind:
    """``tensor``: what the memory holds, as far as that is known ('t1112: float32[8, 4]').

    ``made`` and ``freed`` are lines of source ('' where none is known), ``lines`` those of
    generated files that the allocation came through, one a file, innermost first.
    ``slack``: bytes that the block holds beyond the request (0 by requested bytes).
    """

    requested: int
    slack: int
    tensor: str
    shape: str
    layer: str
    category: str
    made: str
    freed: str
    lines: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Kinds:
    """``of[k]`` is the kind, in ``kinds``, of the replay's lifetime k; shape (lifetimes,).

    ``symbols[by]`` are the groups of a dimension, ``groups[by]`` the group of each kind, shape
    (kinds,). ``late`` is the category's group once the iteration that a lifetime was born in is
    over: what it saved and did not let go by then is not saved for backward any more.
    """

    of: Int64
    kinds: list[Kind]
    symbols: Mapping[Dimension, list[Symbol]]
    groups: Mapping[Dimension, Int32]
    late: Int32


def find_kinds(
    subject: Subject,
    attribution: Attribution,
    accounting: Accounting,
    dimensions: tuple[Dimension, ...],
) -> Kinds:
    """The kinds of all lifetimes of a recording. Every dimension has a group for block slack."""
    run = subject.replay
    lifetimes = run.lifetimes
    every = np.arange(len(lifetimes), dtype=np.int64)
    category = attribution.categories.numbers(every)
    late = attribution.categories.numbers(every, at=run.n_events + 1)
    size = np.maximum(sizes(run, accounting), 0)
    columns = (attribution.rows, lifetimes.requested, size, category, late)
    rows, of = number_rows(*columns, lifetimes.stack, lifetimes.free_stack)
    places = _Places(subject)
    groups: dict[Dimension, list[int]] = {by: [] for by in dimensions}
    symbols: dict[Dimension, dict[Symbol, int]] = {by: {SLACK: SLACK_GROUP} for by in dimensions}
    later: list[int] = []
    kinds = []
    for row, requested, whole, first, second, stack, free_stack in rows:
        naming = attribution.namings[row]
        for by in dimensions:
            key = key_of(naming, requested, CATEGORIES[first], by)
            groups[by].append(symbols[by].setdefault(key, len(symbols[by])))
        key = key_of(naming, requested, CATEGORIES[second], "category")
        if "category" in symbols:
            table = symbols["category"]
            later.append(table.setdefault(key, len(table)))
        kinds.append(
            Kind(
                requested,
                whole - requested,
                *_tensor(naming, requested),
                layer=naming.layer_of(requested),
                category=CATEGORIES[first],
                made=naming.where or naming.symbol.line,
                freed=places.freed(free_stack),
                lines=places.lines(stack),
            )
        )
    return Kinds(
        of,
        kinds,
        {by: list(table) for by, table in symbols.items()},
        {by: np.array(numbers, dtype=np.int32) for by, numbers in groups.items()},
        np.array(later, dtype=np.int32),
    )


def _tensor(naming: Naming, size: int) -> tuple[str, str]:
    """Names with shapes, and the shapes alone as a peak's rows have them."""
    fitting = naming.fitting(size)
    full = " | ".join(dict.fromkeys(f"{tensor.name}: {tensor.text}" for tensor in fitting))
    return full, " | ".join(dict.fromkeys(tensor.text for tensor in fitting))


class _Places:
    """Lines of generated source in stacks, each stack looked at once."""

    def __init__(self, subject: Subject) -> None:
        self._stacks = Stacks(subject.recording.stacks)
        texts = (subject.recording.meta or {}).get("sources") or {}
        # The code of FX graphs is no line that allocates: the compiled program runs in its place.
        self._files = {name for name in texts if not name.startswith("<")}
        self._sources = Sources(subject.recording.meta)
        self._lines: dict[int, tuple[Place, ...]] = {}
        self._freed: dict[int, str] = {}

    def lines(self, stack: int) -> tuple[Place, ...]:
        if stack not in self._lines:
            found: dict[str, int] = {}
            for frame in self._stacks.python(stack):
                if frame.filename in self._files:
                    found.setdefault(frame.filename, frame.line)
            self._lines[stack] = tuple(found.items())
        return self._lines[stack]

    def freed(self, stack: int) -> str:
        """The line of a free: of generated source where there is one, else the innermost."""
        if stack not in self._freed:
            frames = self._stacks.python(stack)
            frame = next((f for f in frames if f.filename in self._files), None)
            self._freed[stack] = self._say(frame or (frames[0] if frames else None))
        return self._freed[stack]

    def _say(self, frame: Frame | None) -> str:
        if frame is None:
            return ""
        statement = self._sources.statement(frame.filename, frame.line)
        text = f"  {statement.text}" if statement else ""
        return f"{short_path(frame.filename)}:{frame.line}{text}"
