"""Whole recordings, one or two: every lifetime with its groups, and the rows of their peaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memtrace.analysis.diff import (
    DiffReport,
    attribute_alike,
    common_accounting,
    compare_peaks,
)
from memtrace.analysis.groups import Dimension
from memtrace.analysis.kinds import Kinds, find_kinds
from memtrace.analysis.peak import PeakReport, Subject, regroup, report_peak
from memtrace.analysis.rows import Row, gather_rows, merge_rows, sort_rows
from memtrace.snapshot.columns import Int64
from memtrace.symbols import Attribution, Symbol
from memtrace.symbols.sources import Sources
from memtrace.timeline import Accounting, Window, find_windows

DIMENSIONS: tuple[Dimension, ...] = ("symbol", "category", "layer")


@dataclass(frozen=True, slots=True)
class Overview:
    """A recording at chosen ``moments``, shape (moments,), with its ``total`` at each.

    ``numbers[by]`` are the weightiest of the report's rows, ``rows[by]`` their bytes and in a last
    column those of all others; shape (moments, rows + 1).
    """

    moments: Int64
    total: Int64
    numbers: Mapping[Dimension, list[int]]
    rows: Mapping[Dimension, Int64]


@dataclass(frozen=True, slots=True)
class History:
    """One recording. Moments are event numbers, as in ``timeline``; sizes are bytes.

    ``born`` and ``end`` have shape (lifetimes,): one counts at moment k if born < k ≤ end. Up to
    moment ``until`` it plays the part it was made for.
    ``total`` has shape (n_events + 1,) and holds at ``known_from`` and after. ``times`` are epoch
    microseconds of the events, never falling, None where the file has none. ``overview`` is None
    where all lifetimes are here; else they are those alive in the window.
    """

    report: PeakReport
    accounting: Accounting
    window: Window
    windows: tuple[Window, ...]
    n_events: int
    known_from: int
    total: Int64
    times: Int64 | None
    born: Int64
    end: Int64
    until: Int64
    kinds: Kinds
    sources: Mapping[str, str]
    titles: Mapping[str, str]
    overview: Overview | None = None

    @property
    def turns(self) -> Int64:
        """The moment after which a lifetime's late category holds, ``end`` where none does."""
        changes = (self.kinds.late != self.kinds.groups["category"])[self.kinds.of]
        return np.where(changes, np.minimum(np.maximum(self.until, self.born), self.end), self.end)


@dataclass(frozen=True, slots=True)
class PeakRow:
    """A row of the peaks, repeated layers folded, with the groups it stands for in each history."""

    row: Row
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """One history or two (baseline and candidate), and what their peaks consist of.

    ``rows[by]`` sum to the peak, or to ``gap_bytes`` where there are two.
    """

    histories: tuple[History, ...]
    rows: Mapping[Dimension, tuple[PeakRow, ...]]
    gap_bytes: int
    differences: tuple[str, ...]
    warnings: tuple[str, ...]


def _with_bytes(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Those that hold something: what only takes time is not on the page."""
    return tuple(row for row in rows if any(side.count for side in row.sides))


def report_history(subjects: Sequence[Subject]) -> HistoryReport:
    """The histories of one recording or two, in one accounting."""
    accounting = common_accounting(subjects)
    attributions = attribute_alike(subjects)
    pairs = list(zip(subjects, attributions, strict=True))
    reports = [report_peak(one, accounting=accounting, attribution=names) for one, names in pairs]
    tables: dict[Dimension, tuple[Row, ...]] = {}
    diff: DiffReport | None = None
    for by in DIMENSIONS:
        peaks = reports
        if by != "symbol":
            peaks = [regroup(*one, by) for one in zip(reports, subjects, attributions, strict=True)]
        if len(peaks) == 2:
            compared = compare_peaks(subjects, *peaks)
            diff = diff or compared
            tables[by] = _with_bytes(compared.rows)
        else:
            tables[by] = _with_bytes(peaks[0].rows)
    histories = tuple(
        _open(*one, accounting) for one in zip(subjects, attributions, reports, strict=True)
    )
    rows = {by: tuple(_place(tables[by], histories, by)) for by in DIMENSIONS}
    if diff is None:
        return HistoryReport(histories, rows, 0, (), ())
    return HistoryReport(histories, rows, diff.gap_bytes, diff.differences, diff.warnings)


def _open(
    subject: Subject, attribution: Attribution, report: PeakReport, accounting: Accounting
) -> History:
    run = subject.replay
    lifetimes = run.lifetimes
    sources = Sources(subject.recording.meta)
    kinds = find_kinds(subject, attribution, accounting, sources)
    used = {file for lines in kinds.line_sets for file, _ in lines}
    texts = (subject.recording.meta or {}).get("sources") or {}
    titles = {}
    for file in sorted(used):
        region = sources.region(file)
        if region is not None:
            titles[file] = "/".join(p for p in (region.module, region.phase, region.symbol) if p)
    return History(
        report=report,
        accounting=accounting,
        window=subject.window,
        windows=find_windows(subject.recording, run),
        n_events=run.n_events,
        known_from=run.allocated_from if accounting == "allocated" else 0,
        total=run.total(accounting),
        times=_times(subject),
        born=lifetimes.born,
        end=lifetimes.freed if accounting == "allocated" else lifetimes.completed,
        until=attribution.categories.turns(np.arange(len(lifetimes), dtype=np.int64)),
        kinds=kinds,
        sources={file: texts[file] for file in sorted(used)},
        titles=titles,
    )


def _times(subject: Subject) -> Int64 | None:
    """Clocks of several threads can differ by a little: a running maximum keeps the order."""
    device = subject.replay.device
    if device >= len(subject.recording.events) or not subject.replay.n_events:
        return None
    times = subject.recording.events[device].time_us
    return np.maximum.accumulate(times) if bool((times >= 0).all()) else None


def _place(rows: Sequence[Row], histories: Sequence[History], by: Dimension) -> list[PeakRow]:
    """Folded rows with their groups. No group is in two rows: what is held at the peak decides,
    and what a row makes at other moments only goes to it if no other row claims that."""
    free = [{s: g for g, s in enumerate(h.kinds.symbols[by])} for h in histories]
    gathered = gather_rows(rows)
    claims = [
        [
            [free[k].pop(s) for row in group if (s := _held(row, k)) is not None and s in free[k]]
            for k in range(len(histories))
        ]
        for group in gathered
    ]
    for group, groups in zip(gathered, claims, strict=True):
        for k, mine in enumerate(groups):
            if not mine:
                mine += [free[k].pop(row.symbol) for row in group if row.symbol in free[k]]
    merged = [merge_rows(group) for group in gathered]
    order = {id(row): k for k, row in enumerate(sort_rows(merged))}
    placed = [
        PeakRow(row, tuple(tuple(mine) for mine in groups))
        for row, groups in zip(merged, claims, strict=True)
    ]
    return sorted(placed, key=lambda one: order[id(one.row)])


def _held(row: Row, side: int) -> Symbol | None:
    """What a side calls the row, None where it holds none of it at its peak."""
    if not row.sides[side].count:
        return None
    return row.renamed if row.renamed is not None and side == 0 else row.symbol
