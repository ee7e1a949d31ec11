"""Files that are a trace as text, told from captures, and read."""

from __future__ import annotations

import codecs
from pathlib import Path

from memtrace.cli.options import print_json, print_report
from memtrace.errors import MemtraceError

_BINARY = (b"\x80", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")  # pickle, gzip, zstd, zip
_LOOK = 4096
_MOST_BYTES = 200_000_000


def is_text(path: Path) -> bool:
    """Whether a file is text and no capture. An empty file is none; what cannot be opened neither,
    so that the reader of captures says why."""
    try:
        with path.open("rb") as file:
            head = file.read(_LOOK)
    except OSError:
        return False
    if not head or head.startswith(_BINARY) or (b"\0" in head and not _is_utf16(head)):
        return False
    return _is_utf16(head) or _decodes(head)


def read_trace_text(path: Path) -> str:
    """The text of a file: UTF-8, or UTF-16 with its mark as Windows writes it; bytes that are
    neither become '\ufffd'. MemtraceError where it cannot be read."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise MemtraceError(f"{path}: too long for a trace; give the part that matters")
        raw = path.read_bytes()
    except OSError as error:
        raise MemtraceError(f"{path}: cannot be read ({error.strerror})") from error
    return raw.decode("utf-16" if _is_utf16(raw) else "utf-8-sig", errors="replace")


def explain_text(path: Path, top: int | None, as_json: bool) -> None:
    """``memtrace explain`` of a trace as text."""
    from memtrace.analysis.findings.program import explain_program
    from memtrace.program import read_text

    explained = explain_program(read_text(read_trace_text(path), str(path)))
    if as_json:
        from memtrace.render.explained import trace_object

        print_json(trace_object(str(path), explained, top))
        return
    from memtrace.render.explained import print_trace

    print_report(lambda console: print_trace(console, str(path), explained, top))


def _is_utf16(head: bytes) -> bool:
    return head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _decodes(head: bytes) -> bool:
    """Whether it is UTF-8, but for a character that the end cuts."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
