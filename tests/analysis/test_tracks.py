"""What a trace is made of: counters that sum, peaks, instants, windows, two runs side by side."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtrace.analysis import group_lifetimes, open_subject, report_diff
from memtrace.analysis.tracks import ABSENT, Counter, describe_pair, describe_run
from memtrace.analysis.tracks.counters import OTHERS, count_groups, count_totals
from memtrace.symbols import attribute
from memtrace.timeline import live
from tests.builders import MIB, capture_meta, events, recording, stack_table

STACKS = stack_table(
    [("thunder.computation_1", 2, "computation")],
    [("thunder.computation_1", 3, "computation")],
    [("thunder.backward_fn_0", 9, "backward_fn")],
    [("/home/me/train.py", 5, "step")],
)
FIRST, SECOND, BACKWARD, USER = 1, 2, 3, 4


@st.composite
def histories(draw):
    """Rows of events: blocks of a segment, allocated and freed in any order, some never."""
    rows = [("segment_alloc", 0x100000, 64 * MIB, 0, USER, 100)]
    alive = {}
    time = 100
    for k in range(draw(st.integers(0, 25))):
        time += draw(st.integers(0, 3))
        if alive and draw(st.booleans()):
            address = draw(st.sampled_from(sorted(alive)))
            rows.append(("free", address, alive.pop(address), 0, USER, time))
        else:
            # The large pool, whole megabytes apart: where torch would put them does not matter.
            size = draw(st.integers(1, 2 * MIB))
            alive[0x100000 + 2 * MIB * k] = size
            rows.append(("alloc", 0x100000 + 2 * MIB * k, size, 0, draw(st.integers(0, 4)), time))
    return rows


def subject(rows, window="all", **more):
    return open_subject(recording(events(*rows), stacks=STACKS, **more), window)


def at(moments, value, moment):
    row = np.searchsorted(moments, moment, side="right") - 1
    return int(value[row]) if row >= 0 else 0


@given(histories(), st.data(), st.sampled_from(["symbol", "category", "layer"]))
@settings(max_examples=60, deadline=None)
def test_groups_sum_to_the_total_at_every_moment(rows, data, by):
    one = subject(rows)
    run = one.replay
    begin = data.draw(st.integers(0, run.n_events))
    end = data.draw(st.integers(begin, run.n_events))
    most = data.draw(st.sampled_from([None, 1, 2]))
    groups = group_lifetimes(run, attribute(one.recording, run), by)
    names = [symbol.text for symbol in groups.symbols]
    for accounting in {"requested", run.accounting}:
        counted = count_groups(run, accounting, names, groups.rows, begin, end, most)
        total = run.total(accounting)
        for moment in range(begin, end + 1):
            assert sum(at(m, v, moment) for _, m, v in counted) == total[moment]
            alive = live(run, moment, accounting)
            for name, moments, value in counted:
                if name in names:
                    mine = alive[groups.rows[alive] == names.index(name)]
                    assert at(moments, value, moment) == run.lifetimes.requested[mine].sum()
        if most is not None and len(counted) > most:
            assert counted[-1][0] == OTHERS
            assert len(counted) == most + 1
        for _, moments, value in counted:
            assert moments[0] == begin
            assert (np.diff(moments) > 0).all()
            assert (np.diff(value) != 0).all()


@given(histories(), st.data())
@settings(max_examples=40, deadline=None)
def test_totals_are_the_replay(rows, data):
    run = subject(rows).replay
    begin = data.draw(st.integers(0, run.n_events))
    end = data.draw(st.integers(begin, run.n_events))
    for name, moments, value in count_totals(run, begin, end):
        total = getattr(run, name)
        assert [at(moments, value, m) for m in range(begin, end + 1)] == (
            total[begin : end + 1].tolist()
        )


def test_allocated_bytes_begin_where_they_are_known():
    # A block that the segments do not explain is freed at event 0.
    rows = [("free", 0x9000000, 700), ("segment_alloc", 0x100000, 2 * MIB), ("alloc", 0x100000, 9)]
    run = subject(rows, start=[]).replay
    assert run.allocated is None
    counted = {name: (m.tolist(), v.tolist()) for name, m, v in count_totals(run, 0, 4)}
    assert counted["allocated"] == ([1, 4], [0, 512])
    assert counted["requested"] == ([0, 2, 4], [700, 0, 9])


def tracks_of(trace, process=0):
    return {(track.folder, track.name): track for track in trace.processes[process].tracks}


def one_iteration(*rows, begin=0, backward=3, end=6, window="all"):
    meta = capture_meta(
        marks=[
            ("call", "begin", begin, "M"), ("call", "end", backward, "M"),
            ("backward", "begin", backward), ("backward", "end", end), ("end", "", end),
        ],
        iterations=[{"begin": 0, "end": 4}],
        facts={"notes": []},
    )  # fmt: skip
    return subject(rows, window, meta=meta, start=[])


def test_a_known_recording():
    trace = describe_run(
        one_iteration(
            ("segment_alloc", 0x100000, 20 * MIB, 0, FIRST, 100),
            ("alloc", 0x100000, 4 * MIB, 0, FIRST, 100),
            ("alloc", 0x500000, 5 * MIB, 0, SECOND, 103),
            ("alloc", 0xA00000, 1 * MIB, 0, BACKWARD, 105),
            ("free", 0x100000, 4 * MIB, 0, BACKWARD, 110),
        )
    )
    assert trace.start_ns == 100_000 - 1000  # the first mark lies before the first event
    found = tracks_of(trace)
    allocated = found["", "allocated"]
    assert allocated.time.tolist() == [999, 1002, 4000, 6000, 11_000]
    assert [v / MIB for v in allocated.value] == [0, 4, 9, 10, 6]
    peak = found["", "at the peak"]
    assert found["", "peak"].begin.tolist() == [6000]
    assert (peak.begin.tolist(), peak.end.tolist()) == ([6000], [11_000])
    assert peak.labels[peak.label[0]] == "peak of iteration 0: 10,485,760 bytes"
    described = peak.details[peak.detail[0]]
    assert described["position"] == "backward 33%"
    assert described["consists_of"][0] == "5,242,880 bytes: thunder/forward line3"
    spans = found["", "iterations"]
    shown = [
        (spans.labels[row], begin, end)
        for row, begin, end in zip(
            spans.label.tolist(), spans.begin.tolist(), spans.end.tolist(), strict=True
        )
    ]
    assert shown == [
        ("iteration 0", 999, 11_003),
        ("forward", 999, 4001),
        ("line2", 1000, 1002),
        ("line3", 4000, 4000),
        ("backward", 5999, 11_003),
        ("line9", 6000, 11_002),
    ]
    saved = found["lifetimes", "saved for backward"]
    assert (saved.begin.tolist(), saved.end.tolist()) == ([1002], [11_000])
    assert saved.numbers["bytes"].tolist() == [4 * MIB]
    assert saved.numbers["free_event"].tolist() == [4]
    kept = found["lifetimes", "other"]  # beyond the backward pass
    assert (kept.begin.tolist(), kept.end.tolist()) == ([4000, 6000], [11_003] * 2)
    assert kept.numbers["bytes"].tolist() == [5 * MIB, MIB]
    assert kept.numbers["free_event"].tolist() == [ABSENT, ABSENT]
    frees = found["events", "frees"]
    assert (frees.begin.tolist(), frees.numbers["event"].tolist()) == ([11_000], [4])
    assert found["events", "segments"].numbers["bytes"].tolist() == [20 * MIB]


def test_out_of_memory_is_shown_with_what_was_asked_and_free():
    rows = events(
        ("alloc", 0x1000, 512, 0, FIRST, 5), ("oom", 0, 7 * MIB, 0, USER, 9),
        ("snapshot", 0, 0, 0, 0, 12),
    )  # fmt: skip
    rows.device_free[1] = 3 * MIB
    found = tracks_of(describe_run(open_subject(recording(rows, stacks=STACKS), "all")))
    oom = found["events", "out of memory"]
    assert oom.labels[oom.label[0]] == "oom"
    assert {k: v.tolist() for k, v in oom.numbers.items()} == {
        "asked_bytes": [7 * MIB],
        "free_bytes": [3 * MIB],
        "event": [1],
    }
    assert found["events", "snapshots"].begin.tolist() == [8000]


def test_what_was_alive_before_begins_with_the_recording():
    found = tracks_of(describe_run(subject([("free", 0x1000, 700, 0, 0, 50)])))
    before = found["lifetimes", "before recording"]
    assert before.begin[0] == found["", "requested"].time[0]
    assert before.end[0] == found["", "requested"].time[1] - 2  # requested counts to completion
    assert before.numbers["alloc_event"].tolist() == [ABSENT]


def test_a_recording_without_times_counts_events_and_says_so():
    trace = describe_run(subject([("alloc", 0x1000, 8), ("alloc", 0x2000, 8)]))
    assert trace.start_ns is None
    assert any("no times" in note for note in trace.notes)
    assert tracks_of(trace)["events", "allocations"].begin.tolist() == [1000, 2000]


def test_an_empty_recording_is_a_trace():
    trace = describe_run(open_subject(recording(), "all"))
    assert all(len(t.time) for t in trace.processes[0].tracks if isinstance(t, Counter))
    assert ("", "peak") not in tracks_of(trace)


LONG = (
    ("segment_alloc", 0x100000, 20 * MIB, 0, FIRST, 100),
    ("alloc", 0x100000, 4 * MIB, 0, FIRST, 130),
    ("alloc", 0x500000, 5 * MIB, 0, SECOND, 190),
    ("alloc", 0xA00000, 1 * MIB, 0, BACKWARD, 195),
    ("free", 0x100000, 4 * MIB, 0, BACKWARD, 199),
)
SHORT = (
    ("segment_alloc", 0x100000, 20 * MIB, 0, FIRST, 500),
    ("alloc", 0x100000, 6 * MIB, 0, FIRST, 510),
    ("alloc", 0x700000, 5 * MIB, 0, SECOND, 511),
    ("alloc", 0xC00000, 1 * MIB, 0, BACKWARD, 520),
    ("free", 0x100000, 6 * MIB, 0, BACKWARD, 590),
)


def pair(a, b):
    subjects = [one_iteration(*rows, window=None) for rows in (a, b)]
    return describe_pair(report_diff(*subjects), *subjects), subjects


def test_passes_of_two_runs_begin_together_and_keep_their_length():
    trace, _ = pair(LONG, SHORT)
    spans = [tracks_of(trace, k)["", "iterations"] for k in (1, 2)]
    begins = [
        {s.labels[label]: (begin, end - begin) for label, begin, end in
         zip(s.label.tolist(), s.begin.tolist(), s.end.tolist(), strict=True)}
        for s in spans
    ]  # fmt: skip
    for name in ("iteration 0", "forward", "backward"):
        assert begins[0][name][0] == begins[1][name][0]
    assert [found["forward"][1] for found in begins] == [90_002, 11_002]
    assert [found["backward"][1] for found in begins] == [4004, 70_004]
    waits = tracks_of(trace, 2)["", "waits"]
    assert waits.labels == ["waits for A: backward"]
    assert (waits.end - waits.begin).tolist() == [95_000 - 20_000]


@pytest.mark.parametrize("rows", [(LONG, SHORT), (SHORT, LONG), (LONG, LONG)])
def test_gaps_sum_to_the_gap_at_every_time(rows):
    trace, subjects = pair(*rows)
    found = trace.processes[0].tracks
    counters = {(t.folder, t.name): t for t in found if isinstance(t, Counter)}
    gap = counters["", "allocated gap, B − A"]
    a, b = counters["", "allocated A"], counters["", "allocated B"]
    for time, value in zip(gap.time.tolist(), gap.value.tolist(), strict=True):
        assert value == at(b.time, b.value, time) - at(a.time, a.value, time)
        for folder in ("gap by category", "gap by symbol"):
            parts = [t for (f, _), t in counters.items() if f == folder]
            assert sum(at(t.time, t.value, time) for t in parts) == value
    tops = [int(counters["", f"allocated {x}"].value.max()) for x in "AB"]
    report = report_diff(*subjects)
    assert tops == [report.baseline.peak_bytes, report.candidate.peak_bytes]
