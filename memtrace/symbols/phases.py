"""Which pass the program was in at an event, by the recorder's marks."""

from __future__ import annotations

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
        bounds: list[int] = [-1]
        names: list[str | None] = [None]
        stack: list[str] = []
        for mark in moments.marks():
            kind, edge, moment = moments.kind(mark), moments.edge(mark), moments.at_mark(mark)
            if kind not in _PHASES or moment is None:
                continue
            if edge == "begin":
                stack.append(kind)
            elif edge == "end" and kind in stack:
                # An exception can end an outer pass before an inner one has its end mark.
                del stack[len(stack) - 1 - stack[::-1].index(kind) :]
            bounds.append(max(moment, bounds[-1]))
            names.append(_PHASES[stack[-1]] if stack else None)
        # What runs between the model's call and backward(), the loss mostly, is forward too.
        for k in range(1, len(names) - 1):
            if names[k] is None and names[k - 1 : k + 2 : 2] == ["forward", "backward"]:
                names[k] = "forward"
        self._bounds = np.array(bounds, dtype=np.int64)
        self._passes = np.array([PASSES.index(name) for name in names], dtype=np.int64)

    def at(self, events: Int64) -> Int64:
        """The pass of each event (-1: before the first), as its place in PASSES."""
        return self._passes[np.searchsorted(self._bounds, events, side="right") - 1]
