"""What explain finds in the shipped H200 captures: each by its kind, bytes and evidence."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from memtrace.analysis import open_subject
from memtrace.analysis.findings import ExplainReport, report_explain, report_explain_pair
from memtrace.snapshot import read

SAMPLES = Path(__file__).parents[2] / "samples"
LOGITS = 4096 * 152064 * 2
SOFTMAX = 28 * 4096 * 4096
MLP = 4096 * 18944 * 2

# {sample: [(kind, bytes)]}: all that is found, in order.
FOUND = {
    "qwen2-L4-eager-nvfuser": [
        ("held twice: dtype", 4 * SOFTMAX * 2),
        ("zeros for an unused result", LOGITS),
        ("cheap to recompute", 4 * MLP),
    ],
    "qwen2-L4-eager-torchcompile": [("zeros for an unused result", LOGITS)],
    "qwen2-L4-eager-inductor": [("zeros for an unused result", LOGITS)],
    "qwen2-L4-sdpa-nvfuser": [
        ("zeros for an unused result", LOGITS),
        ("cheap to recompute", 4 * MLP),
    ],
    "qwen2-L4-sdpa-torchcompile": [("zeros for an unused result", LOGITS)],
    "qwen2-L4-sdpa-inductor": [("zeros for an unused result", LOGITS)],
    # gelu of one line in four elementwise operations, each of which saves its result; one stays.
    "gpt2-eager": [("cheap to recompute", 4 * 3 * 8 * 1024 * 3072 * 4)],
    "gpt2-inductor": [],
    "gpt2-torchcompile": [],
    "vit-eager": [],
    "vit-inductor": [],
    "vit-torchcompile": [],
}


@cache
def explained(name: str) -> ExplainReport:
    return report_explain(open_subject(read(str(SAMPLES / f"{name}.pkl.gz"))), whatif=True)


@pytest.mark.parametrize("name", FOUND)
def test_all_that_is_found(name: str) -> None:
    found = [(one.kind, one.bytes) for one in explained(name).explained.findings]
    assert found == FOUND[name]


def test_softmax_is_held_in_two_dtypes_beside_each_other() -> None:
    """Checked on the lifetimes: a bf16 and an f32 tensor of each layer, both alive at the peak."""
    report = explained("qwen2-L4-eager-nvfuser")
    scene = report.explained.scene
    first = report.explained.findings[0]
    assert [scene.tensors(k)[0].name for k in first.lifetimes] == [
        "t1126",
        "t1714",
        "t2302",
        "t2890",
    ]
    texts = [scene.tensors(k)[0].text for k in scene.held if scene.tensors(k)]
    assert texts.count("float32[1, 28, 4096, 4096]") == 4
    assert texts.count("bfloat16[1, 28, 4096, 4096]") == 4
    assert "t1126 follows from t1112 by convert_element_type" in first.evidence[0]


def test_the_peak_without_the_copies_is_what_is_left() -> None:
    whatif = explained("qwen2-L4-eager-nvfuser").whatif
    assert whatif is not None
    saved = [offer.saved for offer in whatif.offers]
    assert saved == [LOGITS, 4 * SOFTMAX * 2, 4 * MLP]
    assert whatif.peak.bytes - whatif.together.peak.bytes == sum(saved)


def test_blocks_that_are_not_split() -> None:
    found = {one.kind: one for one in explained("vit-nvfuser").explained.findings}
    assert set(found) == {"cheap to recompute", "block slack"}
    scene = explained("vit-nvfuser").explained.scene
    slack = int((scene.size - scene.requested)[scene.held].sum())
    assert 0 < found["block slack"].bytes <= slack


def test_the_reports_gap() -> None:
    names = [f"qwen2-L4-eager-{one}" for one in ("torchcompile", "nvfuser")]
    subjects = [open_subject(read(str(SAMPLES / f"{name}.pkl.gz"))) for name in names]
    gap = report_explain_pair(*subjects).gap
    assert gap.diff.gap_bytes == 1_860_302_848
    assert sum(part.delta for part in gap.parts) + gap.rest == gap.diff.gap_bytes
    first = gap.parts[0]
    assert (first.finding.kind, first.delta) == ("held twice: dtype", 4 * SOFTMAX * 2)
