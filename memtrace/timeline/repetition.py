"""Where a history repeats itself.

A training loop asks its allocator for the same things in the same order, iteration by iteration,
and from one state the allocator always does the same. So what has been replayed once, from a state
and back to it, need not be replayed again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memtrace.distinct import group_rows, number_rows

_FEWEST = 3  # turns for which looking at the state pays


class Repetition(NamedTuple):
    """Steps ``begin`` to ``end``, not included: some ``period`` steps again and again, the last
    turn perhaps cut short."""

    begin: int
    end: int
    period: int


def find_repetitions(*columns: npt.NDArray[np.int64 | np.uint64 | np.uint8]) -> list[Repetition]:
    """The stretches in which rows of columns of shape (n,) repeat with the most telling period.

    That is the distance between a row and the next one equal to it which, together with all that
    have the same, spans most.
    """
    _, kind = number_rows(*columns)
    order = group_rows(kind)
    again = np.flatnonzero(kind[order[1:]] == kind[order[:-1]])
    distances = order[again + 1] - order[again]
    if not len(distances):
        return []
    counts = np.bincount(distances)
    period = int((counts * np.arange(len(counts))).argmax())
    same = np.concatenate(([False], kind[period:] == kind[:-period], [False]))
    edges = np.flatnonzero(same[1:] != same[:-1])
    begins, ends = edges[::2], edges[1::2]
    return [
        Repetition(begin, end + period, period)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        if end - begin >= (_FEWEST - 1) * period
    ]
