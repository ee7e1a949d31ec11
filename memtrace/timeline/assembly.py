"""Puts together the lifetimes: from the events, the state at the start, the allocator's blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from memtrace.snapshot.columns import Events, UInt64
from memtrace.timeline.allocator import Blocks
from memtrace.timeline.lifetimes import Lifetimes, Pairing
from memtrace.timeline.start import Start


class Notes:
    """Warnings as they come up; ``gaps`` where one of them means that something is missing."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.gaps = False
        self._closed = False

    def take_over(self, texts: Iterable[str], *, complete: bool) -> None:
        """Those of a whole recording, for a part of it; unless it was complete they are all."""
        self.texts += texts
        self.gaps = self._closed = not complete

    def say(self, text: str) -> None:
        if not self._closed and text not in self.texts:
            self.texts.append(text)

    def gap(self, text: str) -> None:
        self.say(text)
        self.gaps = True


def assemble(
    events: Events,
    pairing: Pairing,
    start: Start,
    blocks: Blocks | None,
    cpu: bool,
    notes: Notes,
    births: Sequence[int] = (),
) -> Lifetimes:
    """Joins what the events, the blocks at the start and the allocator's replay know.

    ``births`` are addresses of blocks at the start in the order they were allocated, if known.
    """
    n = len(events)
    born_here = pairing.born >= 0
    split = int((~born_here).sum())  # rows before are those not seen allocated
    row_of = {a: i for i, a in enumerate(pairing.address[:split].tolist())}
    known = start.blocks
    first_alloc = _first_allocs(pairing, split, known.keys() - row_of.keys())
    early: list[tuple[int, ...]] = []
    lost = 0
    rank = {address: k for k, address in enumerate(births)}
    for address in sorted(set(known) | set(row_of), key=lambda a: (rank.get(a, len(rank)), a)):
        b = known.get(address)
        i = row_of.get(address)
        size = -1
        if b is not None and blocks is not None:
            size = blocks.start_sizes.get(address, -1)
        if i is None:
            assert b is not None
            over = first_alloc.get(address, n)
            lost += over < n
            freed, completed, free_stack = over, over, 0
            requested, stream = b.requested, b.stream
        else:
            freed, completed = int(pairing.freed[i]), int(pairing.completed[i])
            free_stack = int(pairing.free_stack[i])
            requested, stream = int(pairing.requested[i]), int(pairing.stream[i])
            if b is not None and b.requested:
                requested = b.requested
        if b is not None and b.pending:
            freed = -1
        stack = 0 if b is None else b.stack
        early.append((address, requested, size, stream, stack, free_stack, freed, completed))
    if lost:
        notes.gap(f"{lost} allocations of an address that was in use before the recording")
    late_sizes = np.full(len(pairing.address) - split, -1, dtype=np.int64)
    if blocks is not None:
        late_sizes = blocks.sizes[pairing.born[split:]]
    if blocks is not None and blocks.disproved:
        addresses = np.array([a for a, *_ in early], dtype=np.uint64)
        wrong = _inside(addresses, blocks.disproved).tolist()
        early = [
            (a, r, -1 if bad else b, *rest)
            for (a, r, b, *rest), bad in zip(early, wrong, strict=True)
        ]
        late_sizes = np.where(_inside(pairing.address[split:], blocks.disproved), -1, late_sizes)
    columns = list(zip(*early, strict=True)) if early else [()] * 8

    def join(values: tuple[int, ...], rest: Any, kind: Any) -> Any:
        return np.concatenate((np.array(values, dtype=kind), rest.astype(kind)))

    requested_bytes = join(columns[1], pairing.requested[split:], np.int64)
    return Lifetimes(
        address=join(columns[0], pairing.address[split:], np.uint64),
        requested=requested_bytes,
        block=requested_bytes if cpu else join(columns[2], late_sizes, np.int64),
        stream=join(columns[3], pairing.stream[split:], np.uint64),
        stack=join(columns[4], pairing.stack[split:], np.int32),
        free_stack=join(columns[5], pairing.free_stack[split:], np.int32),
        born=join((-1,) * len(early), pairing.born[split:], np.int64),
        freed=join(columns[6], pairing.freed[split:], np.int64),
        completed=join(columns[7], pairing.completed[split:], np.int64),
    )


def _first_allocs(pairing: Pairing, split: int, addresses: Iterable[int]) -> dict[int, int]:
    """The event of the first alloc (from row ``split`` on) at each of some addresses, if any."""
    wanted = np.array(sorted(addresses), dtype=np.uint64)
    if not len(wanted):
        return {}
    late = pairing.address[split:]
    place = np.minimum(np.searchsorted(wanted, late), len(wanted) - 1)
    rows = np.flatnonzero(wanted[place] == late)[::-1]
    # Backwards, so that of several the first stays.
    return dict(zip(late[rows].tolist(), pairing.born[split:][rows].tolist(), strict=True))


def _inside(addresses: UInt64, ranges: tuple[tuple[int, int], ...]) -> Any:
    """Which addresses lie in one of the ranges [low, high), which may overlap; bools."""
    ordered = sorted((low, high - 1) for low, high in ranges if low < high)
    if not ordered:
        return np.zeros(len(addresses), dtype=bool)
    lows, lasts = np.array(ordered, dtype=np.uint64).T
    at = np.searchsorted(lows, addresses, side="right") - 1
    return (at >= 0) & (addresses <= np.maximum.accumulate(lasts)[at])
