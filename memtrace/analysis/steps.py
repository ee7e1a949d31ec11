"""How long a step takes: a distribution over the run's steady iterations."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from memtrace.snapshot.columns import Recording

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


def measure_steps(recording: Recording) -> Steps:
    """Of the whole steady iterations that ran without the profiler.

    Where some of them train, of these alone. Also of those whose events are not in the recording.
    """
    meta = recording.meta or {}
    steady = [s for s in meta.get("iterations") or [] if s["whole"] and not s["compiled"]]
    marks = zip(*((meta.get("marks") or {}).get(key, ()) for key in ("kind", "edge")), strict=True)
    passes = [k for k, mark in enumerate(marks) if mark == ("backward", "begin")]
    rows = []  # whether it trains, the times, whether it ran without the profiler
    for s in steady:
        trains = bisect_left(passes, s["end"]) > bisect_left(passes, s["begin"])
        rows.append((trains, s["wall_ns"], s.get("gpu_ns", -1), not s["profiled"]))
    if earlier := meta.get("steps"):
        columns = (earlier["trains"], earlier["wall_ns"], earlier["gpu_ns"])
        rows += [
            (bool(trains), wall, gpu, True) for trains, wall, gpu in zip(*columns, strict=True)
        ]
    chosen = [row for row in rows if row[0]] or rows
    bare = [(wall, gpu) for _, wall, gpu, unprofiled in chosen if unprofiled]
    return Steps(_spread([wall for wall, _ in bare]), _spread([gpu for _, gpu in bare]))


def _spread(times: list[int]) -> Spread | None:
    known = [time for time in times if time >= 0]
    if not known:
        return None
    low, median, high = np.percentile(np.array(known, dtype=np.float64), (25, 50, 75))
    return Spread(round(float(median)), round(float(low)), round(float(high)), len(known))
