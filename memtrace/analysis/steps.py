"""How long a step takes: a distribution over the run's steady iterations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memtrace.snapshot.columns import Recording
from memtrace.timeline import Window

_FEWEST = 3  # steps whose quartiles say how much they spread


@dataclass(frozen=True, slots=True)
class Spread:
    """Nanoseconds of ``count`` steps: the median, and the middle half of them (the quartiles)."""

    median_ns: int
    low_ns: int
    high_ns: int
    count: int

    def overlaps(self, other: Spread) -> bool:
        """Whether the middle halves share a value, or are of too few steps to tell: then the
        medians do not differ for sure."""
        if min(self.count, other.count) < _FEWEST:
            return True
        return self.low_ns <= other.high_ns and other.low_ns <= self.high_ns


@dataclass(frozen=True, slots=True)
class Steps:
    """``wall`` is from one step's begin to its end on the host, which may run ahead of the GPU;
    ``gpu`` the same on the device. None where it was not measured."""

    wall: Spread | None = None
    gpu: Spread | None = None


def measure_steps(recording: Recording, windows: Iterable[Window]) -> Steps:
    """Of the whole steady iterations that ran without the profiler.

    Where some of them train, of these alone.
    """
    steady = [w for w in windows if w.kind == "iteration" and w.steady and w.whole]
    steady = [w for w in steady if w.backward_begin is not None] or steady
    chosen = {w.index for w in steady if not w.profiled}
    iterations = [
        step for step in (recording.meta or {}).get("iterations") or [] if step["index"] in chosen
    ]
    return Steps(
        _spread([step["wall_ns"] for step in iterations]),
        _spread([step.get("gpu_ns", -1) for step in iterations]),
    )


def _spread(times: list[int]) -> Spread | None:
    known = [time for time in times if time >= 0]
    if not known:
        return None
    low, median, high = np.percentile(np.array(known, dtype=np.float64), (25, 50, 75))
    return Spread(round(float(median)), round(float(low)), round(float(high)), len(known))
