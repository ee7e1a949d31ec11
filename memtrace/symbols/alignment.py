"""Finds the same allocation in two repetitions of an iteration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher

import numpy as np

from memtrace.snapshot.columns import Int64

# Above this many allocations that differ, the exact alignment (quadratic) gives way to counting.
_EXACT_LIMIT = 500


def align(model: Sequence[Hashable], other: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs (position in ``model``, position in ``other``) of equal keys, in order.

    Repetitions of one iteration mostly allocate the same things in the same order, so equal
    beginnings and ends are paired off first and only what lies between is compared in detail.
    """
    begin = 0
    shortest = min(len(model), len(other))
    while begin < shortest and model[begin] == other[begin]:
        begin += 1
    end = 0
    while end < shortest - begin and model[-1 - end] == other[-1 - end]:
        end += 1
    pairs = [(k, k) for k in range(begin)]
    middle = model[begin : len(model) - end], other[begin : len(other) - end]
    pairs += [(begin + a, begin + b) for a, b in _align_middle(*middle)]
    pairs += [(len(model) - end + k, len(other) - end + k) for k in range(end)]
    return pairs


class Aligner:
    """Aligns many repetitions with one; those that are alike are looked at once.

    ``model`` are whole numbers, equal where two allocations may be the same.
    """

    def __init__(self, model: Int64) -> None:
        self._model = model
        self._same = np.arange(len(model))
        self._known: dict[bytes, tuple[Int64, Int64]] = {}

    def pairs(self, other: Int64) -> tuple[Int64, Int64]:
        """The positions in the model and in ``other`` that ``align`` pairs."""
        if np.array_equal(self._model, other):
            return self._same, self._same
        key = other.tobytes()
        if key not in self._known:
            pairs = align(self._model.tolist(), other.tolist())
            both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
            self._known[key] = both[:, 0], both[:, 1]
        return self._known[key]


def _align_middle(model: Sequence[Hashable], other: Sequence[Hashable]) -> list[tuple[int, int]]:
    if len(model) > _EXACT_LIMIT or len(other) > _EXACT_LIMIT:
        return _pair_by_turn(model, other)
    matcher = SequenceMatcher(None, model, other, autojunk=False)
    return [
        (block.a + k, block.b + k)
        for block in matcher.get_matching_blocks()
        for k in range(block.size)
    ]


def _pair_by_turn(model: Sequence[Hashable], other: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The k-th of a key in one with the k-th of it in the other, where both have as many."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for position, key in enumerate(model):
        places[key].append(position)
    theirs: dict[Hashable, list[int]] = defaultdict(list)
    for position, key in enumerate(other):
        theirs[key].append(position)
    return sorted(
        pair
        for key, mine in places.items()
        if len(mine) == len(theirs.get(key, ()))
        for pair in zip(mine, theirs[key], strict=True)
    )
