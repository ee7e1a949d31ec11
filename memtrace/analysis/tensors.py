"""Rows by tensor that are one thing in two recordings under another shape or dtype.

Compilers lay the same memory out under other shapes ([4096, 3584] for [1, 4096, 3584]), a changed
program holds the same tensor in another dtype, and a longer batch has it larger. Shapes
that both runs make are no such case: there the tensors themselves live longer or shorter.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from memtrace.analysis.rows import Row, Side, add_sides
from memtrace.symbols import Symbol
from memtrace.symbols.numbers import SHAPE, read_shape

_Key = Callable[[Row, "Described", Side], Hashable | None]
_MOST_DIMENSIONS = 5
_TENSOR = re.compile(rf"(?<![\w-])(?P<dtype>[\w-]++)\[(?P<shape>{SHAPE})\]")


class Described(NamedTuple):
    """What a row by tensor says: where the tensor belongs, and what it is."""

    place: str
    dtype: str
    shape: tuple[int, ...]


def describe(text: str) -> Described | None:
    """'model.embed float32[8, 4]' taken apart; None for no tensor.

    Of a set of tensors ('bfloat16[8, 4] | bfloat16[4, 8]') the first, if all are as large.
    """
    parts = text.split(" | ")
    # The place may be a set, too: the tensors are what is at the end.
    found = [_TENSOR.search(part) for part in parts]
    while found and found[0] is None:
        found.pop(0)
    if not found or any(one is None or one.end() != len(one.string) for one in found):
        return None
    shapes = [read_shape(one["shape"]) for one in found if one is not None]
    dtypes = {one["dtype"] for one in found if one is not None}
    first = found[0]
    if first is None or len(dtypes) > 1 or len({math.prod(shape) for shape in shapes}) > 1:
        return None
    place = text[: len(text) - len(" | ".join(parts[-len(found) :])) + first.start()]
    return Described(place.rstrip(), first["dtype"], shapes[0])


def join_reshaped(
    rows: Sequence[Row], baseline: Collection[Symbol], candidate: Collection[Symbol]
) -> list[Row]:
    """``rows`` of a diff with those that are one tensor in one row; the sum stays.

    ``baseline`` and ``candidate`` are the symbols that the two runs have at any moment.
    """
    joined = _merge_layouts(rows, baseline, candidate)
    for key in (_other_dtype, _same_name, *map(_all_but, range(_MOST_DIMENSIONS)), _only_one):
        joined = _pair_changed(joined, key, baseline, candidate)
    return joined


def find_beside(rows: Iterable[Row]) -> list[Row]:
    """``rows`` of a diff, those of one side alone with the other dtypes it has of the tensor."""
    rows = list(rows)
    held: dict[Hashable, list[tuple[Row, str]]] = defaultdict(list)
    for row in rows:
        if (what := describe(row.symbol.text)) is not None:
            held[what.place, what.shape].append((row, what.dtype))
    return [_with_beside(row, held) for row in rows]


def _with_beside(row: Row, held: Mapping[Hashable, Sequence[tuple[Row, str]]]) -> Row:
    what = describe(row.symbol.text)
    if what is None or all(side.count for side in row.sides):
        return row
    here = 1 if row.sides[1].count else 0
    others = (
        dtype
        for other, dtype in held[what.place, what.shape]
        if other is not row and other.sides[here].count
    )
    return replace(row, beside=tuple(dict.fromkeys(others)))


def _is_new(row: Row, baseline: Collection[Symbol]) -> bool:
    """Whether the baseline never makes what this row holds."""
    return not row.sides[0].count and row.symbol not in baseline


def _is_gone(row: Row, candidate: Collection[Symbol]) -> bool:
    return not row.sides[1].count and row.symbol not in candidate


def _merge_layouts(
    rows: Sequence[Row], baseline: Collection[Symbol], candidate: Collection[Symbol]
) -> list[Row]:
    """The same elements under another shape: what there is more of in one run and what there is
    more of in the other become one row, where a shape of either is unknown to the other."""
    classes: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        what = describe(row.symbol.text)
        if what is not None:
            classes[what.place, what.dtype, math.prod(what.shape)].append(row)
    merged: dict[int, Row] = {}  # by id of a row that it takes the place of
    gone: set[int] = set()
    for members in classes.values():
        more = [row for row in members if row.delta > 0]
        less = [row for row in members if row.delta < 0]
        if not (more and less):
            continue
        new = [_is_new(row, baseline) for row in more]
        old = [_is_gone(row, candidate) for row in less]
        if not (any(new) or any(old)):
            continue  # both know all these shapes: what differs is how long they live
        group = sorted(more + less, key=lambda row: -max(side.bytes for side in row.sides))
        a, b = (add_sides(row.sides[k] for row in group) for k in range(2))
        # Lines can differ where one compiler names the view that another reads it through.
        if not (_agree(a, b) or (all(new) and all(old) and a.count == b.count)):
            continue
        one = _together(group)
        merged[id(group[0])] = one
        gone.update(id(row) for row in group)
    return [merged.get(id(row), row) for row in rows if id(row) in merged or id(row) not in gone]


def _together(group: Sequence[Row]) -> Row:
    """One row of several, named as the candidate has it, else as the baseline."""
    theirs = [row.symbol for row in group if row.sides[1].count]
    ours = [row.renamed or row.symbol for row in group if row.sides[0].count]
    symbol = theirs[0] if theirs else ours[0]
    renamed = ours[0] if ours and ours[0] != symbol else None
    sides = tuple(add_sides(row.sides[k] for row in group) for k in range(2))
    return Row(symbol, sides, renamed=renamed)


def _pair_changed(
    rows: Sequence[Row],
    key: _Key,
    baseline: Collection[Symbol],
    candidate: Collection[Symbol],
) -> list[Row]:
    """Pairs a row of the baseline alone with one of the candidate alone, where a key has just one
    of each: of several nobody can say which became which."""
    left: dict[Hashable, list[Row]] = defaultdict(list)
    right: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        what = describe(row.symbol.text)
        if what is None:
            continue
        if _is_gone(row, candidate):
            left[key(row, what, row.sides[0])].append(row)
        elif _is_new(row, baseline):
            right[key(row, what, row.sides[1])].append(row)
    pairs = {
        id(left[found][0]): (left[found][0], right[found][0])
        for found in left
        if found is not None
        and len(left[found]) == len(right.get(found, ())) == 1
        and _agree(left[found][0].sides[0], right[found][0].sides[1])
    }
    paired = {id(other) for _, other in pairs.values()}
    kept = [row for row in rows if id(row) not in paired and id(row) not in pairs]
    return kept + [_together(pair) for pair in pairs.values()]


def _agree(a: Side, b: Side) -> bool:
    """Whether the model's lines allow that both are one tensor; they are not always known."""
    return not a.lines or not b.lines or not set(a.lines).isdisjoint(b.lines)


