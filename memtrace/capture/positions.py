"""From the readings of history.py to event numbers, and the devices of the capture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memtrace.capture.history import RESERVED, CudaHistory, Reading, Snapshot
from memtrace.capture.patches import Notes

if TYPE_CHECKING:
    from memtrace.snapshot.format import Device

# The action that each of history.py's counters counts.
_ACTIONS = {"alloc": 0, "free_requested": 1, "free_completed": 2}
# Those that change what is reserved.
_RESERVES = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


@dataclass(slots=True)
class Positions:
    """Turns readings of one device into event numbers of its history."""

    trace: list[dict[str, Any]]
    end: Reading | None
    base: Reading | None  # at the start of the recording
    notes: Notes
    max_events: int
    index: tuple[list[int], ...] = ()
    first: tuple[int, ...] = (0, 0, 0)  # counters just before the oldest event that is left
    dropped: int = 0
    reserved: list[int] = field(default_factory=list)  # just before each event, and at the end

    def __post_init__(self) -> None:
        index: tuple[list[int], ...] = ([], [], [])
        for k, entry in enumerate(self.trace):
            kind = _ACTIONS.get(entry["action"])
            if kind is not None:
                index[kind].append(k)
        self.index = index
        self.reserved = self._count_reserved()
        final = self.end.counters if self.end is not None else (0, 0, 0)
        start = self.base.counters if self.base is not None else (0, 0, 0)
        self.first = tuple(f - len(i) for f, i in zip(final, index, strict=True))
        lost = [f - s for f, s in zip(self.first, start, strict=True)]
        if min(lost) < 0:
            # More events than the counters know of: some were reset behind our back.
            self.notes.add(
                "the allocator's counters do not fit its history (were they reset?): "
                "positions of marks are not known"
            )
            self.end = None
        elif len(self.trace) >= self.max_events:
            self.dropped = sum(lost)
            if self.dropped:
                self.notes.add(
                    f"the history's ring wrapped: its oldest {self.dropped} events are lost; "
                    "raise --max-events"
                )
        elif sum(lost):
            # Not seen by the history though it had room; positions counted from the end may hold.
            self.notes.add(
                f"the allocator counted {sum(lost)} more allocations and frees than its history "
                "shows: positions of marks before that are not exact"
            )

    def _count_reserved(self) -> list[int]:
        """From the end backwards, which holds for a ring that wrapped, too."""
        if self.end is None or not self.end.stats:
            return []
        total = self.end.stats[RESERVED]
        found = [total]
        for entry in reversed(self.trace):
            total -= _RESERVES.get(entry["action"], 0) * int(entry["size"])
            found.append(total)
        return found[::-1]

    def of(self, reading: Reading | None) -> int:
        """The event before which ``reading`` was taken; -1 where dropped or not to be had."""
        if self.end is None:
            return 0 if not self.trace else -1
        counters = reading.counters if reading is not None else (0, 0, 0)
        position = 0
        for count, first, index in zip(counters, self.first, self.index, strict=True):
            reached = count - first
            if reached < 0:
                return -1
            # Readings after the snapshot (of an out-of-memory error) lie at its end.
            if reached > len(index):
                return len(self.trace)
            if reached:
                position = max(position, index[reached - 1] + 1)
        return self._among_segments(position, reading)

    def _among_segments(self, position: int, reading: Reading | None) -> int:
        """The same, or later among the events of segments there, which no counter counts: the
        first place where as much is reserved as was then."""
        if reading is None or not reading.stats:
            return position
        for place in range(position, len(self.reserved)):
            if self.reserved[place] == reading.stats[RESERVED]:
                return place
            if place == len(self.trace) or self.trace[place]["action"] not in _RESERVES:
                break
        return position


def stacks_of(snapshot: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """All stacks of a snapshot: of events, segments and blocks."""
    for trace in snapshot["device_traces"]:
        for entry in trace:
            if "frames" in entry:
                yield entry["frames"]
    for segment in snapshot["segments"]:
        for holder in (segment, *segment["blocks"]):
            if "frames" in holder:
                yield holder["frames"]


def device_rows(history: CudaHistory, snapshot: Snapshot, places: list[Positions]) -> list[Device]:
    """The contract's Device of every device that has a history."""
    import torch

    from memtrace.snapshot.format import Device, Peak

    rows = []
    for number, place in enumerate(places):
        properties = torch.cuda.get_device_properties(number)
        reading = snapshot.readings[number]
        outside = -1
        if reading is not None:
            # Only a device in use: asking makes a context, which takes memory on it.
            now = history._read(number)
            try:
                free, total = torch.cuda.mem_get_info(number)
                outside = total - free - (now.stats[RESERVED] if now is not None else 0)
            except Exception as error:  # after an error of the device every call fails
                history.notes.failure("asking what else is on the device", error)
        base = history.base[number]
        rows.append(
            Device(
                index=number,
                name=properties.name,
                total_bytes=int(properties.total_memory),
                outside_bytes=outside,
                start_events=0 if base is None else sum(base.counters),
                dropped_events=place.dropped,
                start_segments=[s for s in history.start_segments if s.get("device", 0) == number],
                peaks=[
                    Peak(
                        device=number,
                        begin=-1 if s.begin is None else place.of(s.begin),
                        end=place.of(s.end),
                        allocated=s.end.stats[1],
                        requested=s.end.stats[5],
                        reserved=s.end.stats[3],
                        why=s.why,
                    )
                    for s in history.stretches
                    if s.device == number
                ],
            )
        )
    return rows
