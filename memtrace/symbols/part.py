"""The names that a whole recording gave, in a capture that is a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from memtrace.distinct import Interner
from memtrace.snapshot.columns import Int32, Int64, Recording, UInt8
from memtrace.snapshot.part import PartNamings, PartSymbols, PartTensors
from memtrace.symbols.categories import CATEGORIES, OTHER, Categories
from memtrace.symbols.statements import Tensor
from memtrace.symbols.table import Naming, Symbol
from memtrace.timeline import Replay
from memtrace.timeline.replay import part_of

_SYMBOL = ("compiler", "module", "phase", "name", "operation", "line")
_TENSOR = ("name", "shape", "dtype", "layer", "line", "strides", "own")
_NUMBERS = {name: number for number, name in enumerate(CATEGORIES)}


class NameTable:
    """Namings to be written, each once. The tables are those of memtrace.snapshot.format.Part."""

    def __init__(self) -> None:
        self._symbols: Interner[Symbol] = Interner()
        self._tensors: Interner[Tensor] = Interner()
        self._namings: Interner[Naming] = Interner()

    def rows(self, namings: Sequence[Naming], rows: Int32 | Int64) -> list[int]:
        """The table's rows for ``rows`` of ``namings``."""
        known: dict[int, int] = {}
        for row in rows.tolist():
            if row not in known:
                known[row] = self._namings.row(namings[row])
        return [known[row] for row in rows.tolist()]

    def tables(self) -> tuple[PartSymbols, PartTensors, PartNamings]:
        """What the rows refer to."""
        namings = PartNamings(
            symbol=[self._symbols.row(n.symbol) for n in self._namings.items],
            where=[n.where for n in self._namings.items],
            layer=[n.layer for n in self._namings.items],
            tensors=[[self._tensors.row(t) for t in n.tensors] for n in self._namings.items],
        )
        symbols: Any = {
            field: [getattr(s, field) or "" for s in self._symbols.items] for field in _SYMBOL
        }
        tensors: Any = {
            field: [getattr(t, field) for t in self._tensors.items] for field in _TENSOR
        }
        tensors["shape"] = [list(shape) for shape in tensors["shape"]]
        tensors["strides"] = [None if s is None else list(s) for s in tensors["strides"]]
        tensors["own"] = [int(own) for own in tensors["own"]]
        return symbols, tensors, namings


def read_namings(part: dict[str, Any]) -> list[Naming]:
    """The namings of a capture's ``part``."""
    symbols = [
        Symbol(compiler or None, module, phase or None, name, operation, line)
        for compiler, module, phase, name, operation, line in zip(
            *(part["symbols"][field] for field in _SYMBOL), strict=True
        )
    ]
    tensors = [
        Tensor(
            name, tuple(shape), dtype, layer, line, None if s is None else tuple(s), own=bool(own)
        )
        for name, shape, dtype, layer, line, s, own in zip(
            *(part["tensors"][field] for field in _TENSOR), strict=True
        )
    ]
    columns = part["namings"]
    return [
        Naming(symbols[symbol], where, tuple(tensors[k] for k in rows), layer)
        for symbol, where, layer, rows in zip(
            columns["symbol"], columns["where"], columns["layer"], columns["tensors"], strict=True
        )
    ]


def kept_rows(recording: Recording, replay: Replay, *, operators: bool) -> Int32 | None:
    """The naming of each lifetime in the capture's ``part``, shape (lifetimes,).

    None where this is no part of a recording, or one whose names are not for these lifetimes.
    """
    device = part_of(recording, replay.device)
    if device is None or len(device["name"]) != len(replay.lifetimes):
        return None
    return np.array(device["name" if operators else "bare"], dtype=np.int32)


def kept_kernels(recording: Recording, *, operators: bool) -> list[Naming] | None:
    """The naming of each of the profile's kernels, None as in ``kept_rows``."""
    meta = recording.meta or {}
    part = meta.get("part")
    if part is None:
        return None
    rows = part["kernels" if operators else "bare_kernels"]
    if len(rows) != len(meta["profile"]["kernels"]["name"]):
        return None
    namings = read_namings(part)
    return [namings[row] for row in rows]


class KeptCategories(Categories):
    """The categories that the whole recording told."""

    def __init__(self, recording: Recording, replay: Replay) -> None:
        device = part_of(recording, replay.device)
        assert device is not None
        self._first, self._late = (
            np.array([_NUMBERS.get(word, _NUMBERS[OTHER]) for word in device[key]], dtype=np.uint8)
            for key in ("category", "late")
        )
        self._turns = np.array(device["turn"], dtype=np.int64)

    def numbers(self, rows: Int64, at: int | None = None) -> UInt8:
        """As ``of``, as places in CATEGORIES; same shape as ``rows``."""
        if at is None:
            return self._first[rows]
        return np.where(self._turns[rows] >= at, self._first[rows], self._late[rows])

    def turns(self, rows: Int64) -> Int64:
        """The moment up to which each lifetime plays the part it was made for."""
        return self._turns[rows]
