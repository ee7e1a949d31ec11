"""Source lines that stand elsewhere in the candidate's version of a file.

An edit moves all lines below it, and with them every symbol named by its line. Which line went
where is told by what allocated there: the symbols of a file, in order of lines, are aligned by
their names without the line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from memtrace.analysis.rows import Row
from memtrace.symbols import Symbol
from memtrace.symbols.alignment import align
from memtrace.symbols.numbers import NUMBER

# Only from where a path begins: or every one of its characters would be tried as the first.
_LINE = re.compile(
    rf"(?<![\w./+-])(?P<file>[\w./+-]++(?<=[\w./+-]\.py)):(?P<line>{NUMBER})(?![0-9])"
)
_Entry = tuple[int, tuple[str, ...]]  # a line, and what allocated there


def follow_lines(baseline: Sequence[Row], candidate: Sequence[Row]) -> list[Row]:
    """``baseline`` with the line numbers that the candidate's files have for the same lines."""
    left, right = _by_file(baseline), _by_file(candidate)
    shifts = {file: _shifts(left[file], right[file]) for file in left if file in right}
    return [replace(row, symbol=_moved(row.symbol, shifts)) for row in baseline]


def _by_file(rows: Sequence[Row]) -> dict[str, list[_Entry]]:
    """What was allocated at each file's lines, in order of lines."""
    files: dict[str, set[_Entry]] = defaultdict(set)
    for row in rows:
        # Not the row's bytes: a changed program holds more or less at the same line.
        for symbol in row.sides[0].symbols or (row.symbol,):
            what = (symbol.phase or "", _LINE.sub("", symbol.name), symbol.operation)
            for found in _LINE.finditer(symbol.line or symbol.name):
                files[found["file"]].add((int(found["line"]), what))
    return {file: sorted(entries) for file, entries in files.items()}


def _shifts(left: list[_Entry], right: list[_Entry]) -> list[tuple[int, int]]:
    """(line, how far it moved), for the lines that both have; empty if they stayed put.

    Staying put is believed unless moving explains more.
    """
    pairs = align([what for _, what in left], [what for _, what in right])
    if len(set(left) & set(right)) >= len(pairs):
        return []
    return [(left[a][0], right[b][0] - left[a][0]) for a, b in pairs]


def _moved(symbol: Symbol, shifts: dict[str, list[tuple[int, int]]]) -> Symbol:
    def follow(found: re.Match[str]) -> str:
        known = shifts.get(found["file"])
        line = int(found["line"])
        if known:
            # As far as the nearest line above moved, or the first one below.
            line += known[max(bisect_right([at for at, _ in known], line) - 1, 0)][1]
        return f"{found['file']}:{line}"

    if symbol.line:
        return replace(symbol, line=_LINE.sub(follow, symbol.line))
    return replace(symbol, name=_LINE.sub(follow, symbol.name))
