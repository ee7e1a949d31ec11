"""The allocator's state at the first event: ranges taken from the device, and blocks in use.

Known outright where a capture carries the segments at its start; else rebuilt from the segments
at the end. Undoing the segment events gives the ranges. A block in use at the end whose alloc was
not seen was in use all along, with the size it has at the end. A block that was freed without a
seen alloc was in use at the start too, but its size is known only as far as the rules settle it
(see ``StartBlock.size``). All the rest is free, and free neighbours are always one block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memtrace.distinct import number_rows
from memtrace.snapshot.columns import Action, Events, Segment
from memtrace.timeline.lifetimes import Pairing
from memtrace.timeline.rules import Rules


@dataclass(slots=True)
class StartBlock:
    """A block in use at the start.

    ``size`` is its size in bytes; where ``exact`` is False the least it can be. ``pending`` is
    True for one that had been freed and still waited for another stream.
    """

    address: int
    size: int
    requested: int
    stream: int
    stack: int
    pending: bool
    exact: bool


@dataclass(frozen=True, slots=True)
class Range:
    """Memory taken from the device: one cudaMalloc, or a mapped part of an expandable segment."""

    address: int
    size: int
    expandable: bool


@dataclass(frozen=True, slots=True)
class Start:
    """``ranges`` in address order, ``blocks`` by address; ``known`` is False where nothing says
    what memory the allocator held, ``warnings`` tells what did not fit together."""

    ranges: tuple[Range, ...]
    blocks: dict[int, StartBlock]
    known: bool
    warnings: tuple[str, ...]


def start_from_segments(segments: Iterable[Segment]) -> Start:
    """The state that the segments at the start describe."""
    blocks: dict[int, StartBlock] = {}
    ranges: list[Range] = []
    for segment in segments:
        ranges.append(Range(segment.address, segment.total_size, segment.expandable))
        for b in segment.blocks:
            if b.active:
                blocks[b.address] = StartBlock(
                    b.address, b.size, b.requested, segment.stream, b.stack, not b.allocated, True
                )
    ranges.sort(key=lambda r: r.address)
    return Start(tuple(ranges), blocks, True, ())


def start_from_end(
    segments: Iterable[Segment], events: Events, pairing: Pairing, rules: Rules
) -> Start:
    """The state at the first event, rebuilt from the segments at the end and the events."""
    kept = tuple(segments)
    warnings: list[str] = []
    ranges, misfits = undo_segment_events(kept, events)
    if misfits:
        warnings.append(
            f"{misfits} segment events do not fit the segments at the end of the recording"
        )
    blocks: dict[int, StartBlock] = {}
    seen = {address for (address,) in number_rows(pairing.address)[0]}
    unborn = np.flatnonzero(pairing.born < 0)
    open_start = {
        int(pairing.address[row]): int(row)
        for row in unborn[pairing.completed[unborn] >= len(events)].tolist()
    }
    for segment in kept:
        for b in segment.blocks:
            if b.active and (b.address not in seen or b.address in open_start):
                # Its free may have been asked for within the recording: then not at the start.
                pending = not b.allocated and b.address not in open_start
                blocks[b.address] = StartBlock(
                    b.address, b.size, b.requested, segment.stream, b.stack, pending, True
                )
    requested_at_free = pairing.freed[unborn] < pairing.completed[unborn]
    for row, asked in zip(unborn.tolist(), requested_at_free.tolist(), strict=True):
        address = int(pairing.address[row])
        if address in blocks:
            continue
        wanted = int(pairing.requested[row])
        rounded = rules.round(wanted)
        # A lone completion is the end of a free that was asked for before the recording, unless
        # the file has completions only.
        pending = not asked and not pairing.half and not pairing.single
        blocks[address] = StartBlock(
            address, rounded, wanted, int(pairing.stream[row]), 0, pending, False
        )
    # Without a single segment, at the end or in the events, the blocks come from elsewhere
    # (cudaMallocAsync, or a file whose segments were taken out).
    known = bool(kept) or _any_segment_event(events) or not bool((events.action == 0).any())
    return Start(ranges, _settle(ranges, blocks, rules), known, tuple(warnings))


def _any_segment_event(events: Events) -> bool:
    return bool(
        ((events.action >= Action.SEGMENT_ALLOC) & (events.action <= Action.SEGMENT_UNMAP)).any()
    )


def _settle(
    ranges: tuple[Range, ...], blocks: dict[int, StartBlock], rules: Rules
) -> dict[int, StartBlock]:
    """Marks as exact the sizes that leave no choice: no slack by rule, or no room for any."""
    starts = [r.address for r in ranges]
    order = sorted(blocks)
    for address, following in zip(order, [*order[1:], None], strict=False):
        b = blocks[address]
        if b.exact:
            continue
        at = bisect_right(starts, address) - 1
        if at < 0 or address >= ranges[at].address + ranges[at].size:
            continue
        limit = ranges[at].address + ranges[at].size
        if following is not None:
            limit = min(limit, following)
        room = limit - address
        b.exact = room == b.size or (room > b.size and not rules.may_have_slack(b.size))
    return blocks


def undo_segment_events(
    segments: Iterable[Segment], events: Events
) -> tuple[tuple[Range, ...], int]:
    """The ranges at the first event, and how many segment events contradict those at the end."""
    fixed = {s.address: s.total_size for s in segments if not s.expandable}
    mapped = RangeSet((s.address, s.total_size) for s in segments if s.expandable)
    misfits = 0
    moments = np.flatnonzero(
        (events.action >= Action.SEGMENT_ALLOC) & (events.action <= Action.SEGMENT_UNMAP)
    )
    for k in moments[::-1].tolist():
        action = int(events.action[k])
        address, size = int(events.addr[k]), int(events.size[k])
        if action == Action.SEGMENT_ALLOC:
            misfits += fixed.pop(address, -1) != size
        elif action == Action.SEGMENT_FREE:
            misfits += address in fixed
            fixed[address] = size
        elif action == Action.SEGMENT_MAP:
            misfits += not mapped.remove(address, size)
        else:
            misfits += not mapped.add(address, size)
    ranges = [Range(a, s, False) for a, s in fixed.items()]
    ranges += [Range(a, s, True) for a, s in mapped.items()]
    ranges.sort(key=lambda r: r.address)
    return tuple(ranges), int(misfits)


class RangeSet:
    """Disjoint stretches of addresses; touching ones become one."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for address, size in sorted(ranges):
            self.add(address, size)

    def add(self, address: int, size: int) -> bool:
        """Adds a stretch; False (and nothing done) where it overlaps what is there."""
        end = address + size
        at = bisect_right(self._starts, address)
        if (at and self._ends[at - 1] > address) or (
            at < len(self._starts) and self._starts[at] < end
        ):
            return False
        left = at > 0 and self._ends[at - 1] == address
        right = at < len(self._starts) and self._starts[at] == end
        if left and right:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif left:
            self._ends[at - 1] = end
        elif right:
            self._starts[at] = address
        else:
            self._starts.insert(at, address)
            self._ends.insert(at, end)
        return True

    def remove(self, address: int, size: int) -> bool:
        """Takes a stretch away; False (and nothing done) where it is not all there."""
        end = address + size
        at = bisect_right(self._starts, address) - 1
        if at < 0 or self._ends[at] < end:
            return False
        start, stop = self._starts[at], self._ends[at]
        del self._starts[at], self._ends[at]
        for low, high in ((end, stop), (start, address)):
            if low < high:
                self._starts.insert(at, low)
                self._ends.insert(at, high)
        return True

    def items(self) -> list[tuple[int, int]]:
        """(address, size) of every stretch, in address order."""
        return [(a, b - a) for a, b in zip(self._starts, self._ends, strict=True)]
