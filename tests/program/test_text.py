"""Traces as people paste them: quoted, fenced, wrapped, cut, with parts left out."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtrace.analysis.findings.program import explain_program
from memtrace.errors import MemtraceError
from memtrace.program import predict, read_text
from memtrace.snapshot import read

ROOT = Path(__file__).parent.parent.parent
REPORT = (ROOT / "tests/data/reports/qwen2-nvfusion0.txt").read_text()


def quoted(text):
    return "\n".join(f"> {line}" for line in text.split("\n"))


def twice_quoted(text):
    return quoted(quoted(text))


def fenced(text):
    return f"Here is the backward trace:\n\n```python\n{text}\n```\n\nIs this expected?\n"


def flattened(text):
    return "\n".join(line.lstrip() for line in text.split("\n"))


def wrapped_hard(text):
    return "\n".join(
        line[k : k + 80] for line in text.split("\n") for k in range(0, max(len(line), 1), 80)
    )


def wrapped_soft(text):
    return "\n".join(
        part
        for line in text.split("\n")
        for part in textwrap.wrap(line, 72, break_long_words=False, break_on_hyphens=False)
    )


def logged(text):
    return "\n".join(f"[rank0]: {line}" for line in text.split("\n"))


def windows(text):
    return "\ufeff" + text.replace("\n", "\r\n")


def coloured(text):
    return "\n".join(f"\x1b[32m{line}\x1b[0m" for line in text.split("\n"))


@pytest.mark.parametrize(
    "disguise",
    [
        str,
        quoted,
        twice_quoted,
        fenced,
        flattened,
        wrapped_hard,
        wrapped_soft,
        logged,
        windows,
        coloured,
        lambda text: quoted(fenced(flattened(text))),
        lambda text: quoted(wrapped_soft(text)),
    ],
)
def test_the_report_is_read_in_any_disguise(disguise):
    explained = explain_program(read_text(disguise(REPORT)))
    first = explained.findings[0]
    assert first.kind == "shape-only fusion"
    assert first.symbols == ("nvFusion0",)
    assert first.bytes == 2_193_326_080
    assert "17 outputs" in first.title
    twice = next(text for text in first.evidence if "held twice" in text)
    assert "bfloat16[1, 28, 4096, 4096] of 939,524,096 bytes each" in twice
    assert "t651, t451" in twice
    assert "t1286, t1674" in twice


def test_what_the_report_does_not_tell_is_said():
    gaps = explain_program(read_text(REPORT)).gaps
    assert "line 1: a part is left out" in gaps
    assert any("insides of nvFusion1" in gap for gap in gaps)
    assert any("sizes" in gap and "t744" in gap for gap in gaps)


def test_deleting_the_inputs_takes_the_second_copy_away():
    text = REPORT.replace("value_states_5, t627", "value_states_5, t651, t627")
    (first, *_) = explain_program(read_text(text)).findings
    twice = next(text for text in first.evidence if "held twice" in text)
    assert "t1674" in twice
    assert "t1286" not in twice


def test_a_fusion_that_computes_is_no_shape_only_one():
    text = REPORT.replace("prims.reshape(mul_19, (4096, 18944))", "prims.mul(mul_19, 2.0)")
    assert explain_program(read_text(text)).findings == ()


def test_types_in_the_signature():
    text = 'def computation(x: "cuda:0 f32[10]", y: "cuda:0 f32[20]"):\n  return x\n  t1 = f(x)\n'
    program = read_text(text)
    assert predict(program).argument_bytes == 120


def test_of_several_stages_the_last_is_taken():
    stage = 'def computation(x):\n  # x: "cuda:0 f32[{}]"\n  t1 = torch.neg(x)\n  return t1\n'
    program = read_text(stage.format(10) + stage.format(20))
    assert predict(program).argument_bytes == 80
    assert any("several" in note for note in program.notes)


@pytest.mark.parametrize(
    "text", ["", "\n\n", "Hello,\n\nwhat does this mean?", "```\n```", "((((["]
)
def test_what_is_no_trace_is_said(text):
    with pytest.raises(MemtraceError, match="no statement of a Thunder trace"):
        read_text(text)


def sources():
    found = []
    for name in ("qwen2-L4-eager-nvfuser", "gpt2-torchcompile", "vit-nvfuser"):
        meta = read(str(ROOT / f"samples/{name}.pkl.gz")).meta
        for module in meta["thunder"][-2:]:
            found += [meta["sources"].get(trace["filename"], "") for trace in module["traces"]]
    return [text for text in found if text]


SOURCES = sources()


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(SOURCES),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.sampled_from([str, quoted, flattened, wrapped_hard, wrapped_soft, fenced]),
)
def test_any_piece_of_a_trace_is_read(text, begin, length, disguise):
    begin %= len(text)
    piece = text[begin : begin + length % 20_000]
    try:
        program = read_text(disguise(piece))
    except MemtraceError:
        return  # a piece without a statement
    explained = explain_program(program)
    for statement in program.statements:
        assert statement.index == program.statements.index(statement)
        assert all(name in program.values for name in statement.inputs if statement.kind == "call")
    assert explained.prediction.peak_bytes >= 0
    for value in program.values.values():
        assert program.values[value.root].root == value.root


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=400))
def test_no_text_breaks_the_reader(text):
    try:
        explain_program(read_text(text))
    except MemtraceError:
        return


def test_what_is_unpacked_over_many_lines():
    names = ", \\\n  ".join(f"t{n}" for n in range(50_000))
    program = read_text(f"  {names}, = C0\n  clear_mutable_collection(C0)\n  del C0, t7\n")
    assert len(program.values) == 50_000
    assert program.values["t7"].kind == "saved"
    assert program.values["t7"].deleted == (2,)


def test_what_is_unpacked_without_the_backslashes():
    program = read_text("t1, t2,\nt3,\nt4, = C0\ndel t2\nt5 = torch.neg(t1)\n")
    assert [s.kind for s in program.statements] == ["unpack", "delete", "call"]
    assert program.statements[0].outputs == ("t1", "t2", "t3", "t4")


def test_long_lines_and_nested_brackets_take_little_time():
    read_text("t1 = torch.add(" + "(" * 100_000 + "\n" + "t2 = torch.neg(t1)\n" * 2000)
    read_text("a," * 50_000 + "\n" + "t2 = torch.neg(t1)\n")
    read_text("[" * 50_000 + "\nt2 = torch.neg(t1)\n")
