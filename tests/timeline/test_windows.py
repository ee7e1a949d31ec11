"""Finding and choosing windows, peaks in them, and where in an iteration a moment lies."""

from __future__ import annotations

from typing import Any

import pytest

from memtrace.errors import MemtraceError
from memtrace.snapshot.columns import Recording
from memtrace.timeline import choose_window, find_windows, peak, position_in, replay
from tests.builders import MIB, capture_meta, events, recording, segment

A = 1 << 40


def steps(n: int) -> tuple[tuple[Any, ...], ...]:
    """n times: alloc 2, alloc 3, free 3, free 2 MiB (six events, peak after the second)."""
    one = (
        ("alloc", A, 2 * MIB),
        ("alloc", A + 2 * MIB, 3 * MIB),
        ("free", A + 2 * MIB, 3 * MIB),
        ("free", A, 2 * MIB),
    )
    return one * n


def marked(iterations: list[dict[str, Any]], **more: Any) -> Recording:
    """Iterations of six events each; forward is the first two, backward the other four."""
    marks: list[tuple[Any, ...]] = []
    rows = []
    for k, step in enumerate(iterations):
        at = 6 * k
        rows.append({"begin": len(marks), "end": len(marks) + 5, **step})
        marks += [
            ("step", "begin", at),
            ("call", "begin", at, "model"),
            ("call", "end", at + 2, "model"),
            ("backward", "begin", at + 2),
            ("backward", "end", at + 6),
        ]
    marks.append(("end", "", 6 * len(iterations)))
    return recording(
        events(*steps(len(iterations))),
        segments=[segment(A, [("free", 20 * MIB)])],
        meta=capture_meta(marks=marks, iterations=rows, **more),
    )


def test_windows_from_marks() -> None:
    source = marked([{"compiled": True}, {}, {"profiled": True}, {"whole": False}])
    got = find_windows(source, replay(source))
    assert [(w.name, w.begin, w.end, w.steady) for w in got] == [
        ("iteration 0", 0, 6, False),
        ("iteration 1", 6, 12, True),
        ("iteration 2", 12, 18, True),
        ("iteration 3", 18, 24, False),
        ("all", 0, 24, False),
    ]
    assert (got[1].forward_end, got[1].backward_begin) == (8, 8)
    assert (got[-1].forward_end, got[-1].backward_begin) == (None, None)


@pytest.mark.parametrize(
    ("iterations", "chosen"),
    [
        ([{"compiled": True}, {}, {}, {"profiled": True}], "iteration 2"),
        ([{"compiled": True}, {"profiled": True}], "iteration 1"),
        ([{}, {"whole": False}], "iteration 0"),
        ([{"compiled": True}], "all"),
        ([], "all"),
    ],
)
def test_default_window(iterations: list[dict[str, Any]], chosen: str) -> None:
    source = marked(iterations)
    assert choose_window(find_windows(source, replay(source))).name == chosen


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ("all", "all"),
        ("ALL", "all"),
        ("last", "iteration 6"),
        ("5", "iteration 5"),
        ("iteration:5", "iteration 5"),
        ("iteration 5", "iteration 5"),
        ("-1", "iteration 7"),
        ("-3", "iteration 5"),
    ],
)
def test_asking_for_a_window(spec: str, chosen: str) -> None:
    source = marked([{"index": 5}, {"index": 6}, {"index": 7, "whole": False}])
    assert choose_window(find_windows(source, replay(source)), spec).name == chosen


@pytest.mark.parametrize("spec", ["4", "-4", "iteration:x", "first", "iteration:0"])
def test_an_unknown_window_lists_those_there_are(spec: str) -> None:
    source = marked([{"index": 5}, {"index": 6}, {"index": 7}])
    with pytest.raises(MemtraceError, match="iteration 5, iteration 6, iteration 7, all") as e:
        choose_window(find_windows(source, replay(source)), spec)
    assert spec in str(e.value)


def test_last_needs_an_iteration() -> None:
    source = recording(events(*steps(1)), segments=[segment(A, [("free", 20 * MIB)])])
    windows = find_windows(source, replay(source))
    assert [w.name for w in windows] == ["all"]
    with pytest.raises(MemtraceError, match="there are: all"):
        choose_window(windows, "last")


def test_many_windows_are_not_all_listed() -> None:
    source = marked([{}] * 30)
    with pytest.raises(MemtraceError, match="iteration 4, …, iteration 25"):
        choose_window(find_windows(source, replay(source)), "99")


