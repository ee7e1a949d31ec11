"""The first row of a diff names what a program was changed in, and by how many bytes.

What to expect follows from the programs' shapes, not from what was printed once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from memtrace.analysis import Dimension, Row, Subject, fold_rows, open_subject, report_diff
from memtrace.snapshot import read
from tests.capture.recording import environment
from tests.planted.rows import PROGRAMS, marked, said

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

BF16, F32, F64 = 2, 4, 8


@dataclass(frozen=True)
class Case:
    """``bytes``: the first row's delta; None where it does not follow from the shapes alone.

    ``names`` is what a person would look for, all of it in the first row: the marked line of the
    program by default. ``category``: what grew most, None where no category can know it.
    """

    name: str
    bytes: int | None
    category: str | None
    names: tuple[str, ...] = ()
    by_tensor: int | None = None  # bytes by tensor, where they are not those by symbol
    marks: dict[str, pytest.MarkDecorator] = field(default_factory=dict)  # by view


CASES = [
    Case("kept_f32", 4 * 300 * 640 * F32, "saved for backward"),
    Case("checkpoint_off", 4 * 200 * 512 * F32, "saved for backward"),
    Case("late_free", 250 * 700 * F32, "temporary"),
    # The last whole iteration but one is asked about: three outputs or four came before it.
    Case("kept_output", 4 * 120 * 777 * F32, "other"),
    Case("kept_losses", None, "other"),
    Case("cloned_view", 3 * 110 * 330 * F32, "saved for backward"),
    Case("stored_twice", 150 * 440 * F32, "saved for backward"),
    Case("mask", 2 * 4 * 128 * 128 * F32, "saved for backward"),
    Case("upcast_logits", 140 * 1000 * F32, None),
    Case(
        "bigger_vocabulary",
        2000 * 64 * F32,
        None,
        names=("embed", "float32[3000, 64]"),
    ),
    Case("longer_batch", 3 * 160 * 480 * F32, "saved for backward"),
    # Two states of each parameter for one, and a count of steps for each.
    Case(
        "more_state",
        2 * 5 * (150 * 150 + 150) * F32 + 10 * F32,
        "optimizer state",
        names=("exp_avg",),
        by_tensor=5 * 150 * 150 * F32,  # the row of a layer and shape has the momentum as well
    ),
    Case(
        "amsgrad",
        (300 * 200 + 200) * F32,
        "optimizer state",
        names=("max_exp_avg_sq",),
        by_tensor=300 * 200 * F32,
    ),
    # A dictionary of the program's own: no evidence says that gradients are in it.
    Case("f32_gradients", (310 * 201 + 10 * 311) * F32, None),
    Case("extra_cast", 170 * 550 * F64, "temporary"),
    # At the peak the last of three blocks has let its own go.
    Case("moved_lines", 2 * 90 * 390 * F32, "saved for backward", names=("model.py", "aten::sin")),
    # How many of them are alive at the peak is the executor's choice.
    Case("thunder_kept", None, "saved for backward", names=("Gated", "float64[130, 270]")),
    Case("thunder_fused", None, "temporary", names=("Gated", "float32[130, 270]")),
]


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Subject, Subject]]:
    """Both recordings of a program, made once, two programs at a time."""
    folder = tmp_path_factory.mktemp("planted")

    def record(name: str, *planted: str) -> Subject:
        path = folder / f"{name}{''.join(planted)}.pkl"
        command = [sys.executable, "-m", "memtrace", "record", "-o", str(path), str(PROGRAMS), name]
        done = subprocess.run(
            [*command, *planted],
            capture_output=True,
            text=True,
            cwd=folder,
            env={**environment(), "OMP_NUM_THREADS": "1"},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return open_subject(read(str(path)))

    pool = ThreadPoolExecutor(2)
    jobs = {
        (name, planted): pool.submit(record, name, *planted)
        for name in (*(case.name for case in CASES), "thunder_renumbered")
        for planted in ((), ("--planted",))
    }
    return lambda name: (jobs[name, ()].result(), jobs[name, ("--planted",)].result())


def first(pair: tuple[Subject, Subject], by: Dimension) -> Row:
    report = report_diff(*pair, by=by)
    rows = fold_rows(report.rows)
    assert sum(row.delta for row in rows) == report.gap_bytes
    return rows[0]


def parameters(view: str) -> list[object]:
    return [pytest.param(c, id=c.name, marks=c.marks.get(view, ())) for c in CASES]


@pytest.mark.parametrize("case", parameters("symbol"))
def test_first_symbol_names_the_cause(
    case: Case, pair: Callable[[str], tuple[Subject, Subject]]
) -> None:
    row = first(pair(case.name), "symbol")
    assert all(name in said(row) for name in case.names or (marked(case.name),)), said(row)
    assert row.delta > 0
    assert case.bytes is None or row.delta == case.bytes


@pytest.mark.parametrize("case", parameters("tensor"))
def test_first_tensor_names_the_cause(
    case: Case, pair: Callable[[str], tuple[Subject, Subject]]
) -> None:
    row = first(pair(case.name), "tensor")
    assert all(name in said(row) for name in case.names or (marked(case.name),)), said(row)
    assert row.delta > 0
    expected = case.by_tensor or case.bytes
    assert expected is None or row.delta == expected


@pytest.mark.parametrize("case", parameters("category"))
def test_first_category_is_that_of_the_cause(
    case: Case, pair: Callable[[str], tuple[Subject, Subject]]
) -> None:
    row = first(pair(case.name), "category")
    assert row.delta > 0
    assert case.category in (None, row.symbol.name)


@pytest.mark.parametrize("by", ["symbol", "tensor"])
def test_renumbered_fusions_stay_matched(
    by: Dimension, pair: Callable[[str], tuple[Subject, Subject]]
) -> None:
    report = report_diff(*pair("thunder_renumbered"), by=by)
    # What the operation in front makes gives its memory to a later result, so nothing is added.
    assert all(row.delta == 0 and not row.status for row in report.rows)
    assert any(row.renamed for row in report.rows)
