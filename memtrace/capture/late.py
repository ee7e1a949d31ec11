"""Where the history's ring lost its beginning: a recording that begins at a later mark.

Of a run longer than the ring, ``--window last:3`` needs only the end. So once the ring is half full
the allocator's segments are noted at the last iterations' begins. They bear the stacks of all
blocks in use, however long ago these were allocated.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memtrace.capture.frames import strip
from memtrace.capture.positions import stacks_of

if TYPE_CHECKING:
    from memtrace.capture.assemble import Collected
    from memtrace.capture.history import CudaHistory
    from memtrace.capture.patches import Notes


@dataclass(slots=True)
class States:
    """The allocator's segments at the last ``count`` marks at which iterations began."""

    count: int
    notes: Notes
    segments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def note(self, mark: int, history: CudaHistory) -> None:
        """An iteration begins: keep the segments, if the ring may lose what led to them."""
        import torch

        readings = history.readings.get(mark, ())
        base = [sum(r.counters) if r is not None else 0 for r in history.base]
        events = [sum(r.counters) if r is not None else 0 for r in readings]
        counted = max((e - b for e, b in zip(events, base, strict=False)), default=0)
        if counted < history.max_events // 2:
            return
        read = torch.cuda.memory_snapshot
        if "include_traces" not in inspect.signature(read).parameters:
            self.notes.add(
                "this torch cannot tell its segments alone: where the history wraps, what is older "
                "has no name"
            )
            return
        self.segments[mark] = list(read(include_traces=False))
        while len(self.segments) > self.count:
            del self.segments[next(iter(self.segments))]


def begin_late(found: Collected, states: States) -> bool:
    """Make of a history that lost its beginning one that begins at the first state it reaches.

    False where it reaches none.
    """
    traces = found.snapshot["device_traces"]
    reached = [mark for mark in states.segments if min(found.events.get(mark, [-1])) >= 0]
    if not reached:
        return False
    segments, begins = states.segments[reached[0]], found.events[reached[0]]
    strip(stacks_of({"device_traces": [], "segments": segments}))
    for d, device in enumerate(found.devices):
        held = [s for s in segments if s.get("device", 0) == d]
        first = _first_event(traces[d], begins[d], held)
        _shift(found.events.values(), d, begins[d], first)
        del traces[d][:first]
        device["start_events"] = max(1, device["start_events"])
        device["dropped_events"] = 0
        device["start_segments"] = held
        for peak in device["peaks"]:
            known = min(peak["begin"], peak["end"]) >= first
            peak["begin"] = peak["begin"] - first if known else -1
            peak["end"] = max(peak["end"] - first, -1)
    return True


def _first_event(trace: list[dict[str, Any]], begin: int, segments: list[dict[str, Any]]) -> int:
    """The first event after the state. A mark's place is just behind the event that was counted
    last, and segments coming and going are not counted: those already in the state lie before it.
    """
    ranges = [(s["address"], s["address"] + s["total_size"]) for s in segments]
    while begin < len(trace) and str(trace[begin]["action"]).startswith("segment_"):
        comes = trace[begin]["action"] in ("segment_alloc", "segment_map")
        there = any(low <= trace[begin]["addr"] < high for low, high in ranges)
        if comes != there:
            break
        begin += 1
    return begin


def _shift(rows: Iterable[list[int]], device: int, begin: int, first: int) -> None:
    """Event numbers in a history that begins at ``first``; ``begin`` is where the state lies."""
    for row in rows:
        if device < len(row):
            row[device] = max(row[device] - first, 0) if row[device] >= begin else -1
