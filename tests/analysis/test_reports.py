"""Peaks and diffs of recordings built by hand, and properties that always hold."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtrace.analysis import (
    fold_rows,
    layer_pattern,
    limit_rows,
    open_subject,
    report_diff,
    report_peak,
)
from memtrace.analysis.rows import OTHERS, Row, Side
from memtrace.render.json import diff_object, peak_object
from memtrace.symbols import BEFORE_RECORDING, BLOCK_SLACK, UNATTRIBUTED, Symbol
from tests.builders import MIB, capture_meta, events, recording, stack_table

STACKS = stack_table(
    [("thunder.computation_1", 2, "computation")],
    [("thunder.computation_1", 3, "computation")],
    [("thunder.backward_fn_0", 9, "backward_fn")],
    [("/home/me/train.py", 5, "step")],
)
FIRST, SECOND, BACKWARD, USER = 1, 2, 3, 4


def subject(*rows, **more):
    return open_subject(recording(events(*rows), stacks=STACKS, **more))


def by_symbol(report):
    return {row.symbol.text: row.sides[0].bytes for row in report.rows}


def test_peak_names_every_byte():
    report = report_peak(
        subject(
            ("segment_alloc", 0x100000, 20 * MIB),
            ("alloc", 0x100000, 3 * MIB, 0, FIRST),
            ("alloc", 0x100000 + 3 * MIB, 5 * MIB + 100, 0, BACKWARD),
            ("alloc", 0x100000 + 8 * MIB + 512, 2 * MIB),
            ("free", 0x100000, 3 * MIB),
            start=[],
        )
    )
    assert report.accounting == "allocated"
    assert by_symbol(report)["thunder/forward line2"] == 3 * MIB
    assert by_symbol(report)["thunder/backward line9"] == 5 * MIB + 100
    assert by_symbol(report)[UNATTRIBUTED] == 2 * MIB
    assert sum(row.sides[0].bytes for row in report.rows) == report.peak_bytes
    assert report.peak_requested_bytes == 10 * MIB + 100


def test_slack_has_its_own_row():
    report = report_peak(
        subject(("segment_alloc", 0, 2 * MIB), ("alloc", 0, 100, 0, USER), start=[])
    )
    assert by_symbol(report) == {"step (me/train.py:5)": 100, BLOCK_SLACK: 412}
    assert report.peak_bytes == report.peak_allocated_bytes == 512


def test_alive_before_the_recording_has_its_own_row():
    report = report_peak(subject(("free", 0x1000, 700)))
    assert by_symbol(report) == {BEFORE_RECORDING: 700}
    assert report.accounting == "requested"
    assert report.peak_allocated_bytes is None
    assert not report.complete


def test_empty_recording_has_a_peak_of_nothing():
    report = report_peak(subject())
    assert report.peak_bytes == 0
    assert report.rows == ()


def test_the_busiest_device_is_reported_and_the_others_are_said():
    one = recording(
        events(("alloc", 0x1000, 512, 0, FIRST)),
        events(("alloc", 0x1000, 4096, 0, USER)),
        stacks=STACKS,
        start=[],
    )
    report = report_peak(open_subject(one))
    assert report.device == 1
    assert any("devices 0, 1" in text for text in report.warnings)


def test_a_figure_that_does_not_reconcile_is_said():
    meta = capture_meta(
        marks=[("start", "", 0), ("end", "", 2)],
        peaks=[{"begin": 0, "end": 2, "allocated": 1024, "requested": 100, "reserved": 2 * MIB}],
        facts={"notes": []}, sources={}, thunder=[], fx={}, profile=None,
    )  # fmt: skip
    report = report_peak(
        subject(("segment_alloc", 0, 2 * MIB), ("alloc", 0, 100), start=[], meta=meta)
    )
    assert report.reconciled is False
    assert report.driver_peak_bytes == 1024
    assert any("driver 1,024 bytes, replayed 512 bytes" in text for text in report.warnings)


def test_diff_rows_sum_to_the_gap_and_say_what_is_new():
    a = subject(("alloc", 0x1000, 3000, 0, FIRST), ("alloc", 0x9000, 1000, 0, BACKWARD))
    b = subject(("alloc", 0x1000, 3000, 0, FIRST), ("alloc", 0x9000, 1500, 0, SECOND))
    report = report_diff(a, b)
    assert report.gap_bytes == 500
    assert [(row.symbol.text, row.delta, row.status) for row in report.rows] == [
        ("thunder/forward line3", 1500, "NEW"),
        ("thunder/backward line9", -1000, "GONE"),
        ("thunder/forward line2", 0, ""),
    ]


def test_what_both_runs_make_is_not_new():
    kept = [("alloc", 0x1000, 1000, 0, FIRST), ("alloc", 0x9000, 500, 0, SECOND)]
    freed = [*kept[:1], ("free", 0x1000, 1000), ("alloc", 0x9000, 1500, 0, SECOND)]
    forth = {r.symbol.name: r.status for r in report_diff(subject(*freed), subject(*kept)).rows}
    assert forth == {"line2": "KEPT LONGER", "line3": ""}
    back = {r.symbol.name: r.status for r in report_diff(subject(*kept), subject(*freed)).rows}
    assert back == {"line2": "FREED EARLIER", "line3": ""}


def test_diff_compares_the_same_accounting():
    known = subject(("segment_alloc", 0, 2 * MIB), ("alloc", 0, 100, 0, USER), start=[])
    unknown = subject(("alloc", 0x1000, 100, 0, USER))
    report = report_diff(known, unknown)
    assert report.gap_bytes == 0
    assert report.baseline.accounting == report.candidate.accounting == "requested"
    assert any("requested bytes" in text for text in report.warnings)


def test_differences_between_runs_are_listed():
    def facts(**more):
        meta = capture_meta(sources={}, thunder=[], fx={}, profile=None)
        return meta | {"facts": {"torch": "2.11.0", "gpu": "H200", **more}, "label": "x"}

    a = subject(("alloc", 0, 512), start=[], meta=facts(compilers=["inductor"]))
    b = subject(("alloc", 0, 512), start=[], meta=facts(compilers=["eager"], cuda="13.0"))
    assert report_diff(a, b).differences == (
        "compiled by: inductor → eager",
        "CUDA: unknown → 13.0",
    )


@st.composite
def histories(draw):
    """Allocations and frees at a few addresses, any stack, any order."""
    alive: dict[int, int] = {}
    rows = []
    for _ in range(draw(st.integers(0, 30))):
        address = draw(st.sampled_from([0x1000 * k for k in range(1, 9)]))
        if address in alive:
            rows.append(("free", address, alive.pop(address)))
        else:
            alive[address] = draw(st.integers(1, 4096))
            rows.append(("alloc", address, alive[address], 0, draw(st.integers(0, 4))))
    return subject(*rows)


@given(histories())
def test_peak_rows_sum(one):
    report = report_peak(one)
    assert sum(row.sides[0].bytes for row in report.rows) == report.peak_bytes


@given(histories(), st.integers(1, 5))
def test_folding_and_limits_move_no_byte(one, top):
    rows = report_peak(one).rows
    total = sum(row.sides[0].bytes for row in rows)
    for shown in (fold_rows(rows), limit_rows(rows, top), limit_rows(fold_rows(rows), top)):
        assert sum(row.sides[0].bytes for row in shown) == total
        assert sum(r.sides[0].count for r in shown) == sum(r.sides[0].count for r in rows)


@given(histories(), histories())
def test_diff_sums_and_is_antisymmetric(a, b):
    forth, back = report_diff(a, b), report_diff(b, a)
    assert sum(row.delta for row in forth.rows) == forth.gap_bytes == -back.gap_bytes
    assert {r.symbol: r.delta for r in forth.rows} == {r.symbol: -r.delta for r in back.rows}


@given(histories())
def test_diff_with_itself_is_zero(a):
    report = report_diff(a, a)
    assert report.gap_bytes == 0
    assert all(row.delta == 0 and row.status == "" for row in report.rows)


@given(histories(), histories(), st.integers(1, 4) | st.none())
def test_json_holds_the_same_sums(a, b, top):
    peak = json.loads(json.dumps(peak_object(report_peak(a), top)))
    assert sum(row["bytes"] for row in peak["rows"]) == peak["peak_bytes"]
    diff = json.loads(json.dumps(diff_object(report_diff(a, b), top)))
    assert sum(row["delta_bytes"] for row in diff["rows"]) == diff["gap_bytes"]


def fusion(name, size, *, count=1, phase="forward", operation=""):
    return Row(Symbol("thunder", "decoder", phase, name, operation), (Side(), Side(size, count)))


def test_repeated_layers_fold_and_the_odd_one_stays():
    rows = [fusion(f"nvFusion{k}", 10) for k in (10, 2, 6)] + [fusion("nvFusion14", 11)]
    folded = fold_rows(rows)
    assert [(r.delta, [m.name for m in r.members]) for r in folded] == [
        (30, ["nvFusion2", "nvFusion6", "nvFusion10"]),
        (11, []),
    ]


def test_numbered_children_of_a_sequential_model_are_layers():
    assert layer_pattern("3") == "*"
    assert layer_pattern("3 float32[150, 150]") == "* float32[150, 150]"
    assert layer_pattern("layers.3.mlp float32[3]") == "layers.*.mlp float32[3]"


def test_only_what_is_alike_folds():
    rows = [
        fusion("nvFusion1", 10),
        fusion("nvFusion2", 10, phase="backward"),
        fusion("TorchCompile3", 10),
        fusion("nvFusion4", 10, count=2),
        replace(fusion("nvFusion5", 10), symbol=Symbol("eager", "", "forward", "f5")),
        fusion("TorchCompile0", 10, operation="Tensor.to"),
        fusion("TorchCompile0", 10, operation="torch.softmax"),
    ]
    assert all(not row.members for row in fold_rows(rows))


def test_others_hold_the_rest():
    rows = [fusion(f"nvFusion{k}", 10 - k) for k in range(4)]
    shown = limit_rows(rows, 2)
    assert [row.symbol for row in shown] == [rows[0].symbol, rows[1].symbol, OTHERS]
    assert shown[-1].delta == 8 + 7
    assert limit_rows(rows, 4) == rows


@pytest.mark.parametrize("top", [1, 2, 3])
def test_others_keep_both_sides(top):
    rows = [Row(Symbol("eager", "", None, f"f{k}"), (Side(k), Side(2 * k))) for k in range(5)]
    shown = limit_rows(rows, top)
    assert sum(r.sides[0].bytes for r in shown) == 10
    assert sum(r.sides[1].bytes for r in shown) == 20
