"""Real recordings of plain scripts on the CPU: written whatever happens, exit codes passed on."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from memtrace.snapshot import read
from memtrace.snapshot.format import FORMAT
from memtrace.timeline import choose_window, find_windows, replay
from tests.capture.recording import Recorded, environment, record, start, wait

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

TRAIN = """
import sys
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(32, 64)
def step():
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
for number in range(4):
    step()
    END
print("done", sys.argv[1:])
"""


def train(end: str = "pass") -> str:
    return TRAIN.replace("END", end)


def test_a_training_script(tmp_path: Path) -> None:
    done = record(tmp_path, train(), "--flag", "value")
    assert done.code == 0, done.err
    assert done.out == "done ['--flag', 'value']\n"
    meta = done.meta
    assert meta["format"] == FORMAT
    facts = meta["facts"]
    assert facts["device"] == "cpu"
    assert facts["compilers"] == ["eager"]
    assert facts["exit"] == {"kind": "ok", "code": 0, "message": ""}
    assert facts["command"][1:] == ["--flag", "value"]
    assert facts["notes"] == []
    assert facts["inputs"] == [
        {"name": "0", "shape": [32, 64], "dtype": "float32", "device": "cpu"}
    ]
    assert done.kinds() == ["call", "backward", "optimizer"] * 4
    iterations = meta["iterations"]
    assert [i["whole"] for i in iterations] == [True] * 4
    assert [i["profiled"] for i in iterations] == [False, True, False, False]
    # Steady iterations allocate and free the same.
    marks = meta["marks"]["event"]
    lengths = {marks[i["end"]][0] - marks[i["begin"]][0] for i in iterations[1:3]}
    assert len(lengths) == 1
    assert meta["profile"]["iteration"] == 1
    assert meta["profile"]["memory"]["addr"]


def test_bytes_at_the_marks_are_exact(tmp_path: Path) -> None:
    done = record(tmp_path, train())
    marks = done.meta["marks"]
    begins = [i["begin"] for i in done.meta["iterations"]]
    parameters = (64 * 256 + 256 + 256 * 8 + 8) * 4
    inputs = 32 * 64 * 4
    assert done.live(begins[0]) == parameters + inputs
    # Adam's two moments, and its step counters: scalars of four parameters.
    assert done.live(begins[1]) == 3 * parameters + inputs + 4 * 4
    assert done.live(begins[1]) == done.live(begins[2]) == done.live(begins[3])
    backward_ends = [
        k
        for k, (kind, edge) in enumerate(zip(marks["kind"], marks["edge"], strict=True))
        if (kind, edge) == ("backward", "end")
    ]
    # The gradients are there, the loss and its gradient, and nothing of the forward pass.
    assert done.live(backward_ends[1]) == 4 * parameters + inputs + 4 * 4 + 8


def test_stacks_are_the_scripts_own(tmp_path: Path) -> None:
    done = record(tmp_path, train())
    script = str(tmp_path / "script.py")
    first = next(e for e in done.events if e["size"] == 64 * 256 * 4)
    frames = [(f["filename"], f["line"], f["name"]) for f in first["frames"]]
    assert frames[-1] == (script, 5, "<module>")
    assert "linear.py" in frames[0][0]
    files = {f["filename"] for e in done.events for f in e["frames"]}
    assert not [f for f in files if "memtrace" in f and f != script]
    assert all(e["frames"] for e in done.events)


@pytest.mark.parametrize(
    ("end", "code", "kind", "printed"),
    [
        ("sys.exit(3)", 3, "exit", ""),
        ("sys.exit('too bad')", 1, "exit", "too bad\n"),
        ("sys.exit()", 0, "exit", ""),
        ("import os; os._exit(5)", 5, "exit", ""),
        ("raise torch.OutOfMemoryError('full')", 1, "oom", "OutOfMemoryError: full"),
        ("torch.empty(1 << 50)", 1, "oom", "DefaultCPUAllocator"),
        ("1 / 0", 1, "exception", "ZeroDivisionError"),
    ],
)
def test_the_capture_is_written_however_the_script_ends(
    tmp_path: Path, end: str, code: int, kind: str, printed: str
) -> None:
    done = record(tmp_path, train(f"number == 2 and step.__class__ and exec({end!r})"))
    assert done.code == code, done.err
    assert printed in done.err
    assert done.meta["facts"]["exit"]["kind"] == kind
    assert done.meta["facts"]["exit"]["code"] == code
    assert len(done.meta["iterations"]) == 3
    assert done.events


def test_a_traceback_reads_as_without_memtrace(tmp_path: Path) -> None:
    import subprocess

    done = record(tmp_path, train("1 / 0"))
    bare = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.err == bare.stderr
    assert done.code == bare.returncode == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_a_signal(tmp_path: Path, number: signal.Signals, code: int) -> None:
    wait_here = "number == 2 and (print('ready', flush=True), __import__('time').sleep(60))"
    process = start(tmp_path, train(wait_here))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    os.kill(process.pid, number)
    done = wait(tmp_path, process)
    assert done.code == code
    assert done.meta["facts"]["exit"]["kind"] == "interrupt"
    assert len(done.meta["iterations"]) == 3


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "out.pkl").write_bytes(b"precious")
    process = start(tmp_path, "raise SystemExit(9)")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "--force" in err
    assert (tmp_path / "out.pkl").read_bytes() == b"precious"


def test_a_module(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(train())
    done = record(tmp_path, "", "x", target="package", module=True)
    assert done.code == 0, done.err
    assert done.out == "done ['x']\n"
    assert len(done.meta["iterations"]) == 4


def test_a_script_without_torch(tmp_path: Path) -> None:
    done = record(tmp_path, "import os, sys; sys.exit(len(sys.argv))", "a", "b")
    assert done.code == 3
    assert "never imported torch" in done.meta["facts"]["notes"][0]


def test_environment_variables_set_by_the_script_count(tmp_path: Path) -> None:
    script = """
