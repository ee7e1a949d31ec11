"""A long history in few moments: ones that existed, the peaks among them, exact sums.

A curve of a million totals is drawn on a thousand columns of pixels. The moment that stands for a
column is the one at which the total is greatest, and what is drawn there is what was alive at that
very moment: thinning each part by itself would draw stacks that never existed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from memtrace.analysis.groups import Dimension
from memtrace.analysis.history import DIMENSIONS, History, HistoryReport, Overview, PeakRow
from memtrace.analysis.kinds import SLACK_GROUP
from memtrace.snapshot.columns import Int64

_MOMENTS = 4000  # of a recording that is too long for all of its lifetimes
_ROWS = 24  # that these moments are made up of; the rest is one


def thin(total: Int64, begin: int, end: int, columns: int) -> Int64:
    """Moments from ``begin`` to ``end`` (both included), one for each of ``columns`` stretches.

    From each stretch the first moment of its greatest total; all of them where there are no more
    moments than columns. Ascending. ``total[k]`` is the total at moment k.
    """
    count = end - begin + 1
    if count <= columns:
        return np.arange(begin, end + 1, dtype=np.int64)
    edges = np.arange(columns, dtype=np.int64) * count // columns
    stretch = total[begin : end + 1]
    greatest = np.maximum.reduceat(stretch, edges)
    lengths = np.diff(np.append(edges, count))
    hits = np.flatnonzero(stretch == np.repeat(greatest, lengths))
    of = np.searchsorted(edges, hits, side="right") - 1
    first = np.concatenate(([True], of[1:] != of[:-1]))
    return begin + hits[first]


def totals_at(
    moments: Int64, born: Int64, end: Int64, sizes: Int64, groups: Int64, n_groups: int
) -> Int64:
    """Bytes of each group at each of some ascending moments; shape (moments, groups).

    A lifetime counts at moment k if ``born`` < k ≤ ``end``, as in ``timeline.live``.
    """
    change = np.zeros((len(moments) + 1, n_groups), dtype=np.int64)
    np.add.at(change, (np.searchsorted(moments, born, side="right"), groups), sizes)
    np.subtract.at(change, (np.searchsorted(moments, end, side="right"), groups), sizes)
    totals: Int64 = np.cumsum(change, axis=0)[:-1]
    return totals


def compose(
    history: History, rows: Sequence[Sequence[int]], by: Dimension, moments: Int64
) -> Int64:
    """Bytes of each row, given as its groups, at each moment, and of all that no row has.

    Shape (moments, rows + 1); each line sums to the total at its moment.
    """
    kinds = history.kinds
    row_of = np.full(len(kinds.symbols[by]), len(rows), dtype=np.int64)
    for number, groups in enumerate(rows):
        row_of[list(groups)] = number
    requested, slack = kinds.requested[kinds.of], kinds.slack[kinds.of]
    first = row_of[kinds.groups[by]][kinds.of]
    born, end = history.born, history.end
    turns, late = end, first
    if by == "category":
        turns, late = history.turns, row_of[kinds.late][kinds.of]
    later = np.flatnonzero(turns < end)
    pieces = (
        (born, turns, requested, first),
        (turns[later], end[later], requested[later], late[later]),
        (born, end, slack, np.full(len(born), row_of[SLACK_GROUP])),
    )
    columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
    return totals_at(moments, columns[0], columns[1], columns[2], columns[3], len(rows) + 1)


def shorten(report: HistoryReport) -> HistoryReport:
    """The report with the lifetimes alive in the windows only, and an overview of the rest."""
    histories = (_shorten(h, report, k) for k, h in enumerate(report.histories))
    return replace(report, histories=tuple(histories))


def _shorten(history: History, report: HistoryReport, number: int) -> History:
    """One history: its moments are one a stretch, and the peak's always."""
    chosen = thin(history.total, history.known_from, history.n_events, _MOMENTS)
    moments = np.union1d(chosen, [history.report.event]).astype(np.int64)
    numbers = {by: _weightiest(report.rows[by]) for by in DIMENSIONS}
    rows = {
        by: compose(history, [report.rows[by][k].groups[number] for k in numbers[by]], by, moments)
        for by in DIMENSIONS
    }
    begin, end = history.window.begin, history.window.end
    kept = np.flatnonzero((history.born < end) & (history.end >= begin))
    return replace(
        history,
        born=history.born[kept],
        end=history.end[kept],
        until=history.until[kept],
        kinds=replace(history.kinds, of=history.kinds.of[kept]),
        overview=Overview(moments, history.total[moments], numbers, rows),
    )


def _weightiest(rows: Sequence[PeakRow]) -> list[int]:
    weights = [max(side.bytes for side in one.row.sides) for one in rows]
    return sorted(range(len(rows)), key=lambda k: -weights[k])[:_ROWS]
