"""The stretch of one recording that a trace shows, and when in it everything happens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memtrace.analysis.peak import Subject
from memtrace.snapshot.columns import Int64
from memtrace.symbols import Attribution
from memtrace.timeline import Accounting, Clock, Window, find_windows


@dataclass(frozen=True, slots=True)
class Scope:
    """``begin`` and ``end`` are the first and last moment, ``start`` and ``stop`` their times.

    ``times[k]`` is that of event k, in ns of ``clock``; ``windows`` are the iterations in it.
    """

    subject: Subject
    attribution: Attribution
    accounting: Accounting
    clock: Clock
    windows: tuple[Window, ...]
    begin: int
    end: int
    start: int
    stop: int

    @property
    def times(self) -> Int64:
        return self.clock.events

    @property
    def whole(self) -> bool:
        """Whether it is the whole recording."""
        return self.subject.window.kind == "all"

    def clip(self, time: Int64) -> Int64:
        """Times outside of the stretch moved to its ends."""
        return np.clip(time, self.start, self.stop)

    def span(self, begin: int, end: int, begin_ns: int, end_ns: int) -> tuple[int, int]:
        """The times of two moments with the epoch times they were seen at, -1 where unknown."""
        first = self.clock.place(begin, begin_ns)
        last = self.clock.place(end, end_ns, early=True)
        first = min(max(first, self.start), self.stop)
        return first, min(max(last, first), self.stop)


def open_scope(
    subject: Subject, attribution: Attribution, accounting: Accounting, *, timed: bool = True
) -> Scope:
    """The subject's window with its times. "all" takes in what follows the last change as well."""
    recording, run, chosen = subject.recording, subject.replay, subject.window
    clock = Clock(recording, run, timed=timed)
    steps = [w for w in find_windows(recording, run) if w.kind == "iteration"]
    if chosen.kind != "all":
        start = clock.place(chosen.begin, chosen.begin_ns)
        stop = max(clock.place(chosen.end, chosen.end_ns, early=True), start)
        steps = [w for w in steps if w == chosen]
        return Scope(
            subject, attribution, accounting, clock, tuple(steps),
            chosen.begin, chosen.end, start, stop,
        )  # fmt: skip
    edges = [
        *(clock.place(w.begin, w.begin_ns) for w in steps),
        *(clock.place(w.end, w.end_ns, early=True) for w in steps),
        clock.after(0),
        clock.before(run.n_events),
    ]
    return Scope(
        subject, attribution, accounting, clock, tuple(steps),
        0, run.n_events, min(edges), max(edges),
    )  # fmt: skip
