"""The shipped H200 captures: replay equals the driver, every byte has a name, the story told."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtrace.analysis import fold_rows, open_subject, report_diff, report_peak
from memtrace.snapshot import read
from memtrace.symbols import BEFORE_RECORDING, UNATTRIBUTED
from memtrace.timeline import find_windows, reconcile

SAMPLES = sorted((Path(__file__).parent.parent / "samples").glob("*.pkl.gz"))
EAGER = "qwen2-L4-eager-{}.pkl.gz"


def subject(name: str, window: str | None = None):
    return open_subject(read(str(SAMPLES[0].parent / name)), window)


def test_there_are_samples_and_they_are_small():
    assert len(SAMPLES) >= 15
    assert max(path.stat().st_size for path in SAMPLES) < 2_000_000


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_every_figure_of_the_driver_is_met_to_the_byte(path):
    whole = open_subject(read(str(path)), "all")
    checks = reconcile(whole.recording, whole.replay)
    assert len(checks) > 100
    assert [check for check in checks if check.agrees is False] == []
    assert sum(check.agrees is None for check in checks) == 0
    report = report_peak(whole)
    assert report.driver_peak_bytes is not None
    assert whole.replay.end_mismatches == 0
    assert report.complete


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_rows_sum_and_every_byte_has_a_name(path):
    report = report_peak(open_subject(read(str(path))))
    assert sum(row.sides[0].bytes for row in report.rows) == report.peak_bytes
    nameless = (UNATTRIBUTED, BEFORE_RECORDING)
    unnamed = sum(row.sides[0].bytes for row in report.rows if row.symbol.name in nameless)
    assert unnamed < 0.001 * report.peak_bytes


@pytest.mark.parametrize("name", [p.name for p in SAMPLES if "checked" in p.name])
def test_checked_iterations_have_the_drivers_peak(name):
    whole = subject(name)
    windows = [w for w in find_windows(whole.recording, whole.replay) if w.kind == "iteration"]
    assert len(windows) >= 10
    for window in windows:
        report = report_peak(subject(name, str(window.index)))
        assert report.driver_peak_bytes == report.peak_bytes


def test_the_softmax_copies_are_found():
    report = report_diff(subject(EAGER.format("torchcompile")), subject(EAGER.format("nvfuser")))
    assert sum(row.delta for row in report.rows) == report.gap_bytes == 1_855_682_560
    first = fold_rows(report.rows)[0]
    assert [symbol.name for symbol in first.members] == [f"nvFusion{k}" for k in (2, 6, 10, 14)]
    assert dict(first.sides[1].tensors) == {
        "float32[1, 28, 4096, 4096]": 4,
        "bfloat16[1, 28, 4096, 4096]": 4,
    }
    assert first.delta == 4 * 3 * 939_524_096
    assert first.status == "NEW"


def test_names_are_the_same_on_every_run_of_a_program():
    report = report_diff(subject(EAGER.format("nvfuser")), subject(EAGER.format("nvfuser-checked")))
    assert report.gap_bytes == 0
    assert all(row.delta == 0 for row in report.rows)
