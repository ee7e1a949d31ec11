"""Texts from files are searched in linear time: no regular expression goes back and forth."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import memtrace

_WITH_TORCH = ("capture", "transforms")  # what they read is the program's own
_STRETCH = 30_000  # characters: what is quadratic in them takes a second
_MOST_SECONDS = 0.025  # of processor time; linear ones take a thousandth
# One thing over and over, between what makes an expression begin and what keeps it from ending.
_PIECES = (
    " ", "a", "1", "_", ".", ",", ":", "/", "#", ";", "(", "[", "<", "=", "-", "A", "\n", " ,",
    ", ", "a,", "a ,", "1, ", "a.", "a:", "x:1", "# ", "#a", "a/", "_A", "_1", "a1", "\t",
)  # fmt: skip
_BACKS = ("!", "\n!")


def patterns() -> dict[str, re.Pattern[str]]:
    """Every expression over text that a module of the viewers keeps."""
    found = {}
    root = Path(memtrace.__file__).parent
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        if parts[1] in _WITH_TORCH or "re.compile" not in path.read_text():
            continue
        module = ".".join(parts)
        for name, value in vars(importlib.import_module(module)).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                found[f"{module}.{name}"] = value
    return found


def literals(pattern: str) -> list[str]:
    """What stands in an expression as it is, whole and by its beginnings."""
    plain = re.sub(r"(?<!\\)\[(?:\\.|[^\]])*\]|\(\?P<\w+>|\(\?[:!=<]*|\\[a-zA-Z]", "\0", pattern)
    plain = re.sub(r"\\(.)", r"\1", plain)
    return list(dict.fromkeys(re.findall(r"[A-Za-z_# :/.'\[(<>=@,]{3,}", plain)))


def attacks(pattern: str, length: int) -> Iterator[str]:
    words = literals(pattern)
    for front in dict.fromkeys(("", "a", *words[:2])):
        for piece in (
            *_PIECES,
            *words,
            *(f"{word}{end}" for word in words for end in "a/"),
            *(f"/{word}/" for word in words),
        ):
            if piece:
                stretch = piece * (length // len(piece))
                yield from (f"{front}{stretch}{back}" for back in _BACKS)


def seconds(pattern: re.Pattern[str], text: str) -> float:
    begin = time.process_time()
    for _ in pattern.finditer(text):
        pass
    pattern.match(text)
    return time.process_time() - begin


def worst(pattern: re.Pattern[str], length: int = _STRETCH) -> tuple[float, str]:
    """The processor time of the slowest attack, or the first slow one, and how that begins."""
    slowest = (0.0, "")
    for text in attacks(pattern.pattern, length):
        took = seconds(pattern, text)
        if took > _MOST_SECONDS:
            took = min(took, seconds(pattern, text))
        slowest = max(slowest, (took, text[:40]))
        if took > _MOST_SECONDS:
            break
    return slowest


@pytest.mark.parametrize("name", patterns())
def test_linear(name: str) -> None:
    took, text = worst(patterns()[name])
    assert took < _MOST_SECONDS, ascii(text)


@pytest.mark.parametrize(
    ("quadratic", "length"),
    [
        (r"(?P<file>[\w./+-]+\.py):(?P<line>\d+)", 10_000),
        (r"Source Nodes: \[(?P<names>[^\]]*)\]", 30_000),
        (r"[<(].*$", 10_000),
    ],
)
def test_the_attacks_work(quadratic: str, length: int) -> None:
    """Expressions of the kinds that memtrace had."""
    assert worst(re.compile(quadratic), length)[0] > _MOST_SECONDS
