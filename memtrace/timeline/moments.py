"""Where the recorder's marks and torch's annotations lie among the events of one device."""

from __future__ import annotations

from typing import Any

import numpy as np

from memtrace.snapshot.columns import Action, Events, Int64, Recording
from memtrace.timeline.replay import Replay

# Marks count alloc, free and segment events only (Marks.event in memtrace.snapshot.format).
_UNCOUNTED = (Action.SNAPSHOT, Action.OOM, Action.OTHER)


class Moments:
    """Turns counts and times into event numbers of ``recording.events[device]``.

    Event number k as a moment lies just before event k: k events of the device had happened.
    """

    def __init__(self, recording: Recording, replay: Replay) -> None:
        self._device = replay.device
        self._dropped = max(replay.dropped, 0)
        self.n = replay.n_events
        events: Events | None = None
        if self._device < len(recording.events):
            events = recording.events[self._device]
        counted = (
            np.zeros(0, dtype=np.int64)
            if events is None
            else np.flatnonzero(~np.isin(events.action, _UNCOUNTED)).astype(np.int64)
        )
        # The count c stands just after the c-th counted event: what is not counted (a snapshot,
        # an OOM) and follows at once falls after the mark, which changes no total.
        self._after: Int64 = np.concatenate(([0], counted + 1)).astype(np.int64)
        timed = events is not None and len(events) > 0 and bool((events.time_us >= 0).all())
        # Clocks of several threads can differ by a little: a running maximum keeps the order.
        self._times: Int64 | None = (
            np.maximum.accumulate(events.time_us) if timed and events is not None else None
        )
        self._marks: dict[str, Any] = (recording.meta or {}).get("marks") or {}

    def at_count(self, count: int) -> int | None:
        """The moment after ``count`` counted events of the history; None where it was dropped."""
        if count < 0:
            return None
        kept = count - self._dropped
        if kept < 0:
            return None
        return int(self._after[min(kept, len(self._after) - 1)])

    def at_time(self, time_us: int) -> int | None:
        """The moment at a time in epoch microseconds; None where the events have no times."""
        if self._times is None:
            return None
        return int(np.searchsorted(self._times, time_us, side="left"))

    def at_mark(self, mark: int) -> int | None:
        """The moment of one of the recorder's marks, by count or else by time."""
        kinds = self._marks.get("kind", ())
        if not 0 <= mark < len(kinds):
            return None
        counts = self._marks["event"][mark]
        if self._device < len(counts) and counts[self._device] >= 0:
            return self.at_count(int(counts[self._device]))
        time_ns = self._marks["time_ns"][mark]
        return None if time_ns <= 0 else self.at_time(int(time_ns) // 1000)

    def marks(self) -> range:
        """The numbers of all marks."""
        return range(len(self._marks.get("kind", ())))

    def kind(self, mark: int) -> str:
        return str(self._marks["kind"][mark])

    def edge(self, mark: int) -> str:
        return str(self._marks["edge"][mark])

    def name(self, mark: int) -> str:
        return str(self._marks["name"][mark])

    def stats(self, mark: int) -> list[int]:
        """The driver's figures at a mark (STAT_FIELDS), empty where they were not read."""
        rows = self._marks.get("stats", ())
        if mark >= len(rows) or self._device >= len(rows[mark]):
            return []
        return [int(x) for x in rows[mark][self._device]]
