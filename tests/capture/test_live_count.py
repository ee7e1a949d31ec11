"""Categories against what the program itself counts while it runs, to the byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memtrace.analysis import open_subject, report_peak
from memtrace.snapshot import read
from tests.capture.recording import record

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

# The count is taken inside the optimizer's step, where AdamW's temporaries make the peak.
SCRIPT = """
import json
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Embedding(50, 64), torch.nn.Linear(64, 300), torch.nn.LayerNorm(300),
    torch.nn.Linear(300, 50, dtype=torch.float32),
)
optimizer = torch.optim.OPTIMIZER
ids = torch.randint(0, 50, (4, 8))
for _ in range(5):
    optimizer.zero_grad(set_to_none=SET_TO_NONE)
    model(ids).square().mean().backward()
    optimizer.step()
    counted = {
        "parameter": sum(p.nbytes for p in model.parameters()),
        "gradient": sum(p.grad.nbytes for p in model.parameters()),
        "optimizer state": sum(
            value.nbytes
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        ),
    }
print(json.dumps(counted))
"""


@pytest.mark.parametrize("set_to_none", ["True", "False"])
@pytest.mark.parametrize(
    "optimizer",
    [
        "AdamW(model.parameters(), foreach=True)",
        "SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)",
    ],
)
def test_categories_are_what_the_program_counts(
    tmp_path: Path, optimizer: str, set_to_none: str
) -> None:
    script = SCRIPT.replace("OPTIMIZER", optimizer).replace("SET_TO_NONE", set_to_none)
    done = record(tmp_path, script)
    assert done.code == 0, done.err
    counted = json.loads(done.out.splitlines()[-1])
    subject = open_subject(read(str(tmp_path / "out.pkl")))
    step = next(phase for phase in subject.window.phases if phase.name == "optimizer")
    report = report_peak(subject, by="category", at=str(step.end))
    sizes = {row.symbol.text: row.sides[0].bytes for row in report.rows}
    assert {name: sizes[name] for name in counted} == counted


MAIN_GRAD = """
import torch

model = torch.nn.Linear(70, 90).bfloat16()
for parameter in model.parameters():
    parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
x = torch.randn(8, 70, dtype=torch.bfloat16)
for _ in range(5):
    model(x).float().square().mean().backward()
    for parameter in model.parameters():
        parameter.main_grad += parameter.grad
        parameter.grad = None
"""


def test_gradients_kept_in_f32_are_gradients(tmp_path: Path) -> None:
    done = record(tmp_path, MAIN_GRAD)
    assert done.code == 0, done.err
    subject = open_subject(read(str(tmp_path / "out.pkl")))
    report = report_peak(subject, by="category", at=str(subject.window.begin))
    sizes = {row.symbol.text: row.sides[0].bytes for row in report.rows}
    assert sizes["gradient"] == (70 * 90 + 90) * 4
    assert sizes["parameter"] == (70 * 90 + 90) * 2
