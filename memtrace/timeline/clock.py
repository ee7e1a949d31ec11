"""When each event happened: one increasing clock in nanoseconds for all that a recording holds."""

from __future__ import annotations

import numpy as np

from memtrace.snapshot.columns import Int64, Recording
from memtrace.timeline.replay import Replay

# Between two events of the same microsecond, in ns. Two, so that a mark has room between them.
_STEP = 2
# Nanoseconds a recording without times counts for each event.
_UNTIMED_STEP = 1000
# The year 2100: times beyond it are none.
_LATEST_US = 4_102_444_800_000_000
# Nor are times further than this from the events'. JSON keeps nanoseconds exact for 104 days.
FARTHEST_NS = 30 * 86_400 * 1_000_000_000


class Clock:
    """Nanoseconds since the first event of ``replay``'s device (negative before it).

    ``start_ns`` is that event's epoch time; None where the recording has no times (older torch, an
    empty history): then event k is at k microseconds.

    The allocator's times are whole microseconds and repeat. ``events`` (shape (n,)) strictly
    increases: the first event of a microsecond lies at its beginning, those that follow 2 ns apart,
    and a time before that of an earlier event (threads' clocks differ a little) is moved up to it.
    """

    def __init__(self, recording: Recording, replay: Replay, *, timed: bool = True) -> None:
        """``timed=False`` counts events even where there are times."""
        n = replay.n_events
        times = np.zeros(0, np.int64)
        if replay.device < len(recording.events):
            times = recording.events[replay.device].time_us
        known = len(times) > 0 and int(times.min()) >= 0 and int(times.max()) <= _LATEST_US
        known = known and int(times.max() - times.min()) * 1000 <= FARTHEST_NS
        self.start_ns: int | None = None
        self.events: Int64 = np.arange(n, dtype=np.int64) * _UNTIMED_STEP
        if known and timed:
            self.start_ns = int(times[0]) * 1000
            steps = np.arange(n, dtype=np.int64) * _STEP
            since = (times - times[0]) * 1000
            self.events = np.maximum.accumulate(since - steps) + steps

    def after(self, moment: int) -> int:
        """The latest time of a moment: just before the event that follows it."""
        if moment < len(self.events):
            return int(self.events[moment]) - 1
        return int(self.events[-1]) + _UNTIMED_STEP if len(self.events) else 0

    def before(self, moment: int) -> int:
        """The earliest time of a moment: just after the event that precedes it."""
        if moment > 0:
            return int(self.events[min(moment, len(self.events)) - 1]) + 1
        return self.after(0)

    @property
    def edges(self) -> tuple[int, int]:
        """The times between which something can have happened: a month around the events."""
        last = int(self.events[-1]) if len(self.events) else 0
        return -FARTHEST_NS, last + FARTHEST_NS

    def place(self, moment: int, epoch_ns: int, *, early: bool = False) -> int:
        """The time of a moment that was seen at ``epoch_ns`` (-1: unknown).

        Never outside of the events that it lies between. Where nothing is known of the time it is
        the latest possible one, or with ``early`` the earliest.
        """
        earliest, latest = self.edges
        time = epoch_ns - (self.start_ns or 0)
        if self.start_ns is None or epoch_ns < 0 or not earliest <= time <= latest:
            return self.before(moment) if early else self.after(moment)
        if moment > 0:
            time = max(time, self.before(moment))
        if moment < len(self.events):
            time = min(time, self.after(moment))
        return time
