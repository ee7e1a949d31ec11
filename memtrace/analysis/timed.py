"""The time of the profiled iteration's kernels, and that in the rows of a peak."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from memtrace.analysis.groups import Dimension, key_of_kernel
from memtrace.analysis.rows import Row, Side, sort_rows
from memtrace.analysis.timing import Timing, add_timings, measure_busy, sum_by_naming
from memtrace.snapshot.columns import Recording
from memtrace.symbols import Attribution, Symbol
from memtrace.symbols.kernels import name_kernels
from memtrace.timeline import Replay

_TIMED: tuple[Dimension, ...] = ("symbol", "layer", "line")


@dataclass(frozen=True, slots=True)
class GpuTime:
    """The GPU in the profiled iteration: busy, and idle between its first kernel and its last.

    ``by_row`` says whether the rows share the busy time out.
    """

    iteration: int
    kernels: int
    busy_ns: int
    idle_ns: int
    by_row: bool


def measure_gpu(recording: Recording, by: Dimension) -> GpuTime | None:
    """The profiled iteration's time; None where no kernel was seen in one.

    A kernel makes no one tensor, and no category: rows of these have no times.
    """
    busy = measure_busy(recording)
    if busy is None:
        return None
    iteration = int((recording.meta or {})["profile"]["iteration"])
    return GpuTime(iteration, len(busy.shares), busy.busy_ns, busy.idle_ns, by in _TIMED)


def time_groups(
    recording: Recording, run: Replay, by: Dimension, attribution: Attribution
) -> dict[Symbol, Timing]:
    """The busy time by what rows name.

    The times sum to the busy time, unless rows of this kind have none.
    """
    busy = measure_busy(recording)
    if busy is None:
        return {}
    names = name_kernels(recording, run, operators=attribution.operators, attribution=attribution)
    timings = sum_by_naming(recording, names, busy)
    groups: dict[Symbol, list[Timing]] = {}
    for k in sorted(range(len(timings)), key=lambda k: -timings[k].ns):
        key = key_of_kernel(names.namings[k], by)
        if key is not None:
            groups.setdefault(key, []).append(timings[k])
    return {key: add_timings(parts) for key, parts in groups.items()}


def add_times(rows: Iterable[Row], times: Mapping[Symbol, Timing]) -> list[Row]:
    """A peak's rows with their times, and a row for each symbol that has time and no bytes."""
    rows = list(rows)
    timed = [
        replace(row, sides=(replace(row.sides[0], time=times.get(row.symbol, Timing())),))
        for row in rows
    ]
    held = {row.symbol for row in rows}
    return sort_rows(
        timed
        + [Row(symbol, (_running(time),)) for symbol, time in times.items() if symbol not in held]
    )


def _running(time: Timing) -> Side:
    """The side of a symbol that holds nothing."""
    return Side(
        where=time.where,
        layers=tuple((layer, 0) for layer in time.layers),
        symbols=time.symbols,
        lines=time.lines,
        time=time,
    )
