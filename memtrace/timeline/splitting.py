"""What the allocator splits off a free block, alloc by alloc.

That is not told by the settings alone: expandable segments can be switched on and off on the way,
pools be made that never split, and pools of CUDA graphs be restored.
"""

from __future__ import annotations

import numpy as np

from memtrace.snapshot.columns import Action, Events, Int64, UInt64
from memtrace.timeline.rules import NEVER, SMALL_SIZE, Flags, Rules
from memtrace.timeline.start import Start

Ranges = tuple[tuple[int, int], ...]  # (address, end) of each

_ALLOC = int(Action.ALLOC)
_LAST = (1 << 64) - 1


def measure_splits(
    events: Events, start: Start, rules: Rules, allocs: Int64, whole: Ranges
) -> tuple[Int64, Int64]:
    """The events' sizes, rounded for allocs, and what is split off a free block at least.

    Both have shape (events,). ``allocs`` are the numbers of the alloc events, ``whole`` segments in
    which nothing is split.
    """
    size = events.size.copy()
    size[allocs] = rules.round_all(size[allocs])
    least = np.zeros_like(size)
    least[allocs] = rules.least_splits(size[allocs], _were_expandable(events, start, allocs))
    # A checkpointed pool is restored block by block, splitting at exact sizes
    # (setSegmentStateToCheckpoint): the next alloc then lies in the remainder.
    following = allocs[:-1][events.action[allocs[:-1] + 1] == _ALLOC]
    behind = events.addr[following] + size[following].astype(np.uint64)
    adjacent = (size[following] > SMALL_SIZE) & (events.addr[following + 1] == behind)
    least[following[adjacent]] = 1
    least[allocs[_lie_in(events.addr[allocs], whole)]] = NEVER
    return size, least


def _were_expandable(events: Events, start: Start, allocs: Int64) -> Flags | None:
    """Whether expandable segments were on at each alloc, None where there are none.

    They were where memory came out of one (``get_free_block`` passes them by else), and, for what
    came out of the other kind, where an expandable one was the last to grow.
    """
    maps = events.action == Action.SEGMENT_MAP
    grows = np.flatnonzero(maps | (events.action == Action.SEGMENT_ALLOC))
    first = [(r.address, r.address + r.size) for r in start.ranges if r.expandable]
    mapped = events.addr[maps].tolist(), events.size[maps].tolist()
    ranges = (*first, *((a, a + max(s, 0)) for a, s in zip(*mapped, strict=True)))
    if not ranges:
        return None
    last = np.maximum(np.searchsorted(grows, allocs) - 1, 0)
    on: Flags = _lie_in(events.addr[allocs], ranges)
    if len(grows):
        on |= maps[grows][last]
    return on


def _lie_in(addresses: UInt64, ranges: Ranges) -> Flags:
    """Whether each address lies in one of some ranges, which may overlap."""
    if not ranges:
        return np.zeros(len(addresses), dtype=bool)
    bounded = [(begin, min(end, _LAST)) for begin, end in sorted(ranges)]
    begins, ends = np.array(bounded, dtype=np.uint64).T
    at = np.searchsorted(begins, addresses, side="right") - 1
    found: Flags = (at >= 0) & (addresses < np.maximum.accumulate(ends)[at])
    return found
