"""Which stacks are alike to all who name things by them.

A program that walks a deep tree calls the same few lines in hundreds of thousands of orders. What
an allocation is named after is near the inner end of its stack: generated code, the first line of
the model's and of the user's. Stacks that are the same up to there need be looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from memtrace.snapshot.columns import Frame, Int32, Int64, StackTable
from memtrace.snapshot.generated import is_generated, is_output_file
from memtrace.symbols import eager, inductor
from memtrace.symbols.stacks import is_native

_CHUNK = 1 << 14  # stacks at a time: their frames stay in the cache
_FIRST = 2  # Python frames that count whatever they are

Flags = npt.NDArray[np.bool_]


def find_alike(table: StackTable) -> Int32:
    """For each stack of a table the first one that is alike, shape (stacks,).

    Alike are those with the same frames, C++ included, up to the last of these: the second Python
    frame; the last one of generated code; the first line of the user's; the first that no wrapper
    of torch's calls others through; the first line of the model's and of an FX graph around
    Inductor's code. And in which an optimizer's step ran, or did not.
    """
    kinds = _FrameKinds(table.frames)
    first: dict[tuple[bool, tuple[int, ...]], int] = {}
    found = np.zeros(len(table.stacks), dtype=np.int32)
    for begin in range(0, len(table.stacks), _CHUNK):
        stacks = table.stacks[begin : begin + _CHUNK]
        keys = zip(*kinds.measure(stacks), stacks, strict=True)
        found[begin : begin + len(stacks)] = [
            first.setdefault((optimizer, stack[:count]), begin + k)
            for k, (count, optimizer, stack) in enumerate(keys)
        ]
    return found


class _FrameKinds:
    """What each frame of a table is, as columns of flags."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        names = [frame.filename for frame in frames]
        self._python = ~_flags(is_native(name) for name in names)
        self._generated = self._python & _flags(map(is_generated, names))
        self._output = self._python & _flags(map(is_output_file, names))
        self._user = self._python & _flags(map(eager.is_user, names))
        self._proper = self._python & ~_flags(map(eager.is_wrapper, names))
        self._model = self._python & _flags(map(inductor.is_model, names))
        self._graph = self._python & _flags(map(inductor.is_graph, names))
        self._optimizer = self._python & _flags(map(eager.is_optimizer, names))

    def measure(self, stacks: Sequence[tuple[int, ...]]) -> tuple[list[int], list[bool]]:
        """How many frames of each stack count, and whether it shows an optimizer's step."""
        n = len(stacks)
        lengths = np.fromiter(map(len, stacks), np.int64, n)
        frames = np.fromiter(chain.from_iterable(stacks), np.int32, int(lengths.sum()))
        ends = np.cumsum(lengths)
        owner = np.repeat(np.arange(n), lengths)
        python = np.flatnonzero(self._python[frames])
        lead = _first(python, owner, n)
        counts = np.where(lead < 0, ends, lead + 1)  # no Python at all: all of it
        # The frames after the first ones, so far as they are the same stack's.
        for _ in range(_FIRST - 1):
            python = python[1:][owner[python[1:]] == owner[python[:-1]]]
            counts = np.maximum(counts, _first(python, owner, n) + 1)
        counts = np.maximum(counts, _last(np.flatnonzero(self._generated[frames]), owner, n) + 1)
        for kind in (self._user, self._proper):
            counts = np.maximum(counts, _first(np.flatnonzero(kind[frames]), owner, n) + 1)
        output = _first(np.flatnonzero(self._output[frames]), owner, n)
        for kind in (self._model, self._graph):
            places = np.flatnonzero(kind[frames])
            around = output[owner[places]]
            places = places[(around >= 0) & (places > around)]
            counts = np.maximum(counts, _first(places, owner, n) + 1)
        optimizer = np.zeros(n, dtype=bool)
        optimizer[owner[np.flatnonzero(self._optimizer[frames])]] = True
        return (counts - (ends - lengths)).tolist(), optimizer.tolist()


def _flags(values: Iterable[bool]) -> Flags:
    return np.array(list(values), dtype=bool)


def _first(places: Int64, owner: Int64, n: int) -> Int64:
    """The first of some places, in order, in each of ``n`` stacks, -1 where there is none."""
    found = np.full(n, -1, dtype=np.int64)
    found[owner[places[::-1]]] = places[::-1]  # of several values, the last is kept
    return found


def _last(places: Int64, owner: Int64, n: int) -> Int64:
    found = np.full(n, -1, dtype=np.int64)
    found[owner[places]] = places
    return found
