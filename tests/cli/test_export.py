"""``memtrace export`` and ``memtrace diff --perfetto``: files, messages, exit codes."""

import gzip
import json
import os
import pickle
from pathlib import Path

import pytest

from memtrace.snapshot import read
from tests.cli.conftest import snapshot
from tests.cli.test_commands import run, run_process
from tests.trace_processor import Trace

NATIVE = str(Path(__file__).parent.parent / "data/allocators/native.pkl.gz")


def test_both_formats_at_once(tmp_path):
    proto, chrome = tmp_path / "a.pftrace", tmp_path / "a.json.gz"
    done = run("export", NATIVE, "--perfetto", str(proto), "--chrome", str(chrome))
    assert done.exit_code == 0
    assert done.stdout == ""
    assert [line.split(":")[1].strip() for line in done.stderr.splitlines()] == [
        str(proto), str(chrome)
    ]  # fmt: skip
    counts = []
    for path in (proto, chrome):
        with Trace(path) as trace:
            assert trace.faults() == []
            counts.append(trace.rows("select count(*), sum(dur) from slice"))
    assert counts[0] == counts[1]
    assert sorted(os.listdir(tmp_path)) == ["a.json.gz", "a.pftrace"]


def test_json_is_compressed_only_where_the_name_says_so(tmp_path):
    path = tmp_path / "a.json"
    assert run("export", NATIVE, "--chrome", str(path), "--window", "last").exit_code == 0
    assert json.loads(path.read_text("utf-8"))["otherData"]["window"] == "iteration 7"
    zipped = tmp_path / "b.json.gz"
    assert run("export", NATIVE, "--chrome", str(zipped), "--window", "last").exit_code == 0
    assert gzip.decompress(zipped.read_bytes()) == path.read_bytes()


def test_nothing_is_overwritten_without_force(tmp_path):
    path = tmp_path / "a.pftrace"
    path.write_text("mine")
    done = run_process("export", NATIVE, "--perfetto", str(path))
    assert done.returncode == 1
    assert done.stderr == (
        f"memtrace: {path}: exists already; use --force to replace it, or give another name\n"
    )
    assert path.read_text() == "mine"
    assert run("export", NATIVE, "--perfetto", str(path), "--force").exit_code == 0
    with Trace(path) as trace:
        assert trace.faults() == []


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ([], "--chrome FILE or --profile FILE"),
        (["--perfetto", "same", "--chrome", "same"], "twice"),
        (["--perfetto", "x.pftrace.zst"], ".zst"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(tmp_path, monkeypatch, outputs, said):
    monkeypatch.chdir(tmp_path)
    done = run_process("export", NATIVE, *outputs, cwd=tmp_path)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert os.listdir(tmp_path) == []


def test_the_capture_is_never_overwritten(write):
    path = write("a.pkl", 100)
    before = Path(path).read_bytes()
    assert run_process("export", path, "--perfetto", path, "--force").returncode == 2
    assert run_process("diff", path, path, "--perfetto", path, "--force").returncode == 2
    assert Path(path).read_bytes() == before


def test_what_is_incomplete_is_said(write, tmp_path):
    done = run("export", write("a.pkl", 100), "--perfetto", str(tmp_path / "a.pftrace"))
    assert "note: the file says nothing of the allocator's segments" in done.stderr


def test_no_times_are_said(tmp_path):
    history = snapshot(100, 200)
    for event in history["device_traces"][0]:
        del event["time_us"]
    path = tmp_path / "old.pkl"
    path.write_bytes(pickle.dumps(history, protocol=4))
    done = run("export", str(path), "--perfetto", str(tmp_path / "a.pftrace"))
    assert "no times: its clock counts events" in done.stderr
    with Trace(tmp_path / "a.pftrace") as trace:
        notes = trace.rows("select string_value from args where key glob 'debug.notes*'")
        assert any("no times" in text for (text,) in notes)


def test_a_folder_that_is_not_there(tmp_path):
    done = run_process("export", NATIVE, "--perfetto", str(tmp_path / "no/a.pftrace"))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "make the folder first" in done.stderr


def test_diff_writes_both_beside_its_table(tmp_path):
    path = tmp_path / "ab.pftrace"
    done = run("diff", NATIVE, NATIVE, "--json", "--perfetto", str(path))
    assert done.exit_code == 0
    assert json.loads(done.stdout)["gap_bytes"] == 0
    assert str(path) in done.stderr
    with Trace(path) as trace:
        assert trace.faults() == []
        (gaps,) = trace.rows(
            "select min(value), max(value) from counter join track on track_id = track.id "
            "where track.name like '%gap, B%'"
        )
        assert gaps == (0, 0)


def test_an_unknown_window_is_one_line(tmp_path):
    done = run_process("export", NATIVE, "--perfetto", str(tmp_path / "a"), "--window", "99")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["qwen2-L4-eager-nvfuser", "vit-torchcompile"])
def test_the_plain_profile_is_whole_in_perfetto(tmp_path, name):
    path = tmp_path / "p.json.gz"
    capture = Path(__file__).parent.parent.parent / f"samples/{name}.pkl.gz"
    done = run("export", str(capture), "--profile", str(path))
    assert done.exit_code == 0
    assert "HolisticTraceAnalysis" in done.stderr
    profile = read(str(capture)).meta["profile"]
    with Trace(path) as trace:
        assert trace.faults() == []
        kinds = dict(
            trace.rows("select category, count(*) from slice group by category order by category")
        )
        assert sum(kinds.values()) == len(profile["ops"]["name"]) + len(profile["kernels"]["name"])
        ((count, total),) = trace.rows(
            "select count(*), sum(dur) from slice where category in "
            "('kernel', 'gpu_memcpy', 'gpu_memset')"
        )
        assert (count, total) == (
            len(profile["kernels"]["name"]), sum(profile["kernels"]["duration_ns"]),
        )  # fmt: skip
        # An arrow from every launch to its kernel.
        ((arrows,),) = trace.rows("select count(*) from flow")
        assert arrows == count


def test_without_a_profile_there_is_no_plain_trace(write, tmp_path, capsys):
    path = tmp_path / "p.json"
    done = run_process("export", write("a.pkl", 100), "--profile", str(path))
    assert done.returncode == 1
    assert "no iteration was profiled" in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["a.pkl"]
