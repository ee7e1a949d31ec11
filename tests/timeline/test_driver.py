"""Replayed figures next to the driver's, and block sizes next to the profiler's."""

from __future__ import annotations

from typing import Any

from memtrace.snapshot.columns import Recording
from memtrace.timeline import (
    Check,
    cross_check_profile,
    driver_peak,
    reconcile,
    reconciled,
    replay,
)
from tests.builders import MIB, capture_meta, events, recording, segment

A = 1 << 40


def capture(**meta: Any) -> Recording:
    return recording(
        events(
            ("segment_alloc", A, 20 * MIB),
            ("alloc", A, 2 * MIB + 1),
            ("free", A, 2 * MIB + 1),
        ),
        segments=[segment(A, [("free", 20 * MIB)])],
        start=[],
        meta=capture_meta(**meta),
    )


def figures(allocated: int) -> dict[str, int]:
    return {
        "begin": 0,
        "end": 4,
        "allocated": allocated,
        "requested": 2 * MIB + 1,
        "reserved": 20 * MIB,
    }


def test_peaks_that_agree() -> None:
    source = capture(peaks=[figures(2 * MIB + 512)])
    checks = reconcile(source, replay(source))
    assert [(c.what, c.agrees) for c in checks] == [
        ("allocated peak (run)", True),
        ("requested peak (run)", True),
        ("reserved peak (run)", True),
    ]
    assert (checks[0].begin, checks[0].end) == (0, 4)
    assert reconciled(checks) is True


def test_one_byte_off_is_off() -> None:
    source = capture(peaks=[figures(2 * MIB + 513)])
    assert reconciled(reconcile(source, replay(source))) is False


BLOCK, ASKED, TAKEN = 2 * MIB + 512, 2 * MIB + 1, 20 * MIB


def at(*marks: tuple[str, int, tuple[int, ...]]) -> list[tuple[str, int | None, bool | None]]:
    """(what, begin, whether it agrees) of the allocated figures at marks (kind, event, stats)."""
    source = capture(marks=[(kind, "", event, "", list(stats)) for kind, event, stats in marks])
    checks = [c for c in reconcile(source, replay(source)) if c.what.startswith("allocated")]
    return [(c.what, c.begin, c.agrees) for c in checks]


def test_figures_at_marks() -> None:
    inside = (BLOCK, BLOCK, TAKEN, TAKEN, ASKED, ASKED)
    assert at(("step", 2, inside)) == [
        ("allocated at mark 0 (step)", 2, True),
        ("allocated peak at mark 0 (step)", 0, True),
    ]
    assert [row[2] for row in at(("step", 3, inside))] == [False, True]
    assert [row[2] for row in at(("step", 2, (BLOCK, BLOCK + 1)))] == [True, False]


def test_a_peak_at_a_mark_reaches_back_to_the_last_reset() -> None:
    after = (0, 0, TAKEN, TAKEN, 0, 0)
    rows = at(("step", 2, ()), ("peak_reset", 4, after), ("step", 4, after))
    assert rows == [
        ("allocated at mark 1 (peak_reset)", 4, True),
        ("allocated at mark 2 (step)", 4, True),
        ("allocated peak at mark 2 (step)", 4, True),
    ]
    # A mark that has no place may hide a reset: after it nothing is compared until the next.
    assert at(("peak_reset", -1, ()), ("step", 4, after))[-1][2] is None


def test_nothing_to_compare() -> None:
    source = capture()
    assert reconcile(source, replay(source)) == []
    assert reconciled([]) is None
    dropped = capture(peaks=[{**figures(1), "begin": -1}], dropped=3)
    assert reconciled(reconcile(dropped, replay(dropped))) is None


def profile(*rows: tuple[int, int]) -> dict[str, Any]:
    return {
        "iteration": 0,
        "ops": {},
        "kernels": {},
        "memory": {
            "addr": [r[0] for r in rows],
            "bytes": [r[1] for r in rows],
            "device": [0 for _ in rows],
            "thread": [0 for _ in rows],
            "time_ns": [0 for _ in rows],
            "op": [-1 for _ in rows],
        },
    }


def test_block_sizes_of_the_profiler() -> None:
    common: dict[str, Any] = {
        "marks": [("step", "begin", 0), ("step", "end", 4)],
        "iterations": [{"begin": 0, "end": 1, "profiled": True}],
    }
    good = capture(**common, profile=profile((A, 2 * MIB + 512), (A, -2 * MIB - 512), (7, 512)))
    assert cross_check_profile(good, replay(good)) == (1, 0, 1)
    bad = capture(**common, profile=profile((A, 3 * MIB)))
    assert cross_check_profile(bad, replay(bad)) == (1, 1, 0)
    assert cross_check_profile(capture(), replay(capture())) is None


def test_the_drivers_peak_of_stretches_that_follow_one_another() -> None:
    def measured(begin: int, end: int, driver: int) -> Check:
        return Check("allocated peak (check)", driver, driver, begin, end)

    checks = [measured(0, 4, 10), measured(0, 2, 7), measured(4, 9, 30), measured(12, 15, 99)]
    assert driver_peak(checks, "allocated", 0, 9) == 30
    assert driver_peak(checks, "allocated", 0, 4) == 10
    assert driver_peak(checks, "allocated", 0, 2) == 7
    assert driver_peak(checks, "allocated", 0, 15) is None
    assert driver_peak(checks, "allocated", 1, 4) is None
    assert driver_peak(checks, "requested", 0, 4) is None
