"""The planted causes as an H200 recorded them, compiled and not (scripts/record_planted.py).

The bytes follow from the programs' shapes. Compilers undo some causes; those pairs differ by
nothing, and that is what the diff must say.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from memtrace.analysis import Dimension, Row, Subject, fold_rows, open_subject, report_diff
from memtrace.snapshot import read
from tests.planted.rows import said

DATA = Path(__file__).parent.parent / "data" / "planted"
BF16, F32, F64 = 2, 4, 8
EMBEDDING = 2000 * 64 * F32
SUMS = (310 * 201 + 10 * 311) * F32
LOSSES = 4 * 130 * 640 * F32
OUTPUTS = 4 * 120 * 777 * F32
BATCH = 3 * 160 * 480 * F32
MASK = 2 * 4 * 128 * 128 * F32

# (pair, view, the first row's delta, what a person would look for, status)
FIRST = [
    ("bigger_vocabulary-nvfuser", "tensor", EMBEDDING, ("embed.weight float32[3000",), "SHAPE"),
    ("bigger_vocabulary-inductor", "tensor", EMBEDDING, ("embed.weight float32[3000",), "SHAPE"),
    ("extra_cast-nvfuser", "symbol", 170 * 550 * F64, ("float64[170, 550]",), "NEW"),
    ("extra_cast-nvfuser", "tensor", 170 * 550 * F64, ("Cast float64[170, 550]",), "NEW"),
    ("f32_gradients-nvfuser", "symbol", SUMS, ("accumulate",), "NEW"),
    ("f32_gradients-inductor", "symbol", SUMS, ("accumulate",), "NEW"),
    ("kept_losses-nvfuser", "symbol", LOSSES, ("aten::repeat",), "KEPT LONGER"),
    ("kept_losses-inductor", "symbol", LOSSES, ("aten::repeat",), "KEPT LONGER"),
    ("kept_output-nvfuser", "symbol", OUTPUTS, ("float32[120, 777]", "head"), "COUNT"),
    ("kept_output-nvfuser", "tensor", OUTPUTS, ("head float32[120, 777]",), "COUNT 1 → 5"),
    ("kept_output-inductor", "symbol", OUTPUTS, ("float32[120, 777]", "head"), "COUNT"),
    ("kept_output-inductor", "tensor", OUTPUTS, ("head float32[120, 777]",), "COUNT 1 → 5"),
    ("longer_batch-nvfuser", "symbol", BATCH, ("nvFusion", "float32[260, 480]"), "SHAPE"),
    ("longer_batch-nvfuser", "tensor", BATCH, ("up float32[260, 480]",), "SHAPE"),
    ("longer_batch-inductor", "tensor", BATCH, (" float32[260, 480]",), "SHAPE"),
    # Attention's backward makes a gradient for it, in each head, and another one for itself.
    ("mask-nvfuser", "tensor", 2 * MASK, ("Attention float32[2, 4, 128, 128]",), "NEW"),
    ("mask-inductor", "symbol", MASK, ("triu", "float32[2, 4, 128, 128]"), "NEW"),
    ("mask-inductor", "tensor", MASK, ("Attention float32[2, 4, 128, 128]",), "NEW"),
    ("amsgrad-nvfuser", "symbol", (300 * 200 + 200) * F32, ("max_exp_avg_sq",), "COUNT 6 → 8"),
    ("more_state-inductor", "symbol", 10 * 151 * 150 * F32 + 10 * F32, ("exp_avg_sq",), "NEW"),
    ("checkpoint_off-inductor", "tensor", 4 * 200 * 512 * F32, (" float32[200, 512]",), "NEW"),
    ("kept_f32-eager", "symbol", 4 * 300 * 640 * F32, ("aten::to", "programs.py:64"), "NEW"),
    ("cloned_view-eager", "symbol", 3 * 110 * 330 * F32, ("aten::contiguous",), "NEW"),
    ("late_free-eager", "symbol", 250 * 700 * F32, ("aten::linear",), "KEPT LONGER"),
    ("stored_twice-eager", "symbol", 150 * 440 * F32, ("Twice",), "NEW"),
    ("extra_cast-eager", "symbol", 170 * 550 * F64, ("aten::to", "Cast"), "NEW"),
    ("upcast_logits-eager", "symbol", 140 * 1000 * F32, ("aten::to", "Upcast"), "NEW"),
]  # fmt: skip


@cache
def subjects(pair: str) -> tuple[Subject, Subject]:
    name, compiler = pair.rsplit("-", 1)
    files = (f"{name}-{compiler}{planted}.pkl.gz" for planted in ("", "-planted"))
    a, b = (open_subject(read(str(DATA / file))) for file in files)
    return a, b


def rows(pair: str, by: Dimension) -> list[Row]:
    report = report_diff(*subjects(pair), by=by)
    assert report.baseline.reconciled
    assert report.candidate.reconciled
    found = fold_rows(report.rows)
    assert sum(row.delta for row in found) == report.gap_bytes
    return found


@pytest.mark.parametrize(("pair", "by", "delta", "names", "status"), FIRST)
def test_first_row_names_the_cause(
    pair: str, by: Dimension, delta: int, names: tuple[str, ...], status: str
) -> None:
    row = rows(pair, by)[0]
    assert row.delta == delta, said(row)
    assert all(name in said(row) for name in names), said(row)
    assert row.status.startswith(status), row.status


@pytest.mark.parametrize("by", ["symbol", "tensor", "category"])
def test_what_a_compiler_undoes_makes_no_row(by: Dimension) -> None:
    assert all(row.delta == 0 and not row.status for row in rows("cloned_view-inductor", by))


@pytest.mark.parametrize("pair", sorted({pair for pair, *_ in FIRST}))
def test_every_byte_has_a_symbol(pair: str) -> None:
    for row in rows(pair, "symbol"):
        assert row.symbol.name not in ("<unattributed>", "<before recording>")
