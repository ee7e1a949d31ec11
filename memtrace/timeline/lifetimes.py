"""From events to lifetimes: which alloc belongs to which free.

Torch's order of things at one address: alloc, free_requested (the tensor went), free_completed
(no stream uses the memory any more; at once where no other stream did), then perhaps alloc again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memtrace.distinct import group_rows
from memtrace.snapshot.columns import Action, Events, Int32, Int64, UInt64


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """One row an allocation, one device; those alive before the recording first, then by birth.

    All columns have shape (n,); sizes are bytes, moments are event numbers.

    ``requested`` is what was asked for (0 for a block that older files carry without it),
    ``block`` the size of the block that was given, -1 where that is not known.
    ``stack`` is the stack of the allocation, ``free_stack`` of the free (0: none).
    ``born`` is the event of the alloc, -1: before the recording. ``freed`` is the event at which
    the allocation no longer counts as allocated (free_requested), ``completed`` the one at which
    its block was free again; both are the number of events where that did not happen, and
    ``freed`` is -1 for a block that was freed before the recording and still waited for a stream.
    """

    address: UInt64
    requested: Int64
    block: Int64
    stream: UInt64
    stack: Int32
    free_stack: Int32
    born: Int64
    freed: Int64
    completed: Int64

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True)
class Pairing:
    """Lifetimes as the events alone show them, with no word of blocks.

    ``born`` is -1 for frees whose alloc was not seen. ``overwritten`` counts allocs of an address
    that was still alive (the old lifetime ends there), ``strays`` frees of an address that was
    already free (left out: when it was allocated cannot be known). ``half`` says that a free is
    complete when requested; ``single`` that the file has completions alone, so that one with no
    request before it was not waiting for a stream.
    """

    address: UInt64
    requested: Int64
    stream: UInt64
    stack: Int32
    free_stack: Int32
    born: Int64
    freed: Int64
    completed: Int64
    overwritten: int
    strays: int
    half: bool
    single: bool


def pair_events(events: Events, *, half: bool = False) -> Pairing:
    """Pairs allocs with frees; rows ordered by birth, those not seen allocated first.

    ``half`` tells that the history has no free_completed events though blocks did become free.

    Vectorised: events are grouped by address (in time within one), and a lifetime begins at each
    alloc, or at the first free of an address.
    """
    n = len(events)
    wanted = np.flatnonzero(events.action <= Action.FREE_COMPLETED)
    order = wanted[group_rows(events.addr[wanted])]
    act = events.action[order].view(np.int8)
    adr = events.addr[order]
    count = len(order)
    if count == 0:
        return _empty_pairing()
    first = np.ones(count, dtype=bool)
    first[1:] = adr[1:] != adr[:-1]
    before = np.where(first, -1, np.concatenate((act[:1], act[:-1])))
    # A free that follows the same free or a later stage of it has no lifetime to end.
    stray = (act != Action.ALLOC) & (before >= act)
    if stray.any():
        # Take them out and look again: what follows a stray is judged by what preceded it.
        kept = np.setdiff1d(wanted, order[stray])
        again = pair_events(_only(events, kept), half=half)
        back = np.append(kept, n)  # a moment "never" stays never
        return Pairing(
            address=again.address,
            requested=again.requested,
            stream=again.stream,
            stack=again.stack,
            free_stack=again.free_stack,
            born=np.where(again.born < 0, -1, back[again.born]),
            freed=back[again.freed],
            completed=back[again.completed],
            overwritten=again.overwritten,
            strays=again.strays + int(stray.sum()),
            half=again.half,
            single=again.single,
        )
    is_alloc = act == Action.ALLOC
    begins = is_alloc | first
    row = np.cumsum(begins) - 1
    rows = int(row[-1]) + 1
    head = np.flatnonzero(begins)
    born = np.where(is_alloc[head], order[head], -1)
    freed = np.full(rows, n, dtype=np.int64)
    completed = np.full(rows, n, dtype=np.int64)
    free_stack = np.zeros(rows, dtype=np.int32)
    done = act == Action.FREE_COMPLETED
    asked = act == Action.FREE_REQUESTED
    completed[row[done]] = order[done]
    free_stack[row[done]] = events.stack[order[done]]
    # Where only the completion is there (older files' 'free'), it is the request as well.
    freed[row[done]] = order[done]
    freed[row[asked]] = order[asked]
    free_stack[row[asked]] = events.stack[order[asked]]
    requested_once = np.zeros(rows, dtype=bool)
    requested_once[row[asked]] = True
    single = bool(((born >= 0) & (completed < n) & ~requested_once).any())
    if half:
        completed = freed.copy()
    # An alloc of an address that is still alive ends the old lifetime at that moment.
    following = np.append(head[1:], count)
    same = np.zeros(rows, dtype=bool)
    same[:-1] = ~first[head[1:]]
    stop = np.full(rows, n, dtype=np.int64)
    stop[same] = order[following[same]]
    over = same & (completed > stop)
    completed = np.where(over, stop, completed)
    freed = np.minimum(freed, completed)
    source = order[head]
    by_birth = _order(born, adr[head], n)
    return Pairing(
        address=adr[head][by_birth],
        requested=events.size[source][by_birth],
        stream=events.stream[source][by_birth],
        # The stack of a free says nothing of where its memory was allocated.
        stack=np.where(born < 0, 0, events.stack[source])[by_birth].astype(np.int32),
        free_stack=free_stack[by_birth],
        born=born[by_birth].astype(np.int64),
        freed=freed[by_birth],
        completed=completed[by_birth],
        overwritten=int(over.sum()),
        strays=0,
        half=half,
        single=single,
    )


def _order(born: Int64, address: UInt64, n: int) -> Int64:
    """Rows in order of birth, those born before the recording first, by address.

    No two are born at one event, so that each row can be put in its place.
    """
    before = np.flatnonzero(born < 0)
    here = np.flatnonzero(born >= 0)
    rows = np.full(n, -1, dtype=np.int64)
    rows[born[here]] = here
    return np.concatenate((before[np.argsort(address[before])], rows[rows >= 0]))


def _only(events: Events, kept: Int64) -> Events:
    return Events(
        action=events.action[kept],
        addr=events.addr[kept],
        size=events.size[kept],
        stream=events.stream[kept],
        time_us=events.time_us[kept],
        stack=events.stack[kept],
        device_free=events.device_free[kept],
    )


def _empty_pairing() -> Pairing:
    long = np.zeros(0, dtype=np.int64)
    short = np.zeros(0, dtype=np.int32)
    wide = np.zeros(0, dtype=np.uint64)
    return Pairing(wide, long, wide, short, short, long, long, long, 0, 0, False, False)
