"""Distinct rows of columns: what is the same is looked at once, and the answer goes to all alike.

A million lifetimes fall into a few thousand kinds (one stack, pass and operator), so whatever
needs Python is asked of the kinds, and numpy hands the answers out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
_Item = TypeVar("_Item", bound=Hashable)
# Odd numbers with their bits well mixed (splitmix64, xxHash).
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xC2B2AE3D27D4EB4F)


def number_rows(*columns: Column) -> tuple[list[tuple[int, ...]], Int64]:
    """The distinct rows of whole-numbered columns of shape (n,), in order of first appearance.

    With them, shape (n,), which of them each row is.
    """
    codes = _compress(columns[0])
    for column in columns[1:]:
        other = _compress(column)
        codes = _compress(codes * (int(other.max(initial=0)) + 1) + other)
    n = len(codes)
    first = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.int64)
    first[codes[::-1]] = np.arange(n - 1, -1, -1)  # of several values, the last is kept
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    rows = zip(*(column[first[order]].tolist() for column in columns), strict=True)
    return list(rows), number[codes]


def group_rows(column: Column) -> Int64:
    """The rows of a whole-numbered column so that equal values stand together, each in order."""
    codes = _scatter(column)
    if codes is None:
        return np.argsort(column, kind="stable")
    codes = _close_up(codes)
    # Numbers of 16 bits are sorted in linear time.
    small = int(codes.max(initial=0)) < 1 << 16
    return np.argsort(codes.astype(np.uint16) if small else codes, kind="stable")


def distinct_values(column: Column) -> Column:
    """The distinct values of a column, in order (np.unique, which would load numpy.ma first)."""
    ordered: Column = np.sort(column)
    return np.concatenate((ordered[:1], ordered[1:][ordered[1:] != ordered[:-1]]))


def _compress(column: Column) -> Int64:
    """Equal values as equal numbers from 0 without gaps."""
    codes = _scatter(column)
    if codes is None:
        return np.unique(column, return_inverse=True)[1].reshape(-1)
    return _close_up(codes)


def _scatter(column: Column) -> Int64 | None:
    """Equal values as equal numbers below a few times their count; None where that is not found.

    Sorting would take ten times as long as this and counting.
    """
    if not len(column):
        return np.zeros(0, dtype=np.int64)
    low, high = int(column.min()), int(column.max())
    if high - low <= 4 * len(column) + 1024:
        # Unsigned values are brought near 0 first, signed ones are widened first.
        near = column - column.min() if column.dtype.kind == "u" else column.astype(np.int64) - low
        return near.astype(np.int64)
    # Far apart: multiplied with something, most of the upper bits are different. Of several values
    # with equal ones the last is kept, so the others show.
    bits = max(12, len(column).bit_length() + 1)
    values = column.astype(np.uint64)
    for multiplier in _MULTIPLIERS:
        codes: Int64 = (values * np.uint64(multiplier) >> np.uint64(64 - bits)).astype(np.int64)
        kept = np.zeros(1 << bits, dtype=np.uint64)
        kept[codes] = values
        if np.array_equal(kept[codes], values):
            return codes
    return None


def _close_up(codes: Int64) -> Int64:
    """Numbers from 0 without gaps, in the same order."""
    seen = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.int64)
    seen[codes] = 1
    return (np.cumsum(seen) - 1)[codes]


class Interner(Generic[_Item]):
    """Equal things in one row of a table."""

    def __init__(self) -> None:
        self.items: list[_Item] = []
        self._rows: dict[_Item, int] = {}

    def row(self, item: _Item) -> int:
        row = self._rows.setdefault(item, len(self.items))
        if row == len(self.items):
            self.items.append(item)
        return row

    def rows(self, items: Iterable[_Item]) -> Int32:
        return np.array([self.row(item) for item in items], dtype=np.int32)
