"""Lines of generated code in real recordings on the CPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from memtrace.snapshot.format import LINE_PREFIX
from memtrace.snapshot.generated import is_generated, is_output_file
from tests.capture.recording import Recorded, record
from tests.capture.test_compilers import COMPILED, COUNTERS, MODEL, QWEN, THUNDER

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

WITHOUT = "from memtrace.capture.lines import *; GeneratedLines.start = lambda self: None"
CALL = re.compile(r"(?:^|= )(?P<callee>[\w.]+)\(")
OPERATORS = {
    "torch.nn.functional.linear": "aten::linear",
    "torch_div_prim_impl": "aten::true_divide",
    "torch.erf": "aten::erf",
    "torch.exp": "aten::exp",
    "torch.mul": "aten::mul",
    "torch.neg": "aten::neg",
    "extern_kernels.addmm": "aten::addmm",
    "extern_kernels.mm": "aten::mm",
}


class Lines:
    """The profiled iteration of a recording: rows of operators and lines, and how they nest."""

    def __init__(self, done: Recorded) -> None:
        assert done.code == 0, done.err
        assert done.meta["facts"]["notes"] == []
        self.sources: dict[str, str] = done.meta["sources"]
        self.ops: dict[str, list[Any]] = done.meta["profile"]["ops"]
        self.rows = range(len(self.ops["name"]))
        self.lines = [k for k in self.rows if self.ops["name"][k].startswith(LINE_PREFIX)]
        self.around = {k: self._around(k) for k in self.rows}

    def _around(self, row: int) -> list[int]:
        """The rows around a row, innermost first; they must nest."""
        ops = self.ops
        begin, end = ops["start_ns"][row], ops["start_ns"][row] + ops["duration_ns"][row]
        found = []
        for k in range(row - 1, -1, -1):
            there = ops["start_ns"][k], ops["start_ns"][k] + ops["duration_ns"][k]
            if ops["thread"][k] != ops["thread"][row] or there[1] < begin:
                continue
            if there[1] >= end:
                found.append(k)
            else:
                assert k not in self.lines, "a line ends within what runs in it"
                assert row not in self.lines, "a line runs on after what called it"
        return found

    def place(self, row: int) -> tuple[str, int]:
        filename, _, line = self.ops["name"][row].removeprefix(LINE_PREFIX).rpartition(":")
        return filename, int(line)

    def text(self, row: int) -> str:
        filename, line = self.place(row)
        return self.sources[filename].splitlines()[line - 1].strip()

    def operators(self, row: int) -> list[str]:
        """The outermost operators within a line, in order."""
        return [
            self.ops["name"][k]
            for k in self.rows
            if self.around[k] and self.around[k][0] == row and self.ops["kind"][k] == "cpu_op"
        ]


def check(found: Lines) -> set[str]:
    """Each line that calls an operator we know holds that one; returns those seen."""
    assert found.lines
    seen = set()
    for row in found.lines:
        assert found.ops["kind"][row] == "user_annotation"
        filename, _ = found.place(row)
        assert is_generated(filename)
        call = CALL.search(found.text(row))
        expected = OPERATORS.get(call["callee"]) if call else None
        if expected:
            assert found.operators(row) == [expected]
            seen.add(expected)
    for operator in seen - {"aten::mul", "aten::neg"}:  # these the script and autograd use, too
        for k in found.rows:
            if found.ops["name"][k] == operator:
                assert any(around in found.lines for around in found.around[k])
    return seen


def test_thunders_lines_hold_their_operators(tmp_path: Path) -> None:
    pytest.importorskip("thunder")
    found = Lines(record(tmp_path, THUNDER))
    assert check(found) >= {"aten::linear", "aten::true_divide", "aten::erf", "aten::mul"}
    # Each line of the forward that calls anything runs once, in order.
    rows = [r for r in found.lines if found.place(r)[0].startswith("thunder.computation")]
    numbers = [found.place(r)[1] for r in rows]
    assert numbers == sorted(set(numbers))
    code = found.sources[found.place(rows[0])[0]].splitlines()
    wanted = {k for k, text in enumerate(code, 1) if re.match(r"  (?!return)\w.*\(", text)}
    assert len(wanted) > 10
    assert wanted <= set(numbers)
    # Nothing is generated code within generated code here.
    assert all(r not in found.around[k] for r in found.lines for k in found.lines)


def test_inductors_lines_hold_their_operators_and_lie_within_thunders(tmp_path: Path) -> None:
    pytest.importorskip("thunder")
    pytest.importorskip("transformers")
    found = Lines(record(tmp_path, QWEN, "sdpa"))
    check(found)
    output = [r for r in found.lines if is_output_file(found.place(r)[0])]
    assert any(found.text(r).startswith("cpp_fused") for r in output)
    # What Thunder leaves out of its graphs is compiled by Inductor alone; the rest is called by it.
    callers = [[k for k in found.around[row] if k in found.lines] for row in output]
    assert {len(around) for around in callers} == {0, 1}
    texts = [found.text(around[0]) for around in callers if around]
    assert all(re.search(r"= TorchCompile\d+\(", text) for text in texts)


SIDE_BY_SIDE = (
    MODEL
    + COUNTERS
    + """
