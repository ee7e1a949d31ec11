"""Which pass the program was in at an event, by the recorder's marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memtrace.snapshot.columns import Int64

_PHASES = {"call": "forward", "backward": "backward", "optimizer": "optimizer"}


class Phases:
    """The passes of one device's history.

    A mark's event number says how many events lay before it, so event k lies after every mark
    whose number is at most k.
    """

    def __init__(self, marks: Mapping[str, Sequence[Any]] | None, device: int) -> None:
        bounds: list[int] = [-1]
        names: list[str | None] = [None]
        stack: list[str] = []
        if marks is not None:
            for kind, edge, events in zip(marks["kind"], marks["edge"], marks["event"], strict=True):
                event = events[device] if device < len(events) else -1
                if kind not in _PHASES or event < 0:
                    continue
                if edge == "begin":
                    stack.append(kind)
                elif edge == "end" and kind in stack:
                    # An exception can end an outer pass before an inner one has its end mark.
                    del stack[len(stack) - 1 - stack[::-1].index(kind) :]
                bounds.append(max(event, bounds[-1]))
                names.append(_PHASES[stack[-1]] if stack else None)
        self._bounds = np.array(bounds, dtype=np.int64)
        self._names = names

    def at(self, events: Int64) -> list[str | None]:
        """The pass of each event, None between passes and where there are no marks."""
        rows = np.searchsorted(self._bounds, events, side="right") - 1
        return [self._names[row] if row >= 0 else None for row in rows.tolist()]
