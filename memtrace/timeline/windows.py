"""Stretches of a recording worth asking about: iterations, or the whole."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from memtrace.snapshot.columns import Action, Recording
from memtrace.timeline.moments import Moments
from memtrace.timeline.replay import Accounting, Replay

_STEP = re.compile(r"ProfilerStep#([0-9]{1,15})$")
# Closer than this to an end of a phase (in percent) the position names that end.
_EDGE = 5


class Phase(NamedTuple):
    """A part of an iteration: "forward", "backward" or "optimizer", as moments (event numbers).

    ``begin_ns`` and ``end_ns`` are the marks' own times, epoch nanoseconds, -1 where unknown.
    """

    name: str
    begin: int
    end: int
    begin_ns: int = -1
    end_ns: int = -1


@dataclass(frozen=True, slots=True)
class Window:
    """The moments ``begin`` to ``end`` (event numbers, begin ≤ end, see Moments) and what is there.

    ``index`` is the iteration's own number, -1 for "all" and for several. ``whole`` is False where
    the iteration broke off; ``compiled`` True where something was compiled in it; ``steady`` is
    neither. ``profiled`` says that it ran under the profiler. ``begin_ns`` and ``end_ns`` are the
    times at which it was seen to begin and end, epoch nanoseconds, -1 where unknown, as are
    ``first_mark`` and ``last_mark``, the numbers of the recorder's marks there.
    """

    name: str
    kind: Literal["iteration", "iterations", "all"]
    begin: int
    end: int
    steady: bool
    profiled: bool = False
    index: int = -1
    whole: bool = True
    compiled: bool = False
    phases: tuple[Phase, ...] = ()
    begin_ns: int = -1
    end_ns: int = -1
    first_mark: int = -1
    last_mark: int = -1

    @property
    def forward_end(self) -> int | None:
        """Where the last forward before the first backward ends; None without marks."""
        backward = self.backward_begin
        ends = [
            p.end
            for p in self.phases
            if p.name == "forward" and (backward is None or p.begin <= backward)
        ]
        return max(ends) if ends else None

    @property
    def backward_begin(self) -> int | None:
        """Where the first backward begins; None without marks."""
        return min((p.begin for p in self.phases if p.name == "backward"), default=None)


class Peak(NamedTuple):
    """The greatest total in a window: ``total`` bytes after the first ``event`` events."""

    event: int
    total: int


def find_windows(recording: Recording, replay: Replay) -> tuple[Window, ...]:
    """The iterations in order, then the whole recording ("all"), which is always there."""
    moments = Moments(recording, replay)
    found = _from_marks(recording, moments) or _from_annotations(recording, moments)
    whole = Window("all", "all", 0, _last_change(recording, replay) + 1, steady=False)
    return (*found, whole)


def _last_change(recording: Recording, replay: Replay) -> int:
    """The last event that changes a total (an OOM or a snapshot does not), -1 where none does."""
    if replay.device >= len(recording.events):
        return -1
    action = recording.events[replay.device].action
    changing = np.flatnonzero(action <= Action.SEGMENT_UNMAP)
    return int(changing[-1]) if len(changing) else -1


def peak(replay: Replay, window: Window, accounting: Accounting) -> Peak:
    """The first moment of the greatest total between the window's ends, both included.

    ValueError where allocated bytes are asked for and unknown.
    """
    stretch = replay.total(accounting)[window.begin : window.end + 1]
    at = int(stretch.argmax())
    return Peak(window.begin + at, int(stretch[at]))


def position_in(window: Window, event: int) -> str:
    """Where a moment lies in an iteration: 'forward 63%', 'start of backward (2%)', 'optimizer'.

    Percentages are of the phase's events. Without marks, of the window's events.
    """
    inside = [p for p in window.phases if p.begin <= event <= p.end]
    if not inside:
        before = [p for p in window.phases if p.end < event]
        after = [p for p in window.phases if p.begin > event]
        if before and after:
            left = max(before, key=lambda p: p.end).name
            right = min(after, key=lambda p: p.begin).name
            return f"between {left} and {right}" if left != right else f"between two {left}s"
        if before:
            return f"after {max(before, key=lambda p: p.end).name}"
        if after:
            return f"before {min(after, key=lambda p: p.begin).name}"
        place = "the recording" if window.kind == "all" else window.name
        return f"{_percent(window.begin, window.end, event)}% of {place}"
    # Where one phase ends as the next begins, the moment is the end of the first: what is
    # counted there was allocated before it.
    phase = min(inside, key=lambda p: (event == p.begin, p.end - p.begin))
    if phase.name == "optimizer":
        return phase.name
    share = _percent(phase.begin, phase.end, event)
    same = [p for p in window.phases if p.name == phase.name]
    name = phase.name if len(same) == 1 else f"{phase.name} {same.index(phase) + 1}/{len(same)}"
    if share < _EDGE:
        return f"start of {name} ({share}%)"
    if share > 100 - _EDGE:
        return f"end of {name} ({share}%)"
    return f"{name} {share}%"


def _percent(begin: int, end: int, event: int) -> int:
    return 100 * (event - begin) // max(end - begin, 1)


def _from_marks(recording: Recording, moments: Moments) -> list[Window]:
    """Iterations that the recorder saw. Those whose ends cannot be placed are left out."""
    found = []
    phases = _phases(moments)
    firsts = [mark for mark, _ in phases]
    for step in (recording.meta or {}).get("iterations") or []:
        begin, end = moments.at_mark(step["begin"]), moments.at_mark(step["end"])
        if begin is None or end is None or end < begin:
            continue
        inside = phases[bisect_left(firsts, step["begin"]) : bisect_left(firsts, step["end"])]
        found.append(
            Window(
                name=f"iteration {step['index']}",
                kind="iteration",
                begin=begin,
                end=end,
                steady=step["whole"] and not step["compiled"],
                profiled=step["profiled"],
                index=step["index"],
                whole=step["whole"],
                compiled=step["compiled"],
                phases=tuple(p for _, p in inside),
                begin_ns=moments.time_ns(step["begin"]),
                end_ns=moments.time_ns(step["end"]),
                first_mark=step["begin"],
                last_mark=step["end"],
            )
        )
    return found


def _phases(moments: Moments) -> list[tuple[int, Phase]]:
    """(number of the first mark, phase) for every pair of begin and end marks that closes."""
    names = {"call": "forward", "backward": "backward", "optimizer": "optimizer"}
    open_marks: dict[tuple[str, str], list[int]] = {}
    found = []
    for mark in moments.marks():
        kind = moments.kind(mark)
        if kind not in names:
            continue
        key = (kind, moments.name(mark))
        if moments.edge(mark) == "begin":
            open_marks.setdefault(key, []).append(mark)
        elif moments.edge(mark) == "end" and open_marks.get(key):
            first = open_marks[key].pop()
            begin, end = moments.at_mark(first), moments.at_mark(mark)
            if begin is not None and end is not None and begin <= end:
                times = (moments.time_ns(first), moments.time_ns(mark))
                found.append((first, Phase(names[kind], begin, end, *times)))
    return sorted(found)


def _from_annotations(recording: Recording, moments: Moments) -> list[Window]:
    """torch's ``external_annotations``: START and END of 'ProfilerStep#N', placed by time."""
    begins: dict[int, tuple[int, int]] = {}  # moment and time of each step's begin
    ends: dict[int, tuple[int, int]] = {}
    for entry in recording.annotations:
        step = _STEP.match(str(entry.get("name", "")))
        time = entry.get("time_us")
        if step is None or not isinstance(time, int):
            continue
        moment = moments.at_time(time)
        if moment is not None:
            target = begins if str(entry.get("stage", "")).upper() == "START" else ends
            target.setdefault(int(step[1]), (moment, time * 1000))
    found = []
    for number, (begin, begin_ns) in sorted(begins.items()):
        whole = number in ends
        end, end_ns = ends.get(number, (moments.n, -1))
        found.append(
            Window(
                name=f"ProfilerStep#{number}",
                kind="iteration",
                begin=begin,
                end=max(end, begin),
                steady=whole,
                index=number,
                whole=whole,
                begin_ns=begin_ns,
                end_ns=end_ns,
            )
        )
    return found