compiled = torch.compile(net)
for number in range(5):
    compiled(x).square().mean().backward()
counters()
"""
)


@pytest.mark.parametrize("script", [THUNDER, SIDE_BY_SIDE], ids=["thunder", "inductor"])
def test_the_program_is_the_same_with_and_without(tmp_path: Path, script: str) -> None:
    if script is THUNDER:
        pytest.importorskip("thunder")
    with_lines = record(tmp_path, script)
    # On the first line, which is empty: the script's own line numbers are compared, too.
    without = record(tmp_path, WITHOUT + script, force=True)
    assert with_lines.out == without.out
    a, b = Lines(with_lines), Lines(without)
    assert a.lines
    assert not b.lines
    for column in ("name", "kind", "shapes", "sequence"):
        assert [a.ops[column][k] for k in a.rows if k not in a.lines] == b.ops[column]
    for done in (with_lines, without):
        assert [i["compiled"] for i in done.meta["iterations"]].count(True) == 1
    assert memory(with_lines) == memory(without)
    assert events(with_lines) == events(without)


def memory(done: Recorded) -> list[tuple[int, str]]:
    profile = done.meta["profile"]
    names = [*profile["ops"]["name"], ""]
    sizes, rows = profile["memory"]["bytes"], profile["memory"]["op"]
    return [(size, names[row]) for size, row in zip(sizes, rows, strict=True)]


def events(done: Recorded) -> list[tuple[Any, ...]]:
    """What the profiled iteration allocates and frees, and where."""
    (iteration,) = [i for i in done.meta["iterations"] if i["profiled"]]
    marks = done.meta["marks"]["event"]
    found = done.events[marks[iteration["begin"]][0] : marks[iteration["end"]][0]]
    return [
        (e["action"], e["size"], [(f["filename"], f["line"], f["name"]) for f in e["frames"]])
        for e in found
    ]


def test_an_exception_in_generated_code_ends_its_line(tmp_path: Path) -> None:
    pytest.importorskip("thunder")
    script = """
import thunder, torch
table = torch.randn(10, 3, requires_grad=True)
compiled = thunder.jit(lambda ids: torch.nn.functional.embedding(ids, table) * 2)
for number in range(4):
    try:
        compiled(torch.tensor([1, 1000 if number == 2 else 2]))
    except IndexError as error:
        print("out of range")
        torch.ones(3).exp()
print(end="END")
"""
    done = record(tmp_path, script)
    assert done.out == "out of range\nEND"
    found = Lines(done)
    assert done.meta["profile"]["iteration"] == 2
    assert "embedding" in found.text(found.lines[-1])
    (after,) = [k for k in found.rows if found.ops["name"][k] == "aten::exp"]
    assert after > found.lines[-1]
    assert not set(found.around[after]) & set(found.lines)


def test_a_compilation_in_the_profiled_iteration_ends_the_ranges(tmp_path: Path) -> None:
    script = (
        MODEL
        + COUNTERS
        + """
compiled = torch.compile(net, dynamic=False)
for size in (16, 16, 8, 8, 8, 8):
    compiled(torch.randn(size, 32)).sum().backward()
counters()
"""
    )
    done = record(tmp_path, script)
    assert done.code == 0, done.err
    iterations = done.meta["iterations"]
    assert [i["profiled"] for i in iterations] == [False, False, False, False, True, False]
    assert any(name.startswith(LINE_PREFIX) for name in done.meta["profile"]["ops"]["name"])


def test_lines_beside_an_optimizer(tmp_path: Path) -> None:
    done = record(tmp_path, COMPILED)
    assert done.code == 0, done.err
    assert check(Lines(done)) >= {"aten::addmm"}
