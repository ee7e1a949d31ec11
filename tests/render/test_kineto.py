"""The profiled iteration as torch.profiler would have written it."""

import io
import json
import math
from pathlib import Path

import pytest

from memtrace.analysis import open_subject
from memtrace.capture.profile import columns_of
from memtrace.errors import MemtraceError
from memtrace.render.kineto import write_profile
from memtrace.snapshot import read
from tests.analysis.test_timing import timed
from tests.builders import events, recording
from tests.test_samples import SAMPLES
from tests.trace_processor import Trace

GRAPHS = Path(__file__).parents[1] / "data/allocators/graphs.pkl.gz"


def written(one):
    stream = io.BytesIO()
    write_profile(one, stream)

    def refuse(text):
        raise AssertionError(f"{text} is no JSON")

    return json.loads(stream.getvalue(), parse_constant=refuse)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_what_the_recorder_reads_from_it_is_what_it_had_read_from_torch(path):
    """By the recorder's own reader of torch's traces: names, threads, every nanosecond."""
    one = read(str(path))
    profile = one.meta["profile"]
    trace = json.loads(json.dumps(written(one)), parse_float=str)
    again = columns_of(trace, profile["iteration"], 0, 1 << 62)
    for table, left_out in (("ops", {"shapes"}), ("kernels", set())):
        rows = [
            sorted(zip(*(column for key, column in t.items() if key not in left_out), strict=True))
            for t in (profile[table], again[table])
        ]
        assert rows[0] == rows[1]


def test_each_launch_points_at_what_it_launched():
    one = timed([], [(1, 100, 200), (2, 150, 300), (0, 400, 500)]).recording
    trace = written(one)["traceEvents"]
    arrows = [event for event in trace if event.get("cat") == "ac2g"]
    begins = {e["id"]: (e["pid"], e["tid"], e["ts"]) for e in arrows if e["ph"] == "s"}
    ends = {e["id"]: (e["pid"], e["tid"], e["ts"]) for e in arrows if e["ph"] == "f"}
    assert begins.keys() == ends.keys() == {0, 1}
    kernels = {
        e["args"]["correlation"]: (e["pid"], e["tid"], e["ts"])
        for e in trace
        if e.get("cat") == "kernel"
    }
    assert {k: kernels[k] for k in ends} == ends
    calls = {
        e["args"]["correlation"]: (e["pid"], e["tid"], e["ts"])
        for e in trace
        if e.get("cat") == "cuda_driver"
    }
    assert calls == begins


def test_each_kernel_of_a_replayed_graph_has_an_arrow_of_its_own(tmp_path):
    """They have one correlation; Perfetto drops arrows that have one number."""
    one = read(str(GRAPHS))
    correlations = one.meta["profile"]["kernels"]["correlation"]
    assert len(set(correlations)) < len(correlations)
    path = tmp_path / "graphs.json"
    with path.open("wb") as stream:
        write_profile(one, stream)
    with Trace(path) as trace:
        assert trace.faults() == []
        assert trace.value("select count(*) from flow") == len(correlations)


def test_operators_and_kernels_are_no_one_process():
    trace = written(timed([], [(1, 100, 200)]).recording)["traceEvents"]
    sides = {e["cat"]: e["pid"] for e in trace if e["ph"] == "X"}
    assert sides["kernel"] != sides["cuda_driver"] == sides["user_annotation"]
    names = {(e["pid"], e["args"]["name"]) for e in trace if e["name"] == "process_name"}
    assert names == {(0, "GPU 0"), (1, "python")}


def test_what_does_not_nest_has_a_lane_of_its_own_and_says_its_stream():
    one = timed([], [(1, 100, 300), (2, 150, 250), (3, 200, 400), (4, 300, 350)]).recording
    one.meta["profile"]["kernels"]["stream"] = [7] * 4
    trace = written(one)["traceEvents"]
    lanes = {e["name"]: (e["tid"], e["args"]["stream"]) for e in trace if e.get("cat") == "kernel"}
    assert lanes == {"k1": (7, 7), "k2": (7, 7), "k3": (8, 7), "k4": (7, 7)}
    names = {e["tid"]: e["args"]["name"] for e in trace if e["name"] == "thread_name"}
    assert (names[7], names[8]) == ("stream 7", "stream 7 (2)")


@pytest.mark.parametrize("name", ["</script>", "\u202e\x1b[31m", '"\\', "x" * 10_000, "é", ""])
def test_hostile_names_are_kept(name):
    one = timed([], [(1, 100, 200)]).recording
    one.meta["profile"]["kernels"]["name"] = [name]
    one.meta["profile"]["ops"]["shapes"] = ["[[1,", name]
    trace = written(one)["traceEvents"]
    assert name in {event["name"] for event in trace}


def test_broken_clocks_write_numbers():
    one = timed([], [(1, 100, 200)]).recording
    one.meta["profile"]["kernels"]["duration_ns"] = [-5]
    one.meta["profile"]["kernels"]["start_ns"] = [-(1 << 63)]
    trace = written(one)["traceEvents"]
    times = [e[key] for e in trace for key in ("ts", "dur") if key in e]
    assert all(math.isfinite(time) and time >= 0 for time in times)


def test_an_empty_profile_is_a_trace():
    one = timed([], []).recording
    assert [e for e in written(one)["traceEvents"] if e["ph"] == "X"] == []


def test_without_a_profile_there_is_nothing_to_write():
    one = open_subject(recording(events(("alloc", 0, 512)), path="a.pkl")).recording
    with pytest.raises(MemtraceError, match=r"a\.pkl: no iteration was profiled"):
        written(one)
