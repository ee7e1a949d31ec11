"""The same thing in two recordings.

Most symbols have the same name on every run of a program. Fusions and kernels are numbered by their
place, so an operation more in front of them gives them all other numbers: these are matched by what
they hold (shapes, dtypes and layers) before their names count. Lines that an edit moved are
followed. Matching pairs rows; it never moves a byte between them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

from memtrace.analysis.lines import follow_lines
from memtrace.analysis.rows import Row, Side, number_of, numbered_kind, sort_rows

_NUMBER = re.compile(r"(?<=[A-Za-z_])\d+(?= |$)")


def join_rows(baseline: Iterable[Row], candidate: Iterable[Row]) -> list[Row]:
    """One row for each pair that is the same, and for what one side alone has.

    A pair bears the candidate's symbol; ``renamed`` is the baseline's, where it is another.
    """
    right = sorted(candidate, key=number_of)
    originals = sorted(baseline, key=number_of)
    left = follow_lines(originals, right)
    symbols = {id(row): one.symbol for row, one in zip(left, originals, strict=True)}
    joined: list[Row] = []
    for key in (_same, _alike, _making, _named, _renamed):
        left, right = _pair(left, right, key, joined)
    left, right = _pair_overlapping(left, right, joined)
    nothing = Side()
    joined += [Row(symbols[id(row)], (row.sides[0], nothing)) for row in left]
    joined += [Row(row.symbol, (nothing, row.sides[0])) for row in right]
    return sort_rows(joined)


def _pair(
    left: list[Row], right: list[Row], key: Callable[[Row], Hashable | None], joined: list[Row]
) -> tuple[list[Row], list[Row]]:
    """Pairs rows of equal keys in order; returns what is left of both sides."""
    waiting: dict[Hashable, list[Row]] = defaultdict(list)
    for row in left:
        if (found := key(row)) is not None:
            waiting[found].append(row)
    paired: set[int] = set()
    rest = []
    for row in right:
        found = key(row)
        partners = waiting.get(found) if found is not None else None
        if not partners:
            rest.append(row)
            continue
        partner = partners.pop(0)
        paired.add(id(partner))
        renamed = partner.symbol if partner.symbol != row.symbol else None
        joined.append(Row(row.symbol, (partner.sides[0], row.sides[0]), renamed=renamed))
    return [row for row in left if id(row) not in paired], rest


def _pair_overlapping(
    left: list[Row], right: list[Row], joined: list[Row]
) -> tuple[list[Row], list[Row]]:
    """Pairs the same symbol if it holds something of the same layer in both; returns the rest."""
    there = {row.symbol: row for row in left}
    pairs = [
        (there[row.symbol], row)
        for row in right
        if row.symbol in there and not _layers(there[row.symbol]).isdisjoint(_layers(row))
    ]
    joined += [Row(b.symbol, (a.sides[0], b.sides[0])) for a, b in pairs]
    done = {id(row) for pair in pairs for row in pair}
    return [r for r in left if id(r) not in done], [r for r in right if id(r) not in done]


def _layers(row: Row) -> frozenset[str]:
    return frozenset(layer for layer, _ in row.sides[0].layers)


def _holds(row: Row) -> Hashable | None:
    """What a row's side holds and, where known, for which layers; None where that is not known.

    Of one that holds nothing: what its kernels make.
    """
    side = row.sides[0]
    if not side.count:
        return (frozenset(side.time.makes), _layers(row) - {""}) if side.time.makes else None
    return (frozenset(side.tensors), _layers(row) - {""}) if side.tensors else None


def _same(row: Row) -> Hashable | None:
    """The symbol, and what it holds."""
    return (row.symbol, _holds(row))


def _alike(row: Row) -> Hashable | None:
    """What it holds, and the symbol without its number."""
    symbol = row.symbol
    kind, holds = numbered_kind(symbol), _holds(row)
    if kind is None and symbol.compiler is None:  # a row of tensors that bears a symbol's text
        text = _NUMBER.sub("", symbol.text)
        kind = (text, "") if text != symbol.text else None
    if kind is None or holds is None:
        return None
    return (kind, symbol.compiler, symbol.module, symbol.phase, symbol.line, holds)


def _making(row: Row) -> Hashable | None:
    """What its kernels make, for which layers, and the symbol without its number.

    For what one run alone holds at its peak, but both make.
    """
    symbol, time = row.symbol, row.sides[0].time
    kind = numbered_kind(symbol)
    if kind is None or not time.makes:
        return None
    made = (frozenset(time.makes), frozenset(time.layers))
    return (kind, symbol.compiler, symbol.module, symbol.phase, symbol.line, made)


def _named(row: Row) -> Hashable | None:
    """The symbol; of a numbered one also its layers, since its number alone says nothing."""
    if numbered_kind(row.symbol) is None:
        return row.symbol
    return (row.symbol, _layers(row))


def _renamed(row: Row) -> Hashable | None:
    """Of what compilers made: what it holds, for which layers and in which pass.

    Other names for it are another executor's, or Inductor's for a kernel that fuses other things.
    """
    side, symbol = row.sides[0], row.symbol
    layers = _layers(row)
    if symbol.compiler not in ("thunder", "inductor") or not side.tensors or "" in layers:
        return None
    return (symbol.phase, frozenset(side.tensors), layers, side.bytes)
