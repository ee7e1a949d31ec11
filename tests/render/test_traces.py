"""Traces as Perfetto's own trace processor reads them, in both formats."""

from __future__ import annotations

import gzip
import json
import re
from bisect import bisect_right
from collections import Counter as Count
from pathlib import Path

import numpy as np
import pytest

from memtrace.analysis import open_subject, report_diff
from memtrace.analysis.tracks import describe_pair, describe_run
from memtrace.render.chrome import write_chrome
from memtrace.render.perfetto import write_perfetto
from memtrace.snapshot import compress, read
from memtrace.symbols.kernels import name_kernels
from tests.analysis.test_tracks import one_iteration
from tests.builders import MIB, events, recording, stack_table
from tests.trace_processor import Trace

ROOT = Path(__file__).parent.parent.parent
FILES = {
    "thunder": ROOT / "samples/qwen2-L4-eager-nvfuser.pkl.gz",
    "inductor": ROOT / "samples/vit-inductor.pkl.gz",
    "eager": ROOT / "samples/gpt2-eager.pkl.gz",
    "two streams": ROOT / "tests/data/allocators/native.pkl.gz",
    "late": ROOT / "tests/data/allocators/late.pkl.gz",
    "oom": ROOT / "tests/data/allocators/oom.pkl.gz",
    "plain": ROOT / "tests/data/plain/qwen2-L4-sdpa-torchcompile.snapshot.pkl.gz",
}
WRITERS = {"a.pftrace": write_perfetto, "a.json.gz": write_chrome}


def write(trace, folder, name):
    """The trace in a file, loaded; nothing may have been lost on the way."""
    path = folder / name
    with path.open("wb") as stream:
        compress(stream, name, lambda target: WRITERS[name](trace, target), level=1)
    loaded = Trace(path)
    assert loaded.faults() == []
    return loaded


class Case:
    """A recording and its trace as the processor sees it."""

    def __init__(self, kind, name, folder):
        self.name = name
        self.subject = open_subject(read(str(FILES[kind])), "all")
        self.run = self.subject.replay
        self.profile = (self.subject.recording.meta or {}).get("profile")
        self.described = describe_run(self.subject)
        self.trace = write(self.described, folder, name)

    def slices(self, title, columns="ts, dur, slice.name"):
        """Rows of the slices of tracks of one title ('lifetimes: parameter', '%' for any)."""
        if self.name.endswith("pftrace"):
            folder, _, name = title.rpartition(": ")
            return self.trace.rows(
                f"select {columns} from slice join track on slice.track_id = track.id "
                "left join track as folder on track.parent_id = folder.id "
                f"where track.name like '{name}' "
                + (f"and folder.name = '{folder}'" if folder else "")
            )
        return self.trace.rows(
            f"select {columns} from slice join thread_track as t on slice.track_id = t.id "
            f"join thread using (utid) where thread.name like '{title}'"
        )

    def counter(self, title):
        """(times, values) of a counter."""
        folder, _, name = title.rpartition(": ")
        where = f"track.name = '{title} bytes'"
        if self.name.endswith("pftrace"):
            where = f"track.name = '{name}'" + (f" and folder.name = '{folder}'" if folder else "")
        rows = self.trace.rows(
            "select ts, value from counter join track on counter.track_id = track.id "
            f"left join track as folder on track.parent_id = folder.id where {where} order by ts"
        )
        return [ts for ts, _ in rows], [int(value) for _, value in rows]

    def times(self):
        """When each event is in the trace, found without the clock under test: the first event of a
        microsecond at its beginning, the others 2 ns apart."""
        found, last, number = [], None, 0
        for us in self.subject.recording.events[self.run.device].time_us.tolist():
            number = number + 1 if us == last else 0
            last = us
            found.append(us * 1000 + 2 * number - self.described.start_ns)
        return found


@pytest.fixture(scope="module", params=[(k, n) for k in FILES for n in WRITERS], ids="-".join)
def case(request, tmp_path_factory):
    found = Case(*request.param, tmp_path_factory.mktemp("trace"))
    yield found
    found.trace.close()


def at(series, time):
    times, values = series
    return values[bisect_right(times, time) - 1]


