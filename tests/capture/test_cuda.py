"""The CUDA path, whole, over a model of the driver.

Marks, peaks, out of memory, late starts; the replay's figures agree to the byte.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memtrace.analysis import open_subject, report_peak
from memtrace.snapshot import read
from memtrace.timeline import find_windows, reconcile, reconciled
from tests.capture.recording import environment

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

# Each call of the model allocates 1000 bytes, each backward pass 3000 and frees both: six events.
# The first call's first is that of the only segment.
SCRIPT = """
import sys
import torch
from tests.capture.fake_driver import fake

torch.cuda.init()

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


def run(
    folder: Path, at_begin: str = "pass", before: str = "", turns: int = 5, **options: Any
) -> dict[str, Any]:
    script = SCRIPT.replace("AT_BEGIN", at_begin).replace("range(5)", f"range({turns})")
    (folder / "script.py").write_text(script)
    driver = folder / "driver.py"
    options = {"device": "cuda", **options}
    driver.write_text(
        "from pathlib import Path\n"
        "from tests.capture import fake_driver\n"
        "from tests.capture.fake_driver import fake\n"
        "from memtrace.capture import record_script\n"
        f"fake.install()\n{before}\n"
        f"done = record_script('script.py', [], output=Path('out.pkl'), **{options!r})\n"
        "assert done.error is None, done.error\n"
        "assert not fake.recording\n"
        "assert not fake_driver.FakeCopies.held\n"
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
    assert meta["facts"]["notes"] == []
    assert meta["facts"]["gpu"] == "Fake"
    assert meta["facts"]["copy_bytes_per_second"] == pytest.approx(100e9)  # the fastest copy's
    assert len(capture["device_traces"][0]) == 1 + 5 * 6
    assert edges(meta, "call", "begin") == [0, 7, 13, 19, 25]
    assert edges(meta, "call", "end") == [2, 8, 14, 20, 26]
    assert edges(meta, "backward", "end") == [7, 13, 19, 25, 31]
    (device,) = meta["devices"]
    assert device["start_events"] == 0
    assert device["dropped_events"] == 0
    assert device["start_segments"] == []
    assert device["outside_bytes"] == 300 << 20
    (peak,) = device["peaks"]
    assert peak == {
        "device": 0,
        "begin": 0,
        "end": 31,
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


def test_every_iteration_has_the_gpus_time(tmp_path: Path) -> None:
    # The device idles at the end of the first iteration; a graph captures the fourth.
    capture = run(tmp_path, "fake.clock_ms += 100 * (number == 1); fake.capturing = number == 3")
    found = [i["gpu_ns"] for i in capture["memtrace"]["iterations"]]
    # Two allocations each, in the profiled second, too. What is captured says no time.
    assert found == [103_000_000, 3_000_000, -1, -1, 3_000_000]


def test_check_driver_gives_the_peak_of_every_iteration(tmp_path: Path) -> None:
    capture = run(tmp_path, check_driver=True)
    (device,) = capture["memtrace"]["devices"]
    peaks = device["peaks"]
    # Nothing was allocated when the first iteration began: there was nothing to reset.
    assert [p["why"] for p in peaks] == ["run"] + ["check"] * 4
    assert [(p["begin"], p["end"]) for p in peaks] == [
        (0, 7),
        (7, 13),
        (13, 19),
        (19, 25),
        (25, 31),
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
        (0, 13, "run"),
        (13, 13, "script"),
        (13, 31, "script"),
    ]
    assert meta["marks"]["kind"].count("peak_reset") == 2
    assert capture["printed"].split()[-1] == "2"


def test_counters_that_the_script_resets(tmp_path: Path) -> None:
    capture = run(tmp_path, "if number == 3: torch.cuda.reset_accumulated_memory_stats()")
    assert edges(capture["memtrace"], "call", "begin") == [0, 7, 13, 19, 25]


def test_the_scripts_own_recording_changes_nothing(tmp_path: Path) -> None:
    capture = run(tmp_path, "torch.cuda.memory._record_memory_history(enabled=None)")
    assert len(capture["device_traces"][0]) == 31
    assert any("_record_memory_history" in n for n in capture["memtrace"]["facts"]["notes"])


def test_a_torch_that_records_no_annotations(tmp_path: Path) -> None:
    capture = run(
        tmp_path,
        before="import torch\n"
        "torch.cuda.memory._record_memory_history = fake.record_without_annotations",
    )
    assert capture["memtrace"]["facts"]["notes"] == [
        "this torch's history has no global_record_annotations"
    ]
    assert len(capture["device_traces"][0]) == 31


def test_a_late_start_keeps_the_segments(tmp_path: Path) -> None:
    capture = run(tmp_path, before="fake.alloc(5000)\nfake.free(fake.alloc(7000))")
    (device,) = capture["memtrace"]["devices"]
    assert device["start_events"] == 4
    assert len(device["start_segments"]) == 1
    assert device["peaks"][0]["begin"] == -1
    assert edges(capture["memtrace"], "call", "begin") == [0, 6, 12, 18, 24]


def test_a_device_that_answers_no_more(tmp_path: Path) -> None:
    capture = run(
        tmp_path,
        "if number == 4:\n"
        "        def fail(device=None): raise RuntimeError('CUDA error: device-side assert')\n"
        "        torch.cuda.mem_get_info = torch.cuda.synchronize = fail",
    )
    assert len(capture["device_traces"][0]) == 31
    assert capture["memtrace"]["devices"][0]["outside_bytes"] == -1
    assert any("device-side assert" in note for note in capture["memtrace"]["facts"]["notes"])


def test_out_of_memory_gives_the_snapshot_of_the_moment(tmp_path: Path) -> None:
    script = "if number == 3: held = fake.alloc(64); fake.run_out(1 << 40)"
    (tmp_path / "script.py").write_text("")
    driver_fails = run_failing(tmp_path, script)
    trace = driver_fails["device_traces"][0]
    assert trace[-1]["action"] == "oom"
    assert trace[-2]["size"] == 64
    meta = driver_fails["memtrace"]
    assert meta["facts"]["exit"]["kind"] == "oom"
    assert "copy_bytes_per_second" not in meta["facts"]
    # No counter counts the failure itself.
    assert meta["marks"]["event"][-1] == [len(trace) - 1]


@pytest.mark.parametrize("max_events", [1_000_000, 60])
def test_the_last_iterations_of_a_long_run(tmp_path: Path, max_events: int) -> None:
    """Also where the history's ring has lost the beginning: what is left of it keeps its name."""
    grows = "fake.alloc(700 + number)  # for good\n    fake.model.empty_cache()"
    capture = run(
        tmp_path,
        at_begin=grows,
        turns=60,
        window="last:3",
        max_events=max_events,
        check_driver=True,
    )
    found = read(tmp_path / "out.pkl")
    whole = open_subject(found, "all")
    assert len(found.events[0]) < 40
    assert whole.replay.complete, whole.replay.warnings
    assert whole.replay.end_mismatches == 0
    assert reconciled(reconcile(found, whole.replay))
    assert not any("wrapped" in note for note in capture["memtrace"]["facts"]["notes"])
    subject = open_subject(found, "last:3")
    assert subject.window.name == "iterations 57-59"
    report = report_peak(subject)
    assert report.peak_requested_bytes == sum(range(700, 760)) + 4000
    assert [(row.symbol.text, row.sides[0].bytes) for row in report.rows if row.sides[0].count > 2]
    assert "<before recording>" not in [row.symbol.name for row in report.rows]
    assert report.steps.wall is not None
    assert report.steps.wall.count > 50
    (started,) = capture["memtrace"]["devices"]
    assert sum(len(s["blocks"]) for s in started["start_segments"]) > 57


def test_a_failure_that_was_caught_does_not_cut_the_history(tmp_path: Path) -> None:
    # The device's memory ran out in the third iteration; the host's ended the script in the fifth.
    for name in ("caught", "went_on"):
        (tmp_path / name).mkdir()
    caught = run_failing(
        tmp_path / "caught",
        """
    try:
        if number == 2: fake.run_out(1 << 40)
    except torch.OutOfMemoryError: pass
    if number == 4: raise MemoryError""",
    )
    trace = caught["device_traces"][0]
    assert [e["action"] for e in trace].count("oom") == 1
    assert trace[-1]["action"] == "free_completed"
    assert caught["memtrace"]["facts"]["exit"]["kind"] == "oom"
    # And where its error is the context of another one, after more work.
    went_on = run_failing(
        tmp_path / "went_on",
        """
    try:
        if number == 2: fake.run_out(1 << 40)
    except torch.OutOfMemoryError:
        model(torch.ones(3, requires_grad=True)).sum().backward()
        raise ValueError from None""",
    )
    assert went_on["device_traces"][0][-1]["action"] == "free_completed"


def run_failing(folder: Path, at_begin: str) -> dict[str, Any]:
    (folder / "script.py").write_text(SCRIPT.replace("AT_BEGIN", at_begin))
    driver = folder / "driver.py"
    driver.write_text(
        "from pathlib import Path\n"
        "from tests.capture import fake_driver\n"
        "from tests.capture.fake_driver import fake\n"
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


PROGRAM = """
import json, random, sys
from tests.capture.fake_driver import fake
import torch, memtrace
fake.install()
options = json.loads(sys.argv[2])
early = [fake.alloc(n) for n in options.pop("before", [])]
reset = options.pop("script_resets", False)
chance = random.Random(5)
with memtrace.record(sys.argv[1], device="cuda", **options):
    for k in range(5):
        memtrace.step()
        held = [fake.alloc(chance.choice([100, 5000, 3 << 20, 30 << 20])) for _ in range(20)]
        if reset and k == 2:
            torch.cuda.reset_peak_memory_stats()
        for address in chance.sample(held, 18):
            fake.free(address)
    memtrace.step()
print(json.dumps({"peak": max(fake.model.allocated), "calls": fake.calls}))
"""


def record(path: Path, **options: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), json.dumps(options)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


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


def test_every_checked_iteration_has_the_drivers_peak(tmp_path: Path) -> None:
    record(tmp_path / "a.pkl", check_driver=True)
    recording = read(str(tmp_path / "a.pkl"))
    for index in range(5):
        report = report_peak(open_subject(recording, str(index)))
        assert report.driver_peak_bytes == report.peak_bytes
