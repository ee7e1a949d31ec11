"""Two recordings in one trace, pass beside pass.

Both windows begin at the same instant, and so does each pass (and each iteration, where the window
has several) that both have. No time is stretched: the run that is through with a pass sooner waits
for the other one, which is drawn. So both peaks stand above each other, every pass is as long as it
was, and what outlives a pass is longer by the waits within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memtrace.analysis.diff import DiffReport
from memtrace.analysis.groups import Groups, group_lifetimes
from memtrace.analysis.peak import Subject
from memtrace.analysis.rows import OTHERS, Row
from memtrace.analysis.tracks.lanes import arrange
from memtrace.analysis.tracks.model import Counter, Facts, Process, Slices, Trace, Value
from memtrace.analysis.tracks.run import count, count_all, describe_facts, lay_tracks, move, tell
from memtrace.analysis.tracks.scope import Scope, open_scope
from memtrace.snapshot.columns import Int64
from memtrace.symbols import Symbol, attribute
from memtrace.symbols.alignment import align
from memtrace.timeline import Clock

_MOST_ROWS = 16  # rows of the gap with a counter of their own; the rest is summed

_Key = tuple[int, str, int]  # iteration, pass, which of that name; ('', 0) the iteration itself


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run's own times of the moments that both wait for, and when they are in the trace.

    Both columns ascend and have shape (moments,); the first is the window's begin, the last its
    end. ``names`` say what begins at each.
    """

    own: Int64
    shared: Int64
    names: Sequence[str]

    def begins(self, time: Int64) -> Int64:
        """Where times lie in the trace; what begins at a moment begins after the wait for it."""
        row = np.searchsorted(self.own, time, side="right") - 1
        return self._shift(time, row)

    def ends(self, time: Int64) -> Int64:
        """The same for what ends: before the wait."""
        row = np.searchsorted(self.own, time, side="left") - 1
        return self._shift(time, row)

    def _shift(self, time: Int64, row: Int64) -> Int64:
        row = np.clip(row, 0, len(self.own) - 1)
        return time - self.own[row] + self.shared[row]

    def waits(self, other: str) -> Slices | None:
        """The waits as a track, None where there are none."""
        done = self.shared[:-1] + np.diff(self.own)
        rows = np.flatnonzero(done < self.shared[1:])
        if not len(rows):
            return None
        labels = [f"waits for {other}: {self.names[row + 1]}" for row in rows.tolist()]
        numbers = np.arange(len(rows), dtype=np.int32)
        return arrange(
            "waits", done[rows], self.shared[rows + 1], (labels, numbers), ([{}], numbers * 0),
            about="Time put in, so that each pass begins with that of the other run.",
        )  # fmt: skip


def describe_pair(report: DiffReport, baseline: Subject, candidate: Subject) -> Trace:
    """The two windows that ``report`` compares, A and B, and their gap over time."""
    subjects = (baseline, candidate)
    operators = baseline.has_profile == candidate.has_profile
    timed = all(Clock(s.recording, s.replay).start_ns is not None for s in subjects)
    scopes = [
        open_scope(
            subject,
            attribute(subject.recording, subject.replay, operators=operators),
            report.baseline.accounting,
            timed=timed,
        )
        for subject in subjects
    ]
    schedules = _meet(*scopes)
    processes: list[Process] = []
    facts: dict[str, Value] = {}
    said: list[str] = []
    for letter, scope, schedule in zip("AB", scopes, schedules, strict=True):
        tracks, notes = lay_tracks(scope)
        own, _ = describe_facts(scope, notes)
        said += [f"{letter}: {note}" for note in notes]
        wait = schedule.waits("B" if letter == "A" else "A")
        shown = [tell(own), *([wait] if wait else []), *(_retime(t, schedule) for t in tracks)]
        processes.append(Process(f"memtrace {letter} {own['label']}", shown))
        facts.update({f"{letter} {key}": value for key, value in own.items()})
    both: Facts = {
        "differences": report.differences,
        "alignment": "passes begin together; the run that is through sooner waits",
        "notes": report.warnings,
    }
    processes.insert(
        0, Process("memtrace A and B", [tell(both), *_compare(report, scopes, schedules)])
    )
    first = min(
        int((t.time if isinstance(t, Counter) else t.begin).min(initial=0))
        for process in processes
        for t in process.tracks
    )
    return Trace(
        [replace(p, tracks=[move(t, -first) for t in p.tracks]) for p in processes],
        None,
        {**both, **facts},
        tuple(said),
    )


def _meet(a: Scope, b: Scope) -> tuple[Schedule, Schedule]:
    """When both runs do what both do."""
    steps = [_moments(scope) for scope in (a, b)]
    pairs = align([key for key, _ in steps[0]], [key for key, _ in steps[1]])
    names = ["begin", *(_name(steps[0][i][0]) for i, _ in pairs), "end"]
    own = [
        np.maximum.accumulate(
            np.array([scope.start, *(one[pair[k]][1] for pair in pairs), scope.stop], np.int64)
        )
        for k, (scope, one) in enumerate(zip((a, b), steps, strict=True))
    ]
    lengths = np.maximum(np.diff(own[0]), np.diff(own[1]))
    shared = np.concatenate(([0], np.cumsum(lengths)))
    return Schedule(own[0], shared, names), Schedule(own[1], shared, names)


