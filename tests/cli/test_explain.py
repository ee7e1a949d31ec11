"""``memtrace explain``: output, exit codes, messages."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from memtrace.analysis import open_subject
from memtrace.analysis.findings import report_explain
from memtrace.cli import app
from memtrace.render.explain import print_explain
from memtrace.snapshot import read

runner = CliRunner()
DATA = Path(__file__).parent.parent / "data"
CAST = str(DATA / "planted" / "extra_cast-eager-planted.pkl.gz")
CLEAN = str(DATA / "planted" / "extra_cast-eager.pkl.gz")


def run(*arguments):
    return runner.invoke(app, ["explain", *arguments], catch_exceptions=False)


def test_json_is_one_object_and_nothing_else():
    result = run(CAST, "--what-if", "--json")
    assert result.exit_code == 0
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert found["schema"] == 1
    (finding,) = found["findings"]
    assert finding["kind"] == "held twice: dtype"
    assert finding["bytes"] == 170 * 550 * 8
    assert finding["count"] == 1
    assert set(finding) == {
        "kind", "title", "bytes", "symbols", "lines", "layers", "evidence", "try", "sure", "count",
    }  # fmt: skip
    (change,) = found["what_if"]["changes"]
    assert change["finding"] == 0
    assert change["peak_bytes"] == found["peak_bytes"] - change["saved_bytes"]
    assert found["what_if"]["together"]["changes"] == [0]


def test_json_of_two_sums_to_the_gap():
    found = json.loads(run(CLEAN, CAST, "--json").stdout)
    deltas = sum(part["delta_bytes"] for part in found["parts"])
    assert deltas + found["rest_bytes"] == found["gap_bytes"]
    assert found["baseline"]["findings"] == []
    assert len(found["candidate"]["findings"]) == 1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("34.5MB", "the shortest list that reaches 34.5 MB: 1 saves 748.0 kB"),
        ("1MB", "no list of these changes reaches 1.0 MB: the lowest found is 34.4 MB"),
        ("100%", "the peak is not above 35.1 MB as it is"),
    ],
)
def test_target(target, said):
    result = run(CAST, "--target", target)
    assert result.exit_code == 0
    assert said in result.stdout


def test_two_captures_are_asked_how_b_gets_down_to_a():
    result = run(CLEAN, CAST, "--what-if")
    assert "B: what if" in result.stdout
    assert "the shortest list that reaches 34.4 MB: 1 saves 748.0 kB" in result.stdout


def test_a_target_that_is_none_is_a_usage_error():
    assert runner.invoke(app, ["explain", CAST, "--target", "less"]).exit_code == 2


def test_three_captures_are_a_usage_error():
    assert runner.invoke(app, ["explain", CAST, CAST, CAST]).exit_code == 2


def test_a_clean_program_says_so():
    result = run(CLEAN, "--what-if")
    assert result.exit_code == 0
    assert "no finding" in result.stdout
    assert "no change that the evidence allows" in result.stdout


def test_a_plain_snapshot_says_what_cannot_be_seen(write):
    result = run(write("a.pkl", 100, 200))
    assert result.exit_code == 0
    assert "without traces, marks and a profile most causes cannot be seen" in result.stdout


def test_an_empty_recording(tmp_path):
    path = tmp_path / "empty.pkl"
    snapshot = {"segments": [], "device_traces": [[]], "allocator_settings": {}}
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    for options in ((), ("--what-if", "--json"), ("--target", "1GB")):
        assert run(str(path), *options).exit_code == 0
    assert run(str(path), CAST).exit_code == 0


def test_a_missing_file_is_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "memtrace", "explain", str(tmp_path / "none.pkl")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", ["kept_f32-eager", "mask-nvfuser", "amsgrad-nvfuser"])
def test_a_finding_is_a_few_lines(name, width):
    subject = open_subject(read(str(DATA / "planted" / f"{name}-planted.pkl.gz")))
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    print_explain(console, report_explain(subject))
    text = console.export_text()
    lines = text.split("\n\n")[1].rstrip().splitlines()
    assert 4 <= len(lines) <= 9
    assert max(map(len, text.splitlines())) <= width


def test_hostile_names_stay_in_their_line(tmp_path):
    name = "\x1b[31mred\u202e" + "x" * 10_000
    frames = [{"filename": "/a/b.py", "line": 1, "name": name}]
    history = [
        {"action": "alloc", "addr": 4096, "size": 9, "stream": 0, "time_us": 1, "frames": frames}
    ]
    path = tmp_path / "hostile.pkl"
    snapshot = {"segments": [], "device_traces": [history], "allocator_settings": {}}
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    other = tmp_path / "other.pkl"
    other.write_bytes(pickle.dumps({**snapshot, "device_traces": [[]]}, protocol=4))
    result = run(str(other), str(path))
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout
    assert len(result.stdout) < 4000
    assert json.loads(run(str(other), str(path), "--json").stdout)["gap_bytes"] == 9
