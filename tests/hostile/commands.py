"""The commands run on one file in this process, and what must hold of each, whatever the file is.

A wrong is a text that begins with its kind; equal kinds in one place are one finding.
"""

from __future__ import annotations

import gc
import io
import random
import signal
import sys
import time
import traceback
import webbrowser
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from typer.main import get_command

from memtrace.cli import app, main
from tests.hostile.results import Outcome, check_outcome, check_result, check_written
from tests.hostile.watch import LIBRARIES, watched

MOST_SECONDS = 5.0  # of processor time, for one command on a file of less than a megabyte
MOST_MEMORY = 600 << 20  # bytes beyond what the process had


class TooLong(BaseException):
    """The processor time that one command may take is over."""


def _stop(number: int, frame: Any) -> None:
    raise TooLong


def run(*arguments: str, limit: float = 4 * MOST_SECONDS) -> Outcome:
    """``memtrace ARGUMENTS``, in this process, for at most ``limit`` seconds of processor time."""
    signal.signal(signal.SIGPROF, _stop)
    out, err = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(raw, "utf-8", newline="") for raw in (out, err)]
    code, escaped = 0, ""
    begin = time.process_time()
    with mock.patch.multiple(
        sys, argv=["memtrace", *arguments], stdout=streams[0], stderr=streams[1]
    ):
        try:
            signal.setitimer(signal.ITIMER_PROF, limit)
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        except BaseException:
            escaped = traceback.format_exc()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    seconds = time.process_time() - begin
    gc.unfreeze()  # load_subject freezes what it read, as a process that ends soon may
    for stream in streams:
        stream.flush()
    texts = [raw.getvalue().decode("utf-8", "surrogateescape") for raw in (out, err)]
    return Outcome(code, texts[0], texts[1], seconds, escaped)


@cache
def _program() -> Any:
    """The app, put together once and not for every command."""
    return get_command(app)


class Bench:
    """A folder with one hostile file, a good one to compare it with, and what commands write."""

    def __init__(self, folder: Path, good: bytes) -> None:
        self.folder = folder
        self.file = folder / "hostile.pkl"
        self.good = folder / "good.pkl"
        self.good.write_bytes(good)
        self.out = folder / "out"
        self.out.mkdir(exist_ok=True)
        self.executions = self.read = self.refused = 0
        self.slowest = (0.0, "")
        self.most_memory = 0
        self._elements: list[str] = []
        self._watched = False

    def close(self) -> None:
        """Puts back what a process has of its own."""
        signal.signal(signal.SIGPROF, signal.SIG_DFL)

    def warm_up(self) -> None:
        """All commands once, so that what they load later is the file's doing."""
        self.check(self.good.read_bytes())
        self._watched = True

    def check(self, data: bytes, most: int = 100) -> list[str]:
        """What is wrong with how the commands take a file: the first, and ``most`` of the others.

        Which of the others is the data's doing, so that the same file is always taken alike.
        """
        self.file.write_bytes(data)
        wrongs: list[str] = []
        first, *others = self.commands()
        read = self._run(first, data, wrongs).code == 0
        self.read += read
        self.refused += not read
        if not read and data[:1].isascii():  # some commands read traces as text
            others = [command for command in others if command[0] in ("explain", "predict")]
        elif not read:
            most = max(1, most // 4)
        for command in random.Random(data).sample(others, min(most, len(others))):
            self._run(command, data, wrongs)
        if self.file.read_bytes() != data:
            wrongs.append("written: the file was changed by reading it")
        return wrongs

    def commands(self) -> list[list[str]]:
        """Every command that reads a file, in its forms; the first tells whether it is read."""
        a, g, out = str(self.file), str(self.good), str(self.out)
        return [
            ["peak", a, "--json"],
            ["peak", a, "--window", "all"],
            ["peak", a, "--by", "tensor", "--at", "0"],
            ["peak", a, "--by", "layer", "--json"],
            ["peak", a, "--by", "category"],
            ["peak", a, "--by", "line", "--expand", "--top", "3"],
            ["peak", a, "--sort", "time"],
            ["show", a, "nvFusion0", "--json"],
            ["show", a, "t1"],
            ["explain", a],
            ["explain", a, "--what-if", "--target", "50%", "--json"],
            ["explain", g, a, "--json"],
            ["explain", a, g, "--what-if"],
            ["predict", a],
            ["predict", a, "--json"],
            ["diff", g, a, "--json"],
            ["diff", a, g, "--by", "tensor"],
            ["diff", a, g, "--sort", "time", "--perfetto", f"{out}/ab.pftrace"],
            ["export", a, "--perfetto", f"{out}/a.pftrace", "--chrome", f"{out}/a.json"],
            ["export", a, "--profile", f"{out}/p.json.gz"],
            ["report", a, "-o", f"{out}/a.html"],
            ["report", a, g, "-o", f"{out}/ab.html"],
            ["view", a],
            ["trim", a, "-o", f"{out}/t.pkl"],
            ["trim", a, "-o", f"{out}/t.pkl", "--window", "all"],
        ]

    def _run(self, command: list[str], data: bytes, wrongs: list[str]) -> Outcome:
        for path in self.out.iterdir():
            path.unlink()
        self.executions += 1
        _reset_peak()
        before = _memory("VmRSS")
        with (
            mock.patch("memtrace.cli.app", _program()),
            mock.patch.object(webbrowser, "open", return_value=False),
            mock.patch("memtrace.render.hta.is_installed", return_value=False),
            mock.patch("tempfile.mkdtemp", return_value=str(self.out)),
        ):
            if self._watched:
                with watched(self.folder, LIBRARIES) as seen:
                    outcome = run(*command)
            else:
                seen = []
                outcome = run(*command)
        took = _memory("VmHWM") - before
        self.most_memory = max(self.most_memory, took)
        words = " ".join(part for part in command if "/" not in part)
        if outcome.seconds > self.slowest[0]:
            self.slowest = (outcome.seconds, words)
        found = [f"{what.split()[0]} by a command: {what}" for what in dict.fromkeys(seen)]
        found += check_outcome(outcome, str(self.file), str(self.good))
        if outcome.seconds > MOST_SECONDS + 10 * len(data) / (1 << 20):
            found.append(f"slow: {outcome.seconds:.1f} s")
        if took > MOST_MEMORY + 40 * len(data):
            found.append(f"memory: {took >> 20} MiB for a file of {len(data)} bytes")
        if outcome.code == 0 and not found:
            found += check_result(command, outcome)
        for path in self.out.iterdir():
            if outcome.code:
                found.append(f"left behind: {path.name}")
            else:
                found += check_written(path, self._elements)
        wrongs += [f"{one} [{words}]" for one in found]
        return outcome


def _reset_peak() -> None:
    """Makes VmHWM begin anew, where the system lets us."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _memory(key: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{key}:")[2].split()[0]) * 1024
