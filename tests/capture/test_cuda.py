"""The CUDA path with a fake allocator: marks, peaks, out of memory, late starts."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.capture.recording import environment

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

# Each call of the model allocates 1000 bytes, each backward pass 3000 and frees both.
SCRIPT = """
import sys
import torch
from tests.capture.fake_cuda import fake

class Model(torch.nn.Module):
    def forward(self, x):
        self.held = [fake.alloc(1000)]
        x.register_hook(self.backward)
        return x * 2

    def backward(self, gradient):
        self.held.append(fake.alloc(3000))
        for addr in self.held:
            fake.free(addr)

model = Model()
for number in range(5):
    AT_BEGIN
    model(torch.ones(3, requires_grad=True)).sum().backward()
print(torch.cuda.memory._snapshot is not None, fake.resets)
"""


def run(folder: Path, at_begin: str = "pass", before: str = "", **options: Any) -> dict[str, Any]:
    (folder / "script.py").write_text(SCRIPT.replace("AT_BEGIN", at_begin))
    driver = folder / "driver.py"
    options = {"device": "cuda", **options}
    driver.write_text(
        "from pathlib import Path\n"
        "from tests.capture.fake_cuda import fake\n"
        "from memtrace.capture import record_script\n"
        f"fake.install()\n{before}\n"
        f"done = record_script('script.py', [], output=Path('out.pkl'), **{options!r})\n"
        "assert done.error is None, done.error\n"
        "assert not fake.recording\n"
    )
    done = subprocess.run(
        [sys.executable, str(driver)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    capture: dict[str, Any] = pickle.loads((folder / "out.pkl").read_bytes())
    capture["printed"] = done.stdout
    return capture


def edges(meta: dict[str, Any], kind: str, edge: str) -> list[int]:
    marks = meta["marks"]
    return [
        marks["event"][k][0]
        for k in range(len(marks["kind"]))
        if (marks["kind"][k], marks["edge"][k]) == (kind, edge)
    ]


def test_marks_and_peaks(tmp_path: Path) -> None:
    capture = run(tmp_path)
    meta = capture["memtrace"]
    assert meta["facts"]["notes"] == ["this torch's history has no global_record_annotations"]
    assert meta["facts"]["gpu"] == "Fake"
    assert len(capture["device_traces"][0]) == 5 * 6
    assert edges(meta, "call", "begin") == [0, 6, 12, 18, 24]
    assert edges(meta, "call", "end") == [1, 7, 13, 19, 25]
    assert edges(meta, "backward", "end") == [6, 12, 18, 24, 30]
    (device,) = meta["devices"]
    assert device["start_events"] == 0
    assert device["dropped_events"] == 0
    assert device["start_segments"] == []
    assert device["outside_bytes"] == (1 << 22) - (1 << 21)
    (peak,) = device["peaks"]
    assert peak == {
        "device": 0,
        "begin": 0,
        "end": 30,
        "allocated": 1024 + 3072,
        "requested": 4000,
        "reserved": 1 << 21,
        "why": "run",
    }
    kinds = meta["marks"]["kind"]
    stats = meta["marks"]["stats"][len(kinds) - 1]
    assert stats == [[0, 4096, 1 << 21, 1 << 21, 0, 4000]]
    # Our frames are gone, the model's are not; the profile is of the second iteration.
    assert {f["filename"] for e in capture["device_traces"][0] for f in e["frames"]} == {"model.py"}
    assert meta["profile"]["iteration"] == 1


def test_check_driver_gives_the_peak_of_every_iteration(tmp_path: Path) -> None:
    capture = run(tmp_path, check_driver=True)
    (device,) = capture["memtrace"]["devices"]
    peaks = device["peaks"]
    # Nothing was allocated when the first iteration began: there was nothing to reset.
    assert [p["why"] for p in peaks] == ["run"] + ["check"] * 4
    assert [(p["begin"], p["end"]) for p in peaks] == [
        (0, 6),
        (6, 12),
        (12, 18),
        (18, 24),
        (24, 30),
    ]
    assert [p["requested"] for p in peaks] == [4000] * 5


def test_the_scripts_own_resets(tmp_path: Path) -> None:
    capture = run(
        tmp_path,
        "if number == 2: torch.cuda.reset_peak_memory_stats(); "
        "torch.cuda.memory.reset_max_memory_allocated()",
    )
    meta = capture["memtrace"]
    (device,) = meta["devices"]
    assert [(p["begin"], p["end"], p["why"]) for p in device["peaks"]] == [
        (0, 12, "run"),
        (12, 12, "script"),
        (12, 30, "script"),
    ]
    assert meta["marks"]["kind"].count("peak_reset") == 2
    assert capture["printed"].split()[-1] == "2"


def test_counters_that_the_script_resets(tmp_path: Path) -> None:
    capture = run(tmp_path, "if number == 3: torch.cuda.reset_accumulated_memory_stats()")
    assert edges(capture["memtrace"], "call", "begin") == [0, 6, 12, 18, 24]


def test_the_scripts_own_recording_changes_nothing(tmp_path: Path) -> None:
    capture = run(tmp_path, "torch.cuda.memory._record_memory_history(enabled=None)")
    assert len(capture["device_traces"][0]) == 30
    assert any("_record_memory_history" in n for n in capture["memtrace"]["facts"]["notes"])


def test_a_late_start_keeps_the_segments(tmp_path: Path) -> None:
    capture = run(tmp_path, before="fake.alloc(5000)\nfake.free(fake.alloc(7000))")
    (device,) = capture["memtrace"]["devices"]
    assert device["start_events"] == 4
    assert len(device["start_segments"]) == 1
    assert device["peaks"][0]["begin"] == -1
    assert edges(capture["memtrace"], "call", "begin") == [0, 6, 12, 18, 24]


def test_out_of_memory_gives_the_snapshot_of_the_moment(tmp_path: Path) -> None:
    script = "if number == 3: held = fake.alloc(64); fake.run_out(1 << 40)"
    (tmp_path / "script.py").write_text("")
    driver_fails = run_failing(tmp_path, script)
    trace = driver_fails["device_traces"][0]
    assert trace[-1]["action"] == "oom"
    assert trace[-2]["size"] == 64
    meta = driver_fails["memtrace"]
    assert meta["facts"]["exit"]["kind"] == "oom"
    # No counter counts the failure itself.
    assert meta["marks"]["event"][-1] == [len(trace) - 1]


def run_failing(folder: Path, at_begin: str) -> dict[str, Any]:
    (folder / "script.py").write_text(SCRIPT.replace("AT_BEGIN", at_begin))
    driver = folder / "driver.py"
    driver.write_text(
        "from pathlib import Path\n"
        "from tests.capture.fake_cuda import fake\n"
        "from memtrace.capture import record_script\n"
        "fake.install()\n"
        "done = record_script('script.py', [], output=Path('out.pkl'), device='cuda')\n"
        "assert (done.exit_code, done.error) == (1, None), done\n"
    )
    subprocess.run(
        [sys.executable, str(driver)],
        cwd=folder,
        env=environment(),
        check=True,
        stderr=subprocess.DEVNULL,
    )
    capture: dict[str, Any] = pickle.loads((folder / "out.pkl").read_bytes())
    return capture
