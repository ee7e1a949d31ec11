"""A part of one device's history, as if the recording had begun and ended there.

What was alive at a moment, and the memory the allocator held then, become segments in torch's own
form: free memory is what no block in use covers, since free neighbours are always one block. The
blocks in use keep the stacks that allocated them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from memtrace.snapshot.columns import Action, Block, Events, Int64, Recording, Segment
from memtrace.timeline.lifetimes import pair_events
from memtrace.timeline.replay import Replay
from memtrace.timeline.start import Range, RangeSet

_SMALL_SEGMENT = 2 << 20  # kSmallBuffer: segments of the small pool have this size
_IN_USE, _WAITING, _FREE = "active_allocated", "active_pending_free", "inactive"


@dataclass(frozen=True, slots=True)
class Piece:
    """The events from moment ``begin`` to ``end``, and the segments at these two.

    ``blocks`` is False where sizes of blocks are unknown, or there are none (CPU): then each block
    in use has a segment to itself. ``rows`` are the replay's lifetimes that are alive in the piece:
    those at its start, then the others, all by birth.
    """

    begin: int
    end: int
    events: Events
    start: tuple[Segment, ...]
    segments: tuple[Segment, ...]
    blocks: bool
    rows: Int64


def cut_history(recording: Recording, replay: Replay, begin: int, end: int, *, cpu: bool) -> Piece:
    """The piece of the replayed device's history from moment ``begin`` to ``end``.

    ``replay`` must be settled (see ``settle``) for questions about the moments from ``begin`` on.
    """
    events = _take(recording.events[replay.device], begin, end)
    known = replay.allocated is not None and not cpu
    shapes = _Shapes(recording, replay)
    start = shapes.at(begin) if known else None
    segments = shapes.at(end) if known else None
    blocks = start is not None and segments is not None
    if start is None or segments is None:
        start, segments = shapes.bare(begin), shapes.bare(end)
    born = replay.lifetimes.born
    inside = np.flatnonzero((born >= begin) & (born < end))
    rows = np.concatenate((_alive(replay, begin), inside))
    return Piece(begin, end, _mark_strays(events, start), start, segments, blocks, rows)


def _take(events: Events, begin: int, end: int) -> Events:
    return Events(
        action=events.action[begin:end],
        addr=events.addr[begin:end],
        size=events.size[begin:end],
        stream=events.stream[begin:end],
        time_us=events.time_us[begin:end],
        stack=events.stack[begin:end],
        device_free=events.device_free[begin:end],
    )


def _alive(replay: Replay, moment: int) -> Int64:
    """The lifetimes whose blocks are in use at a moment, by birth."""
    rows = replay.lifetimes
    return np.flatnonzero((rows.born < moment) & (rows.completed >= moment))


def _mark_strays(events: Events, start: Iterable[Segment]) -> Events:
    """Frees of addresses that nothing holds are no frees: here they would seem to be of memory
    that was in use at the start. They stay in place, as events of no known kind."""
    held = {b.address for segment in start for b in segment.blocks if b.active}
    pairing = pair_events(events)
    unborn = np.flatnonzero(pairing.born < 0)
    lone = [k for k in unborn.tolist() if int(pairing.address[k]) not in held]
    if not lone:
        return events
    action = events.action.copy()
    for moments in (pairing.freed[lone], pairing.completed[lone]):
        action[moments[moments < len(events)]] = Action.OTHER
    return _mark_strays(replace(events, action=action), start)


class _Place(NamedTuple):
    """What is known of memory taken from the device, by its address."""

    stream: int
    kind: str
    pool: tuple[int, int]


class _Shapes:
    """The segments of a device at a moment."""

    def __init__(self, recording: Recording, replay: Replay) -> None:
        self._replay = replay
        self._events = recording.events[replay.device]
        known = (*(recording.start_segments or ()), *recording.segments)
        self._segments = sorted(
            (s for s in known if s.device == replay.device), key=lambda s: s.address
        )
        self._starts = [s.address for s in self._segments]

    def at(self, moment: int) -> tuple[Segment, ...] | None:
        """None where blocks in use do not lie within the memory held, as in broken files."""
        blocks = self._blocks(moment)
        streams: dict[int, int] = {}
        ranges = self._ranges(moment, streams)
        found = []
        at = 0
        for r in ranges:
            end = r.address + r.size
            inside = []
            while at < len(blocks) and blocks[at].address < end:
                inside.append(blocks[at])
                at += 1
            laid = _lay(inside, r.address, end)
            if laid is None:
                return None
            found.append(self._segment(r, laid, streams.get(r.address, 0)))
        return tuple(found) if at == len(blocks) else None

    def bare(self, moment: int) -> tuple[Segment, ...]:
        """A segment for each block in use, as large as what was asked for."""
        streams = self._replay.lifetimes.stream[self._alive(moment)].tolist()
        return tuple(
            Segment(
                device=self._replay.device,
                address=b.address,
                total_size=b.requested,
                stream=stream,
                kind="small" if b.requested <= _SMALL_SEGMENT else "large",
                pool=(0, 0),
                expandable=False,
                blocks=(replace(b, size=b.requested),),
            )
            for b, stream in zip(self._blocks(moment), streams, strict=True)
        )

    def _alive(self, moment: int) -> Int64:
        """As ``_alive``, by address."""
        found = _alive(self._replay, moment)
        return found[np.argsort(self._replay.lifetimes.address[found], kind="stable")]

    def _blocks(self, moment: int) -> list[Block]:
        rows = self._replay.lifetimes
        alive = self._alive(moment)
        columns = (rows.address, rows.block, rows.requested, rows.stack, rows.freed < moment)
        return [
            Block(address, size, requested, _WAITING if freed else _IN_USE, stack)
            for address, size, requested, stack, freed in zip(
                *(column[alive].tolist() for column in columns), strict=True
            )
        ]

    def _ranges(self, moment: int, streams: dict[int, int]) -> list[Range]:
        """The memory taken from the device, by address; ``streams`` gets those of its events."""
        start = self._replay.ranges
        fixed = {r.address: r.size for r in start if not r.expandable}
        mapped = RangeSet((r.address, r.size) for r in start if r.expandable)
        events = self._events
        action = events.action[:moment]
        moves = (action >= Action.SEGMENT_ALLOC) & (action <= Action.SEGMENT_UNMAP)
        for k in np.flatnonzero(moves).tolist():
            address, size = int(events.addr[k]), int(events.size[k])
            if action[k] == Action.SEGMENT_ALLOC:
                fixed[address] = size
                streams[address] = int(events.stream[k])
            elif action[k] == Action.SEGMENT_FREE:
                fixed.pop(address, None)
            elif action[k] == Action.SEGMENT_MAP:
                mapped.add(address, size)
                streams[address] = int(events.stream[k])
            else:
                mapped.remove(address, size)
        ranges = [Range(a, s, False) for a, s in fixed.items()]
        ranges += [Range(a, s, True) for a, s in mapped.items()]
        return sorted(ranges, key=lambda r: r.address)

    def _segment(self, r: Range, blocks: Sequence[Block], stream: int) -> Segment:
        k = bisect_left(self._starts, r.address)
        same = k < len(self._starts) and self._starts[k] == r.address
        if same:
            other = self._segments[k]
            place = _Place(other.stream, other.kind, other.pool)
        else:
            place = _Place(stream, "small" if r.size <= _SMALL_SEGMENT else "large", (0, 0))
        return Segment(
            device=self._replay.device,
            address=r.address,
            total_size=r.size,
            stream=place.stream,
            kind=place.kind,
            pool=place.pool,
            expandable=r.expandable,
            blocks=tuple(blocks),
        )


def _lay(used: Sequence[Block], address: int, end: int) -> list[Block] | None:
    """Blocks that fill a range; None where those in use overlap or leave it."""
    laid = []
    at = address
    for b in used:
        if b.address < at or b.address + b.size > end:
            return None
        if b.address > at:
            laid.append(Block(at, b.address - at, 0, _FREE, 0))
        laid.append(b)
        at = b.address + b.size
    if at < end:
        laid.append(Block(at, end - at, 0, _FREE, 0))
    return laid
