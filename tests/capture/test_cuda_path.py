"""The recorder's CUDA path, whole, over a model of the driver: figures agree to the byte."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from memtrace.analysis import open_subject, report_peak
from memtrace.snapshot import read
from memtrace.timeline import find_windows, reconcile, reconciled

PROGRAM = """
import json, random, sys
from tests.capture.fake_driver import FakeDriver
import torch, memtrace
driver = FakeDriver()
driver.install()
options = json.loads(sys.argv[2])
early = [driver.malloc(n) for n in options.pop("before", [])]
reset = options.pop("script_resets", False)
chance = random.Random(5)
with memtrace.record(sys.argv[1], device="cuda", **options):
    for k in range(5):
        memtrace.step()
        held = [driver.malloc(chance.choice([100, 5000, 3 << 20, 30 << 20])) for _ in range(20)]
        if reset and k == 2:
            torch.cuda.reset_peak_memory_stats()
        for address in chance.sample(held, 18):
            driver.free(address)
    memtrace.step()
print(json.dumps({"peak": max(driver.model.allocated), "calls": driver.calls}))
"""


def record(path: Path, **options: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), json.dumps(options)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "peaks"),
    [
        ({}, ["run"]),
        ({"check_driver": True}, ["run", *["check"] * 5]),
        ({"script_resets": True}, ["run", "script"]),
        ({"before": [700, 5 << 20]}, ["run"]),
    ],
)
def test_replay_equals_the_driver(
    tmp_path: Path, options: dict[str, Any], peaks: list[str]
) -> None:
    truth = record(tmp_path / "a.pkl", **options)
    recording = read(str(tmp_path / "a.pkl"))
    assert recording.meta is not None
    assert recording.meta["facts"]["notes"] == []
    subject = open_subject(recording, "all")
    checks = reconcile(recording, subject.replay)
    assert [c.what for c in checks if c.what.startswith("allocated peak (")] == [
        f"allocated peak ({why})" for why in peaks
    ]
    assert reconciled(checks) is True
    assert all(check.agrees for check in checks if check.begin >= 0)
    report = report_peak(subject)
    assert report.complete
    assert report.peak_allocated_bytes == truth["peak"]
    windows = [w for w in find_windows(recording, subject.replay) if w.kind == "iteration"]
    assert len(windows) == 5
    assert all(w.end > w.begin for w in windows)
    assert truth["calls"][0]["max_entries"] == 1_000_000
    assert truth["calls"][-1]["enabled"] is None


@pytest.mark.slow
def test_every_checked_iteration_has_the_drivers_peak(tmp_path: Path) -> None:
    record(tmp_path / "a.pkl", check_driver=True)
    recording = read(str(tmp_path / "a.pkl"))
    for index in range(5):
        report = report_peak(open_subject(recording, str(index)))
        assert report.driver_peak_bytes == report.peak_bytes
