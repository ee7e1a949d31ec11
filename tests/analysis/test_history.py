"""Histories: the rows of the peaks with their groups, exactly those of peak and diff."""

import numpy as np
import pytest

from memtrace.analysis import fold_rows, open_subject, report_diff, report_peak
from memtrace.analysis.history import DIMENSIONS, report_history
from memtrace.snapshot import read
from memtrace.symbols.categories import CATEGORIES

A = "samples/qwen2-L4-eager-torchcompile.pkl.gz"
B = "samples/qwen2-L4-eager-nvfuser.pkl.gz"


@pytest.fixture(scope="module")
def subjects():
    return [open_subject(read(path)) for path in (A, B)]


def held(rows):
    """Without symbols that only take time."""
    return [row for row in rows if any(side.count for side in row.sides)]


@pytest.fixture(scope="module")
def report(subjects):
    return report_history(subjects)


@pytest.mark.parametrize("by", DIMENSIONS)
def test_rows_of_two_are_the_folded_rows_of_the_diff(subjects, report, by):
    expected = report_diff(*subjects, by=by)
    assert [one.row for one in report.rows[by]] == fold_rows(held(expected.rows))
    assert report.gap_bytes == expected.gap_bytes
    assert sum(one.row.delta for one in report.rows[by]) == expected.gap_bytes


@pytest.mark.parametrize("by", DIMENSIONS)
def test_rows_of_one_are_the_folded_rows_of_the_peak(subjects, by):
    alone = report_history(subjects[:1])
    expected = held(report_peak(subjects[0], by=by).rows)
    assert [one.row for one in alone.rows[by]] == fold_rows(expected)


@pytest.mark.parametrize("by", DIMENSIONS)
def test_groups_hold_what_their_row_says_and_are_in_one_row_only(report, by):
    for side, history in enumerate(report.histories):
        moment = history.report.event
        alive = np.flatnonzero((history.born < moment) & (history.end >= moment))
        kinds = history.kinds
        late = (by == "category") & (history.turns[alive] < moment)
        groups = np.where(late, kinds.late[kinds.of[alive]], kinds.groups[by][kinds.of[alive]])
        seen: set[int] = set()
        for one in report.rows[by]:
            mine = one.groups[side]
            assert not seen & set(mine)
            seen |= set(mine)
            held = kinds.of[alive[np.isin(groups, mine)]]
            expected = one.row.sides[side].bytes
            if one.row.symbol.name == "<block slack>":
                assert int(kinds.slack[kinds.of[alive]].sum()) == expected
            else:
                assert int(kinds.requested[held].sum()) == expected


def test_categories_at_any_moment_are_those_asked_for_at_it(subjects, report):
    """What an iteration saved and did not let go is nothing saved any more, once it is over."""
    from memtrace.symbols import attribute
    from memtrace.timeline import live

    for subject, history in zip(subjects, report.histories, strict=True):
        categories = attribute(subject.recording, subject.replay).categories
        names = [symbol.text for symbol in history.kinds.symbols["category"]]
        for moment in range(0, history.n_events + 1, 997):
            rows = live(subject.replay, moment, history.accounting)
            asked = [CATEGORIES[n] for n in categories.numbers(rows, moment).tolist()]
            late = history.turns[rows] < moment
            kind = history.kinds.of[rows]
            groups = np.where(
                late, history.kinds.late[kind], history.kinds.groups["category"][kind]
            )
            for name, expected in zip((names[g] for g in groups.tolist()), asked, strict=True):
                assert name == expected or name.startswith("<")
