"""The commands run on one file in this process, and what must hold of each, whatever the file is.

A wrong is a text that begins with its kind; equal kinds in one place are one finding.
"""

from __future__ import annotations

import collections
import dataclasses
import gc
import gzip
import io
import json
import os
import random
import re
import signal
import sys
import time
import traceback
import typing
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

from typer.main import get_command

from memtrace.cli import app, main

MOST_SECONDS = 5.0  # of processor time, for one command on a file of less than a megabyte
MOST_MEMORY = 600 << 20  # bytes beyond what the process had
_LINE = re.compile(r"memtrace: [^\n]+\n")


@dataclass(frozen=True)
class Outcome:
    """What one command did. ``escaped`` is the traceback of what came out of it, '' as should be."""

    code: int
    out: str
    err: str
    seconds: float
    escaped: str = ""


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


@contextmanager
def watched(folder: Path, allowed: list[str]) -> Iterator[list[str]]:
    """Collects what is opened outside of some folders, run, compiled, connected to or imported.

    For good, so there is one watch for a process: sys.addaudithook has no way back.
    """
    roots = tuple(os.path.realpath(one) for one in (str(folder), *allowed))
    seen: list[str] = []
    state["seen"] = seen
    state["roots"] = roots
    if "hook" not in state:
        state["hook"] = True
        sys.addaudithook(_audit)
    state["on"] = True
    try:
        yield seen
    finally:
        state["on"] = False


state: dict[str, Any] = {"on": False}
_MAKERS = (typing.__file__, dataclasses.__file__, collections.__file__, traceback.__file__)
_FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "subprocess.Popen",
    "socket.connect", "socket.bind", "exec", "compile", "ctypes.dlopen", "pickle.find_class",
    "shutil.rmtree", "os.remove", "os.chmod", "os.symlink", "urllib.Request", "webbrowser.open",
)  # fmt: skip


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not state["on"]:
        return
    if event in _FORBIDDEN:
        if event == "os.remove" and _within(arguments[0]):
            return
        if event in ("exec", "compile") and _is_pythons(sys._getframe(1).f_code.co_filename):
            return
        state["seen"].append(f"{event} {str(arguments)[:200]}")
    elif event == "open" and not isinstance(arguments[0], int) and not _within(arguments[0]):
        state["seen"].append(f"open {arguments[0]!r}")


def _is_pythons(filename: str) -> bool:
    """Whether it is one of the standard library's files that run what they made up themselves:
    the hints of memtrace's own types, the methods of its own dataclasses, its modules."""
    return filename.startswith("<frozen importlib") or filename in _MAKERS


def _within(path: Any) -> bool:
    return os.path.realpath(os.fspath(path)).startswith(state["roots"])