import os, sys
assert "torch" not in sys.modules
os.environ["OMP_NUM_THREADS"] = "1"
import torch
print(torch.get_num_threads(), __name__, sys.path[0] == os.path.dirname(os.path.abspath(__file__)))
"""
    done = record(tmp_path, script)
    assert done.out == "1 __main__ True\n", done.err


def test_gradient_accumulation_is_one_iteration(tmp_path: Path) -> None:
    script = """
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(12):
    model(torch.ones(4, 8)).sum().backward()
    if number % 4 == 3:
        optimizer.step(); optimizer.zero_grad()
"""
    done = record(tmp_path, script)
    assert done.kinds() == (["call", "backward"] * 4 + ["optimizer"]) * 3
    assert [i["whole"] for i in done.meta["iterations"]] == [True] * 3
    assert [i["profiled"] for i in done.meta["iterations"]] == [False, True, False]


def test_training_on_another_thread_is_said_to_be_unseen(tmp_path: Path) -> None:
    setup, loop = TRAIN.split("for number", 1)
    body = "    for number" + loop.replace("\n", "\n    ").replace("END", "pass")
    script = f"import threading\n{setup}\ndef work():\n{body}\n"
    done = record(
        tmp_path, script + "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\n"
    )
    assert done.code == 0, done.err
    assert any("another thread" in note for note in done.meta["facts"]["notes"])


def test_inference_without_a_compiler(tmp_path: Path) -> None:
    script = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
with torch.no_grad():
    for _ in range(4):
        model(torch.ones(4, 8))
"""
    done = record(tmp_path, script)
    assert done.kinds() == ["call"] * 4
    assert len(done.meta["iterations"]) == 4


def test_steps_and_profilers_of_the_script(tmp_path: Path) -> None:
    script = """
import memtrace
import torch
from torch.profiler import profile, schedule
x = torch.ones(100, 100, requires_grad=True)
with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=1)) as own:
    for _ in range(5):
        (x @ x).sum().backward()
        own.step()
names = {e.name for e in own.events()}
assert "aten::mm" in names, names
for _ in range(4):
    (x @ x).sum().backward()
    memtrace.step()
"""
    done = record(tmp_path, script)
    assert done.code == 0, done.err
    kinds = done.meta["marks"]["kind"]
    assert kinds.count("profiler_step") == 5
    assert kinds.count("step") == 4
    assert len(done.meta["iterations"]) == 4
    assert any("profiler of its own" in n for n in done.meta["facts"]["notes"])
    assert done.meta["profile"] is not None


def test_a_loss_module_is_a_part_of_the_step(tmp_path: Path) -> None:
    script = """
import torch
model, criterion = torch.nn.Linear(64, 8), torch.nn.CrossEntropyLoss()
x, y = torch.randn(32, 64), torch.randint(0, 8, (32,))
for _ in range(5):
    criterion(model(x), y).backward()
"""
    done = record(tmp_path, script)
    assert len(done.meta["iterations"]) == 5
    assert done.meta["profile"]["iteration"] == 1
    assert done.meta["facts"]["notes"] == []


