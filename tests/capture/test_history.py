"""Positions of marks in the CUDA allocator's history, without a GPU."""

from __future__ import annotations

import random
from typing import Any

from memtrace.capture.history import Reading
from memtrace.capture.patches import Notes
from memtrace.capture.positions import Positions

COUNTER = {"alloc": 0, "free_requested": 1, "free_completed": 2}


def history(seed: int, length: int) -> tuple[list[dict[str, Any]], list[Reading]]:
    """A random history and the reading before each of its events, and one after the last."""
    chance = random.Random(seed)
    counters = [0, 0, 0]
    trace, readings = [], []
    for _ in range(length):
        readings.append(Reading(tuple(counters), [0] * 6))
        action = chance.choice(["alloc", "free_requested", "free_completed", "segment_alloc"])
        if action in COUNTER:
            counters[COUNTER[action]] += 1
        trace.append({"action": action, "addr": 1, "size": 1})
    readings.append(Reading(tuple(counters), [0] * 6))
    return trace, readings


def counted(trace: list[dict[str, Any]], position: int) -> int:
    """``position`` moved back over events no counter counts: those before a mark cannot be told."""
    while position and trace[position - 1]["action"] not in COUNTER:
        position -= 1
    return position


def test_every_position_is_found() -> None:
    for seed in range(20):
        trace, readings = history(seed, 60)
        places = Positions(trace, readings[-1], None, Notes(), 1000)
        assert places.dropped == 0
        for k, reading in enumerate(readings):
            assert places.of(reading) == counted(trace, k)


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
            assert places.of(reading) == counted(left, k)
        assert places.of(readings[0]) == -1


def test_a_late_start_is_no_wrapped_ring() -> None:
    trace, readings = history(3, 60)
    places = Positions(trace[20:], readings[-1], readings[20], Notes(), 1000)
    assert places.dropped == 0
    assert places.of(readings[-1]) == counted(trace, 60) - 20


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
