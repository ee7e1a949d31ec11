"""Predictions beside what an H200 measured: all Thunder programs of the recordings at hand.

Nothing measured enters a prediction; the rules for fusions and operators are those of torch 2.11,
thunder 0.2.6 and nvFuser 0.2.36, with which these were recorded.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from memtrace.analysis import open_subject
from memtrace.analysis.predicted import report_prediction
from memtrace.snapshot import read

ROOT = Path(__file__).parent.parent.parent
CAPTURES = [
    *sorted((ROOT / "samples").glob("*nvfuser*.pkl.gz")),
    *sorted((ROOT / "samples").glob("*torchcompile*.pkl.gz")),
    *sorted((ROOT / "tests/data/planted").glob("*nvfuser*.pkl.gz")),
]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name.removesuffix(".pkl.gz"))
def test_within_two_percent_of_what_was_measured(path):
    report = report_prediction(open_subject(read(str(path))))
    assert report.programs
    for one in report.programs:
        assert one.error is not None
        assert abs(one.error) < 0.02, one.prediction.program.name
        assert not one.prediction.unknown


def test_statement_by_statement():
    path = ROOT / "samples/qwen2-L4-eager-nvfuser.pkl.gz"
    report = report_prediction(open_subject(read(str(path))))
    one = max(report.programs, key=lambda p: p.prediction.peak_bytes)
    assert one.measured is not None
    assert one.prediction.peak is not None
    assert one.prediction.peak.statement.index == one.measured.peak_index
    steps = {step.statement.index: step for step in one.prediction.steps}
    calls = [k for k in one.measured.most if k >= 0 and steps[k].statement.kind == "call"]
    assert len(calls) > 150
    # What nvFusions need inside is not known; it is less than 1 MB here.
    for index in calls:
        assert abs(steps[index].during - one.measured.most[index]) < 10**6, steps[index].statement
