"""A small recording cut out of a large one, of which the same is to be said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from memtrace.analysis.peak import Subject, say_differences
from memtrace.errors import MemtraceError
from memtrace.snapshot.columns import Recording, Segment
from memtrace.snapshot.format import FORMAT, Device, Marks, Meta
from memtrace.snapshot.part import Part, PartDevice
from memtrace.symbols import Attribution, attribute
from memtrace.symbols.categories import CATEGORIES
from memtrace.symbols.kernels import name_kernels
from memtrace.symbols.part import NameTable
from memtrace.timeline import Replay, Window, reconcile, reconciled, replay, settle
from memtrace.timeline.cut import Piece, cut_history
from memtrace.timeline.moments import Moments
from memtrace.timeline.replay import device_meta, is_cpu, part_of

_STEP = "ProfilerStep#"


@dataclass(frozen=True, slots=True)
class _Cut:
    """One device's history and the piece of it."""

    whole: Replay  # settled at the piece's begin
    piece: Piece


def trim(subject: Subject, *, to_end: bool = False) -> Recording:
    """The window of ``subject`` as a recording of its own; with ``to_end`` what follows it, too.

    Peaks, rows, times and what is said of completeness are those of the whole recording, for all of
    its devices. Raises MemtraceError where the history is too broken to be cut there.
    """
    recording, window = subject.recording, subject.window
    if len(recording.events) == 0:
        raise MemtraceError(f"{recording.path}: has no history, so there is nothing to cut")
    cuts = [_cut(subject, device, to_end) for device in range(len(recording.events))]
    found = replace(
        recording,
        events=tuple(cut.piece.events for cut in cuts),
        segments=tuple(s for cut in cuts for s in _segments(recording, cut)),
        start_segments=tuple(s for cut in cuts for s in cut.piece.start),
        annotations=_annotations(recording, window, cuts[subject.replay.device], to_end),
        meta=_meta(subject, cuts, to_end),
    )
    for cut in cuts:
        _check(found, cut)
    return found


def _cut(subject: Subject, device: int, to_end: bool) -> _Cut:
    recording = subject.recording
    run = subject.replay if device == subject.replay.device else replay(recording, device)
    begin, end = _moments(recording, run, subject.window, to_end)
    run = settle(run, begin)
    return _Cut(run, cut_history(recording, run, begin, end, cpu=is_cpu(recording)))


def _segments(recording: Recording, cut: _Cut) -> Sequence[Segment]:
    """At the end of the piece; torch's own where the recording ends there and they fit."""
    ends = cut.piece.end == cut.whole.n_events and cut.whole.end_mismatches == 0
    if not cut.piece.blocks or not ends:
        return cut.piece.segments
    return [s for s in recording.segments if s.device == cut.whole.device]


