"""Thinning keeps the peak and only moments that existed; parts sum to the total at each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtrace.analysis import open_subject
from memtrace.analysis.history import DIMENSIONS, report_history
from memtrace.analysis.overview import compose, shorten, thin, totals_at
from memtrace.snapshot import read
from memtrace.timeline import live

SAMPLE = "samples/qwen2-L4-eager-nvfuser.pkl.gz"
LIFETIMES = st.lists(
    st.tuples(st.integers(-1, 30), st.integers(0, 30), st.integers(0, 1 << 40), st.integers(0, 3)),
    max_size=30,
)


def test_each_stretch_gives_its_greatest_moment():
    total = np.array([1, 5, 2, 2, 9, 9, 0, 3])
    assert thin(total, 0, 7, 4).tolist() == [1, 2, 4, 7]
    assert thin(total, 2, 5, 2).tolist() == [2, 4]


def test_few_moments_all_stay():
    assert thin(np.zeros(9, dtype=np.int64), 3, 6, 4).tolist() == [3, 4, 5, 6]


@given(st.lists(st.integers(0, 1 << 50), min_size=1, max_size=200), st.integers(1, 40), st.data())
def test_thinning_keeps_the_peak_and_order(totals, columns, data):
    total = np.array(totals, dtype=np.int64)
    begin = data.draw(st.integers(0, len(totals) - 1))
    end = data.draw(st.integers(begin, len(totals) - 1))
    chosen = thin(total, begin, end, columns)
    assert len(chosen) == min(columns, end - begin + 1)
    assert (np.diff(chosen) > 0).all()
    assert begin <= chosen[0]
    assert chosen[-1] <= end
    assert total[chosen].max() == total[begin : end + 1].max()
    # The first moment of the peak itself, as timeline.peak gives it.
    assert begin + int(total[begin : end + 1].argmax()) in chosen


@given(LIFETIMES, st.sets(st.integers(0, 31), min_size=1))
def test_totals_are_those_of_the_lifetimes_alive(rows, moments):
    born = np.array([row[0] for row in rows], dtype=np.int64)
    end = born + np.array([row[1] for row in rows], dtype=np.int64)
    size = np.array([row[2] for row in rows], dtype=np.int64)
    group = np.array([row[3] for row in rows], dtype=np.int64)
    at = np.array(sorted(moments), dtype=np.int64)
    totals = totals_at(at, born, end, size, group, 4)
    for line, moment in zip(totals, at.tolist(), strict=True):
        alive = (born < moment) & (end >= moment)
        assert line.tolist() == [int(size[alive & (group == g)].sum()) for g in range(4)]


@pytest.fixture(scope="module")
def report():
    return report_history([open_subject(read(SAMPLE))])


@pytest.mark.parametrize("by", DIMENSIONS)
def test_parts_sum_to_the_total_at_every_moment(report, by):
    (history,) = report.histories
    moments = np.arange(history.n_events + 1)
    rows = [one.groups[0] for one in report.rows[by]]
    parts = compose(history, rows, by, moments)
    assert (parts.sum(axis=1) == history.total).all()
    at_peak = parts[history.report.event].tolist()
    assert at_peak == [*(one.row.sides[0].bytes for one in report.rows[by]), 0]


def test_a_shortened_history_keeps_the_window_whole_and_the_rest_in_overview(report):
    (history,), (short,) = report.histories, shorten(report).histories
    assert len(short.born) < len(history.born)
    run = open_subject(read(SAMPLE)).replay
    for moment in (history.window.begin, history.report.event, history.window.end):
        alive = (short.born < moment) & (short.end >= moment)
        assert int(alive.sum()) == len(live(run, moment, history.accounting))
    overview = short.overview
    assert history.report.event in overview.moments
    assert (overview.total == history.total[overview.moments]).all()
    assert overview.total.max() == history.total.max()
    for by in DIMENSIONS:
        assert (overview.rows[by].sum(axis=1) == overview.total).all()