def test_counters_are_the_replay_to_the_byte(case):
    times = case.times()
    totals = {"requested": case.run.requested, "reserved": case.run.reserved}
    totals[case.run.accounting] = case.run.total(case.run.accounting)
    for name, total in totals.items():
        if total is None:
            continue
        series = case.counter(name)
        for event in range(0, case.run.n_events, max(case.run.n_events // 200, 1)):
            assert at(series, times[event]) == total[event + 1]
        # Of the events of one microsecond the last one has the last word.
        us = case.subject.recording.events[case.run.device].time_us
        for event in np.flatnonzero(np.diff(us) > 0)[:200].tolist():
            end = (int(us[event]) + 1) * 1000 - 1 - case.described.start_ns
            assert at(series, end) == total[event + 1]
        assert max(series[1]) == total.max()


@pytest.mark.parametrize("folder", ["by category", "by symbol"])
def test_groups_sum_to_the_total(case, folder):
    names = {t.name for t in case.described.processes[0].tracks if t.folder == folder}
    groups = [case.counter(f"{folder}: {name}") for name in names]
    total = case.run.total(case.run.accounting)
    for event, time in list(enumerate(case.times()))[:: max(case.run.n_events // 50, 1)]:
        assert sum(at(group, time) for group in groups) == total[event + 1]


def test_every_lifetime_is_there_as_long_as_it_lived(case):
    times, rows = case.times(), case.run.lifetimes
    spans = case.described.processes[0].tracks
    stop = max(int(t.end.max()) for t in spans if t.folder == "lifetimes")
    start = int(next(t for t in spans if t.name == "requested").time[0])
    times.append(stop)
    begin = [times[k] if k >= 0 else start for k in rows.born.tolist()]
    gone = np.where(rows.freed < 0, rows.completed, rows.freed).tolist()
    found = [case.slices(f"lifetimes: {t.name}") for t in spans if t.folder == "lifetimes"]
    found = [one for some in found for one in some]
    assert len(found) == len(rows)
    assert Count((ts, dur) for ts, dur, _ in found) == Count(
        (a, times[b] - a) for a, b in zip(begin, gone, strict=True)
    )
    assert stop > max(times[:-1])


def test_passes_lie_in_iterations_and_symbols_in_passes(case):
    rows = case.slices("iterations", "slice.id, slice.parent_id, depth, slice.name, ts, dur")
    expected = [t for t in case.described.processes[0].tracks if t.name == "iterations"]
    assert len(rows) == sum(len(t) for t in expected)
    by_id = {row[0]: row for row in rows}
    passes = {"forward", "backward", "optimizer"}
    for _, parent, depth, name, ts, dur in rows:
        if depth == 0:
            continue
        above = by_id[parent]
        assert above[4] <= ts
        assert ts + dur <= above[4] + above[5]
        if name in passes:
            assert above[3].startswith(("iteration ", "ProfilerStep#"))
    windows = (case.subject.recording.meta or {}).get("iterations") or []
    assert sum(row[3].startswith("iteration ") for row in rows) == len(windows)
    if "nvFusion2" in {row[3] for row in rows}:
        fusions = [row for row in rows if row[3] == "nvFusion2"]
        assert {by_id[row[1]][3] for row in fusions} == {"forward"}
        assert len(fusions) == len(windows)


def test_kernels_and_operators_are_as_long_as_the_profiler_says(case):
    if case.profile is None:
        assert case.slices("GPU%") == case.slices("thread %") == []
        return
    kernels, ops = case.profile["kernels"], case.profile["ops"]
    found = case.slices("GPU: GPU%")
    origin = case.described.start_ns
    assert Count(found) == Count(
        (start - origin, duration, name)
        for start, duration, name in zip(
            kernels["start_ns"], kernels["duration_ns"], kernels["name"], strict=True
        )
    )
    found = case.slices("CPU: thread %")
    seen = [
        (start - origin, duration, name)
        for start, duration, name in zip(
            ops["start_ns"], ops["duration_ns"], ops["name"], strict=True
        )
    ]
    # The recorder's own ranges bear the name of what they stand for, not their own.
    assert Count(one[:2] for one in found) == Count(one[:2] for one in seen)
    assert not Count(one for one in seen if not one[2].startswith("memtrace ")) - Count(found)
    assert not any(name.startswith("memtrace ") for *_, name in found)


def test_arrows_lead_from_launches_to_kernels(case):
    if case.profile is None:
        return
    kernels, ops = case.profile["kernels"], case.profile["ops"]
    launched = dict(zip(ops["correlation"], ops["name"], strict=True))
    pairs = Count(
        (launched[c], name)
        for c, name in zip(kernels["correlation"], kernels["name"], strict=True)
        if c in launched
    )
    if max(Count(kernels["correlation"]).values(), default=0) > 1:
        return  # what one launch replays is a chain
    found = case.trace.rows(
        "select a.name as launch, b.name as kernel from flow join slice a on slice_out = a.id "
        "join slice b on slice_in = b.id"
    )
    assert Count(found) == pairs


def test_kernels_bear_their_symbols(case):
    if case.profile is None:
        return
    names = name_kernels(case.subject.recording, case.run)
    told = arguments(case.trace, "dur >= 0")
    found = [
        one["symbol"] for one in told if one.get("kind") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    assert Count(found) == Count(names.namings[row].symbol.text for row in names.rows)


def test_lines_of_a_trace_bear_what_they_call(case):
    if case.profile is None or "thunder.computation" not in str(case.profile["ops"]["name"]):
        return
    names = {name for *_, name in case.slices("CPU: thread %")}
    assert any(re.match(r"nvFusion\d+ \(thunder\.computation_\d+:\d+\)$", n) for n in names)


def test_every_event_is_an_instant(case):
    rows, times = case.run.lifetimes, case.times()
    for title, events_ in (("allocations", rows.born), ("frees", rows.freed)):
        inside = (events_ >= 0) & (events_ < case.run.n_events)
        found = case.slices(f"events: {title}")
        assert sorted(ts for ts, _, _ in found) == sorted(
            times[k] for k in events_[inside].tolist()
        )
        assert {dur for _, dur, _ in found} <= {0}


def arguments(trace, where):
    """The arguments of the slices that a condition holds for, by slice."""
    found: dict[int, dict[str, object]] = {}
    for slice_id, key, text, number in trace.rows(
        "select slice.id, key, string_value, int_value from slice join args using (arg_set_id) "
        f"where {where}"
    ):
        name = key.partition(".")[2]  # 'debug.bytes' or 'args.bytes'
        found.setdefault(slice_id, {})[name] = number if text is None else text
    return list(found.values())


@pytest.mark.parametrize("case", [("thunder", name) for name in WRITERS], indirect=True)
def test_a_tensor_says_who_makes_uses_and_frees_it(case):
    last = max(
        arguments(case.trace, "slice.name = 't1714' and dur > 0"), key=lambda one: one["free_event"]
    )
    assert last["bytes"] == last["block_bytes"] == 939_524_096
    assert last["layer"] == "model.layers.1.self_attn"
    assert last["shape"] == "[1, 28, 4096, 4096]"
    assert last["dtype"] == "bfloat16"
    assert last["category"] == "saved for backward"
    assert last["made_by"].endswith("[t1700, t1714] = nvFusion6(t3534, attention_mask)")
    assert last["used_by[0]"].endswith("t3535 = torch.matmul(t1714, t1647)")
    assert last["used_by[2]"].endswith("t3606 = torch.matmul(t3649, t3690)")
    assert last["freed_by"].endswith("del t3649, t3690")
    (seen,) = {a["seen"] for a in arguments(case.trace, "slice.name = 'nvFusion6'") if "seen" in a}
    assert seen == "from its first to its last allocator event"


def test_the_peak_says_what_it_consists_of(case):
    top = int(case.run.total(case.run.accounting).max())
    found = arguments(case.trace, f"slice.name like 'peak of %{top:,} bytes'")
    greatest = next(one for one in found if "consists_of[0]" in one)
    assert greatest["bytes"] == top
    if "nvfuser" in case.subject.recording.path:
        assert greatest["consists_of[0]"].startswith("2,818,572,288 bytes: Qwen2ForCausalLM")
        assert greatest["position"] == "start of backward (0%)"


def test_out_of_memory_is_there(case):
    found = case.slices("events: out of memory")
    assert len(found) == ("oom.pkl" in case.subject.recording.path)
    if found:
        (one,) = arguments(case.trace, "slice.name = 'oom'")
        events_ = case.subject.recording.events[case.run.device]
        assert one["asked_bytes"] == 128 << 20
        assert one["free_bytes"] == events_.device_free.max() > 0


HOSTILE = [
    "</script><script>alert(1)</script>", "\u202eevil\u202c", "\x1b[2J\x07", "%d %s %%", '"\\',
    "x" * 10_000, "a\nb", "\U0001f600",
]  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_hostile_names_survive(tmp_path, name):
    stacks = stack_table(*([(f"/a/{text}.py", 1, text)] for text in HOSTILE))
    rows = [("alloc", 0x1000 * (k + 1), 8, 0, k + 1, 10 + k) for k in range(len(HOSTILE))]
    one = recording(events(*rows), stacks=stacks, path="\udcff</title>.pkl")
    with write(describe_run(open_subject(one, "all")), tmp_path, name) as trace:
        found = {row[0] for row in trace.rows("select distinct name from slice")}
        for text in HOSTILE:
            # JSON's escapes of control characters the processor shows as they stand.
            shown = json.dumps(text, ensure_ascii=False)[1:-1] if "json" in name else text
            assert any(text in one or shown in one for one in found), text


@pytest.mark.parametrize("name", WRITERS)
def test_an_empty_slice_does_not_shift_its_neighbours(tmp_path, name):
    one = one_iteration(
        ("segment_alloc", 0x100000, 20 * MIB, 0, 1, 100),
        ("alloc", 0x100000, 4 * MIB, 0, 1, 100),
        ("alloc", 0x500000, 5 * MIB, 0, 2, 103),
        ("alloc", 0xA00000, 1 * MIB, 0, 3, 105),
        ("free", 0x100000, 4 * MIB, 0, 3, 110),
    )
    with write(describe_run(one), tmp_path, name) as trace:
        rows = trace.rows(
            "select name, ts, dur, depth from slice where name in ('iteration 0', 'forward', "
            "'backward', 'line2', 'line3', 'line9') order by ts, depth"
        )
    assert rows == [
        ("iteration 0", 999, 10_004, 0),
        ("forward", 999, 3002, 1),
        ("line2", 1000, 2, 2),
        ("line3", 4000, 0, 2),
        ("backward", 5999, 5004, 1),
        ("line9", 6000, 5002, 2),
    ]


@pytest.mark.parametrize("name", WRITERS)
def test_an_empty_recording_is_a_trace(tmp_path, name):
    with write(describe_run(open_subject(recording(), "all")), tmp_path, name) as trace:
        assert trace.value("select count(*) from slice") == 1  # about the trace


@pytest.mark.parametrize("name", WRITERS)
def test_a_window_holds_what_lived_in_it(tmp_path, name):
    one = open_subject(read(str(FILES["thunder"])))
    run, window = one.replay, one.window
    alive = (run.lifetimes.born < window.end) & (run.lifetimes.freed >= window.begin)
    described = describe_run(one)
    with write(described, tmp_path, name) as trace:
        names = {t.name for t in described.processes[0].tracks if t.folder == "lifetimes"}
        shown = sum(len(t) for t in described.processes[0].tracks if t.name in names
                    and t.folder == "lifetimes")  # fmt: skip
        assert shown == int(alive.sum())
        ((begin, length),) = trace.rows("select ts, dur from slice where name = 'iteration 11'")
        first, last = trace.rows("select min(ts), max(ts + dur) from slice where dur > 0")[0]
        assert (first, last) == (begin, begin + length)


def test_the_pair_has_both_peaks_and_the_gap(tmp_path):
    names = ("qwen2-L4-eager-torchcompile", "qwen2-L4-eager-nvfuser")
    a, b = (open_subject(read(str(ROOT / f"samples/{name}.pkl.gz"))) for name in names)
    report = report_diff(a, b)
    with write(describe_pair(report, a, b), tmp_path, "a.pftrace") as trace:
        tops = dict(
            trace.rows(
                "select track.name, max(value) from counter join track on track_id = track.id "
                "where track.name in ('allocated A', 'allocated B') group by 1"
            )
        )
        assert tops["allocated A"] == report.baseline.peak_bytes
        assert tops["allocated B"] - tops["allocated A"] == report.gap_bytes == 1_860_302_848
        begins = trace.rows(
            "select name, count(*), count(distinct ts) from slice "
            "where name in ('iteration 11', 'forward', 'backward') group by 1"
        )
        assert sorted(begins) == [("backward", 2, 1), ("forward", 2, 1), ("iteration 11", 2, 1)]


def test_chrome_json_is_json_with_the_start_in_it(tmp_path):
    described = describe_run(open_subject(read(str(FILES["two streams"])), "all"))
    write(described, tmp_path, "a.json.gz").close()
    with gzip.open(tmp_path / "a.json.gz", "rt", encoding="utf-8") as stream:
        found = json.load(stream, parse_constant=lambda name: pytest.fail(name))
    assert found["otherData"]["start_epoch_ns"] == described.start_ns
    assert found["otherData"]["label"] == "native"