class Bench:
    """A folder with one hostile file, a good one to compare it with, and what commands write."""

    def __init__(self, folder: Path, good: bytes) -> None:
        self.folder = folder
        self.file = folder / "hostile.pkl"
        self.good = folder / "good.pkl"
        self.good.write_bytes(good)
        self.out = folder / "out"
        self.out.mkdir(exist_ok=True)
        self.executions = 0
        self.slowest = (0.0, "")
        self._watched = False

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
        chance = random.Random(data)
        for command in chance.sample(others, min(most if read else most // 4, len(others))):
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
            ["diff", g, a, "--json"],
            ["diff", a, g, "--by", "tensor"],
            ["diff", a, g, "--sort", "time", "--perfetto", f"{out}/ab.pftrace"],
            ["export", a, "--perfetto", f"{out}/a.pftrace", "--chrome", f"{out}/a.json"],
            ["export", a, "--profile", f"{out}/p.json.gz"],
            ["report", a, "-o", f"{out}/a.html"],
            ["report", a, g, "-o", f"{out}/ab.html"],
            ["view", a],
        ]

    def _run(self, command: list[str], data: bytes, wrongs: list[str]) -> Outcome:
        for path in self.out.iterdir():
            path.unlink()
        self.executions += 1
        _reset_peak()
        before = _memory("VmRSS")
        with (
            mock.patch("memtrace.cli.app", _program()),
            mock.patch.object(webbrowser, "open", lambda url: False),
            mock.patch("memtrace.render.hta.is_installed", lambda: False),
            mock.patch("tempfile.mkdtemp", lambda **options: str(self.out)),
        ):
            if self._watched:
                with watched(self.folder, _LIBRARIES) as seen:
                    outcome = run(*command)
            else:
                seen = []
                outcome = run(*command)
        took = _memory("VmHWM") - before
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
            found += _check_result(command, outcome)
        for path in self.out.iterdir():
            if outcome.code:
                found.append(f"left behind: {path.name}")
            else:
                found += check_written(path)
        wrongs += [f"{one} [{words}]" for one in found]
        return outcome


_LIBRARIES = [
    os.path.dirname(os.path.dirname(os.__file__)),
    sys.prefix,
    str(Path(__file__).parent.parent.parent / "memtrace"),
    "/dev/null",
    "/proc/self",
    "/usr/share/zoneinfo",
]


def check_outcome(outcome: Outcome, path: str, other: str = "") -> list[str]:
    """What is wrong with an exit code and the texts."""
    wrongs = []
    if outcome.escaped:
        return [f"escaped: {_last(outcome.escaped)}"]
    if "internal error" in outcome.err:
        return [f"internal: {outcome.err.strip()[:400]}"]
    if outcome.code not in (0, 1):
        wrongs.append(f"code {outcome.code}: {outcome.err[:200]!r}")
    if outcome.code == 1:
        if outcome.out:
            wrongs.append(f"output beside a fault: {outcome.out[:80]!r}")
        lines = [line for line in outcome.err.splitlines(True) if "memtrace: note: " not in line]
        if len(lines) != 1 or not _LINE.fullmatch(lines[0]):
            wrongs.append(f"not one line: {outcome.err[:300]!r}")
        elif path not in lines[0] and not (other and other in lines[0]):
            wrongs.append(f"no file named: {lines[0][:200]!r}")
        elif len(lines[0]) > len(path) + 600:
            wrongs.append(f"long line: {len(lines[0])} characters")
        if "machine's memory" in outcome.err:
            wrongs.append(f"out of memory: {outcome.err[:200]!r}")
    elif any(not line.startswith("memtrace: ") for line in outcome.err.splitlines()):
        wrongs.append(f"stray on stderr: {outcome.err[:300]!r}")
    for name, text in (("stdout", outcome.out), ("stderr", outcome.err)):
        if bad := unprintable(text):
            wrongs.append(f"control characters on {name}: {bad!r}")
    return wrongs


def unprintable(text: str) -> str:
    """Characters that could drive a terminal or turn a line around."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return ""
    return "".join(sorted({c for c in text if c != "\n" and not c.isprintable()}))


def _last(trace: str) -> str:
    lines = trace.strip().splitlines()
    places = [line.strip() for line in lines if line.strip().startswith("File ")]
    return f"{lines[-1][:200]} at {places[-1] if places else ''}"


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} in JSON")


def _check_result(command: list[str], outcome: Outcome) -> list[str]:
    if "--json" not in command:
        return []
    try:
        found = json.loads(outcome.out, parse_constant=_no_constant)
    except ValueError as error:
        return [f"json: {error}"]
    if command[0] == "show":
        return []
    prefix = "delta_" if command[0] == "diff" else ""
    total = found["gap_bytes"] if prefix else found["peak_bytes"]
    wrongs = []
    if sum(row[f"{prefix}bytes"] for row in found["rows"]) != total:
        wrongs.append(f"rows do not sum to {total}")
    if not prefix and total < 0:
        wrongs.append(f"negative peak: {total}")
    times = [row[f"{prefix}time_ns"] for row in found["rows"]]
    gpu = found["time_gap_ns"] if prefix else (found["gpu"] or {}).get("busy_ns")
    if times and None not in times and gpu is not None and sum(times) != gpu:
        wrongs.append(f"times do not sum to {gpu}: {sum(times)}")
    return wrongs


class _Page(HTMLParser):
    """The elements of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.elements: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append(tag)


_elements: list[str] = []


def check_written(path: Path) -> list[str]:
    """What is wrong with a page or a trace."""
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    if path.suffix == ".html":
        page = _Page()
        text = raw.decode("utf-8")
        page.feed(text)
        if not _elements:  # of the first page, which is that of a good file
            _elements.extend(page.elements)
        wrongs = [] if page.elements == _elements else ["page: other elements than it should have"]
        if bad := unprintable(text):
            wrongs.append(f"control characters in the page: {bad!r}")
        return wrongs
    if path.suffix in (".json", ".gz"):
        try:
            json.loads(raw, parse_constant=_no_constant)
        except ValueError as error:
            return [f"trace: {error}"]
        return []
    return _check_perfetto(raw)


def _check_perfetto(raw: bytes) -> list[str]:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    try:
        trace = Trace.FromString(raw)
    except Exception as error:
        return [f"trace: {type(error).__name__} {error}"]
    return [] if len(trace.packet) else ["trace: nothing in it"]


def _reset_peak() -> None:
    """Makes VmHWM begin anew, where the system lets us."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def _memory(key: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{key}:")[2].split()[0]) * 1024


Mutate = Callable[[bytes, Any], bytes]
