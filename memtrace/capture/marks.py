"""The log of marks: moments that bound calls, passes and iterations, positioned exactly.

A mark's position in the history is not taken from clocks (the history's are microseconds and can
repeat) but from what the device's backend can count: see history.py and cpu.py.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from memtrace.snapshot.format import Marks


class Backend(Protocol):
    """Where a run's allocations come from: the CUDA allocator's history or the CPU profiler."""

    def mark(self, number: int) -> None:
        """Remember the position of mark ``number``; called once for each, in order."""


@dataclass(slots=True)
class Entry:
    kind: str
    edge: str
    name: str
    time_ns: int
    # Of a "call" begin: whether gradients were recorded. Inference calls are iterations of their
    # own, forward calls of a training step are not.
    grad: bool = True
    failed: bool = False  # of an end: an exception passed through


@dataclass(slots=True)
class MarkLog:
    """Marks in the order they happened; thread-safe.

    Their numbers stay what they are where some are forgotten: ``forgotten`` marks that stood before
    the entry ``gap``, one stretch of them.
    """

    backend: Backend | None = None
    entries: list[Entry] = field(default_factory=list)
    gap: int = 0
    forgotten: int = 0
    _lock: Any = field(default_factory=threading.RLock)

    def add(
        self, kind: str, edge: str = "", name: str = "", *, grad: bool = True, failed: bool = False
    ) -> int:
        """Append a mark and return its number."""
        with self._lock:
            number = self.next
            self.entries.append(Entry(kind, edge, name, time.time_ns(), grad, failed))
            if self.backend is not None:
                self.backend.mark(number)
            return number

    @property
    def next(self) -> int:
        """The number of the mark that comes next."""
        return len(self.entries) + self.forgotten

    def position(self, number: int) -> int:
        """Where a mark is among the entries; a forgotten one's is that of the mark before it."""
        if not self.forgotten or number < self.gap:
            return number
        return max(number - self.forgotten, self.gap - 1)

    def number(self, position: int) -> int:
        """The mark at a place among the entries."""
        return position + self.forgotten * (position >= self.gap)

    def forget(self, end: int, begin: int = -1) -> tuple[int, int]:
        """Forget the marks from ``begin`` on up to mark ``end``, not included.

        Once some are forgotten, from where that began. Returns all forgotten, the last one not
        included.
        """
        with self._lock:
            if not self.forgotten:
                self.gap = begin
            count = self.position(end) - self.gap
            del self.entries[self.gap : self.gap + count]
            self.forgotten += count
            return self.gap, self.gap + self.forgotten

    def columns(
        self, events: dict[int, list[int]], stats: dict[int, list[list[int]]], devices: int
    ) -> Marks:
        """The contract's columns; ``events`` and ``stats`` by mark number, absent ones unknown."""
        from memtrace.snapshot.format import Marks

        unknown = [-1] * devices
        return Marks(
            kind=[e.kind for e in self.entries],
            edge=[e.edge for e in self.entries],
            name=[e.name for e in self.entries],
            time_ns=[e.time_ns for e in self.entries],
            event=[events.get(self.number(k), unknown) for k in range(len(self.entries))],
            stats=[stats.get(self.number(k), []) for k in range(len(self.entries))],
        )
