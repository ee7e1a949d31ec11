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
                free_end.pop(address + room, None)
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
