"""From a recording to lifetimes and running totals, for one device."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from memtrace.snapshot.columns import Action, Events, Int64, Recording, Segment
from memtrace.timeline.allocator import Blocks, free_blocks, replay_blocks
from memtrace.timeline.assembly import Notes, assemble
from memtrace.timeline.lifetimes import Lifetimes, Pairing, pair_events
from memtrace.timeline.rules import Rules
from memtrace.timeline.start import Range, Start, start_from_end, start_from_segments

Accounting = Literal["allocated", "requested"]


@dataclass(frozen=True, slots=True)
class Replay:
    """One device's history, replayed.

    The totals are bytes and have shape (n_events + 1,): value k is the total after the first k
    events. ``requested`` is torch's requested_bytes (a free counts when completed), ``allocated``
    its allocated_bytes (whole blocks; a free counts when requested), ``reserved`` what is taken
    from the device. ``allocated`` and ``reserved`` are None where they cannot be known.
    ``complete`` is False where something is missing; ``warnings`` then says what.
    ``end_mismatches``
    counts blocks that differ from the segments at the end: 0 proves the replay, None: no segments
    to compare with. ``dropped`` is the number of events the ring lost, -1: perhaps some.
    ``ranges`` is the memory that the allocator held at the start, as far as known.
    ``allocated_from`` is the first moment from which allocated totals are exact (0 where all are,
    n_events + 1 where none is): what is unknown may have been freed early, see ``settle``.
    """

    device: int
    n_events: int
    lifetimes: Lifetimes
    requested: Int64
    allocated: Int64 | None
    reserved: Int64 | None
    complete: bool
    warnings: tuple[str, ...]
    end_mismatches: int | None
    dropped: int
    allocated_from: int = 0
    ranges: tuple[Range, ...] = ()

    def total(self, accounting: Accounting) -> Int64:
        """The running total of one accounting. ValueError where allocated bytes are unknown."""
        if accounting == "requested":
            return self.requested
        if self.allocated is None:
            raise ValueError("allocated bytes are not known in this recording")
        return self.allocated

    @property
    def accounting(self) -> Accounting:
        """The better accounting there is: "allocated" where the blocks are known."""
        return "requested" if self.allocated is None else "allocated"


def live(replay: Replay, k: int, accounting: Accounting) -> Int64:
    """Row numbers of the lifetimes that count after the first ``k`` events (0 ≤ k ≤ n_events).

    Their sizes (``block`` or ``requested``) sum to the total at ``k`` exactly.
    """
    rows = replay.lifetimes
    end = rows.freed if accounting == "allocated" else rows.completed
    return np.flatnonzero((rows.born < k) & (end >= k))


def sizes(replay: Replay, accounting: Accounting) -> Int64:
    """The column that ``live`` rows are to be summed over."""
    return replay.lifetimes.block if accounting == "allocated" else replay.lifetimes.requested


def settle(replay: Replay, begin: int) -> Replay:
    """The same replay for questions about the moments from ``begin`` on only.

    Where the unknown blocks were all freed by then, ``allocated`` is filled in; it holds -1 at the
    moments before ``allocated_from``. Else the replay comes back as it is.
    """
    if replay.allocated is not None or begin < replay.allocated_from or begin > replay.n_events:
        return replay
    rows = replay.lifetimes
    known = np.maximum(rows.block, 0)
    total = _running(known, rows.born, rows.freed, replay.n_events)
    total[: replay.allocated_from] = -1
    return dataclasses.replace(replay, allocated=total)


def replay(recording: Recording, device: int = 0) -> Replay:
    """Replays the history of ``device``. Never fails: what is missing becomes a warning."""
    events = recording.events[device] if device < len(recording.events) else _no_events()
    n = len(events)
    part = part_of(recording, device)
    notes = Notes()
    if part is not None:
        # What is missing in the whole is missing in the part: its own is a consequence of that.
        notes.take_over(part["warnings"], complete=part["complete"])
    rules = Rules.from_settings(recording.settings)
    end = tuple(s for s in recording.segments if s.device == device)
    pairing = pair_events(events, half=_no_completions(events, end))
    dropped = _dropped(recording, device)
    if "gap" in ((recording.meta or {}).get("marks") or {}).get("kind", ()):
        notes.gap("allocations of a part of the run were not seen: iterations there are not whole")
    if dropped > 0:
        notes.gap(f"the ring buffer wrapped: the first {dropped} events are lost")
    cpu = is_cpu(recording)
    start, blocks = _find_blocks(recording, events, pairing, rules, end, device, dropped, notes)
    births = () if part is None else part["births"]
    lifetimes = assemble(events, pairing, start, blocks, cpu, notes, births)
    unborn = int((pairing.born < 0).sum())
    if dropped < 0 and unborn and _round_number(n):
        notes.gap(
            f"perhaps the ring buffer wrapped: the history has {n} events, a round number, and "
            f"{unborn} frees of memory allocated before"
        )
    else:
        dropped = max(dropped, 0)
    if pairing.overwritten:
        notes.gap(f"{pairing.overwritten} allocations of an address that was still in use")
    if pairing.strays:
        notes.gap(f"{pairing.strays} frees of an address that was already free were left out")
    if pairing.half and not cpu:
        notes.say("the history has no free_completed events: a free counts when requested")
    for text in start.warnings:
        notes.gap(text)
    if blocks is not None and blocks.misfits:
        notes.gap(f"{blocks.misfits} events do not fit the allocator's blocks")
    mismatches = None if blocks is None else blocks.end_mismatches
    if mismatches:
        notes.gap(f"{mismatches} blocks differ from the segments at the end of the recording")
    bare = int(((lifetimes.requested == 0) & (lifetimes.block > 0)).sum())
    if bare:
        notes.gap(
            f"{bare} blocks carry no requested size (older torch): requested bytes are too low"
        )
    lost = lifetimes.block < 0
    unknown = int(lost.sum())
    allocated_from = int(min(lifetimes.freed[lost].max(), n)) + 1 if unknown else 0
    if unknown and blocks is not None:
        since = f" before event {allocated_from}" if allocated_from <= n else ""
        notes.gap(
            f"block sizes of {unknown} allocations are unknown (they were made before the "
            f"recording or do not fit its segments): allocated bytes are not known{since}"
        )
    requested = _running(lifetimes.requested, lifetimes.born, lifetimes.completed, n)
    allocated = None
    if not unknown:
        allocated = _running(lifetimes.block, lifetimes.born, lifetimes.freed, n)
    reserved = None if cpu or not start.known else _reserved(events, start)
    return Replay(
        device=device,
        n_events=n,
        lifetimes=lifetimes,
        requested=requested,
        allocated=allocated,
        reserved=reserved,
        complete=not notes.gaps,
        warnings=tuple(notes.texts),
        end_mismatches=mismatches,
        dropped=dropped,
        allocated_from=allocated_from if blocks is not None or cpu else n + 1,
        ranges=start.ranges,
    )


def _find_blocks(
    recording: Recording,
    events: Events,
    pairing: Pairing,
    rules: Rules,
    end: tuple[Segment, ...],
    device: int,
    dropped: int,
    notes: Notes,
) -> tuple[Start, Blocks | None]:
    """The state at the start and the blocks; None where there are none (CPU) or nothing is known.

    Without them, a part of a recording still has what was alive at its start.

    The segments at the start, where the capture has them, are those before the first event: of no
    use if that one was dropped. Where they do not lead to the segments at the end, the start is
    rebuilt from the end, if that explains the history better.
    """
    given = recording.start_segments
    part = part_of(recording, device)
    if is_cpu(recording) or (part is not None and not part["blocks"]):
        held = () if part is None else (s for s in given or () if s.device == device)
        return Start((), start_from_segments(held).blocks, False, ()), None

    def run(start: Start) -> Blocks:
        return replay_blocks(events, start, rules, end, half=pairing.half)

    if given is not None and dropped <= 0:
        start = start_from_segments(s for s in given if s.device == device)
        blocks = run(start)
        faults = blocks.misfits + blocks.end_mismatches
        if faults and end:
            rebuilt = start_from_end(end, events, pairing, rules)
            again = run(rebuilt)
            if again.misfits + again.end_mismatches < faults:
                notes.gap("the segments at the start do not fit: rebuilt from those at the end")
                return rebuilt, again
        return start, blocks
    start = start_from_end(end, events, pairing, rules)
    if start.known:
        return start, run(start)
    notes.gap("the file says nothing of the allocator's segments: block sizes are unknown")
    return start, None


def map_blocks(recording: Recording, run: Replay, moment: int) -> dict[int, int] | None:
    """The free blocks, address to size, after the first ``moment`` events of a replayed device.

    None where the blocks are not known, or the events do not fit them.
    """
    if is_cpu(recording) or run.reserved is None:
        return None
    events = recording.events[run.device]
    end = tuple(s for s in recording.segments if s.device == run.device)
    rules = Rules.from_settings(recording.settings)
    half = _no_completions(events, end)
    pairing = pair_events(events, half=half)
    start, blocks = _find_blocks(
        recording, events, pairing, rules, end, run.device, run.dropped, Notes()
    )
    if blocks is None or blocks.misfits or blocks.disproved:
        return None
    return free_blocks(events, start, rules, moment, blocks.whole, half=pairing.half)


def device_meta(recording: Recording, device: int) -> dict[str, Any] | None:
    """The capture's entry of one device, None where there is none."""
    for entry in (recording.meta or {}).get("devices") or []:
        if entry.get("index") == device:
            found: dict[str, Any] = entry
            return found
    return None


