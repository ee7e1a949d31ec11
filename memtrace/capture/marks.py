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
    """Marks in the order they happened; thread-safe."""

    backend: Backend | None = None
    entries: list[Entry] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.RLock)

    def add(
        self, kind: str, edge: str = "", name: str = "", *, grad: bool = True, failed: bool = False
    ) -> int:
        """Append a mark and return its number."""
        with self._lock:
            number = len(self.entries)
            self.entries.append(Entry(kind, edge, name, time.time_ns(), grad, failed))
            if self.backend is not None:
                self.backend.mark(number)
            return number

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
            event=[events.get(k, unknown) for k in range(len(self.entries))],
            stats=[stats.get(k, []) for k in range(len(self.entries))],
        )
