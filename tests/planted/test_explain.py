"""What explain says of the planted causes as an H200 recorded them, and of programs without one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from memtrace.analysis import open_subject
from memtrace.analysis.findings import (
    ExplainPair,
    ExplainReport,
    Finding,
    report_explain,
    report_explain_pair,
)
from memtrace.snapshot import read
from tests.planted.rows import marked
from tests.planted.test_recorded import (
    BATCH,
    BF16,
    DATA,
    EMBEDDING,
    F32,
    F64,
    LOSSES,
    MASK,
    OUTPUTS,
    SUMS,
)

PAIRS = sorted(path.name.removesuffix("-planted.pkl.gz") for path in DATA.glob("*-planted.pkl.gz"))

# (pair, kind, bytes, what a person would look for): seen in the planted recording alone.
ALONE = [
    ("amsgrad-nvfuser", "optional state", (300 * 200 + 200) * F32, "max_exp_avg_sq"),
    ("cloned_view-eager", "held twice: copy", 3 * 110 * 330 * F32, marked("cloned_view")),
    ("extra_cast-eager", "held twice: dtype", 170 * 550 * F64, marked("extra_cast")),
    ("extra_cast-nvfuser", "held twice: dtype", 170 * 550 * F64, "float64[170, 550]"),
    ("f32_gradients-inductor", "wider than its parameter", SUMS, "accumulate"),
    ("f32_gradients-nvfuser", "wider than its parameter", SUMS, "accumulate"),
    ("kept_f32-eager", "held twice: dtype", 4 * 300 * 640 * F32, marked("kept_f32")),
    ("kept_losses-inductor", "kept over iterations", LOSSES, marked("kept_losses")),
    ("kept_losses-nvfuser", "kept over iterations", LOSSES, marked("kept_losses")),
    ("kept_output-inductor", "kept over iterations", OUTPUTS, "float32[120, 777] of head"),
    ("kept_output-nvfuser", "kept over iterations", OUTPUTS, "float32[120, 777] of head"),
    ("late_free-eager", "held after last use", 250 * 700 * F32, marked("late_free")),
    ("mask-inductor", "cheap to recompute", MASK, "float32[2, 4, 128, 128]"),
    ("mask-nvfuser", "cheap to recompute", MASK, "float32[2, 4, 128, 128]"),
    ("stored_twice-eager", "held twice: copy", 150 * 440 * F32, "Twice"),
    # What is saved in f32 holds values of bf16: half of it is there for nothing.
    ("upcast_logits-eager", "kept wider than its values", 140 * 1000 * (F32 - BF16),
     marked("upcast_logits")),
]  # fmt: skip

# What only a comparison can tell.
TOGETHER = [
    ("bigger_vocabulary-inductor", "more in B", EMBEDDING, "embed.weight float32[3000, 64]"),
    ("bigger_vocabulary-nvfuser", "more in B", EMBEDDING, "embed.weight float32[3000, 64]"),
    ("checkpoint_off-inductor", "recomputed in A, saved in B", 4 * 200 * 512 * F32,
     "float32[200, 512]"),
    ("longer_batch-inductor", "more in B", BATCH, "float32[260, 480]"),
    ("longer_batch-nvfuser", "more in B", BATCH, "float32[260, 480]"),
    ("more_state-inductor", "more in B", 5 * 150 * 150 * F32, "exp_avg_sq"),
]  # fmt: skip

# Where the change undoes just what was planted, the program without it is recorded, too.
UNDONE = [
    ("amsgrad-nvfuser", 0),
    ("cloned_view-eager", 0),
    ("extra_cast-eager", 0),
    ("f32_gradients-inductor", 0),
    ("f32_gradients-nvfuser", 0),
    ("late_free-eager", 0),
    ("kept_output-inductor", 0),
    ("kept_output-nvfuser", 0),
    ("mask-inductor", 0),
    ("stored_twice-eager", 0),
    # The kept graphs hold small tensors as well, which are not worth a word.
    ("kept_losses-inductor", 4 * 512),
    ("kept_losses-nvfuser", 4 * 512),
]


@cache
def alone(name: str) -> ExplainReport:
    return report_explain(open_subject(read(str(DATA / f"{name}.pkl.gz"))), whatif=True)


@cache
def together(pair: str) -> ExplainPair:
    files = (DATA / f"{pair}.pkl.gz", DATA / f"{pair}-planted.pkl.gz")
    return report_explain_pair(*(open_subject(read(str(file))) for file in files), whatif=True)


def said(finding: Finding) -> str:
    return " ".join((finding.title, *finding.symbols, *finding.lines, *finding.evidence))


@pytest.mark.parametrize("pair", PAIRS)
def test_nothing_is_found_in_a_clean_program(pair: str) -> None:
    report = alone(pair)
    assert not report.explained.findings
    assert report.whatif is not None
    assert not report.whatif.offers


@pytest.mark.parametrize(("pair", "kind", "size", "name"), ALONE)
def test_the_first_finding_is_the_cause(pair: str, kind: str, size: int, name: str) -> None:
    first = alone(f"{pair}-planted").explained.findings[0]
    assert (first.kind, first.bytes) == (kind, size)
    assert name in said(first)


@pytest.mark.parametrize(("pair", "kind", "size", "name"), ALONE + TOGETHER)
def test_the_gap_consists_of_the_cause(pair: str, kind: str, size: int, name: str) -> None:
    report = together(pair)
    gap = report.gap
    assert sum(part.delta for part in gap.parts) + gap.rest == gap.diff.gap_bytes
    named = [part for part in gap.parts if name in said(part.finding)]
    assert named
    assert max(part.delta for part in named) >= size


@pytest.mark.parametrize(("pair", "kind", "size", "name"), TOGETHER)
def test_what_only_a_comparison_tells(pair: str, kind: str, size: int, name: str) -> None:
    assert not alone(f"{pair}-planted").explained.findings
    parts = together(pair).gap.parts
    assert any((p.finding.kind, p.delta) == (kind, size) and name in said(p.finding) for p in parts)


def test_what_a_compiler_undoes_is_no_cause() -> None:
    assert not alone("cloned_view-inductor-planted").explained.findings
    gap = together("cloned_view-inductor").gap
    assert (gap.parts, gap.rest) == ((), 0)


@pytest.mark.parametrize("pair", PAIRS)
def test_every_pair_is_spoken_of(pair: str) -> None:
    known = {name for name, *_ in ALONE + TOGETHER} | {"cloned_view-inductor"}
    assert pair in known


@pytest.mark.parametrize(("pair", "left"), UNDONE)
def test_the_peak_without_the_cause_is_that_of_the_program_without_it(pair: str, left: int) -> None:
    whatif = alone(f"{pair}-planted").whatif
    assert whatif is not None
    assert whatif.together.peak.bytes - left == alone(pair).peak.peak_bytes


@pytest.mark.parametrize("pair", PAIRS)
def test_findings_take_no_more_than_what_they_name_holds(pair: str) -> None:
    report = alone(f"{pair}-planted")
    scene = report.explained.scene
    for finding in report.explained.findings:
        assert finding.bytes <= scene.bytes_of(finding.lifetimes)
        assert all(scene.at_peak[list(finding.lifetimes)])
    claimed = [k for one in report.explained.findings for k in one.lifetimes]
    assert len(claimed) == len(set(claimed))


def test_a_program_against_itself_has_no_gap() -> None:
    one = open_subject(read(str(Path(DATA / "kept_f32-eager-planted.pkl.gz"))))
    gap = report_explain_pair(one, one).gap
    assert (gap.parts, gap.rest, gap.diff.gap_bytes) == ((), 0, 0)