def part_of(recording: Recording, device: int) -> dict[str, Any] | None:
    """What the whole told of a device's history (PartDevice), None where this is no part of one."""
    for entry in ((recording.meta or {}).get("part") or {}).get("devices") or []:
        if entry["index"] == device:
            found: dict[str, Any] = entry
            return found
    return None


def is_cpu(recording: Recording) -> bool:
    """Whether this is a capture of the CPU allocator, which has no blocks and no segments."""
    facts = (recording.meta or {}).get("facts") or {}
    return facts.get("device") == "cpu"


def _no_completions(events: Events, end: tuple[Segment, ...]) -> bool:
    """Whether frees have no second stage here: requests, no completion, and nothing waiting."""
    requests = bool((events.action == Action.FREE_REQUESTED).any())
    completions = bool((events.action == Action.FREE_COMPLETED).any())
    waiting = any(b.active and not b.allocated for s in end for b in s.blocks)
    return requests and not completions and not waiting


def _dropped(recording: Recording, device: int) -> int:
    """Events lost from the ring: the capture's word, -1 where there is none."""
    entry = device_meta(recording, device)
    return -1 if entry is None else int(entry.get("dropped_events", 0))


def _round_number(n: int) -> bool:
    """Whether a person might have chosen ``n`` as the greatest number of events."""
    return n >= 1000 and (n % 1000 == 0 or n & (n - 1) == 0)


