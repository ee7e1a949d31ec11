"""What a row of a diff says to a person."""

from __future__ import annotations

from memtrace.analysis import Row


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
