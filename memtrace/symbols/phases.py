"""Which pass the program was in at an event, by the recorder's marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from memtrace.snapshot.columns import Int64, Recording
from memtrace.timeline import Replay
from memtrace.timeline.moments import Moments

# What ``Phases.at`` numbers. None: between passes, and where there are no marks.
PASSES = (None, "forward", "backward", "optimizer")
_PHASES = {"call": "forward", "backward": "backward", "optimizer": "optimizer"}


class Phases:
    """The passes of one device's history.

    A mark at moment m lies just before event m, so event k lies after every mark with m ≤ k.
    """

    def __init__(self, recording: Recording, replay: Replay) -> None:
        moments = Moments(recording, replay)
        marks = ((m, moments.at_mark(m)) for m in moments.marks())
        self._bounds, self._passes = _find_passes(
            (moments.kind(mark), moments.edge(mark), moment)
            for mark, moment in marks
            if moment is not None
        )

    def at(self, events: Int64) -> Int64:
        """The pass of each event (-1: before the first), as its place in PASSES."""
        return self._passes[np.searchsorted(self._bounds, events, side="right") - 1]


class PassTimes:
    """The passes of the program by the clock, whatever the device."""

    def __init__(self, meta: Mapping[str, Any]) -> None:
        marks = meta["marks"]
        self._bounds, self._passes = _find_passes(
            zip(marks["kind"], marks["edge"], marks["time_ns"], strict=True)
        )

    def at(self, time_ns: int) -> str | None:
        """The pass at a moment (epoch nanoseconds)."""
        row = int(np.searchsorted(self._bounds, time_ns, side="right")) - 1
        return PASSES[int(self._passes[max(row, 0)])]


def _find_passes(marks: Iterable[tuple[str, str, int]]) -> tuple[Int64, Int64]:
    """From (kind, edge, position) in order: positions in order, and the pass after each of them.

    As places in PASSES; the first position is -1.
    """
    bounds: list[int] = [-1]
    names: list[str | None] = [None]
    stack: list[str] = []
    for kind, edge, position in marks:
        if kind not in _PHASES:
            continue
        if edge == "begin":
            stack.append(kind)
        elif edge == "end" and kind in stack:
            # An exception can end an outer pass before an inner one has its end mark.
            del stack[len(stack) - 1 - stack[::-1].index(kind) :]
        bounds.append(max(position, bounds[-1]))
        names.append(_PHASES[stack[-1]] if stack else None)
    # What runs between the model's call and backward(), the loss mostly, is forward too.
    for k in range(1, len(names) - 1):
        if names[k] is None and names[k - 1 : k + 2 : 2] == ["forward", "backward"]:
            names[k] = "forward"
    return (
        np.array(bounds, dtype=np.int64),
        np.array([PASSES.index(name) for name in names], dtype=np.int64),
    )
