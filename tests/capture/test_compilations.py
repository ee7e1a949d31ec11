"""What was compiled, again and why: rows by hand, and real recordings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memtrace.capture import compilations
from memtrace.capture.compilations import Compilations, brief
from memtrace.capture.marks import MarkLog
from memtrace.capture.patches import Notes, Patches
from tests.capture.recording import Recorded, record
from tests.capture.test_compilers import MODEL

BREAK = """Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace   builtin operator `print`
  Hint: Avoid calling builtin `print`.
  Explanation: not shown
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (BREAK, BREAK.splitlines()[0] + "\n" + " ".join(BREAK.splitlines()[1].split())),
        ("n == 1.0            # x = x + n  # odel.py:19 in f", "n == 1.0"),
        ("L['x'] # 1", "L['x'] # 1"),
        ("a\n\nb\nc\nd\ne", "a\nb\nc\nd"),
        ("x" * 10_000, "x" * 299 + "…"),
    ],
)
def test_reasons_are_brief(text: str, expected: str) -> None:
    assert brief(text) == expected


def metrics(**values: Any) -> SimpleNamespace:
    known = {
        "compile_id": "0/0", "is_forward": True, "is_runtime": False, "co_name": "forward",
        "co_filename": "/x/site-packages/lib/model.py", "co_firstlineno": 3, "duration_us": 5,
        "recompile_reason": None, "has_guarded_code": True, "fail_type": None, "fail_reason": None,
        "fail_user_frame_filename": None, "fail_user_frame_lineno": None,
    }  # fmt: skip
    return SimpleNamespace(**{**known, **values})


def test_dynamos_metrics() -> None:
    marks, notes = MarkLog(), Notes()
    log = Compilations(marks, notes)
    marks.add("start")
    log._compiled(metrics())
    marks.add("compile", "begin")
    why = (
        '0/0: n == 1   # n + 1  # del.py:9\nUser stack trace:\n  File "/home/me/m.py", line 9, in f'
    )
    log._compiled(metrics(compile_id="0/1", recompile_reason=why))
    log._compiled(metrics(compile_id="0/1", is_forward=False, co_name=None, duration_us=None))
    log._compiled(metrics(is_runtime=True))
    log._compiled(metrics(has_guarded_code=False, fail_type="SkipFrame", fail_reason="no graph"))
    log._compiled(
        metrics(
            has_guarded_code=False, fail_type="Unsupported", fail_reason="a loop\n  Hint: none",
            fail_user_frame_filename="/home/me/m.py", fail_user_frame_lineno=12,
        )
    )  # fmt: skip
    assert [tuple(row.values()) for row in log.rows] == [
        ("compile", "forward", "lib/model.py:3", "", 0, 5000),
        ("recompile", "forward", "/home/me/m.py:9", "n == 1", 1, 5000),
        ("recompile", "forward (backward)", "lib/model.py:3", "", 1, -1),
        ("graph break", "forward", "/home/me/m.py:12", "a loop", 1, 5000),
    ]
    assert notes.texts == []


def test_thunders_splits() -> None:
    log = Compilations(MarkLog(), Notes())
    text = "node with name: y and target: <built-in method sinc of type object at 0x7f00> only has"
    reasons = [
        SimpleNamespace(info=text, exception=None, reason_type="MISSING"),
        SimpleNamespace(info=None, exception="ValueError: no", reason_type="UNSUPPORTED"),
    ]
    log._split(SimpleNamespace(split_reasons=[*reasons, reasons[0]]), {"y": "model.py:7"})
    log._split(SimpleNamespace(split_reasons=None), {})
    assert [(r["name"], r["where"], r["reason"]) for r in log.rows] == [
        ("y", "model.py:7", text.replace(" at 0x7f00", "")),
        ("", "", "UNSUPPORTED\nValueError: no"),
    ]


def test_a_flood_is_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilations, "_MOST", 3)
    notes = Notes()
    log = Compilations(MarkLog(), notes)
    for _ in range(9):
        log.missed("f" * 10_000, 0)()
    assert len(log.rows) == 3
    assert len(log.rows[0]["name"]) == 300
    assert log.rows[0]["duration_ns"] >= 0
    assert len(notes.texts) == 1