def _moments(scope: Scope) -> list[tuple[_Key, int]]:
    """What begins in a scope, and its own time, in order."""
    found: list[tuple[_Key, int]] = []
    for number, window in enumerate(scope.windows):
        start = scope.span(window.begin, window.end, window.begin_ns, window.end_ns)[0]
        found.append(((number, "", 0), start))
        seen: dict[str, int] = {}
        for one in sorted(window.phases, key=lambda phase: phase.begin):
            seen[one.name] = seen.get(one.name, 0) + 1
            start = scope.span(one.begin, one.end, one.begin_ns, one.end_ns)[0]
            found.append(((number, one.name, seen[one.name]), start))
    return sorted(found, key=lambda item: item[1])


def _name(key: _Key) -> str:
    number, name, nth = key
    return f"{name} {nth}" if nth > 1 else name or f"iteration {number + 1} of the window"


def _retime(track: Counter | Slices, schedule: Schedule) -> Counter | Slices:
    if isinstance(track, Counter):
        return replace(track, time=schedule.begins(track.time))
    begin = schedule.begins(track.begin)
    end = None if track.end is None else np.maximum(schedule.ends(track.end), begin)
    return replace(track, begin=begin, end=end)


def _compare(
    report: DiffReport, scopes: Sequence[Scope], schedules: Sequence[Schedule]
) -> list[Counter]:
    """The totals of both above each other, and what B has more than A, whole and in parts."""
    found: list[Counter] = []
    totals = [
        {c.name: c for c in _retime_all(count_all(scope), schedule)}
        for scope, schedule in zip(scopes, schedules, strict=True)
    ]
    for name in (name for name in totals[0] if name in totals[1]):
        a, b = totals[0][name], totals[1][name]
        found += [replace(a, name=f"{name} A"), replace(b, name=f"{name} B")]
        if name == report.baseline.accounting:
            found.append(_subtract(f"{name} gap, B − A", a, b, ""))
    parts = [
        group_lifetimes(scope.subject.replay, scope.attribution, "category") for scope in scopes
    ]
    found += _subtract_all("gap by category", scopes, schedules, parts)
    return found + _subtract_all("gap by symbol", scopes, schedules, _rows(report, scopes))


def _rows(report: DiffReport, scopes: Sequence[Scope]) -> list[Groups]:
    """The lifetimes of each run by the report's weightiest rows, the rest in ``<others>``."""
    rows = [row for row in report.rows[:_MOST_ROWS] if row.delta]
    found = []
    for side, scope in enumerate(scopes):
        groups = group_lifetimes(scope.subject.replay, scope.attribution, "symbol")
        owner: dict[Symbol, Symbol] = {}
        # A row claims first what it holds at the peak, then what bears its name.
        for held in (True, False):
            for row in rows:
                if bool(row.sides[side].count) == held:
                    owner.setdefault(_symbol(row, side), row.symbol)
        symbols = list(dict.fromkeys([*(row.symbol for row in rows), OTHERS]))
        number = {symbol: k for k, symbol in enumerate(symbols)}
        table = [number[owner.get(symbol, OTHERS)] for symbol in groups.symbols]
        found.append(Groups(symbols, np.array(table, np.int32)[groups.rows]))
    return found


def _symbol(row: Row, side: int) -> Symbol:
    return row.renamed if side == 0 and row.renamed is not None else row.symbol


def _subtract_all(
    folder: str, scopes: Sequence[Scope], schedules: Sequence[Schedule], groups: Sequence[Groups]
) -> list[Counter]:
    """B − A for each group that either has, the one with the greatest gap first."""
    sides = [
        {c.name: c for c in _retime_all(count(scope, "", group), schedule)}
        for scope, schedule, group in zip(scopes, schedules, groups, strict=True)
    ]
    names = dict.fromkeys([*sides[0], *sides[1]])
    found = [_subtract(name, sides[0].get(name), sides[1].get(name), folder) for name in names]
    return sorted(found, key=lambda c: -int(np.abs(c.value).max(initial=0)))


def _retime_all(counters: Sequence[Counter], schedule: Schedule) -> list[Counter]:
    return [replace(c, time=schedule.begins(c.time)) for c in counters]


def _subtract(name: str, a: Counter | None, b: Counter | None, folder: str) -> Counter:
    """b − a at every time at which one of them changes."""
    nothing = np.zeros(0, np.int64)
    times = np.union1d(a.time if a else nothing, b.time if b else nothing)
    value = _at(b, times) - _at(a, times)
    return Counter(name, times, value, folder, "gap", "What B has more than A at this moment.")


def _at(counter: Counter | None, times: Int64) -> Int64:
    if counter is None:
        return np.zeros(len(times), np.int64)
    row = np.searchsorted(counter.time, times, side="right") - 1
    return np.where(row < 0, 0, counter.value[np.maximum(row, 0)])
