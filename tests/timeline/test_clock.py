"""Events' times: they increase, keep the events' order, and stay in their microsecond."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from memtrace.timeline import Clock, replay
from tests.builders import events, recording


def clock(times, **more):
    rows = [("alloc", 0x1000 * (k + 1), 8, 0, 0, time) for k, time in enumerate(times)]
    one = recording(events(*rows))
    return Clock(one, replay(one), **more)


def test_events_of_one_microsecond_lie_behind_each_other_within_it():
    found = clock([500, 501, 501, 501, 503])
    assert found.start_ns == 500_000
    assert found.events.tolist() == [0, 1000, 1002, 1004, 3000]


def test_a_time_that_goes_back_keeps_the_events_order():
    assert clock([500, 510, 508, 520]).events.tolist() == [0, 10_000, 10_002, 20_000]


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=50))
def test_times_increase_and_none_is_early(steps):
    times = [sum(steps[: k + 1]) for k in range(len(steps))]
    found = clock(times).events.tolist()
    assert all(b - a >= 2 for a, b in pairwise(found))
    for time, ns in zip(times, found, strict=True):
        assert 0 <= ns - 1000 * (time - times[0]) < 2 * len(times)


def test_without_times_events_are_counted():
    for found in (clock([-1, -1, -1]), clock([7, -1, 9]), clock([7, 8, 9], timed=False)):
        assert found.start_ns is None
        assert found.events.tolist() == [0, 1000, 2000]
    assert clock([1 << 62, 1 << 62]).start_ns is None  # no year of ours
    assert clock([5, 1 << 50]).start_ns is None  # nor a recording's length
    assert clock([]).events.tolist() == []


def test_a_mark_lies_between_its_events():
    found = clock([500, 501, 501, 600])
    assert found.place(3, 550_000) == 50_000  # where it was seen
    assert found.place(3, 501_000) == 1003  # not before the event that precedes it
    assert found.place(2, 900_000) == 1001  # nor after the one that follows
    assert found.place(0, 400_000) == -100_000
    assert found.place(4, 700_000) == 200_000
    assert found.place(2, -1) == 1001
    assert found.place(3, -1) == 99_999
    assert found.place(3, -1, early=True) == 1003
    assert found.place(0, 1 << 63) == found.place(0, -1) == -1
