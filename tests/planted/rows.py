"""What a row of a diff says to a person, and what it should say."""

from __future__ import annotations

from pathlib import Path

from memtrace.analysis import Row

PROGRAMS = Path(__file__).with_name("programs.py")


def said(row: Row) -> str:
    """All that a row says, in one text."""
    sides = [
        text
        for side in row.sides
        for text in (
            *side.names,
            *(t for t, _ in side.tensors),
            *(layer for layer, _ in side.layers),
        )
    ]
    return " ".join([row.symbol.text, *(member.text for member in row.members), *sides])


def marked(name: str) -> str:
    """The place of the line in the programs that ends in '# name'."""
    lines = PROGRAMS.read_text().splitlines()
    found = [k for k, line in enumerate(lines, 1) if line.endswith(f"# {name}")]
    assert len(found) == 1, name
    return f"planted/programs.py:{found[0]}"