def _running(size: Int64, born: Int64, gone: Int64, n: int) -> Int64:
    """Totals after 0, 1, … n events: sizes count from ``born`` + 1 to ``gone`` included."""
    change = np.zeros(n + 2, dtype=np.int64)
    np.add.at(change, born + 1, size)
    np.subtract.at(change, gone + 1, size)
    return np.cumsum(change)[: n + 1]


def _reserved(events: Events, start: Start) -> Int64:
    grows = (events.action == Action.SEGMENT_ALLOC) | (events.action == Action.SEGMENT_MAP)
    shrinks = (events.action == Action.SEGMENT_FREE) | (events.action == Action.SEGMENT_UNMAP)
    change = np.zeros(len(events) + 1, dtype=np.int64)
    change[0] = sum(r.size for r in start.ranges)
    change[1:] = np.where(grows, events.size, 0) - np.where(shrinks, events.size, 0)
    return np.cumsum(change)


def _no_events() -> Events:
    def none(kind: Any) -> Any:
        return np.zeros(0, dtype=kind)

    return Events(
        action=none(np.uint8),
        addr=none(np.uint64),
        size=none(np.int64),
        stream=none(np.uint64),
        time_us=none(np.int64),
        stack=none(np.int32),
        device_free=none(np.int64),
    )
