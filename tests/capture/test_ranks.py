"""Runs of several ranks: a capture each, under whatever name torchrun starts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memtrace.analysis import open_subject, report_diff
from memtrace.capture.ranks import Rank, find_rank, is_launcher, launch_command, name_output
from memtrace.errors import MemtraceError
from memtrace.snapshot import read
from tests.capture.recording import environment

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(5):
    optimizer.zero_grad()
    model(torch.randn(16 << rank, 64)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
# In one piece: both ranks write to one pipe.
sys.stdout.write(" ".join(["rank", str(rank), *sys.argv[1:]]) + "\\n")
sys.exit(3 * rank * ("--fail" in sys.argv))
"""
SPAWNS = """
import torch
import torch.multiprocessing as mp

def work(rank):
    print("child", rank, float(torch.ones(8).sum()))

if __name__ == "__main__":
    torch.ones(16)
    mp.spawn(work, nprocs=2)
"""


def memtrace(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**environment(), "OMP_NUM_THREADS": "1"},
        timeout=300,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("around", [True, False])
def test_each_rank_writes_a_capture(tmp_path: Path, around: bool) -> None:
    """Recording the launcher is the same as launching the recorder."""
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(SCRIPT)
    launch = ["torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    recorder = ["memtrace", "record", "-o", "run.pkl", "--device", "cpu"]
    command = [*recorder, "-m", *launch] if around else [*launch, "-m", *recorder]
    done = memtrace(tmp_path, *command, "script.py", "word")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "rank 0 word", "rank 1 word"]
    paths = sorted(tmp_path.glob("*.pkl"))
    assert [path.name for path in paths] == ["run.rank0.pkl", "run.rank1.pkl"]
    subjects = [open_subject(read(path)) for path in paths]
    for number, subject in enumerate(subjects):
        facts = subject.recording.meta["facts"]  # type: ignore[index]
        assert (facts["rank"], facts["world_size"], facts["local_rank"]) == (number, 2, number)
        assert len(subject.recording.meta["iterations"]) == 5  # type: ignore[index]
    report = report_diff(*subjects)
    assert "rank: 0 → 1" in report.differences
    assert report.gap_bytes > 0


@pytest.mark.slow
def test_a_script_that_starts_processes_of_its_own_is_left_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(SPAWNS)
    command = ["record", "-o", "run.pkl", "--device", "cpu", "script.py"]
    done = memtrace(tmp_path, "memtrace", *command)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "child 0 8.0", "child 1 8.0"]
    assert [path.name for path in tmp_path.glob("*.pkl")] == ["run.pkl"]


@pytest.mark.parametrize(
    ("given", "rank", "named"),
    [
        ("run.pkl", None, "run.pkl"),
        ("run.pkl", Rank(0, 2, 0, 0), "run.rank0.pkl"),
        ("a.b/run.pkl.gz", Rank(11, 16, 3, 0), "a.b/run.rank11.pkl.gz"),
        ("run-{rank}.pkl", Rank(1, 2, 1, 0), "run-1.pkl"),
        ("run-{rank}.pkl", None, "run-0.pkl"),
        ("run.pkl", Rank(1, 2, 1, 3), "run.rank1.restart3.pkl"),
        (".run", Rank(1, 2, 1, 0), ".run.rank1"),
    ],
)
def test_no_two_ranks_have_one_name(given: str, rank: Rank | None, named: str) -> None:
    assert name_output(Path(given), rank) == Path(named)


@pytest.mark.parametrize(
    ("told", "rank"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "1", "WORLD_SIZE": "2"}, Rank(1, 2, -1, -1)),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, Rank(1, 2, 0, -1)),
        ({"RANK": "2", "WORLD_SIZE": "2"}, None),
        ({"RANK": "one", "WORLD_SIZE": "2"}, None),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, None),
    ],
)
def test_ranks_as_torchrun_tells_them(told: dict[str, str], rank: Rank | None) -> None:
    assert find_rank(told) == rank


def test_launchers_are_known() -> None:
    assert is_launcher("torch.distributed.run", module=True)
    assert is_launcher("/usr/bin/torchrun", module=False)
    assert not is_launcher("torchrun.py", module=False)
    assert not is_launcher("train", module=True)


def test_the_recorder_is_put_in_front_of_the_launched_program() -> None:
    pytest.importorskip("torch")
    options = ["-o", "a.pkl"]
    assert launch_command(["--nproc-per-node=2", "a.py", "--lr", "1"], options) == [
        "--nproc-per-node=2", "-m", "memtrace", "record", "-o", "a.pkl", "a.py", "--lr", "1",
    ]  # fmt: skip
    assert launch_command(["-m", "package.train", "-m", "x"], options) == [
        "-m", "memtrace", "record", "-o", "a.pkl", "-m", "package.train", "-m", "x",
    ]  # fmt: skip
    with pytest.raises(MemtraceError, match="no-python"):
        launch_command(["--no-python", "a.sh"], options)
