"""How long the GPU was busy in the profiled iteration, and for which symbol.

Busy time is the union of the intervals of all kernels, copies and memsets, over all streams and
devices, as HolisticTraceAnalysis counts it. An instant that several share is split evenly among
them, and what does not divide goes to the one that started first: so the times of all symbols sum
to the busy time in whole nanoseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np

from memtrace.distinct import distinct_values
from memtrace.snapshot.columns import Int64, Recording
from memtrace.symbols import Symbol
from memtrace.symbols.kernels import KernelNames, layer_of, line_of, made_by

_Item = TypeVar("_Item")
_LATEST = 1 << 62  # clocks beyond that are broken; sums must fit 64 bits
_WHERE_LIMIT = 4


@dataclass(frozen=True, slots=True)
class Timing:
    """GPU time under a symbol.

    ``ns`` is its share of the busy time, ``kernels`` how many kernels, copies and memsets ran,
    ``longest`` the name of the longest with its whole ``longest_ns``, ``operations`` what that
    fuses, as the trace has it. ``where``: lines of generated source that launched them, that of the
    longest first. ``layers`` and ``lines`` of the model they work for, ``makes`` what those
    statements make ('float32[4, 8]'), ``symbols`` what they belong to; most time first. ``moved``:
    bytes that they must move, None where not all of that is known.
    """

    ns: int = 0
    kernels: int = 0
    longest: str = ""
    longest_ns: int = 0
    where: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    moved: int | None = None
    operations: tuple[str, ...] = ()

    def __add__(self, other: Timing) -> Timing:
        return add_timings((self, other))


NO_TIME = Timing()


def add_timings(timings: Iterable[Timing]) -> Timing:
    """All of them as one; an empty one of none. At once, since there may be very many."""
    parts = tuple(timings)
    longest = NO_TIME
    where: deque[tuple[str, ...]] = deque()
    for time in parts:
        # Of equally long ones the first, unless that is none at all.
        if time.longest_ns > longest.longest_ns or not longest.kernels:
            longest = time
            where.appendleft(time.where)
        else:
            where.append(time.where)
    known = [time.moved for time in parts if time.kernels]
    return Timing(
        sum(time.ns for time in parts),
        sum(time.kernels for time in parts),
        longest.longest,
        longest.longest_ns,
        _join(where),
        _join(time.layers for time in parts),
        _join(time.lines for time in parts),
        _join(time.makes for time in parts),
        _join(time.symbols for time in parts),
        _sum_known(known) if known else None,
        longest.operations,
    )


def _join(parts: Iterable[Iterable[_Item]]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(parts)))


@dataclass(frozen=True, slots=True)
class Busy:
    """The GPU in the profiled iteration: its ``busy_ns`` of ``span_ns``, from the first begin of a
    kernel to the last end. ``shares``, shape (kernels,), sum to ``busy_ns``."""

    busy_ns: int
    span_ns: int
    shares: Int64

    @property
    def idle_ns(self) -> int:
        """When nothing ran between the first kernel and the last."""
        return self.span_ns - self.busy_ns


def measure_busy(recording: Recording) -> Busy | None:
    """How the profile's kernels fill the time; None where no kernel was seen."""
    profile = (recording.meta or {}).get("profile")
    if not profile or not profile["kernels"]["name"]:
        return None
    starts = np.array(profile["kernels"]["start_ns"], dtype=np.int64).clip(0, _LATEST)
    lasted = np.array(profile["kernels"]["duration_ns"], dtype=np.int64).clip(0, _LATEST)
    ends = (starts + lasted).clip(max=_LATEST)
    shares = share_time(starts, ends)
    return Busy(int(shares.sum()), int(ends.max() - starts.min()), shares)


def share_time(starts: Int64, ends: Int64) -> Int64:
    """What each interval [start, end) has of the union of all; the shares sum to its length.

    An instant is split evenly among those that hold it, the rest of that going to the one that
    started first.
    """
    bounds = distinct_values(np.concatenate((starts, ends)))
    if len(bounds) < 2:
        return np.zeros(len(starts), dtype=np.int64)
    first, last = np.searchsorted(bounds, starts), np.searchsorted(bounds, ends)
    change = np.zeros(len(bounds), dtype=np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, last, -1)
    running = np.cumsum(change)[:-1]
    lengths = np.diff(bounds)
    each = np.where(running > 0, lengths // np.maximum(running, 1), 0)
    rest = np.where(running > 0, lengths - each * running, 0)
    sums = np.concatenate(([0], np.cumsum(each)))
    shares: Int64 = sums[last] - sums[first]
    order = np.argsort(starts, kind="stable")
    oldest = 0  # in that order, the first that has not ended
    for piece in np.flatnonzero(rest).tolist():
        while ends[order[oldest]] <= bounds[piece]:
            oldest += 1
        shares[order[oldest]] += rest[piece]
    return shares


def sum_by_naming(recording: Recording, names: KernelNames, busy: Busy) -> list[Timing]:
    """The time of each of ``names.namings``."""
    kernels = (recording.meta or {})["profile"]["kernels"]
    n = len(names.namings)
    ns = np.zeros(n, dtype=np.int64)
    np.add.at(ns, names.rows, busy.shares)
    counts = np.bincount(names.rows, minlength=n)
    longest: dict[int, int] = {}
    for k, row in enumerate(names.rows.tolist()):
        best = longest.get(row)
        if best is None or kernels["duration_ns"][k] > kernels["duration_ns"][best]:
            longest[row] = k
    runs: list[set[int]] = [set() for _ in range(n)]
    for row, run in zip(names.rows.tolist(), names.ranges.tolist(), strict=True):
        runs[row].add(run)
    timings = []
    for row, naming in enumerate(names.namings):
        k = longest[row]
        layer, line = layer_of(naming), line_of(naming)
        timings.append(
            Timing(
                int(ns[row]),
                int(counts[row]),
                kernels["name"][k],
                max(int(kernels["duration_ns"][k]), 0),
                (naming.where,) if naming.where else (),
                (layer,) if layer else (),
                (line,) if line else (),
                made_by(naming),
                (naming.symbol,),
                _sum_known(names.moved.get(run) for run in runs[row]),
                names.operations.get(int(names.ranges[k]), ()),
            )
        )
    return timings


def _sum_known(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total
