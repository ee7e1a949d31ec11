"""Distinct rows of columns: what is the same is looked at once, and the answer goes to all alike.

A million lifetimes fall into a few thousand kinds (one stack, pass and operator), so whatever
needs Python is asked of the kinds, and numpy hands the answers out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from memtrace.snapshot.columns import Int32, Int64

Column = npt.NDArray[Any]
_Item = TypeVar("_Item", bound=Hashable)


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


def _compress(column: Column) -> Int64:
    """Equal values as equal numbers from 0 without gaps, in order of the values."""
    if not len(column):
        return np.zeros(0, dtype=np.int64)
    low, high = int(column.min()), int(column.max())
    if high - low > 4 * len(column) + 1024:
        return np.unique(column, return_inverse=True)[1].reshape(-1)
    # Counting takes a tenth of the time of sorting, where the values lie close enough.
    offsets = column.astype(np.int64) - low
    seen = np.zeros(high - low + 1, dtype=np.int64)
    seen[offsets] = 1
    return (np.cumsum(seen) - 1)[offsets]
