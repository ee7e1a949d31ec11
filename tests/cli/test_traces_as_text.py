"""memtrace explain and memtrace predict of traces as text, and predict of captures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from memtrace.cli import main

ROOT = Path(__file__).parent.parent.parent
REPORT = ROOT / "tests/data/reports/qwen2-nvfusion0.txt"
PLANTED = ROOT / "tests/data/planted/longer_batch-nvfuser.pkl.gz"


@pytest.fixture
def memtrace(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["memtrace", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code or 0
        return code, *capsys.readouterr()

    return call


def test_the_report_explained(memtrace):
    code, out, err = memtrace("explain", REPORT)
    text = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "nvFusion0 only changes shapes: 17 outputs, 2,193,326,080 bytes" in text
    assert "939,524,096 bytes each, and t651, t451, which they are made of, are not deleted" in text
    assert "line 1: a part is left out" in text


def test_the_report_explained_as_json(memtrace):
    code, out, _ = memtrace("explain", REPORT, "--json")
    (found,) = json.loads(out)["findings"]
    assert code == 0
    assert (found["kind"], found["bytes"]) == ("shape-only fusion", 2_193_326_080)
    assert found["try"]
    assert json.loads(out)["unknown"]


def test_a_capture_beside_its_measurement(memtrace):
    code, out, err = memtrace("predict", PLANTED)
    assert (code, err) == (0, "")
    assert "predicted 1.0 MB at backward line 54, nvFusion4" in out
    assert "1,018,304 bytes; error +0.000%" in out


def test_every_statement_is_in_the_json(memtrace):
    _, out, _ = memtrace("predict", PLANTED, "--json", "--top", "1")
    (program,) = json.loads(out)["programs"]
    assert program["predicted_peak_bytes"] == program["measured_peak_bytes"] == 1_018_304
    assert program["peak"] == {"pass": "backward", "line": 54, "symbol": "nvFusion4"}
    assert max(s["predicted_bytes"] for s in program["statements"]) == 1_018_304
    assert sum(s["symbol"] == "torch.matmul" for s in program["statements"]) == 11


def test_hostile_names_reach_no_terminal(memtrace, tmp_path):
    path = tmp_path / "trace.txt"
    path.write_text('t1 = nvFusion0(x)  # t1: "cuda:0 f32[10]"\n# \x1b[31m\u202e</script>: 1: y\n')
    for command in ("explain", "predict"):
        code, out, _ = memtrace(command, path)
        assert code == 0
        assert "\x1b" not in out
        assert "\u202e" not in out


@pytest.mark.parametrize("command", ["explain", "predict"])
@pytest.mark.parametrize("content", [None, b"", b"hello\n", b"\x80\x04K\x01.", b"\xff\xfeh\0i\0"])
def test_bad_files_are_one_line_and_exit_1(memtrace, tmp_path, command, content):
    path = tmp_path / "bad.txt"
    if content is not None:
        path.write_bytes(content)
    code, out, err = memtrace(command, path)
    assert code == 1
    assert out == ""
    assert err.count("\n") == 1
    assert "bad.txt" in err


def test_a_capture_without_thunder_is_said(memtrace):
    code, _, err = memtrace("predict", ROOT / "samples/gpt2-eager.pkl.gz")
    assert code == 1
    assert "no Thunder program" in err


def test_a_trace_as_windows_writes_it(memtrace, tmp_path):
    path = tmp_path / "trace.txt"
    path.write_bytes(REPORT.read_text().replace("\n", "\r\n").encode("utf-16"))
    code, out, _ = memtrace("explain", path)
    assert code == 0
    assert "nvFusion0" in out
