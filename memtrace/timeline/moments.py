"""Where the recorder's marks and torch's annotations lie among the events of one device."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from memtrace.snapshot.columns import Events, Int64, Recording
from memtrace.timeline.replay import Replay, part_of


class Moments:
    """Turns marks and times into event numbers of ``recording.events[device]``.

    Event number k as a moment lies just before event k: k events of the device had happened.
    """

    def __init__(self, recording: Recording, replay: Replay) -> None:
        self._device = replay.device
        self._dropped = replay.dropped > 0
        self._cut = part_of(recording, replay.device) is not None
        self.n = replay.n_events
        self._events: Events | None = None
        if self._device < len(recording.events):
            self._events = recording.events[self._device]
        self._marks: dict[str, Any] = (recording.meta or {}).get("marks") or {}

    @cached_property
    def _times(self) -> Int64 | None:
        """The events' times, None where not all have one."""
        if self._events is None or not len(self._events):
            return None
        times = self._events.time_us
        # Clocks of several threads can differ by a little: a running maximum keeps the order.
        return np.maximum.accumulate(times) if bool((times >= 0).all()) else None

    def at_event(self, number: int) -> int | None:
        """The moment just before an event of the history; None where it is not known."""
        return None if number < 0 else min(number, self.n)

    def at_time(self, time_us: int) -> int | None:
        """The moment at a time in epoch microseconds; None where the events have no times."""
        if self._times is None:
            return None
        return int(np.searchsorted(self._times, time_us, side="left"))

    def at_mark(self, mark: int) -> int | None:
        """The moment of one of the recorder's marks, by event number or else by time."""
        return self._placed[mark] if 0 <= mark < len(self._placed) else None

    @cached_property
    def _placed(self) -> list[int | None]:
        """The moments of all marks."""
        device, last = self._device, self.n
        numbers = [row[device] if device < len(row) else -1 for row in self._marks.get("event", ())]
        return [
            min(number, last) if number >= 0 else self._place_by_time(mark)
            for mark, number in enumerate(numbers)
        ]

    def _place_by_time(self, mark: int) -> int | None:
        time_us = int(self._marks["time_ns"][mark]) // 1000
        # Before the ring's oldest event nothing can be placed: what lay there was dropped. Nor can
        # marks outside of a part.
        if self._cut:
            return None
        if time_us <= 0 or self._times is None or (self._dropped and time_us < self._times[0]):
            return None
        return self.at_time(time_us)

    def marks(self) -> range:
        """The numbers of all marks."""
        return range(len(self._marks.get("kind", ())))

    def kind(self, mark: int) -> str:
        return str(self._marks["kind"][mark])

    def edge(self, mark: int) -> str:
        return str(self._marks["edge"][mark])

    def name(self, mark: int) -> str:
        return str(self._marks["name"][mark])

    def time_ns(self, mark: int) -> int:
        """When a mark was made, epoch nanoseconds; -1 where that is not known."""
        time = int(self._marks["time_ns"][mark])
        return time if time > 0 else -1

    def stats(self, mark: int) -> list[int]:
        """The driver's figures at a mark (STAT_FIELDS), empty where they were not read."""
        rows = self._marks.get("stats", ())
        if mark >= len(rows) or self._device >= len(rows[mark]):
            return []
        return [int(x) for x in rows[mark][self._device]]
