"""Step times as distributions, and what compilers did."""

import pytest

from memtrace.analysis import open_subject, report_diff, report_peak
from memtrace.analysis.compilations import list_compilations, without
from memtrace.analysis.steps import Spread
from memtrace.render.json import diff_object
from tests.builders import capture_meta, events, recording


def run(*steps, marks=None, **more):
    marks = marks or [("step", "", k) for k in range(len(steps) + 1)]
    rows = [("alloc", 0x1000 * k, 64, 0, 0) for k in range(len(marks))]
    iterations = [{"begin": k, "end": k + 1, **step} for k, step in enumerate(steps)]
    meta = capture_meta(marks=marks, iterations=iterations, **more)
    return open_subject(recording(events(*rows), meta=meta))


def test_the_median_and_the_middle_half_of_steady_unprofiled_steps():
    one = run(
        {"wall_ns": 9_000, "compiled": True},
        *({"wall_ns": ns, "gpu_ns": 2 * ns} for ns in (10, 12, 14, 16, 100)),
        {"wall_ns": 7_000, "profiled": True},
        {"wall_ns": 1, "whole": False},
    )
    steps = report_peak(one).steps
    assert steps.wall == Spread(14, 12, 16, 5)
    assert steps.gpu == Spread(28, 24, 32, 5)


def test_what_was_not_measured_is_not_there():
    steps = report_peak(run({"wall_ns": 10}, {"wall_ns": 20, "gpu_ns": -1})).steps
    assert steps.wall == Spread(15, 12, 18, 2)
    assert steps.gpu is None
    assert report_peak(open_subject(recording(events(("alloc", 0, 1))))).steps.wall is None


def test_steps_that_train_are_not_mixed_with_those_that_do_not():
    marks = [
        ("step", "", 0),
        ("backward", "begin", 1),
        ("backward", "end", 2),
        ("step", "", 3),
        ("end", "", 4),
    ]
    one = run(
        {"begin": 0, "end": 3, "wall_ns": 50}, {"begin": 3, "end": 4, "wall_ns": 5}, marks=marks
    )
    assert report_peak(one).steps.wall == Spread(50, 50, 50, 1)


@pytest.mark.parametrize(
    ("a", "b", "overlap"),
    [((10, 12), (12, 14), True), ((10, 12), (13, 14), False), ((10, 20), (14, 15), True)],
)
def test_ranges_that_share_a_value_overlap(a, b, overlap):
    one, other = (Spread(low, low, high, 3) for low, high in (a, b))
    assert one.overlaps(other) is other.overlaps(one) is overlap


def test_diff_says_how_the_step_changed():
    a, b = (run(*({"wall_ns": ns + k} for k in range(5))) for ns in (100, 50))
    found = diff_object(report_diff(a, b))["steps"]
    assert found["wall"] == {
        "baseline_ns": 102, "candidate_ns": 52, "delta_ns": -50, "ratio": 52 / 102,
        "overlap": False,
    }  # fmt: skip
    assert found["gpu"] is None


def event(kind, *, name="forward", where="", reason="", mark=-1, duration=-1):
    return {
        "kind": kind, "name": name, "where": where, "reason": reason, "mark": mark,
        "duration_ns": duration,
    }  # fmt: skip


def test_what_happened_again_is_counted():
    one = run(
        {}, {}, compilations=[
            event("compile", mark=0, duration=50),
            event("recompile", reason="size mismatch", mark=0, duration=10),
            event("recompile", reason="size mismatch", mark=1, duration=20),
            event("graph break", where="model.py:3", reason="print"),
        ],
    )  # fmt: skip
    found = list_compilations(one.recording)
    assert [(c.kind, c.count, c.duration_ns, c.iterations) for c in found] == [
        ("compile", 1, 50, (0,)),
        ("recompile", 2, 30, (0, 1)),
        ("graph break", 1, 0, (-1,)),
    ]


def test_what_one_run_alone_has_comes_from_both_sides():
    a = run({}, compilations=[event("split", reason="x"), event("compile")])
    b = run({}, compilations=[event("compile"), event("compile"), event("recompile", reason="y")])
    ours, theirs = (list_compilations(one.recording) for one in (a, b))
    assert [c.kind for c in without(ours, theirs)] == ["split"]
    assert [c.kind for c in without(theirs, ours)] == ["compile", "recompile"]
    found = diff_object(report_diff(a, b))
    assert [c["kind"] for c in found["compilations_only_in_baseline"]] == ["split"]
    assert found["candidate"]["compilations"][1]["reason"] == "y"


def test_what_changes_from_run_to_run_is_no_difference():
    def one(folder, value, size):
        return event(
            "recompile", where=f"/home/{folder}/job/train.py:7",
            reason=f"L['x'] == {value}, id 0x7f{size}a, size mismatch: expected {size}",
        )  # fmt: skip

    a, same, other = (
        list_compilations(run({}, compilations=[one(*what)]).recording)
        for what in (("me", 1.92, 5), ("you", -3.1e-05, 5), ("me", 1.92, 6))
    )
    assert not without(a, same)
    assert without(a, other) == a


def test_too_few_steps_tell_no_difference():
    one = Spread(10, 10, 10, 1)
    assert one.overlaps(Spread(50, 50, 50, 9))
    assert not Spread(10, 9, 11, 3).overlaps(Spread(50, 49, 51, 3))


def test_captures_without_the_list_have_none():
    assert list_compilations(run({}).recording) == ()
