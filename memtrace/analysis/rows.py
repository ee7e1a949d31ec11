"""Rows of a table of named bytes: one side for a peak, two (A and B) for a diff."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, TypeVar

from memtrace.analysis.timing import NO_TIME, Timing, add_timings
from memtrace.symbols import Symbol

_Item = TypeVar("_Item")
Measure = Literal["bytes", "time"]
OTHERS = Symbol(None, "", None, "<others>")
# 'nvFusion12' and 'triton_red_fused__softmax_8' are numbered by place; what they are is before it.
_DIGITS = "0123456789"
_MOST_DIGITS = 15  # of a number that rows are ordered by


@dataclass(frozen=True, slots=True)
class Side:
    """What one recording holds under a symbol.

    ``where``: lines of generated or user source that allocated it, most bytes first.
    ``tensors``: shapes and dtypes with how many of each are held, most bytes first.
    ``names``: the tensors' own names, as the trace or the program calls them, most bytes first.
    ``layers``, ``categories``: bytes of each, most first; '' where a layer is not known.
    ``symbols``: what made them, ``lines``: the model's lines they come from, most bytes first.
    ``time``: what the GPU did under the symbol in the profiled iteration.
    """

    bytes: int = 0
    count: int = 0
    where: tuple[str, ...] = ()
    tensors: tuple[tuple[str, int], ...] = ()
    names: tuple[str, ...] = ()
    layers: tuple[tuple[str, int], ...] = ()
    categories: tuple[tuple[str, int], ...] = ()
    symbols: tuple[Symbol, ...] = ()
    lines: tuple[str, ...] = ()
    time: Timing = NO_TIME

    def __add__(self, other: Side) -> Side:
        return add_sides((self, other))


def add_sides(sides: Iterable[Side]) -> Side:
    """All of them as one; an empty side of none. At once, since there may be very many."""
    all_sides = tuple(sides)
    return Side(
        sum(side.bytes for side in all_sides),
        sum(side.count for side in all_sides),
        _join(side.where for side in all_sides),
        _add(side.tensors for side in all_sides),
        _join(side.names for side in all_sides),
        _add(side.layers for side in all_sides),
        _add(side.categories for side in all_sides),
        _join(side.symbols for side in all_sides),
        _join(side.lines for side in all_sides),
        add_timings(side.time for side in all_sides),
    )


def _join(parts: Iterable[Iterable[_Item]]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(parts)))


def _add(parts: Iterable[Iterable[tuple[str, int]]]) -> tuple[tuple[str, int], ...]:
    amounts: dict[str, int] = defaultdict(int)
    for text, amount in chain.from_iterable(parts):
        amounts[text] += amount
    return tuple(amounts.items())


@dataclass(frozen=True, slots=True)
class Row:
    """A symbol and its sides.

    ``members`` are the symbols folded into it, empty if it is one. ``renamed`` is what the baseline
    calls the same thing, None where the names are equal. ``elsewhere`` says that the side which
    holds none of it at its peak has it at other moments of its window, or runs it. ``beside`` are
    other dtypes of the same tensor that the same side holds at the same moment.
    """

    symbol: Symbol
    sides: tuple[Side, ...]
    members: tuple[Symbol, ...] = ()
    renamed: Symbol | None = None
    elsewhere: bool = False
    beside: tuple[str, ...] = ()

    @property
    def delta(self) -> int:
        """Candidate minus baseline; a single side counts whole."""
        return self.sides[-1].bytes - (self.sides[0].bytes if len(self.sides) == 2 else 0)

    @property
    def delta_ns(self) -> int:
        """As ``delta``, of GPU time."""
        return self.sides[-1].time.ns - (self.sides[0].time.ns if len(self.sides) == 2 else 0)

    @property
    def status(self) -> str:
        """How the sides differ, in a word: '' for a peak, and where they do not.

        'NEW' and 'GONE' where one run has none of it at all; 'KEPT LONGER' and 'FREED EARLIER'
        where both make it, but only one holds it at its peak; 'COUNT 3 → 6'; 'DTYPE' and 'SHAPE'
        where both hold as many tensors, but of another kind.
        """
        if len(self.sides) < 2:
            return ""
        a, b = self.sides
        if not (a.count or b.count):
            return _ran(a.time, b.time)
        if a.count == b.count:
            # Of a layer or a category, whose tensors are many, it would say nothing.
            one_thing = self.symbol.compiler is not None or self.symbol.name.endswith("]")
            return _changed(a, b) if one_thing else ""
        if not a.count:
            return "KEPT LONGER" if self.elsewhere else "NEW"
        if not b.count:
            return "FREED EARLIER" if self.elsewhere else "GONE"
        return "" if self.symbol.special else f"COUNT {a.count} → {b.count}"


def _ran(a: Timing, b: Timing) -> str:
    """Of symbols that hold nothing at either peak: whether one run alone has them."""
    return "" if bool(a.kernels) == bool(b.kernels) else "GONE" if a.kernels else "NEW"


def _changed(a: Side, b: Side) -> str:
    """What differs between as many tensors: their dtype, or their size; '' where neither does, or
    where more than one kind of tensor changed."""
    one, other = Counter(dict(a.tensors)), Counter(dict(b.tensors))
    lost, gained = one - other, other - one
    if len(lost) != 1 or len(gained) != 1 or lost.total() != gained.total():
        return ""
    (left, _, shape), (right, _, new_shape) = (
        next(iter(side)).partition("[") for side in (lost, gained)
    )
    if left != right:
        return f"DTYPE {left} → {right}"
    same_rank = shape.count(",") == new_shape.count(",")
    # As many bytes are the same elements, laid out otherwise.
    return f"SHAPE [{shape} → [{new_shape}" if same_rank and a.bytes != b.bytes else ""


# A number that is a whole part of a module's path.
_LAYER_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$|:| )|^\d+(?=\.|$| )")


def sort_rows(rows: Iterable[Row], by: Measure = "bytes") -> list[Row]:
    """The weightiest first, by bytes or by time; ties by the greater side, then by the other
    measure, then by name, so that order is stable."""

    def weight(row: Row) -> tuple[object, ...]:
        size = (-abs(row.delta), -max(side.bytes for side in row.sides))
        time = (-abs(row.delta_ns), -max(side.time.ns for side in row.sides))
        both = (size, time) if by == "bytes" else (time, size)
        return (*both, row.symbol.text)

    return sorted(rows, key=weight)


def fold_rows(rows: Sequence[Row], by: Measure = "bytes") -> list[Row]:
    """Repeated layers in one row: same kind of symbol, same operation and line, same bytes.

    The sums stay: a folded row holds the bytes, times and counts of all its members. By time, one
    that takes far longer than the others stands alone.
    """
    groups = gather_rows(rows)
    if by == "time":
        busy = sum(side.time.ns for row in rows for side in row.sides)
        groups = [part for group in groups for part in _split_slow(group, busy)]
    return sort_rows((merge_rows(group) for group in groups), by)


def gather_rows(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows that ``fold_rows`` puts into one."""
    groups: dict[object, list[Row]] = defaultdict(list)
    for row in rows:
        kind = repeated_kind(row.symbol)
        sizes = tuple((side.bytes, side.count) for side in row.sides)
        groups[(kind, sizes, row.status, row.beside) if kind else id(row)].append(row)
    return list(groups.values())