def test_another_torch_costs_the_list_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from torch._dynamo import output_graph, utils

    monkeypatch.delattr(utils, "add_compilation_metrics_to_chromium")
    patches, notes = Patches(), Notes()
    log = Compilations(MarkLog(), notes)
    notes.guard("watching what Dynamo compiles and why", log.watch_dynamo)(patches)
    (note,) = notes.texts
    assert note.startswith("watching what Dynamo compiles and why failed: AttributeError")
    patches.undo()
    assert output_graph.GraphCompileReason.__post_init__.__module__.startswith("torch")


def rows(done: Recorded, kind: str) -> list[tuple[str, str, str, int]]:
    """Name, place in the script, reason, iteration."""
    assert done.code == 0, done.err
    iterations = done.meta["iterations"]

    def iteration(mark: int) -> int:
        return next(i["index"] for i in iterations if i["begin"] <= mark < i["end"])

    return [
        (r["name"], r["where"].rpartition("/")[2], r["reason"], iteration(r["mark"]))
        for r in done.meta["compilations"]
        if r["kind"] == kind
    ]


@pytest.mark.slow
def test_recompilations_and_graph_breaks(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = """
import torch
def helper(x):
    print(end="")
    return x * 2
def f(x, n):
    x = x + n
    return helper(x).sin()
def loop(x):
    for k in range(2):
        print(end="")
    return x + 1
c = torch.compile(f, backend="aot_eager", dynamic=False)
d = torch.compile(loop, backend="eager")
for n, size in ((1.0, 3), (1.0, 4), (2.0, 4), (2.0, 4), (2.0, 4)):
    c(d(torch.ones(size, requires_grad=True)), n).sum().backward()
"""
    done = record(tmp_path, script)
    assert [name for name, *_ in rows(done, "compile")] == [
        "f",
        "helper",
        "torch_dynamo_resume_in_helper_at_4",
        "torch_dynamo_resume_in_f_at_8",
        "torch_dynamo_resume_in_f_at_8 (backward)",
        "torch_dynamo_resume_in_helper_at_4 (backward)",
        "f (backward)",
    ]
    again = rows(done, "recompile")
    size = "tensor '{}' size mismatch at index 0. expected 3, actual 4"
    assert again[0] == ("f", "script.py:6", size.format("x"), 1)
    assert next(row for row in again if row[3] == 2) == ("f", "script.py:7", "n == 1.0", 2)
    breaks = rows(done, "graph break")
    assert {row[:2] for row in breaks} == {("helper", "script.py:4"), ("loop", "script.py:11")}
    assert all("print" in row[2] and "Hint" not in row[2] for row in breaks)
    assert done.meta["facts"]["notes"] == []
    assert all(
        row["duration_ns"] > 0
        for row in done.meta["compilations"]
        if row["kind"] in ("compile", "recompile")
    )


@pytest.mark.slow
def test_thunder_splits_and_compiles_again(tmp_path: Path) -> None:
    pytest.importorskip("thunder")
    script = (
        MODEL
        + """
import thunder
from thunder.dynamo import ThunderCompiler
def f(x):
    return torch.sinc(net(x)) + 1
compiled = torch.compile(f, backend=ThunderCompiler(), dynamic=False)
for _ in range(3):
    compiled(x).sum().backward()
jitted = thunder.jit(net)
for size in (16, 8, 8, 16):
    jitted(torch.randn(size, 32)).sum().backward()
"""
    )
    done = record(tmp_path, script)
    (split,) = rows(done, "split")
    line = script.splitlines().index("    return torch.sinc(net(x)) + 1") + 1
    assert split[1] == f"script.py:{line}"
    assert "sinc" in split[2]
    assert " at 0x" not in split[2]
    assert split[3] == 0
    assert rows(done, "recompile") == [("Net", "", "none of 1 cached programs fits the inputs", 4)]
    compiled = rows(done, "compile")
    # Dynamo compiled the function, and Thunder what it was given of it.
    assert [row[1] for row in compiled if row[0] == "f"] == [f"script.py:{line - 1}", ""]
    assert [row[3] for row in compiled if row[0] == "f"] == [0, 0]
    assert [row[3] for row in compiled if row[0] == "Net"] == [3]
    assert done.meta["facts"]["notes"] == []