def test_peak_is_the_first_moment_of_the_maximum() -> None:
    source = marked([{}, {}])
    run = replay(source)
    windows = find_windows(source, run)
    assert peak(run, windows[-1], "allocated") == (2, 5 * MIB)
    assert peak(run, windows[1], "allocated") == (8, 5 * MIB)
    assert peak(run, windows[1], "requested") == (8, 5 * MIB)


def test_the_state_at_the_window_s_begin_counts() -> None:
    source = recording(
        events(("free", A, 4 * MIB)),
        start=[segment(A, [("used", 4 * MIB), ("free", 16 * MIB)])],
    )
    run = replay(source)
    assert peak(run, find_windows(source, run)[0], "allocated") == (0, 4 * MIB)


def test_marks_that_the_ring_dropped_bound_no_iteration() -> None:
    happened = events(
        ("alloc", A, 2 * MIB, 0, 0, 50),
        ("alloc", A + 2 * MIB, 3 * MIB, 0, 0, 60),
    )
    meta = capture_meta(
        marks=[("step", "begin", 1), ("step", "end", 2), ("step", "end", -1)],
        iterations=[{"begin": 0, "end": 1}, {"begin": 2, "end": 1}],
        dropped=10,
    )
    meta["marks"]["time_ns"] = [55_000, 61_000, 49_000]
    source = recording(happened, segments=[segment(A, [("used", 20 * MIB)])], meta=meta)
    got = find_windows(source, replay(source))
    assert [(w.name, w.begin, w.end) for w in got] == [("iteration 0", 1, 2), ("all", 0, 2)]
    meta["marks"]["time_ns"] = [55_000, 61_000, 55_000]  # within the ring time places it
    got = find_windows(source, replay(source))
    assert [(w.name, w.begin) for w in got] == [("iteration 0", 1), ("iteration 1", 1), ("all", 0)]


def test_windows_from_annotations() -> None:
    rows = [(*row, 0, 0, 100 + 10 * k) for k, row in enumerate(steps(2)[:4])]
    entries = [
        {"name": "ProfilerStep#7", "stage": "START", "time_us": 95, "device": 0},
        {"name": "aten::mm", "stage": "START", "time_us": 96, "device": 0},
        {"name": "ProfilerStep#7", "stage": "END", "time_us": 115, "device": 0},
        {"name": "ProfilerStep#8", "stage": "START", "time_us": 115, "device": 0},
    ]
    source = recording(
        events(*rows), segments=[segment(A, [("free", 20 * MIB)])], annotations=entries
    )
    got = find_windows(source, replay(source))
    assert [(w.name, w.begin, w.end, w.steady) for w in got] == [
        ("ProfilerStep#7", 0, 2, True),
        ("ProfilerStep#8", 2, 6, False),
        ("all", 0, 6, False),
    ]
    assert choose_window(got).name == "ProfilerStep#7"
    assert choose_window(got, "8").name == "ProfilerStep#8"


def test_position_in_an_iteration() -> None:
    marks = [
        ("step", "begin", 0),
        ("call", "begin", 10, "model"),
        ("call", "end", 110, "model"),
        ("backward", "begin", 120),
        ("backward", "end", 220),
        ("optimizer", "begin", 220),
        ("optimizer", "end", 230),
        ("step", "end", 240),
    ]
    source = recording(
        events(*steps(40)),
        segments=[segment(A, [("free", 20 * MIB)])],
        meta=capture_meta(marks=marks, iterations=[{"begin": 0, "end": 7}]),
    )
    window = choose_window(find_windows(source, replay(source)))
    expected = {
        5: "before forward",
        10: "start of forward (0%)",
        73: "forward 63%",
        110: "end of forward (100%)",
        115: "between forward and backward",
        122: "start of backward (2%)",
        160: "backward 40%",
        220: "end of backward (100%)",
        225: "optimizer",
        235: "after optimizer",
    }
    assert {k: position_in(window, k) for k in expected} == expected
    everything = choose_window(find_windows(source, replay(source)), "all")
    assert position_in(everything, 120) == "50% of the recording"


def test_positions_with_several_forwards() -> None:
    marks = [
        ("call", "begin", 0, "a"),
        ("call", "end", 40, "a"),
        ("call", "begin", 50, "a"),
        ("call", "end", 90, "a"),
        ("step", "end", 100),
    ]
    source = recording(
        events(*steps(20)),
        segments=[segment(A, [("free", 20 * MIB)])],
        meta=capture_meta(marks=marks, iterations=[{"begin": 0, "end": 4}]),
    )
    window = choose_window(find_windows(source, replay(source)))
    assert position_in(window, 70) == "forward 2/2 50%"
    assert position_in(window, 45) == "between two forwards"
