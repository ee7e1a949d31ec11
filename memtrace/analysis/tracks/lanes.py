"""Slices put onto as few lanes as they need.

Trace formats have one rule for the slices of a track: within each other or apart. What breaks it
is drawn wrongly by one (protobuf) and left out by another (JSON).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Literal

import numpy as np

from memtrace.analysis.tracks.model import Facts, Slices
from memtrace.snapshot.columns import Int32, Int64

# Lanes of nested slices; a thread whose operators cross needs two.
_MOST_NESTED = 16


def order_slices(begin: Int64, end: Int64) -> Int64:
    """The rows by begin, what contains before what is contained; shape (n,)."""
    return np.lexsort((-end, begin))


def pack(begin: Int64, end: Int64) -> Int32:
    """The lane of each slice, shape (n,), so that none overlaps another on its lane.

    ``begin`` is ascending. A slice may begin where another ends. The lowest free lane is taken, so
    there are as many as slices at one time and no more.
    """
    lanes = []
    busy: list[tuple[int, int]] = []  # (end, lane)
    free: list[int] = []
    used = 0
    for start, stop in zip(begin.tolist(), end.tolist(), strict=True):
        while busy and busy[0][0] <= start:
            heappush(free, heappop(busy)[1])
        if free:
            lane = heappop(free)
        else:
            lane = used
            used += 1
        lanes.append(lane)
        heappush(busy, (stop, lane))
    return np.array(lanes, dtype=np.int32)


def nest(begin: Int64, end: Int64) -> tuple[Int32, Int64]:
    """The lane of each slice, shape (n,), so that those of a lane nest; and their ends.

    The slices are in ``order_slices``' order. One that crosses the end of another goes to the next
    lane. Only where that would take more than 16 lanes it is cut off, on the last.
    """
    lanes: list[int] = []
    ends = end.tolist()
    around: list[list[int]] = [[]]  # the ends of what is open, lane by lane, innermost last
    for k, start in enumerate(begin.tolist()):
        lane = 0
        while True:
            while around[lane] and around[lane][-1] <= start:
                around[lane].pop()
            if not around[lane] or ends[k] <= around[lane][-1]:
                break
            if lane == _MOST_NESTED - 1:
                ends[k] = around[lane][-1]
                break
            lane += 1
            if lane == len(around):
                around.append([])
        around[lane].append(ends[k])
        lanes.append(lane)
    return np.array(lanes, dtype=np.int32), np.array(ends, dtype=np.int64)


def arrange(
    name: str,
    begin: Int64,
    end: Int64,
    labels: tuple[Sequence[str], Int32],
    details: tuple[Sequence[Facts], Int32],
    numbers: Mapping[str, Int64] | None = None,
    *,
    nested: bool = False,
    folder: str = "",
    about: str = "",
    arrows: Literal["", "from", "to"] = "",
) -> Slices:
    """Slices in any order, laid on lanes: nested ones by ``nest``, others by ``pack``.

    ``labels`` and ``details`` are each a list and the rows' numbers in it.
    """
    order = order_slices(begin, end)
    begin, end = begin[order], end[order]
    if nested:
        lane, end = nest(begin, end)
    else:
        lane = pack(begin, end)
    by_lane = np.argsort(lane, kind="stable")
    rows = order[by_lane]
    return Slices(
        name=name,
        begin=begin[by_lane],
        end=end[by_lane],
        lane=lane[by_lane],
        labels=labels[0],
        label=labels[1][rows],
        details=details[0],
        detail=details[1][rows],
        numbers={key: column[rows] for key, column in (numbers or {}).items()},
        folder=folder,
        about=about,
        arrows=arrows,
    )
