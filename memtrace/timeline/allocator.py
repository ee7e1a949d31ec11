"""The blocks behind the allocations: replays events on a map of the allocator's memory.

Every alloc event names the address it was given, so the search for a fitting block need not be
simulated: the free block at that address is taken, rounded and split by the allocator's rules
(``memtrace.timeline.rules``), and what is freed grows together with free neighbours
(``alloc_found_block``, ``free_block``, ``try_merge_blocks`` in CUDACachingAllocator.cpp).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memtrace.snapshot.columns import Action, Events, Int64, Segment
from memtrace.timeline.blockmap import BlockMap
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
    sizes = np.full(len(events), -1, dtype=np.int64)
    blocks = BlockMap(start)
    free, free_end, used, open_end = blocks.free, blocks.free_end, blocks.used, blocks.open_end
    release = blocks.release
    start_sizes: dict[int, int] = {}
    waiting = {a: b for a, b in start.blocks.items() if a in used}
    finish = _REQUESTED if half else _COMPLETED
    steps = _steps(events, rules, finish)
    allocated: list[int] = []
    columns = (steps.action, steps.address, steps.size, steps.least)
    for action, address, size, least in zip(*columns, strict=True):
        if action == _ALLOC:
            if address in used:  # a broken file: the old one ends here
                release(address, used.pop(address))
                if address in waiting:
                    start_sizes[address] = _known(waiting.pop(address).exact, start, address)
            room = free.get(address)
            if room is None:
                room = blocks.carve(address, size)
            elif open_end:
                open_end_at = open_end.pop(address, None)
                if open_end_at is not None and open_end_at in waiting:
                    waiting[open_end_at].exact = True
            if room < size:
                blocks.misfits += 1
                allocated.append(-1)
                continue
            del free[address]
            rest = room - size
            if rest >= least:
                free[address + size] = rest
                free_end[address + room] = address + size
                room = size
            else:
                free_end.pop(address + room, None)
            used[address] = room
            allocated.append(room)
        elif action == finish:
            known = used.pop(address, None)
            if known is None:
                blocks.misfits += 1
                continue
            if address in waiting:
                b = waiting.pop(address)
                open_end.pop(address + known, None)
                start_sizes[address] = known if b.exact or known > b.size else -1
            release(address, known)
        else:
            blocks.segment_event(action, address, size)
    sizes[steps.allocs] = allocated
    for address, b in waiting.items():
        start_sizes[address] = used[address] if b.exact or used[address] > b.size else -1
    mismatches, disproved = _compare(blocks, end_segments)
    return Blocks(sizes, start_sizes, blocks.misfits, mismatches, disproved)


@dataclass(frozen=True, slots=True)
class _Steps:
    """The events that move blocks. ``size`` is rounded for an alloc, and ``least`` then what is
    split off at least. ``allocs`` are the allocs' numbers among all events."""

    action: list[int]
    address: list[int]
    size: list[int]
    least: list[int]
    allocs: Int64


def _steps(events: Events, rules: Rules, finish: int) -> _Steps:
    action = events.action
    is_alloc = action == _ALLOC
    moves = is_alloc | (action == finish)
    moves |= (action > _COMPLETED) & (action <= Action.SEGMENT_UNMAP)
    allocs = np.flatnonzero(is_alloc)
    size = events.size.copy()
    size[allocs] = rules.round_all(size[allocs])
    least = np.zeros_like(size)
    least[allocs] = rules.least_splits(size[allocs])
    # A checkpointed pool is restored block by block, splitting at exact sizes
    # (setSegmentStateToCheckpoint): the next alloc then lies in the remainder.
    following = allocs[:-1][is_alloc[allocs[:-1] + 1]] if len(allocs) else allocs
    behind = events.addr[following] + size[following].astype(np.uint64)
    adjacent = (size[following] > SMALL_SIZE) & (events.addr[following + 1] == behind)
    least[following[adjacent]] = 1
    return _Steps(
        action[moves].tolist(),
        events.addr[moves].tolist(),
        size[moves].tolist(),
        least[moves].tolist(),
        allocs,
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
