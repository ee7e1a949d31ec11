"""The blocks behind the allocations: replays events on a map of the allocator's memory.

Every alloc event names the address it was given, so the search for a fitting block need not be
simulated: the free block at that address is taken, rounded and split by the allocator's rules
(``memtrace.timeline.rules``), and what is freed grows together with free neighbours
(``alloc_found_block``, ``free_block``, ``try_merge_blocks`` in CUDACachingAllocator.cpp).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memtrace.snapshot.columns import Action, Events, Int64, Segment
from memtrace.timeline.rules import SMALL_SIZE, Rules
from memtrace.timeline.start import Start

_ALLOC = int(Action.ALLOC)
_REQUESTED = int(Action.FREE_REQUESTED)
_COMPLETED = int(Action.FREE_COMPLETED)


@dataclass(frozen=True, slots=True)
class Blocks:
    """What the replay found.

    ``sizes`` has shape (n_events,): the block's size at an alloc event, -1 where it is unknown and
    at other events. ``start_sizes`` gives the same for the blocks in use at the start, by address.
    ``misfits`` counts events that contradict the map (an alloc outside of known memory, …);
    ``end_mismatches`` the blocks that differ from the segments at the end. ``disproved`` are the
    (address, end) of segments in which a block in use has another size there than here: the rules
    did not hold in them (a pool that never splits, settings changed on the way).
    """

    sizes: Int64
    start_sizes: dict[int, int]
    misfits: int
    end_mismatches: int
    disproved: tuple[tuple[int, int], ...]


class BlockMap:
    """Free and used blocks by address. Links to neighbours are the addresses themselves.

    ``free`` and ``used`` map a block's address to its size, ``free_end`` a free block's end to its
    address. Blocks never merge across the borders of one cudaMalloc (``fixed``/``fixed_end``),
    even where two happen to touch.
    """

    def __init__(self, start: Start) -> None:
        self.free: dict[int, int] = {}
        self.free_end: dict[int, int] = {}
        self.used: dict[int, int] = {}
        self.fixed: dict[int, int] = {}
        self.fixed_end: set[int] = set()
        # Blocks in use at the start whose size may exceed what is noted in ``used``, by the
        # address where the noted size ends.
        self.open_end: dict[int, int] = {}
        self.misfits = 0
        order = sorted(start.blocks)
        for r in start.ranges:
            end = r.address + r.size
            if not r.expandable:
                self.fixed[r.address] = r.size
                self.fixed_end.add(end)
            at = r.address
            for address in order[bisect_right(order, at - 1) : bisect_right(order, end - 1)]:
                b = start.blocks[address]
                if address < at or address + b.size > end:
                    self.misfits += 1
                    continue
                if address > at:
                    self.put_free(at, address - at)
                self.used[address] = b.size
                at = address + b.size
                if not b.exact:
                    self.open_end[at] = address
            if at < end:
                self.put_free(at, end - at)
        self.misfits += sum(a not in self.used for a in order)

    def put_free(self, address: int, size: int) -> None:
        """Notes a free block, with no merging."""
        self.free[address] = size
        self.free_end[address + size] = address

    def release(self, address: int, size: int) -> None:
        """A block becomes free and grows together with its free neighbours."""
        end = address + size
        free = self.free
        if end in free and end not in self.fixed and end not in self.fixed_end:
            size += free.pop(end)
            del self.free_end[address + size]
        if address in self.free_end and address not in self.fixed and address not in self.fixed_end:
            low = self.free_end.pop(address)
            size += address - low
            address = low
        free[address] = size
        self.free_end[address + size] = address

    def carve(self, address: int, size: int) -> int:
        """Cuts a free block so that one begins at ``address``; returns its size, -1 if none can.

        Needed for unmapping, and where an alloc shows that a block of the start is larger than
        its request: free memory is always handed out from its beginning, so what lies before
        belongs to the block in front.
        """
        low = self._free_around(address)
        if low is None or self.free[low] - (address - low) < size:
            return -1
        total = self.free.pop(low)
        owner = self.open_end.pop(low, None)
        del self.free_end[low + total]
        if owner is not None and owner in self.used:
            self.used[owner] += address - low
        else:
            self.put_free(low, address - low)
        self.put_free(address, low + total - address)
        return low + total - address

    def _free_around(self, address: int) -> int | None:
        # Rare (a few times a recording at most), so a scan is cheaper than keeping an order.
        for low, size in self.free.items():
            if low < address < low + size:
                return low
        return None

    def segment_event(self, action: int, address: int, size: int) -> None:
        """Memory comes from or goes back to the device."""
        if action == Action.SEGMENT_ALLOC:
            self.fixed[address] = size
            self.fixed_end.add(address + size)
            self.put_free(address, size)
        elif action == Action.SEGMENT_FREE:
            if self.free.get(address) != size or self.fixed.pop(address, None) != size:
                self.misfits += 1
                return
            del self.free[address], self.free_end[address + size]
            self.fixed_end.discard(address + size)
        elif action == Action.SEGMENT_MAP:
            # Merges like a freed block (map_block). Neighbours by address are neighbours in one
            # expandable segment: each reserves more addresses than the device has memory, so the
            # mapped parts of two never touch.
            self.release(address, size)
        else:
            self._unmap(address, size)

    def _unmap(self, address: int, size: int) -> None:
        # Whole pages within a free block go; what is left of it on both sides stays free.
        if address not in self.free and self.carve(address, size) < 0:
            self.misfits += 1
            return
        total = self.free.get(address, 0)
        if total < size:
            self.misfits += 1
            return
        del self.free[address], self.free_end[address + total]
        if total > size:
            self.put_free(address + size, total - size)


def replay_blocks(
    events: Events,
    start: Start,
    rules: Rules,
    end_segments: Iterable[Segment],
    *,
    half: bool = False,
) -> Blocks:
    """Block sizes of all allocations, by replaying ``events`` from ``start``.

    ``half``: the history has no free_completed events, and a free is complete when requested.
    """
    n = len(events)
    sizes = [-1] * n
    blocks = BlockMap(start)
    free, free_end, used, open_end = blocks.free, blocks.free_end, blocks.used, blocks.open_end
    start_sizes: dict[int, int] = {}
    waiting = {a: b for a, b in start.blocks.items() if a in used}
    rounding, splits, plain = rules.round, rules.splits, rules.plain
    finish = _REQUESTED if half else _COMPLETED
    actions = events.action.tolist()
    addresses = events.addr.tolist()
    requests = events.size.tolist()
    for k in range(n):
        action = actions[k]
        address = addresses[k]
        if action == _ALLOC:
            if address in used:  # a broken file: the old one ends here
                blocks.release(address, used.pop(address))
                if address in waiting:
                    start_sizes[address] = _known(waiting.pop(address).exact, start, address)
            wanted = requests[k]
            # Inlined for speed: rounding up to 512 is nearly always the whole rule.
            rounded = (wanted + 511 & -512 or 512) if plain else rounding(wanted)
            room = free.get(address)
            if room is None:
                room = blocks.carve(address, rounded)
            elif open_end:
                open_end_at = open_end.pop(address, None)
                if open_end_at is not None and open_end_at in waiting:
                    waiting[open_end_at].exact = True
            if room < rounded:
                blocks.misfits += 1
                continue
            rest = room - rounded
            del free[address]
            if rest and (
                splits(rounded, rest)
                or (
                    # A checkpointed pool is restored block by block, splitting at exact sizes
                    # (setSegmentStateToCheckpoint): the next alloc then lies in the remainder.
                    rounded > SMALL_SIZE
                    and k + 1 < n
                    and actions[k + 1] == _ALLOC
                    and addresses[k + 1] == address + rounded
                )
            ):
                free[address + rounded] = rest
                free_end[address + room] = address + rounded
                room = rounded
            else:
                del free_end[address + room]
            used[address] = room
            sizes[k] = room
        elif action == finish:
            size = used.pop(address, None)
            if size is None:
                blocks.misfits += 1
                continue
            if address in waiting:
                b = waiting.pop(address)
                open_end.pop(address + size, None)
                start_sizes[address] = size if b.exact or size > b.size else -1
            blocks.release(address, size)
        elif _COMPLETED < action <= Action.SEGMENT_UNMAP:
            blocks.segment_event(action, address, requests[k])
    for address, b in waiting.items():
        start_sizes[address] = used[address] if b.exact or used[address] > b.size else -1
    mismatches, disproved = _compare(blocks, end_segments)
    return Blocks(
        np.array(sizes, dtype=np.int64), start_sizes, blocks.misfits, mismatches, disproved
    )


def _known(exact: bool, start: Start, address: int) -> int:
    return start.blocks[address].size if exact else -1


def _compare(
    blocks: BlockMap, segments: Iterable[Segment]
) -> tuple[int, tuple[tuple[int, int], ...]]:
    """How many blocks have no equal on the other side, and the segments with wrong sizes."""
    theirs: set[tuple[int, int, bool]] = set()
    disproved = []
    for segment in segments:
        wrong = False
        for b in segment.blocks:
            theirs.add((b.address, b.size, b.active))
            wrong = wrong or (b.active and blocks.used.get(b.address, b.size) != b.size)
        if wrong:
            disproved.append((segment.address, segment.address + segment.total_size))
    ours = {(a, s, True) for a, s in blocks.used.items()}
    ours |= {(a, s, False) for a, s in blocks.free.items()}
    return max(len(ours - theirs), len(theirs - ours)), tuple(disproved)
