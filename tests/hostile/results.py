"""What must hold of a command's exit code, texts and files, whatever the file that it read.

A wrong is a text that begins with its kind.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from memtrace.errors import MemtraceError
from memtrace.snapshot import read

_LINE = re.compile(r"memtrace: [^\n]+\n")


@dataclass(frozen=True)
class Outcome:
    """What one command did. ``escaped``: the traceback of what came out of it, else ''."""

    code: int
    out: str
    err: str
    seconds: float
    escaped: str = ""


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


def check_result(command: list[str], outcome: Outcome) -> list[str]:
    if "--json" not in command:
        return []
    try:
        found = json.loads(outcome.out, parse_constant=_no_constant)
    except ValueError as error:
        return [f"json: {error}"]
    if command[0] not in ("peak", "diff"):
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


def check_written(path: Path, elements: list[str]) -> list[str]:
    """What is wrong with a page or a trace. ``elements`` are those of a page of a good file; none
    where this is one, and they are to be kept."""
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    if path.suffix == ".pkl":
        try:
            read(path)
        except MemtraceError as error:
            return [f"what was cut out cannot be read: {error}"]
        return []
    if path.suffix == ".html":
        page = _Page()
        text = raw.decode("utf-8")
        page.feed(text)
        if not elements:
            elements.extend(page.elements)
        wrongs = [] if page.elements == elements else ["page: other elements than it should have"]
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
