"""Predicted peaks of scripts/prove.py, from a real capture, against sums done by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "scripts"))

from prove_predict import Program, predict  # noqa: E402

from memtrace.analysis.peak import Subject, open_subject  # noqa: E402
from memtrace.snapshot import read  # noqa: E402

# Of each layer: the softmax in float32, its bfloat16 copy, the MLP's product and its factors.
LAYERS = (
    ("t1112", "t1126", "t1303", ("t3528", "t3529")),
    ("t1700", "t1714", "t1891", ("t3537", "t3538")),
    ("t2288", "t2302", "t2479", ("t3546", "t3547")),
    ("t2876", "t2890", "t3067", ("t3555", "t3556")),
)
MATRIX = 28 * 4096 * 4096
PRODUCT = 4096 * 18944


@pytest.fixture(scope="module")
def subject() -> Subject:
    return open_subject(read(str(ROOT / "samples/qwen2-L4-eager-nvfuser.pkl.gz")))


def done(tensor: str, way: str, *sources: str) -> dict[str, Any]:
    return {"tensor": tensor, "way": way, "sources": sources, "between": ()}


def test_the_peak_at_the_backward_s_start_falls_by_what_is_not_saved(subject: Subject) -> None:
    cast = [done(copy, "made again", wide) for wide, copy, _, _ in LAYERS]
    before, after = predict(subject, cast)
    assert before == 17_017_086_464
    assert before - after.bytes == 4 * 2 * MATRIX
    narrow = [done(wide, "made by its readers", copy) for wide, copy, _, _ in LAYERS]
    assert before - predict(subject, narrow)[1].bytes == 4 * 4 * MATRIX
    mlp = [done(product, "made again", *factors) for _, _, product, factors in LAYERS]
    assert before - predict(subject, mlp)[1].bytes == 4 * 2 * PRODUCT
    both = predict(subject, [*narrow, *mlp])[1]
    assert before - both.bytes == 4 * 4 * MATRIX + 4 * 2 * PRODUCT


def test_nothing_done_leaves_the_peak(subject: Subject) -> None:
    before, after = predict(subject, [done("t999999", "made again", "t1112")])
    assert after.bytes == before


def test_a_view_of_what_its_own_fusion_makes_takes_nothing(subject: Subject) -> None:
    # nvFusion19 gives out t3167 and its transpose t3168 in one buffer.
    before, after = predict(subject, [done("t3168", "a view", "t3167")])
    assert after.bytes == before


def test_readers_are_those_of_views_too(subject: Subject) -> None:
    program = Program(subject)
    assert program.module == "Qwen2ForCausalLM"
    assert program.root("t3637") == "t1126"  # a permutation of it
    (line,) = program.readers("t1126", "backward")
    # The backward takes the last layer first.
    assert program.before("backward", line) > program.before(
        "backward", program.readers("t2890", "backward")[0]
    )
