"""A capture made longer is the same run, only longer."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from memtrace.analysis import open_subject, report_peak
from memtrace.snapshot import Recording, read
from memtrace.symbols import attribute
from memtrace.timeline import find_windows, replay

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "samples/qwen2-L4-eager-nvfuser.pkl.gz"


def enlarge(folder: Path, *options: str) -> Recording:
    target = folder / "long.pkl"
    script = str(ROOT / "scripts/enlarge.py")
    argv = [sys.executable, script, str(SOURCE), "30000", str(target), *options]
    subprocess.run(argv, check=True)
    return read(target)


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return enlarge(tmp_path_factory.mktemp("longer"))


def test_a_stack_for_each_allocation_changes_no_row(longer: Recording, tmp_path: Path) -> None:
    stacks = enlarge(tmp_path, "--stacks")
    assert len(stacks.stacks.stacks) > 5 * len(longer.stacks.stacks)
    assert len(stacks.stacks.frames) < len(longer.stacks.frames) + 400
    few, many = (report_peak(open_subject(one)) for one in (longer, stacks))
    assert many.rows == few.rows


def test_a_longer_capture_has_the_source_peak(longer: Recording) -> None:
    short, long = (report_peak(open_subject(one)) for one in (read(SOURCE), longer))
    assert long.complete
    assert long.reconciled
    assert long.rows == short.rows
    assert (long.peak_bytes, long.position) == (short.peak_bytes, short.position)


def test_lifetimes_of_repeated_iterations_are_named_alike(longer: Recording) -> None:
    run = replay(longer)
    assert run.end_mismatches == 0
    found = attribute(longer, run)
    categories = np.array(found.categories.of(range(len(run.lifetimes))))
    # All but the last are the one that was repeated.
    steady = [w for w in find_windows(longer, run) if w.steady][-12:-1]
    born = run.lifetimes.born
    first, *others = (np.flatnonzero((born >= w.begin) & (born < w.end)) for w in steady)
    assert len(others) == 10
    for rows in others:
        assert np.array_equal(found.rows[rows], found.rows[first])
        assert np.array_equal(run.lifetimes.block[rows], run.lifetimes.block[first])
        assert np.array_equal(categories[rows], categories[first])
