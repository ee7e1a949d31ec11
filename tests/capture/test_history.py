"""Positions of marks in the CUDA allocator's history, without a GPU."""

from __future__ import annotations

import random
from typing import Any

from memtrace.capture.history import Reading
from memtrace.capture.patches import Notes
from memtrace.capture.positions import Positions
from memtrace.snapshot.format import STAT_FIELDS

COUNTER = {"alloc": 0, "free_requested": 1, "free_completed": 2}
SEGMENTS = {"segment_alloc": 1, "segment_free": -1, "segment_map": 1, "segment_unmap": -1}


def history(seed: int, length: int) -> tuple[list[dict[str, Any]], list[Reading]]:
    """A random history and the reading before each of its events, and one after the last."""
    chance = random.Random(seed)
    counters = [0, 0, 0]
    trace, readings = [], []
    reserved = 1000
    for _ in range(length):
        readings.append(reading(counters, reserved))
        action = chance.choice([*COUNTER, *SEGMENTS])
        if action in COUNTER:
            counters[COUNTER[action]] += 1
        size = chance.randrange(3)
        reserved += SEGMENTS.get(action, 0) * size
        trace.append({"action": action, "addr": 1, "size": size})
    readings.append(reading(counters, reserved))
    return trace, readings


def reading(counters: list[int], reserved: int) -> Reading:
    stats = dict.fromkeys(STAT_FIELDS, 0) | {"reserved_bytes.current": reserved}
    return Reading(tuple(counters), list(stats.values()))


def told(trace: list[dict[str, Any]], position: int) -> int:
    """The first place that cannot be told from ``position``: nothing is counted in between, and
    as much is reserved."""
    first, apart = position, 0
    for place in range(position - 1, -1, -1):
        action = trace[place]["action"]
        if action in COUNTER:
            break
        apart += SEGMENTS[action] * trace[place]["size"]
        if not apart:
            first = place
    return first


def test_every_position_is_found() -> None:
    for seed in range(20):
        trace, readings = history(seed, 60)
        places = Positions(trace, readings[-1], None, Notes(), 1000)
        assert places.dropped == 0
        for k, reading in enumerate(readings):
            assert places.of(reading) == told(trace, k)


def test_a_wrapped_ring_keeps_the_positions_that_are_left() -> None:
    for seed in range(20):
        trace, readings = history(seed, 60)
        cut = 25
        left = trace[cut:]
        notes = Notes()
        places = Positions(left, readings[-1], None, notes, len(left))
        assert places.dropped == sum(readings[cut].counters)
        assert "ring wrapped" in notes.texts[0]
        for k, reading in enumerate(readings[cut:]):
            assert places.of(reading) == told(left, k)
        assert places.of(readings[0]) == -1


def test_a_late_start_is_no_wrapped_ring() -> None:
    trace, readings = history(3, 60)
    places = Positions(trace[20:], readings[-1], readings[20], Notes(), 1000)
    assert places.dropped == 0
    assert places.of(readings[-1]) == told(trace, 60) - 20


def test_marks_after_the_snapshot_lie_at_its_end() -> None:
    trace, readings = history(4, 30)
    later = Reading(tuple(c + 5 for c in readings[-1].counters), [0] * 6)
    assert Positions(trace, readings[-1], None, Notes(), 1000).of(later) == 30


def test_counters_that_were_reset_unseen_give_no_positions_but_a_note() -> None:
    trace, readings = history(5, 30)
    notes = Notes()
    places = Positions(trace, Reading((0, 0, 0), [0] * 6), None, notes, 1000)
    assert places.of(readings[3]) == -1
    assert "do not fit" in notes.texts[0]


def test_an_unused_device() -> None:
    places = Positions([], None, None, Notes(), 1000)
    assert places.of(None) == 0
    assert places.dropped == 0
