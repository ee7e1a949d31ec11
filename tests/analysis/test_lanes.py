"""Slices on lanes: nothing crosses, and no lane is wasted."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memtrace.analysis.tracks.lanes import arrange, nest, order_slices, pack

stretches = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda s: (s[0], s[0] + s[1])),
    max_size=40,
)


def columns(found):
    table = np.array(found, np.int64).reshape(-1, 2)
    order = order_slices(table[:, 0], table[:, 1])
    return table[order, 0], table[order, 1]


def most_at_once(begin, end):
    """How many are open at one time, counted at every begin of a slice that is not empty."""
    alive = [np.count_nonzero((begin <= t) & (end > t)) for t in begin]
    return max(alive, default=0)


@given(stretches)
def test_packed_slices_never_overlap_and_take_as_few_lanes_as_can_be(found):
    begin, end = columns(found)
    lane = pack(begin, end)
    for one in set(lane.tolist()):
        rows = np.flatnonzero(lane == one)
        assert (end[rows][:-1] <= begin[rows][1:]).all()
    if len(begin) and (end > begin).all():
        assert lane.max() + 1 == most_at_once(begin, end)


@given(stretches)
def test_nested_slices_lie_within_each_other_or_apart(found):
    begin, end = columns(found)
    lane, stop = nest(begin, end)
    for a in range(len(begin)):
        for b in range(a + 1, len(begin)):
            if lane[a] == lane[b]:
                assert stop[a] <= begin[b] or stop[b] <= stop[a]
    if lane.max(initial=0) < 15:
        assert stop.tolist() == end.tolist()


def test_what_nests_stays_on_one_lane_and_what_crosses_moves():
    begin, end = columns([(0, 10), (0, 4), (4, 10), (5, 6), (8, 12)])
    lane, stop = nest(begin, end)
    assert lane.tolist() == [0, 0, 0, 0, 1]
    assert stop.tolist() == end.tolist()


def test_only_beyond_sixteen_lanes_something_is_cut():
    begin, end = columns([(k, 100 + k) for k in range(20)])
    lane, stop = nest(begin, end)
    assert lane.max() == 15
    assert (stop != end).sum() == 4


@given(stretches)
def test_arranging_keeps_every_slice(found):
    begin = np.array([s[0] for s in found], np.int64)
    end = np.array([s[1] for s in found], np.int64)
    row = np.arange(len(found), dtype=np.int32)
    names = [str(k) for k in range(len(found))]
    slices = arrange("x", begin, end, (names, row), ([{}], row * 0), {"number": begin * 7})
    assert sorted(slices.label.tolist()) == row.tolist()
    for k in range(len(slices)):
        was = slices.label[k]
        assert (slices.begin[k], slices.end[k]) == found[was]
        assert slices.numbers["number"][k] == 7 * begin[was]
    assert (np.diff(slices.lane) >= 0).all()