def test_where_a_profiler_of_the_script_ran_nothing_is_whole(tmp_path: Path) -> None:
    script = """
import torch
model, x = torch.nn.Linear(64, 64), torch.randn(32, 64)
def step():
    model(x).sum().backward()
step(); step()
with torch.profiler.profile():
    step(); step()
step()
"""
    done = record(tmp_path, script)
    # The second ends where the third begins, by when the profiler ran.
    assert [i["whole"] for i in done.meta["iterations"]] == [True, False, False, False, True]
    recording = read(str(tmp_path / "out.pkl"))
    assert not replay(recording).complete
    chosen = choose_window(find_windows(recording, replay(recording)))
    assert chosen.index == 0  # the last one ran under the recorder's profiler


def test_forked_children_write_nothing(tmp_path: Path) -> None:
    script = """
import os
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 4)
data = DataLoader([torch.ones(4) for _ in range(16)], batch_size=4, num_workers=2)
for batch in data:
    model(batch).sum().backward()
pid = os.fork()
if pid == 0:
    model(torch.ones(4)).sum().backward()
    raise SystemExit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    done = record(tmp_path, script)
    assert done.code == 0, done.err
    assert done.out.strip() == "7"
    assert done.kinds() == ["call", "backward"] * 4
    assert [p.name for p in tmp_path.glob("*.pkl")] == ["out.pkl"]


def test_results_are_the_same_and_nothing_is_left_behind(tmp_path: Path) -> None:
    script = (
        train()
        .replace(
            "for number",
            """
import builtins, importlib, os
for number""",
        )
        .replace("print(", "print(model[0].weight.double().sum().item(), ")
    )
    plain = tmp_path / "plain.py"
    plain.write_text(script)
    import subprocess

    bare = subprocess.run(
        [sys.executable, str(plain)], capture_output=True, text=True, env=environment(), check=True
    )
    done = record(tmp_path, script)
    assert done.out == bare.stdout
    check = tmp_path / "api.py"
    check.write_text("""
import importlib, os, sys, torch, memtrace
from torch.optim import optimizer as optim
def state():
    return [
        torch.nn.Module.__dict__["__call__"], torch.autograd._engine_run_backward, os._exit,
        torch.optim.Optimizer.__init__, torch.profiler.profile.step,
        torch.autograd.profiler.profile.__exit__, torch.autograd.profiler.profile._prepare_trace,
        torch.autograd.profiler.record_function.__enter__, importlib._bootstrap._find_and_load,
        list(sys.meta_path), len(optim._global_optimizer_pre_hooks), sys.getprofile(),
        torch.cuda.reset_peak_memory_stats, torch.cuda.memory._record_memory_history,
        torch._C._autograd._profiler_enabled(),
    ]
before = state()
model = torch.nn.Linear(1000, 10)
with memtrace.record("api.pkl", device="cpu") as recording:
    for _ in range(3):
        model(torch.ones(5, 1000)).sum().backward()
assert state() == before, (state(), before)
assert recording.outcome.error is None, recording.outcome
assert recording.outcome.iterations == 3
assert recording.outcome.exit_code == 0
try:
    with memtrace.record("failed.pkl", device="cpu"):
        raise ValueError("mine")
except ValueError:
    pass
try:
    with memtrace.record("api.pkl", device="cpu"):
        pass
except memtrace.errors.MemtraceError as error:
    print("kept")
""")
    api = subprocess.run(
        [sys.executable, str(check)],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=tmp_path,
        check=False,
    )
    assert api.returncode == 0, api.stderr
    assert api.stdout == "kept\n"
    assert (tmp_path / "failed.pkl").exists()


def test_the_history_is_bounded(tmp_path: Path) -> None:
    script = """
import torch
x = torch.ones(10, requires_grad=True)
for _ in range(600):
    (x * 2).sum().backward()
"""
    done: Recorded = record(tmp_path, script, max_events=1000)
    assert len(done.events) == 1000
    (device,) = done.meta["devices"]
    assert device["dropped_events"] > 0
    assert any("were dropped" in n for n in done.meta["facts"]["notes"])
    marks = done.meta["marks"]["event"]
    assert marks[1] == [-1]
    assert marks[-1] == [1000]
