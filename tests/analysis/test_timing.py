"""GPU time: shared out among kernels to the nanosecond, and beside the bytes in the rows."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtrace.analysis import (
    Bandwidth,
    card_bandwidth,
    fold_rows,
    limit_rows,
    measure_throughput,
    open_subject,
    report_diff,
    report_peak,
    sort_rows,
)
from memtrace.analysis.matching import join_rows
from memtrace.analysis.rows import Row, Side
from memtrace.analysis.timing import Timing, share_time
from memtrace.render.json import diff_object, peak_object
from memtrace.symbols import UNATTRIBUTED, Symbol
from tests.builders import (
    capture_meta,
    events,
    kernel,
    launch,
    profile,
    ran,
    recording,
    stack_table,
)


def shares(*intervals):
    starts, ends = (np.array(column, dtype=np.int64) for column in zip(*intervals, strict=True))
    return share_time(starts, ends).tolist()


def test_kernels_one_after_another_have_their_own_time():
    assert shares((0, 10), (10, 15), (20, 21)) == [10, 5, 1]


def test_what_several_share_is_split_evenly_and_the_rest_goes_to_the_first():
    assert shares((0, 10), (5, 15)) == [5 + 3, 2 + 5]
    assert shares((3, 13), (2, 3), (0, 13)) == [5, 0, 2 + 1 + 5]
    assert shares((0, 7), (0, 7), (0, 7)) == [3, 2, 2]


def test_nothing_lasts_no_time():
    assert shares((5, 5)) == [0]
    assert shares((5, 5), (0, 9)) == [0, 9]


spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda t: (t[0], t[0] + t[1])),
    min_size=1,
    max_size=12,
)


@given(spans)
def test_shares_sum_to_the_union_and_none_exceeds_its_kernel(intervals):
    found = shares(*intervals)
    union = len({moment for begin, end in intervals for moment in range(begin, end)})
    assert sum(found) == union
    assert all(0 <= s <= e - b for s, (b, e) in zip(found, intervals, strict=True))


@given(spans, st.integers(0, 1 << 61))
def test_shares_do_not_depend_on_when_the_clock_began(intervals, later):
    assert shares(*((b + later, e + later) for b, e in intervals)) == shares(*intervals)


@given(spans)
def test_alone_a_kernel_has_all_of_its_time_and_in_company_at_least_an_even_part(intervals):
    """Against the definition, moment by moment: within one nanosecond for each stretch."""
    found = shares(*intervals)
    for k, (begin, end) in enumerate(intervals):
        exact = sum(1 / sum(b <= moment < e for b, e in intervals) for moment in range(begin, end))
        assert abs(found[k] - exact) <= len({x for i in intervals for x in i}) * len(intervals)


STACKS = stack_table(*[[("thunder.computation_1", line, "computation")] for line in range(1, 6)])


def timed(rows, kernels, **more):
    """One profiled iteration: kernels of (line, start, end), line 0 launched by nobody."""
    ops, device = [], []
    for number, (line, start, end) in enumerate(kernels):
        if line:
            at = 10 * number
            ops += [ran(f"thunder.computation_1:{line}", at, at + 9), launch(number, at + 1)]
        device.append(kernel(f"k{line}", start, end, number, stream=number % 3))
    meta = capture_meta(
        marks=[("start", "", 0), ("end", "", len(rows))],
        iterations=[{"begin": 0, "end": 1, "profiled": True}],
        profile=profile(ops, device),
        **more,
    )
    return open_subject(recording(events(*rows), stacks=STACKS, meta=meta))


def test_time_is_beside_the_bytes_of_the_same_symbol():
    one = timed(
        [("alloc", 0x1000, 700, 0, 1), ("alloc", 0x9000, 100, 0, 2)],
        [(1, 0, 30), (3, 30, 50), (0, 60, 65), (1, 70, 71)],
    )
    report = report_peak(one)
    found = {
        row.symbol.text: (row.sides[0].bytes, row.sides[0].time.ns, row.sides[0].time.kernels)
        for row in report.rows
    }
    assert found == {
        "thunder/forward line1": (700, 31, 2),
        "thunder/forward line2": (100, 0, 0),
        "thunder/forward line3": (0, 20, 1),
        UNATTRIBUTED: (0, 5, 1),
    }
    assert (report.gpu.busy_ns, report.gpu.idle_ns, report.gpu.kernels) == (56, 15, 4)
    first = report.rows[0].sides[0].time
    assert (first.longest, first.longest_ns) == ("k1", 30)
    assert first.where == ("thunder.computation_1:1",)


def test_time_may_weigh_more_than_bytes():
    one = timed([("alloc", 0x1000, 700, 0, 1)], [(1, 0, 10), (3, 10, 50)])
    rows = report_peak(one).rows
    assert [r.symbol.name for r in sort_rows(rows)] == ["line1", "line3"]
    assert [r.symbol.name for r in sort_rows(rows, "time")] == ["line3", "line1"]


def test_a_device_that_never_ran_has_no_times():
    report = report_diff(timed([], []), timed([("alloc", 0x1000, 700, 0, 1)], [(1, 0, 10)]))
    assert report.baseline.gpu is None
    assert report.time_gap_ns is None
    found = diff_object(report)
    assert found["time_gap_ns"] is None
    (row,) = found["rows"]
    assert (row["baseline_time_ns"], row["candidate_time_ns"], row["delta_time_ns"]) == (
        None, 10, None,
    )  # fmt: skip


def test_rows_of_tensors_have_no_time_and_say_so():
    one = timed([("alloc", 0x1000, 700, 0, 1)], [(1, 0, 10)])
    for by in ("tensor", "category"):
        report = report_peak(one, by=by)
        assert not report.gpu.by_row
        assert report.gpu.busy_ns == 10
        assert [row["time_ns"] for row in peak_object(report)["rows"]] == [None]


@pytest.mark.parametrize("by", ["symbol", "layer", "line"])
def test_rows_of_every_kind_that_has_times_sum(by):
    one = timed([("alloc", 0x1000, 700, 0, 1)], [(1, 0, 10), (2, 5, 12), (0, 40, 45)])
    report = report_peak(one, by=by)
    assert sum(row.sides[0].time.ns for row in report.rows) == report.gpu.busy_ns == 17


@pytest.mark.parametrize(
    "broken",
    [
        {"duration_ns": [-5, 10]},
        {"start_ns": [-100, 3]},
        {"start_ns": [(1 << 63) - 1, 0]},
        {"duration_ns": [(1 << 63) - 1, (1 << 63) - 1]},
        {"correlation": [-1, 1 << 62]},
    ],
)
def test_broken_clocks_keep_the_sums(broken):
    one = timed([("alloc", 0x1000, 700, 0, 1)], [(1, 0, 10), (2, 5, 12)])
    one.recording.meta["profile"]["kernels"].update(broken)
    report = report_peak(one)
    times = [row.sides[0].time for row in report.rows]
    assert sum(time.ns for time in times) == report.gpu.busy_ns >= 0
    assert all(time.ns >= 0 and time.longest_ns >= 0 for time in times)


@st.composite
def runs(draw):
    alive = draw(st.dictionaries(st.integers(1, 5), st.integers(1, 4096), max_size=5))
    rows = [("alloc", 0x1000 * line, size, 0, line) for line, size in alive.items()]
    kernels = draw(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 90), st.integers(0, 30)), max_size=12)
    )
    # One kernel at least, so that there are times.
    return timed(rows, [(1, 0, 1), *((line, at, at + n) for line, at, n in kernels)])


@given(runs(), runs())
def test_diff_of_times_sums_and_is_antisymmetric(a, b):
    forth, back = report_diff(a, b), report_diff(b, a)
    assert sum(row.delta_ns for row in forth.rows) == forth.time_gap_ns == -back.time_gap_ns
    assert forth.time_gap_ns == forth.candidate.gpu.busy_ns - forth.baseline.gpu.busy_ns
    assert sum(row.delta for row in forth.rows) == forth.gap_bytes
    ours = {row.symbol: row.delta_ns for row in forth.rows}
    assert ours == {row.symbol: -row.delta_ns for row in back.rows}


@given(runs())
def test_diff_of_times_with_itself_is_zero(a):
    report = report_diff(a, a)
    assert report.time_gap_ns == 0
    assert all(row.delta_ns == 0 and row.status == "" for row in report.rows)


@given(runs(), runs(), st.integers(1, 4) | st.none(), st.sampled_from(["bytes", "time"]))
def test_json_holds_the_same_times(a, b, top, sort):
    peak = json.loads(json.dumps(peak_object(report_peak(a), top, sort)))
    assert sum(row["time_ns"] for row in peak["rows"]) == peak["gpu"]["busy_ns"]
    assert sum(row["bytes"] for row in peak["rows"]) == peak["peak_bytes"]
    diff = json.loads(json.dumps(diff_object(report_diff(a, b), top, sort)))
    assert sum(row["delta_time_ns"] for row in diff["rows"]) == diff["time_gap_ns"]
    assert sum(row["delta_bytes"] for row in diff["rows"]) == diff["gap_bytes"]


@given(runs(), st.integers(1, 5), st.sampled_from(["bytes", "time"]))
def test_folding_and_limits_move_no_nanosecond(one, top, sort):
    rows = report_peak(one).rows
    total = sum(row.sides[0].time.ns for row in rows)
    kernels = sum(row.sides[0].time.kernels for row in rows)
    for shown in (fold_rows(rows, sort), limit_rows(fold_rows(rows, sort), top)):
        assert sum(row.sides[0].time.ns for row in shown) == total
        assert sum(row.sides[0].time.kernels for row in shown) == kernels


def fusion(name, ns, *, size=10, makes=(), layer="model.layers.0"):
    time = Timing(ns, 1, "k", ns, layers=(layer,), makes=makes)
    side = Side(size, 1 if size else 0, layers=((layer, size),), time=time)
    return Row(Symbol("thunder", "decoder", "forward", name), (side,))


def test_the_one_layer_that_is_slow_stands_alone():
    rows = [fusion(f"nvFusion{k}", 159 if k == 2 else 1) for k in (2, 6, 10, 14)]
    folded = fold_rows(rows, "time")
    assert [(r.symbol.name, r.sides[0].time.ns, len(r.members)) for r in folded] == [
        ("nvFusion2", 159, 0),
        ("nvFusion6", 3, 3),
    ]


def test_what_ran_in_both_and_holds_nothing_is_matched_by_what_it_makes():
    a = [fusion("nvFusion1", 5, size=0, makes=("f32[10]",))]
    b = [
        fusion("nvFusion1", 7, size=0, makes=("f32[3]",)),
        fusion("nvFusion2", 6, size=0, makes=("f32[10]",)),
    ]
    found = {row.symbol.name: (row.delta_ns, row.status) for row in join_rows(a, b)}
    assert found == {"nvFusion1": (7, "NEW"), "nvFusion2": (1, "")}


def test_what_one_run_alone_holds_is_matched_by_what_it_makes():
    a = [fusion("nvFusion1", 5, makes=("f32[10]",))]
    b = [fusion("nvFusion2", 6, size=0, makes=("f32[10]",))]
    (row,) = join_rows(a, b)
    assert (row.symbol.name, row.renamed.name, row.delta, row.delta_ns) == (
        "nvFusion2", "nvFusion1", -10, 1,
    )  # fmt: skip


def test_throughput_against_the_card():
    time = Timing(ns=159_000_000, kernels=1, moved=3_758_096_384)
    found = measure_throughput(time, card_bandwidth({"gpu": "NVIDIA H200"}))
    assert (found.card.per_second, found.card.measured) == (4_800_000_000_000, False)
    assert found.per_second == 23_635_826_314
    assert found.share == pytest.approx(0.0049, abs=1e-4)


def test_more_than_the_card_can_do_is_no_share():
    peak = card_bandwidth({"gpu": "NVIDIA H200"})
    found = measure_throughput(Timing(ns=1000, kernels=1, moved=10**9), peak)
    assert found.share is None


@pytest.mark.parametrize(
    "name",
    ["NVIDIA A100-SXM-80GB", "NVIDIA A100X", "NVIDIA RTX A4000", "NVIDIA T400", "NVIDIA GH200 144G",
     "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"],
)  # fmt: skip
def test_a_card_whose_name_holds_anothers_is_not_that_one(name):
    assert card_bandwidth({"gpu": name}) is None


@pytest.mark.parametrize(
    ("name", "gbps"),
    [("NVIDIA A100-SXM4-80GB", 2039), ("NVIDIA A10", 600), ("NVIDIA H100 80GB HBM3", 3350),
     ("NVIDIA RTX A6000", 768), ("NVIDIA L40S", 864), ("Tesla V100-SXM2-16GB", 900)],
)  # fmt: skip
def test_cards_are_known_by_what_the_driver_calls_them(name, gbps):
    assert card_bandwidth({"gpu": name}) == Bandwidth(gbps * 10**9, measured=False)


def test_a_copy_that_was_measured_counts_and_not_the_data_sheet():
    card = card_bandwidth({"gpu": "NVIDIA H200", "copy_bytes_per_second": 4 * 10**12})
    assert card == Bandwidth(4 * 10**12, measured=True)
    # What reads more than it writes is a little faster than a copy; much faster is no streaming.
    assert measure_throughput(Timing(1000, 1, moved=4_400_000), card).share == pytest.approx(1.1)
    assert measure_throughput(Timing(1000, 1, moved=5_000_000), card).share is None
    for broken in (0, -1, "4e12", None):
        facts = {"gpu": "NVIDIA H200", "copy_bytes_per_second": broken}
        assert card_bandwidth(facts) == Bandwidth(4_800 * 10**9, measured=False)


@pytest.mark.parametrize(
    "time", [Timing(), Timing(ns=5, kernels=1), Timing(kernels=1, moved=5), Timing(5, 1, moved=0)]
)
def test_what_is_not_known_has_no_throughput(time):
    assert measure_throughput(time, Bandwidth(10**12, measured=True)) is None


def test_an_unlisted_card_has_no_peak():
    assert card_bandwidth({"gpu": "Voodoo 2"}) is None
    assert card_bandwidth({}) is None
    assert card_bandwidth({"gpu": "NVIDIA L40S"}).per_second == 864 * 10**9
    found = measure_throughput(Timing(ns=10, kernels=1, moved=100), None)
    assert (found.per_second, found.share) == (10**10, None)


def test_bytes_to_move_add_up_only_where_all_are_known():
    known, unknown = Timing(1, 1, moved=10), Timing(1, 1)
    assert (known + known).moved == 20
    assert (known + unknown).moved is None
    assert (Timing() + known).moved == 10
    assert replace(known, ns=3) + Timing() == replace(known, ns=3)