def _place(what: Described, side: Side) -> Hashable:
    """Layer, dtype and line: what stays where a size changes."""
    return what.place, what.dtype, side.count, side.lines or side.symbols


def _other_dtype(row: Row, what: Described, side: Side) -> Hashable:
    """The same shape, ones apart, as often."""
    return what.place, tuple(n for n in what.shape if n != 1), side.count


def _same_name(row: Row, what: Described, side: Side) -> Hashable:
    """The program's own names: of parameters and traces that are alike but for sizes."""
    kind = (what.place, what.dtype, len(what.shape), side.count)
    return (*kind, side.names) if side.names else None


def _all_but(dimension: int) -> _Key:
    """Larger or smaller in one dimension: a batch, a vocabulary."""

    def key(row: Row, what: Described, side: Side) -> Hashable | None:
        # What has one row is rather the sum over the rows.
        if dimension >= len(what.shape) or what.shape[dimension] == 1:
            return None
        rest = (what.shape[:dimension], what.shape[dimension + 1 :])
        return _place(what, side), rest

    return key


def _only_one(row: Row, what: Described, side: Side) -> Hashable:
    """The layer's only tensor of this dtype and rank that the other run does not have."""
    ones = tuple(n == 1 for n in what.shape)
    return _place(what, side), ones