def _moments(recording: Recording, run: Replay, window: Window, to_end: bool) -> tuple[int, int]:
    """The window's ends in a device's own history; all of it where they are not known there."""
    n = run.n_events
    if window.kind == "all":
        return 0, n
    moments = Moments(recording, run)
    ends: list[int | None] = []
    for mark, time_ns in ((window.first_mark, window.begin_ns), (window.last_mark, window.end_ns)):
        if mark >= 0:
            ends.append(moments.at_mark(mark))
        else:
            ends.append(moments.at_time(time_ns // 1000) if time_ns >= 0 else None)
    begin = 0 if ends[0] is None else ends[0]
    end = n if ends[1] is None or to_end else ends[1]
    return begin, max(begin, end)


def _check(found: Recording, cut: _Cut) -> None:
    """The piece, replayed, must give the totals of the whole."""
    begin, end = cut.piece.begin, cut.piece.end
    again = replay(found, cut.whole.device)
    pairs = [(again.requested, cut.whole.requested)]
    if cut.piece.blocks and cut.whole.allocated is not None and again.allocated is not None:
        pairs.append((again.allocated, cut.whole.allocated))
    known = (again.allocated is None) == (cut.whole.allocated is None)
    same = all(np.array_equal(ours, theirs[begin : end + 1]) for ours, theirs in pairs)
    if not known or not same or len(again.lifetimes) != len(cut.piece.rows):
        raise MemtraceError(
            f"{found.path}: the history of device {cut.whole.device} is too inconsistent to be cut "
            "there; choose another --window"
        )


def _meta(subject: Subject, cuts: Sequence[_Cut], to_end: bool) -> dict[str, Any]:
    recording, window = subject.recording, subject.window
    meta = recording.meta or _no_meta()
    whole = window.kind == "all"
    last = len(meta["marks"]["kind"]) - 1 if whole or to_end else window.last_mark
    first = 0 if whole else window.first_mark
    inside = range(first, last + 1) if first >= 0 else range(0)
    return {
        **meta,
        "devices": [_device(recording, cut) for cut in cuts],
        "marks": {**meta["marks"], "event": _place_marks(recording, cuts, inside)},
        "part": _part(subject, cuts),
    }


def _no_meta() -> dict[str, Any]:
    """What a plain snapshot, which has none, would say."""
    marks = Marks(kind=[], edge=[], name=[], time_ns=[], event=[], stats=[])
    meta = Meta(
        format=FORMAT,
        label="",
        facts={},
        devices=[],
        marks=marks,
        iterations=[],
        profile=None,
        owners=[],
        sources={},
        thunder=[],
        fx={},
    )
    return dict(meta)


def _device(recording: Recording, cut: _Cut) -> dict[str, Any]:
    """The device's entry: what came before the piece counts as before the recording."""
    begin, end = cut.piece.begin, cut.piece.end
    known: Any = device_meta(recording, cut.whole.device) or Device(
        index=cut.whole.device,
        name="",
        total_bytes=-1,
        outside_bytes=-1,
        start_events=-1,
        dropped_events=0,
        start_segments=[],
        peaks=[],
    )
    before = known["start_events"]
    if begin or cut.piece.start:
        before = max(before, 0) + max(known["dropped_events"], 0) + begin or 1
    return {
        **known,
        "start_events": before,
        "dropped_events": 0,
        "peaks": [
            {**peak, "begin": peak["begin"] - begin, "end": peak["end"] - begin}
            for peak in known["peaks"]
            if begin <= peak["begin"] and 0 <= peak["end"] <= end
        ],
    }


def _place_marks(recording: Recording, cuts: Sequence[_Cut], inside: range) -> list[list[int]]:
    """Each mark's event in each piece, -1 for those that are not ``inside`` the part."""
    moments = [Moments(recording, cut.whole) for cut in cuts]
    rows = []
    for mark in moments[0].marks():
        row = [-1] * len(cuts)
        if mark in inside:
            for d, cut in enumerate(cuts):
                at = moments[d].at_mark(mark)
                if at is not None and cut.piece.begin <= at <= cut.piece.end:
                    row[d] = at - cut.piece.begin
        rows.append(row)
    return rows


def _annotations(
    recording: Recording, window: Window, cut: _Cut, to_end: bool
) -> list[dict[str, Any]]:
    """Those within the part; of the profiler's steps only the window's own."""
    if window.kind == "all":
        return recording.annotations
    if window.first_mark < 0:
        steps = _step_numbers(window)
        return [a for a in recording.annotations if _step_number(a) in steps]
    times = cut.piece.events.time_us
    low, high = (int(times.min()), int(times.max())) if len(times) else (0, -1)
    return [
        a
        for a in recording.annotations
        if isinstance(a.get("time_us"), int)
        and low <= a["time_us"] <= high
        and _step_number(a) is None
    ]


def _step_numbers(window: Window) -> range:
    first, _, last = window.name.rpartition(" ")[2].removeprefix(_STEP).partition("-")
    return range(int(first), int(last or first) + 1)


def _step_number(annotation: dict[str, Any]) -> int | None:
    name = str(annotation.get("name", ""))
    number = name.removeprefix(_STEP)
    return int(number) if name.startswith(_STEP) and number.isdecimal() else None


def _part(subject: Subject, cuts: Sequence[_Cut]) -> Part:
    recording = subject.recording
    table = NameTable()
    devices = [_part_device(recording, cut, table, subject.has_profile) for cut in cuts]
    kernels: list[list[int]] = [[], []]
    if subject.has_profile:
        for k, operators in enumerate((True, False)):
            names = name_kernels(recording, subject.replay, operators=operators)
            kernels[k] = table.rows(names.namings, names.rows)
    symbols, tensors, namings = table.tables()
    return Part(
        window=subject.window.name,
        device=subject.replay.device,
        symbols=symbols,
        tensors=tensors,
        namings=namings,
        devices=devices,
        kernels=kernels[0],
        bare_kernels=kernels[1],
    )


def _part_device(
    recording: Recording, cut: _Cut, table: NameTable, has_profile: bool
) -> PartDevice:
    whole, rows = cut.whole, cut.piece.rows
    known = part_of(recording, whole.device)
    named = attribute(recording, whole)
    bare = attribute(recording, whole, operators=False) if has_profile else named
    checks = reconcile(recording, whole)
    return PartDevice(
        index=whole.device,
        blocks=cut.piece.blocks,
        complete=whole.complete,
        warnings=list(whole.warnings),
        reconciled=reconciled(checks, known),
        differing=say_differences(checks, known),
        births=whole.lifetimes.address[rows[whole.lifetimes.born[rows] < cut.piece.begin]].tolist(),
        name=table.rows(named.namings, named.rows[rows]),
        bare=table.rows(bare.namings, bare.rows[rows]),
        category=_categories(named, rows),
        late=_categories(named, rows, whole.n_events + 1),
        turn=(named.categories.turns(rows) - cut.piece.begin).tolist(),
    )


def _categories(named: Attribution, rows: Any, at: int | None = None) -> list[str]:
    return [CATEGORIES[number] for number in named.categories.numbers(rows, at).tolist()]
