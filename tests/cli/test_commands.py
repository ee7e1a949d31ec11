"""The command line: output, exit codes, messages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtrace.cli import app, main
from memtrace.cli.diff import parse_threshold

runner = CliRunner()


def run(*arguments):
    return runner.invoke(app, list(arguments), catch_exceptions=False)


def test_peak_json_is_one_object_and_nothing_else(write):
    result = run("peak", write("a.pkl", 100, 200), "--json")
    assert result.exit_code == 0
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert found["schema"] == 1
    assert found["peak_bytes"] == 300
    assert found["driver_peak_bytes"] is None
    assert [(row["symbol"], row["bytes"]) for row in found["rows"]] == [
        ("f (a/b.py:1)", 200),
        ("f (a/b.py:0)", 100),
    ]


def test_diff_json(write):
    result = run("diff", write("a.pkl", 100, 200), write("b.pkl", 150), "--json", "--top", "1")
    found = json.loads(result.stdout)
    assert found["gap_bytes"] == -150
    assert [row["symbol"] for row in found["rows"]] == ["f (a/b.py:1)", "<others>"]
    assert sum(row["delta_bytes"] for row in found["rows"]) == -150


@pytest.mark.parametrize(
    ("threshold", "code"), [("10%", 3), ("60%", 0), ("40", 3), ("50B", 0), ("1KiB", 0)]
)
def test_fail_over(write, threshold, code):
    a, b = write("a.pkl", 100), write("b.pkl", 150)
    assert run("diff", a, b, "--fail-over", threshold).exit_code == code
    assert run("diff", b, a, "--fail-over", threshold).exit_code == 0


def test_fail_over_that_is_none_is_a_usage_error(write):
    a = write("a.pkl", 100)
    assert runner.invoke(app, ["diff", a, a, "--fail-over", "much"]).exit_code == 2


def test_thresholds():
    assert parse_threshold("5%", 1000) == 50
    assert parse_threshold("200MiB", 0) == 200 * 2**20
    assert parse_threshold("1.5 GB", 0) == 1.5e9


def test_unknown_window_lists_those_there_are(write, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["memtrace", "peak", write("a.pkl", 1), "--window", "7"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    error = capsys.readouterr().err
    assert "a.pkl" in error
    assert "all" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("content", [None, b"", b"hello", b"\x80\x04K\x01."])
def test_bad_files_are_one_line_and_exit_1(tmp_path, content):
    path = tmp_path / "bad.pkl"
    if content is not None:
        path.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-m", "memtrace", "peak", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "bad.pkl" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "record",
        "peak",
        "diff",
        "show",
        "explain",
        "predict",
        "export",
        "report",
        "view",
    ],
)
def test_every_command_has_help_with_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example:  memtrace {command}" in result.stdout


def run_process(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "memtrace", *arguments],
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


def test_nothing_to_compare_is_said(write):
    done = run_process("diff", write("a.pkl"), write("b.pkl", 5), "--fail-over", "5%")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "a.pkl: nothing was recorded" in done.stderr


def test_an_output_that_cannot_hold_a_character_gets_an_escape(write):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run_process("diff", write("a.pkl", 9), write("b.pkl", 5), env=environment)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\\u2212" in done.stdout  # the minus sign


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_disk_is_one_line(write, more):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "memtrace", "peak", write("a.pkl", 9), *more],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "memtrace: the output cannot be written (No space left on device)\n"


def test_show_json(write):
    found = json.loads(run("show", write("a.pkl", 100, 200), "f", "--json", "--top", "1").stdout)
    assert (found["count"], found["bytes_at_peak"]) == (2, 300)
    (shown,) = found["lifetimes"]
    assert shown["bytes"] == 200
    assert shown["life"]["producer"]["where"] == "a/b.py:1"
    assert shown["life"]["freed"] is None


def test_show_of_nothing_is_one_line(write):
    done = run_process("show", write("a.pkl", 100), "nvFusion0")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "a.pkl" in done.stderr
    assert "nvFusion0" in done.stderr


@pytest.mark.parametrize("at", ["soon", "99", "forward-end"])
def test_a_moment_that_is_not_there(write, at):
    done = run_process("peak", write("a.pkl", 100), "--at", at)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert at in done.stderr


def test_viewers_import_no_torch():
    code = (
        "import sys; import memtrace.cli, memtrace.analysis, memtrace.render.text, "
        "memtrace.render.json, memtrace.render.perfetto, memtrace.render.chrome, "
        "memtrace.analysis.tracks, memtrace.snapshot; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


SAMPLES = Path(__file__).parent.parent.parent / "samples"
EAGER, COMPILED = (str(SAMPLES / f"gpt2-{name}.pkl.gz") for name in ("eager", "inductor"))


def test_rows_can_be_sorted_by_gpu_time():
    result = run("peak", EAGER, "--sort", "time", "--top", "2")
    assert result.exit_code == 0
    assert "GPU time" in result.stdout
    first = next(line for line in result.stdout.splitlines() if "MmBackward0" in line)
    assert "24.6 ms" in first
    result = run("diff", EAGER, COMPILED, "--sort", "time", "--top", "2")
    assert result.exit_code == 0
    assert "of GPU time" in result.stdout


def test_json_has_times_and_steps():
    found = json.loads(run("diff", EAGER, COMPILED, "--json", "--sort", "time").stdout)
    busy = [found[side]["gpu"]["busy_ns"] for side in ("baseline", "candidate")]
    assert found["time_gap_ns"] == busy[1] - busy[0]
    assert sum(row["delta_time_ns"] for row in found["rows"]) == found["time_gap_ns"]
    deltas = [abs(row["delta_time_ns"]) for row in found["rows"]]
    assert deltas == sorted(deltas, reverse=True)
    assert found["baseline"]["steps"]["wall"]["count"] == 5


def test_no_gpu_time_is_an_input_error(write, capsys, monkeypatch):
    path = write("a.pkl", 100)
    monkeypatch.setattr(sys, "argv", ["memtrace", "peak", path, "--sort", "time"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith(f"memtrace: {path}: no GPU time is known")
    assert error.count("\n") == 1


@pytest.mark.parametrize("by", ["tensor", "category"])
def test_rows_without_time_cannot_be_sorted_by_it(by):
    result = run("peak", EAGER, "--sort", "time", "--by", by)
    assert result.exit_code == 2
    assert "--by symbol" in result.stderr


@pytest.mark.parametrize(("command", "threads"), [("peak", "1"), ("record", None)])
def test_a_recorded_script_keeps_its_own_number_of_threads(monkeypatch, capsys, command, threads):
    # Set, so that what main() sets is taken back at the end.
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    monkeypatch.setattr(sys, "argv", ["memtrace", command, "--help"])
    with pytest.raises(SystemExit):
        main()
    assert os.environ.get("OPENBLAS_NUM_THREADS") == threads
