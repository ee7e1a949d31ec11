"""``record --window last:3``: of a long run the end is kept, and said of it what the whole says."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtrace.analysis import open_subject, report_peak, trim
from memtrace.capture.marks import MarkLog
from memtrace.capture.tree import Tree
from memtrace.capture.window import KeptWindow, count_of
from memtrace.errors import MemtraceError
from memtrace.snapshot import read
from tests.capture.recording import record

# Emptied at every iteration, as when the profiler's memory has grown.
SCRIPT = """
import torch
from memtrace.capture import cpu
cpu._GROWTH = 0
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for number in range(50):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 64)).sum()
    loss.backward()
    optimizer.step()
    if number % 10 == 0:
        losses.append(loss.detach())
FAIL
"""


@pytest.mark.slow
def test_the_end_of_a_run_is_what_trim_cuts_of_the_whole_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    paths = []
    for name, options in (("whole", {}), ("end", {"window": "last:3"})):
        done = record(tmp_path, SCRIPT.replace("FAIL", ""), device="cpu", **options)
        assert done.code == 0, done.err
        paths.append((tmp_path / "out.pkl").rename(tmp_path / f"{name}.pkl"))
    whole = open_subject(read(paths[0]), "last:3")
    cut = open_subject(trim(whole), "last:3")
    end = open_subject(read(paths[1]), "last:3")
    assert end.window.name == cut.window.name == whole.window.name == "iterations 47-49"
    assert end.window.begin == 0
    inside = slice(end.window.end + 1)
    assert end.replay.requested[inside].tolist() == cut.replay.requested[inside].tolist()
    for by in ("symbol", "tensor", "layer", "category", "line"):
        ours, theirs = (report_peak(subject, by=by) for subject in (end, cut))
        assert [row.sides for row in ours.rows] == [row.sides for row in theirs.rows]
        assert [row.symbol for row in ours.rows] == [row.symbol for row in theirs.rows]
        assert ours.peak_bytes == theirs.peak_bytes
    assert ours.steps.wall is not None
    assert theirs.steps.wall is not None
    assert ours.steps.wall.count == theirs.steps.wall.count
    assert paths[1].stat().st_size < paths[0].stat().st_size / 4
    marks = read(paths[1]).meta["marks"]  # type: ignore[index]
    assert len(marks["kind"]) < 200


@pytest.mark.slow
def test_a_run_that_breaks_off_keeps_its_end(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    failing = "model(torch.randn(1 << 10, 64)).sum().backward()\nraise ValueError('enough')"
    done = record(tmp_path, SCRIPT.replace("FAIL", failing), device="cpu", window="last:2")
    assert done.code == 1
    assert "ValueError: enough" in done.err
    found = open_subject(read(tmp_path / "out.pkl"), "all")
    assert found.replay.n_events < 1500
    # What was allocated after the last whole iteration is there, too.
    assert found.replay.requested.max() > (1 << 10) * 128 * 4


@pytest.mark.parametrize(("text", "count"), [("last", 1), ("last:3", 3), (" LAST:12 ", 12)])
def test_windows_that_can_be_kept(text: str, count: int) -> None:
    assert count_of(text) == count


@pytest.mark.parametrize("text", ["", "3", "all", "last:0", "last:-1", "first:3", "last:99999"])
def test_windows_that_cannot(text: str) -> None:
    with pytest.raises(MemtraceError, match="memtrace trim"):
        count_of(text)


def test_marks_keep_their_numbers_and_do_not_pile_up() -> None:
    marks = MarkLog()
    kept = KeptWindow(3, marks)
    arrivals: dict[int, int] = {}
    most = 0
    for turn in range(1000):
        begin = marks.add("call", "begin", "model")
        kept.began(begin)
        assert begin == 4 * turn
        marks.add("call", "end", "model")
        marks.add("backward", "begin")
        marks.add("backward", "end")
        kept.forget(0, arrivals)
        most = max(most, len(marks.entries))
    assert most < 4 * 20
    # The first eight, of which the last is taken for the forgotten; the last ones as many as stay.
    assert kept.forgotten == 1000 - 8 - kept.stay
    assert len(kept.steps) == kept.forgotten + 1
    assert [marks.number(k) for k in (0, 31, 32)] == [0, 31, 4 * (1000 - kept.stay)]
    assert marks.position(31) == marks.position(500) == 31
    assert marks.position(marks.next) == len(marks.entries)


def test_nothing_is_forgotten_while_an_iteration_is_still_to_be_profiled() -> None:
    marks = MarkLog()
    kept = KeptWindow(1, marks)
    for _ in range(63):
        kept.began(marks.add("step"))
        assert kept.forget(None, {}) is None
    for _ in range(10):
        kept.began(marks.add("step"))
    assert kept.forget(None, {}) is not None


def test_what_is_still_alive_keeps_its_row() -> None:
    """(time, tie, address, bytes) with bytes < 0 for a free; marks at times 10 and 20."""
    frames: list[dict[str, object]] = []
    tree = Tree(marks={1: (10, 2), 2: (15, 5), 3: (20, 8)})
    tree.allocations = [
        (1, 0, 0xA, 64, frames),
        (2, 1, 0xB, 64, frames),
        (11, 2, 0xA, -64, frames),  # of before: stays
        (12, 3, 0xC, 32, frames),
        (13, 4, 0xD, 16, frames),  # alive at the end
        (14, 5, 0xC, -32, frames),
        (16, 6, 0xC, 8, frames),
        (25, 8, 0xC, -8, frames),
    ]
    tree.forget(1, 3)
    assert [row[2:4] for row in tree.allocations] == [
        (0xA, 64),
        (0xB, 64),
        (0xA, -64),
        (0xD, 16),
        (0xC, 8),
        (0xC, -8),
    ]
    assert sorted(tree.marks) == [1, 3]
