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
from memtrace.timeline.repetition import Repetition, find_repetitions
from memtrace.timeline.rules import Rules
from memtrace.timeline.splitting import Ranges, measure_splits
from memtrace.timeline.start import Start

_ALLOC = int(Action.ALLOC)
_REQUESTED = int(Action.FREE_REQUESTED)
_COMPLETED = int(Action.FREE_COMPLETED)
_DEFAULT_POOL = (0, 0)


@dataclass(frozen=True, slots=True)
class Blocks:
    """What the replay found.

    ``sizes`` has shape (n_events,): the block's size at an alloc event, -1 where it is unknown and
    at other events. ``start_sizes`` gives the same for the blocks in use at the start, by address.
    ``misfits`` counts events that contradict the map (an alloc outside of known memory, …);
    ``end_mismatches`` the blocks that differ from the segments at the end. ``disproved`` are the
    (address, end) of segments in which a block in use has another size there than here: the rules
    did not hold in them (settings changed on the way).
    ``whole`` are the segments in which, so it was found, no block is ever split.
    """

    sizes: Int64
    start_sizes: dict[int, int]
    misfits: int
    end_mismatches: int
    disproved: Ranges
    whole: Ranges = ()


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
    Where the rules did not hold in some segments, the answer is better if these are a pool's that
    never splits (``MemPool(no_split=True)``), and then that is what they are. Segments that such a
    pool has given back by the end are taken for others: no event names its pool.
    """
    end = tuple(end_segments)
    found = _replay_blocks(events, start, rules, end, half, ())
    if not found.disproved:
        return found
    wrong = set(found.disproved)
    pools = {s.pool for s in end if _bounds(s) in wrong} - {_DEFAULT_POOL}
    whole = (*found.disproved, *(_bounds(s) for s in end if s.pool in pools))
    again = _replay_blocks(events, start, rules, end, half, whole)
    return min(found, again, key=lambda blocks: blocks.misfits + blocks.end_mismatches)


def _replay_blocks(
    events: Events,
    start: Start,
    rules: Rules,
    end_segments: Iterable[Segment],
    half: bool,
    whole: Ranges,
) -> Blocks:
    """``whole`` are the segments in which no block is split."""
    run = _Run(events, start, rules, _REQUESTED if half else _COMPLETED, whole)
    at = 0
    for repetition in run.repetitions():
        run.go(at, repetition.begin)
        at = run.go_round(repetition)
    run.go(at, run.count)
    sizes = np.full(len(events), -1, dtype=np.int64)
    sizes[run.allocs] = run.allocated
    mismatches, disproved = _compare(run.blocks, end_segments)
    return Blocks(sizes, run.sizes_at_start(), run.blocks.misfits, mismatches, disproved, whole)


def free_blocks(
    events: Events, start: Start, rules: Rules, moment: int, whole: Ranges, *, half: bool
) -> dict[int, int]:
    """The free blocks, address to size, after the first ``moment`` of ``events``.

    ``whole`` and ``half`` as ``replay_blocks`` found and took them.
    """
    run = _Run(events, start, rules, _REQUESTED if half else _COMPLETED, whole)
    run.go(0, int(run.moves[:moment].sum()))
    return run.blocks.free


class _Run:
    """A replay under way. Its steps are the events that move blocks, ``count`` of them.

    ``moves`` says which events they are, shape (n_events,). ``allocs`` are the allocs' numbers
    among all events, ``allocated`` the block sizes of those gone through.
    """

    def __init__(
        self, events: Events, start: Start, rules: Rules, finish: int, whole: Ranges
    ) -> None:
        self.blocks = BlockMap(start)
        self._start = start
        self._start_sizes: dict[int, int] = {}
        self._waiting = {a: b for a, b in start.blocks.items() if a in self.blocks.used}
        self._finish = finish
        is_alloc = events.action == _ALLOC
        moves = is_alloc | (events.action == finish)
        moves |= (events.action > _COMPLETED) & (events.action <= Action.SEGMENT_UNMAP)
        self.moves = moves
        self.allocs = np.flatnonzero(is_alloc)
        size, least = measure_splits(events, start, rules, self.allocs, whole)
        self._columns = (events.action[moves], events.addr[moves], size[moves], least[moves])
        self.count = len(self._columns[0])
        self.allocated: list[int] = []

    def repetitions(self) -> list[Repetition]:
        return find_repetitions(*self._columns)

    def go_round(self, repetition: Repetition) -> int:
        """Goes through a repetition until a turn ends as it began; the other turns do the same.

        Returns the step at which the last whole turn ends.
        """
        at, end, period = repetition
        turns = (end - at) // period
        for turn in range(1, turns + 1):
            # Ever more rarely, since looking costs as much as there are blocks.
            before = self._state() if turn & (turn - 1) == 0 else None
            done = len(self.allocated)
            self.go(at, at + period)
            at += period
            if before is not None and before == self._state():
                self.allocated += self.allocated[done:] * (turns - turn)
                return at + (turns - turn) * period
        return at

    def _state(self) -> object:
        """All that decides what the next steps do, and what they count."""
        blocks = self.blocks
        return (
            list(blocks.free.items()),  # in order: where free blocks overlap, the first is taken
            blocks.free_end.copy(),
            blocks.used.copy(),
            blocks.fixed.copy(),
            blocks.fixed_end.copy(),
            blocks.open_end.copy(),
            blocks.misfits,
            {address: b.exact for address, b in self._waiting.items()},
        )

    def go(self, begin: int, end: int) -> None:
        """Goes through the steps from ``begin`` to ``end``, not included."""
        blocks, waiting, start_sizes = self.blocks, self._waiting, self._start_sizes
        free, free_end, used, open_end = blocks.free, blocks.free_end, blocks.used, blocks.open_end
        allocated, finish, release = self.allocated, self._finish, blocks.release
        steps = zip(*(column[begin:end].tolist() for column in self._columns), strict=True)
        for action, address, size, least in steps:
            if action == _ALLOC:
                if address in used:  # a broken file: the old one ends here
                    release(address, used.pop(address))
                    if address in waiting:
                        known = _known(waiting.pop(address).exact, self._start, address)
                        start_sizes[address] = known
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
                block = used.pop(address, None)
                if block is None:
                    blocks.misfits += 1
                    continue
                if address in waiting:
                    b = waiting.pop(address)
                    open_end.pop(address + block, None)
                    start_sizes[address] = block if b.exact or block > b.size else -1
                release(address, block)
            else:
                blocks.segment_event(action, address, size)

    def sizes_at_start(self) -> dict[int, int]:
        """The sizes of the blocks in use at the start, once all steps have been gone through."""
        used = self.blocks.used
        for address, b in self._waiting.items():
            known = b.exact or used[address] > b.size
            self._start_sizes[address] = used[address] if known else -1
        return self._start_sizes


def _known(exact: bool, start: Start, address: int) -> int:
    return start.blocks[address].size if exact else -1


def _bounds(segment: Segment) -> tuple[int, int]:
    return segment.address, segment.address + segment.total_size


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
            disproved.append(_bounds(segment))
    ours = {(a, s, True) for a, s in blocks.used.items()}
    ours |= {(a, s, False) for a, s in blocks.free.items()}
    return max(len(ours - theirs), len(theirs - ours)), tuple(disproved)
