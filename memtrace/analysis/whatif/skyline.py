"""The peak of a window with some lifetimes changed, without replaying every event for each change.

Between two moments at which a lifetime of any change begins or ends, all changes add the same to
every total. So the window is cut at those moments, the greatest total of each stretch is kept, and
a set of changes is a sum over stretches: exact, and independent of the number of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from memtrace.analysis.whatif.change import Change
from memtrace.snapshot.columns import Int64
from memtrace.timeline import Accounting, Replay, Window, sizes


class NewPeak(NamedTuple):
    """The greatest total with changes made: ``bytes`` after the first ``event`` events."""

    event: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Base:
    """What is changed: totals at the moments ``begin`` to ``begin + len(total) - 1``, and columns
    of all lifetimes (one counts at k if born < k ≤ end), in bytes of one accounting."""

    total: Int64
    begin: int
    born: Int64
    end: Int64
    size: Int64


def base_of(run: Replay, window: Window, accounting: Accounting) -> Base:
    """The window of a replay."""
    lifetimes = run.lifetimes
    return Base(
        total=run.total(accounting)[window.begin : window.end + 1],
        begin=window.begin,
        born=lifetimes.born,
        end=lifetimes.freed if accounting == "allocated" else lifetimes.completed,
        size=sizes(run, accounting),
    )


class Skyline:
    """The window in stretches, and what each of ``changes`` adds to each.

    ``tops`` has shape (stretches,), ``deltas`` (changes, stretches): bytes, without extensions,
    which several changes may have in common.
    """

    def __init__(self, base: Base, changes: Sequence[Change]) -> None:
        self.changes = tuple(changes)
        self._base = base
        last = base.begin + len(base.total)  # one past the last moment
        bounds = [base.begin]
        for change in changes:
            for edit in change.edits:
                pieces = (self._life(edit.lifetime), *edit.alive)
                bounds += [moment + 1 for piece in pieces for moment in piece]
            for one in change.extensions:
                bounds += [int(base.end[one.lifetime]) + 1, one.until + 1]
        edges = np.unique(np.array(bounds, dtype=np.int64))
        self._edges = edges[(edges >= base.begin) & (edges < last)]
        starts = self._edges - base.begin
        self.tops = np.maximum.reduceat(base.total, starts)
        self._ends = np.append(starts[1:], len(base.total))
        self.deltas = np.zeros((len(self.changes), len(self._edges)), dtype=np.int64)
        for row, change in zip(self.deltas, self.changes, strict=True):
            for edit in change.edits:
                size = int(base.size[edit.lifetime])
                self._add(row, self._life(edit.lifetime), -size)
                for piece in edit.alive:
                    self._add(row, piece, size if edit.bytes is None else edit.bytes)

    def _life(self, lifetime: int) -> tuple[int, int]:
        return int(self._base.born[lifetime]), int(self._base.end[lifetime])

    def _add(self, row: Int64, piece: tuple[int, int], size: int) -> None:
        """``size`` more in the stretches of ``piece``."""
        first, last = np.searchsorted(self._edges, (piece[0] + 1, piece[1] + 1))
        row[first:last] += size

    def level(self, chosen: Iterable[int]) -> Int64:
        """The greatest total of each stretch with the changes of these numbers made."""
        numbers = list(chosen)
        level: Int64 = self.tops + self.deltas[numbers].sum(axis=0)
        until: dict[int, int] = {}
        for number in numbers:
            for one in self.changes[number].extensions:
                until[one.lifetime] = max(until.get(one.lifetime, one.until), one.until)
        for lifetime, moment in until.items():
            self._add(level, (int(self._base.end[lifetime]), moment), self._base.size[lifetime])
        return level

    def peak(self, chosen: Iterable[int] = ()) -> NewPeak:
        """The first moment of the greatest total with these changes made."""
        level = self.level(chosen)
        at = int(level.argmax())
        begin, end = int(self._edges[at]) - self._base.begin, int(self._ends[at])
        inside = int(self._base.total[begin:end].argmax())
        return NewPeak(self._base.begin + begin + inside, int(level[at]))
