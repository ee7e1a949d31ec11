"""Turns of a loop that are not gone through again, against going through all of them."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memtrace.timeline import allocator
from memtrace.timeline.allocator import replay_blocks
from memtrace.timeline.repetition import Repetition, find_repetitions
from memtrace.timeline.rules import Rules
from memtrace.timeline.start import start_from_segments
from tests.builders import MIB, events, segment
from tests.timeline.allocator_model import Model
from tests.timeline.test_model import ANY_EVENTS, MODELS, SIZES, STEPS, check, run


def found(text: str) -> list[Repetition]:
    return find_repetitions(np.frombuffer(text.encode(), np.uint8))


def test_the_period_that_spans_most() -> None:
    assert found("") == []
    assert found("abcdef") == []
    assert found("xyabcabcabcabz") == [Repetition(2, 13, 3)]
    assert found("aab" * 4) == [Repetition(0, 12, 3)]
    assert found("abab") == []  # two turns are no loop
    assert found("abcabcabc" + "x" + "abcabcabc") == [Repetition(0, 9, 3), Repetition(10, 19, 3)]


def test_turns_that_end_as_they_began_are_gone_through_once() -> None:
    start = start_from_segments([segment(1 << 40, [("free", 20 * MIB)])])
    turn = [("alloc", 1 << 40, 3 * MIB), ("free_completed", 1 << 40, 3 * MIB)]
    with mock.patch.object(
        allocator._Run, "go", autospec=True, side_effect=allocator._Run.go
    ) as go:
        blocks = replay_blocks(events(*turn * 1000), start, Rules(), [])
    assert blocks.sizes.tolist() == [3 * MIB, -1] * 1000
    assert blocks.misfits == 0
    assert sum(call.args[2] - call.args[1] for call in go.call_args_list) == 2


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MODELS, STEPS, st.lists(SIZES, min_size=1, max_size=6), st.integers(3, 7), STEPS)
def test_loops_equal_the_model(
    model: Model, before: list[Any], sizes: list[int], turns: int, after: list[Any]
) -> None:
    # What a turn allocates it frees, the newest first; what was there before stays.
    turn = [("malloc", size, 0, False) for size in sizes] + [("free", -1)] * len(sizes)
    run(model, [*before, *turn * turns, *after], 0)
    assert check(model, 0, ())


OVERLAP = [("alloc", (1 << 40) + 1024, 0, 0), ("segment_map", (1 << 40) + 512, 1024, 0)]


@settings(max_examples=100, deadline=None)
@example(OVERLAP, [("alloc", (1 << 40) + 1024, 0, 0)], 4, [], False, False)
@given(ANY_EVENTS, ANY_EVENTS, st.integers(3, 9), ANY_EVENTS, st.booleans(), st.booleans())
def test_broken_loops_are_the_same_either_way(
    before: list[Any], turn: list[Any], turns: int, after: list[Any], half: bool, used: bool
) -> None:
    rows = events(*before, *turn * turns, *after)
    some = segment(1 << 40, [("used", 512), ("pending", 1024)] * used + [("free", 2 * MIB)])

    def blocks() -> allocator.Blocks:
        return replay_blocks(rows, start_from_segments([some]), Rules(), [some], half=half)

    short = blocks()
    with mock.patch.object(allocator, "find_repetitions", return_value=[]):
        whole = blocks()
    for field in dataclasses.fields(short):
        assert np.array_equal(getattr(short, field.name), getattr(whole, field.name)), field.name
