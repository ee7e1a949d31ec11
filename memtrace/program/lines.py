"""Lines of a trace as people paste it: unquoted, and whole again where a mail client cut them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MOST_CHARACTERS = 50_000_000  # of a text; the trace of a model of a thousand layers has 40 million
_MOST_JOINED = 400  # lines of one statement
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\r]")
# '> ' of a quote, '>>> ' and '... ' of a prompt, 'In [3]: ', '[rank0]: ', '12 | ' of a listing
_PREFIX = re.compile(
    r"^\s*(?:(?:>\s?)+|\.\.\.\s+(?=\S)|In \[\d+\]:\s?|\[(?:default|rank)?\d+\]:\s?|\d+\s*[|│]\s?)"
)
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_ELISION = re.compile(
    r"^\s*+#?+\s*+(?:[\[(<{]*+\s*+(?:(?:\.{3,}+|…)?+\s*+(?:omitted|snipped|snip|skipped|truncated"
    r"|cut|\d++ (?:more )?lines?[^=(]*+)\s*+(?:\.{3,}+|…)?+|\.{3,}+|…)\s*+[\])>}]*+)\s*+$",
    re.IGNORECASE,
)
# What begins a statement or comment of its own, and so never continues the line before.
_NAMES = r"[A-Za-z_]\w*+(?:\s*+,\s*+[A-Za-z_]\w*+)*+(?:\s*+,)?+"
_BEGINS = re.compile(
    r"^\s*+(?:#|del\s|return\b|def\s|@|import\s|from\s|clear_mutable_collection\("
    rf"|(?:{_NAMES}|\[{_NAMES}\s*+\]|\({_NAMES}\s*+\))(?:\s*+:\s*+\"[^\"]*+\")?+\s*+(?<=\s)=\s)"
)
# A part of what unpacks a collection.
_ONLY_NAMES = re.compile(r"^\s*[A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*\s*,\s*$")
# Before what is assigned, or the type that a comment gives.
_ENDS_OPEN = re.compile(r"(?:\s=|#|#\s*[A-Za-z_]\w*:?)$")
_QUOTED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
_OPEN, _CLOSE = re.compile(r"[(\[{]"), re.compile(r"[)\]}]")


@dataclass(frozen=True, slots=True)
class Line:
    """A logical line: its text without what quoted it, and the number of its first line.

    ``gap`` says that it stands for a part that was left out, ``cut`` that its end is missing.
    """

    number: int
    text: str
    gap: bool = False
    cut: bool = False


def read_lines(text: str) -> Iterator[Line]:
    """The logical lines of a text. Lines that a bracket, a comma or a backslash leaves open are
    joined with those below, unless these begin something of their own."""
    plain = [_strip(line) for line in text.split("\n")]
    width = _wrap_width(plain)
    at = 0
    while at < len(plain):
        number, line = at + 1, plain[at]
        at += 1
        if _FENCE.match(line) or not line.strip():
            if not line.strip():
                yield Line(number, "")
            continue
        if _ELISION.match(line):
            yield Line(number, line.strip(), gap=True)
            continue
        if line.endswith("\\"):
            line, at = _join_continued(plain, at - 1)
        begin = at - 1
        while at < len(plain) and at - begin < _MOST_JOINED:
            below = plain[at]
            if not (_is_open(line) or below.lstrip().startswith("= ")):
                break
            if not below.strip() or _ELISION.match(below) or _FENCE.match(below):
                break
            if _BEGINS.match(below) and not _continues(line, below):
                break
            line = _join(line, below, width)
            at += 1
        yield Line(number, line, cut=_is_open(line))


def _join_continued(lines: list[str], at: int) -> tuple[str, int]:
    """The line at ``at`` with those that it says with a backslash to go on with, and what follows:
    Thunder breaks so what it unpacks for the backward, thousands of lines in large models."""
    parts = []
    while at < len(lines) and lines[at].endswith("\\"):
        parts.append(lines[at][:-1].strip())
        at += 1
        if at < len(lines) and (not lines[at].strip() or lines[at].lstrip()[0] in "#@["):
            return " ".join(parts), at  # the rest was left out
    if at < len(lines):
        parts.append(lines[at].strip())
    return " ".join(parts), at + 1


def _strip(line: str) -> str:
    line = _INVISIBLE.sub("", _ESCAPES.sub("", line)).expandtabs(8).rstrip()
    while found := _PREFIX.match(line):
        line = line[found.end() :]
    return line


def _wrap_width(lines: list[str]) -> int:
    """The width at which lines were broken hard, within words; 0 where they were not.

    Several lines are exactly as wide as the widest and left open there.
    """
    widest = max((len(line) for line in lines), default=0)
    full = [line for line in lines if len(line) == widest and _is_open(line)]
    return widest if len(full) > 2 and widest >= 40 else 0


def _is_open(line: str) -> bool:
    """Whether a line wants more: a bracket is open, or it ends in a comma or a backslash."""
    if re.match(r"^\s*del\b.*,$", line) or _ONLY_NAMES.match(line):
        return True
    if _ENDS_OPEN.search(line):
        return True
    bare = _QUOTED.sub("", line.partition("#")[2] if _is_comment(line) else line)
    return len(_OPEN.findall(bare)) > len(_CLOSE.findall(bare)) or bare.count('"') % 2 == 1


def _continues(line: str, below: str) -> bool:
    """Whether ``below``, which could begin a statement, goes on with ``line`` all the same."""
    return _ONLY_NAMES.match(line) is not None and below.lstrip()[:1] not in "#@[("


def _join(line: str, below: str, width: int) -> str:
    below = below.strip() if not _is_comment(line) else below.strip().removeprefix("# ")
    return line + ("" if width and len(line) % width == 0 else " ") + below


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")