def repeated_kind(symbol: Symbol) -> Hashable | None:
    """What symbols of repeated layers have in common, None for one that is not numbered."""
    kind = numbered_kind(symbol)
    place = (symbol.compiler, symbol.module, symbol.phase, symbol.line)
    return (kind, place) if kind else None


def _split_slow(group: list[Row], busy: int) -> list[list[Row]]:
    """A group without those that take more than twice its median, and a hundredth of all time."""
    times = [max(side.time.ns for side in row.sides) for row in group]
    median = sorted(times)[(len(times) - 1) // 2]
    slow = [t > 2 * median and 100 * t > busy for t in times]
    rest = [row for row, is_slow in zip(group, slow, strict=True) if not is_slow]
    alone = [[row] for row, is_slow in zip(group, slow, strict=True) if is_slow]
    return [*alone, *([rest] if rest else [])]


def limit_rows(rows: Sequence[Row], top: int | None) -> list[Row]:
    """The first ``top`` rows, the rest summed into one named ``<others>``."""
    if top is None or len(rows) <= top:
        return list(rows)
    rest = rows[top:]
    sides = tuple(_total([row.sides[k] for row in rest]) for k in range(len(rest[0].sides)))
    return [*rows[:top], Row(OTHERS, sides)]


def _total(sides: Sequence[Side]) -> Side:
    """The sums of many sides, and nothing else of them."""
    ns, kernels = sum(s.time.ns for s in sides), sum(s.time.kernels for s in sides)
    return Side(sum(s.bytes for s in sides), sum(s.count for s in sides), time=Timing(ns, kernels))


def layer_pattern(layer: str) -> str:
    """'model.layers.3.mlp' → 'model.layers.*.mlp'."""
    return _LAYER_NUMBER.sub("*", layer)


def numbered_kind(symbol: Symbol) -> tuple[str, str] | None:
    """What is left of a symbol's name and operation, or of a layer's path, without its numbers."""
    if symbol.compiler is None and not symbol.line:
        pattern = layer_pattern(symbol.name)
        return (pattern, "") if pattern != symbol.name else None
    if symbol.compiler not in ("thunder", "inductor"):
        return None
    (name, number), (operation, other) = split_number(symbol.name), split_number(symbol.operation)
    return (name, operation) if number or other else None


def number_of(row: Row) -> tuple[int, ...]:
    """The numbers in a symbol's name and operation, 0 where there is none."""
    return tuple(
        int(split_number(text)[1][-_MOST_DIGITS:] or 0)
        for text in (row.symbol.name, row.symbol.operation)
    )


def split_number(name: str) -> tuple[str, str]:
    """'nvFusion', '12': a name and the number at its end, '' where there is none."""
    base = name.rstrip(_DIGITS)
    return (name, "") if not base or base[0] in _DIGITS else (base, name[len(base) :])


def merge_rows(group: Sequence[Row]) -> Row:
    """Rows of repeated layers as one; a single one stays as it is."""
    if len(group) == 1:
        return group[0]
    ordered = sorted(group, key=number_of)
    sides = tuple(add_sides(row.sides[k] for row in ordered) for k in range(len(group[0].sides)))
    return replace(ordered[0], sides=sides, members=tuple(row.symbol for row in ordered))


def folded_symbol(row: Row) -> Symbol:
    """The row's symbol with all its members' numbers: 'nvFusion2, 6, 10, 14', 'layers.*.mlp'."""
    if row.members and row.symbol.compiler is None:
        return replace(row.symbol, name=layer_pattern(row.symbol.name))
    names = list(dict.fromkeys(symbol.name for symbol in row.members))
    operations = list(dict.fromkeys(symbol.operation for symbol in row.members))
    return replace(
        row.symbol,
        name=series(names) or row.symbol.name,
        operation=series(operations) or row.symbol.operation,
    )


def series(names: Sequence[str]) -> str:
    """'nvFusion2, 6, 10' for names that differ by their numbers; '' for a single one."""
    if len(names) < 2:
        return ""
    base = names[0].rstrip("0123456789")
    return ", ".join([names[0], *(name.removeprefix(base) for name in names[1:])])
