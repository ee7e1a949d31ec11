"""The insides of lists that a pickle fills from its memo alone: which objects each of them gets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memtrace.snapshot.columns import Int64

UInt32 = npt.NDArray[np.uint32]

GETS = re.compile(rb"(?s)j....|h.")  # LONG_BINGET, BINGET
_LONG = ord("j")
_CHUNK = 1 << 15  # lists at a time
_LONGEST = 1 << 12  # bytes of a list that is read together with others


@dataclass(frozen=True, slots=True)
class Bodies:
    """Lists of whole numbers: list k is ``numbers[ends[k - 1] : ends[k]]``.

    ``numbers`` has shape (of all lists,), ``ends`` shape (lists,).
    """

    numbers: UInt32
    ends: Int64

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def counts(self) -> Int64:
        """How many numbers each list has, shape (lists,)."""
        return np.diff(self.ends, prepend=0)

    def take(self, rows: Int64) -> Bodies:
        """Some of the lists, in another order."""
        counts = self.ends[rows] - np.where(rows > 0, self.ends[rows - 1], 0)
        ends = np.cumsum(counts)
        shift = np.repeat(self.ends[rows] - ends, counts)
        return Bodies(self.numbers[np.arange(len(shift)) + shift], ends)

    def greatest(self) -> Int64:
        """The greatest number of each list, -1 of an empty one; shape (lists,)."""
        counts = self.counts
        found = np.full(len(self), -1, dtype=np.int64)
        filled = np.flatnonzero(counts)
        if len(filled):
            begins = self.ends[filled] - counts[filled]
            found[filled] = np.maximum.reduceat(self.numbers, begins)
        return found


def read_bodies(bodies: Sequence[bytes]) -> Bodies:
    """The numbers in the memo that each of some runs of GETS gets, in order."""
    pieces: list[UInt32] = [np.zeros(0, dtype=np.uint32)]
    counts: list[Int64] = [np.zeros(0, dtype=np.int64)]
    for begin in range(0, len(bodies), _CHUNK):
        numbers, count = _read_some(bodies[begin : begin + _CHUNK])
        pieces.append(numbers)
        counts.append(count)
    return Bodies(np.concatenate(pieces), np.cumsum(np.concatenate(counts)))


def _read_some(bodies: Sequence[bytes]) -> tuple[UInt32, Int64]:
    """The numbers of all, one list after another, and how many each has.

    Where an opcode begins is known only when the one before it has been seen. So the first of all
    lists are looked at, then the second of all that have one, and so on; long lists, which would
    take many rounds, by themselves.
    """
    lengths = np.fromiter(map(len, bodies), np.int64, len(bodies))
    data = b"".join(bodies) + bytes(4)
    opcodes = np.frombuffer(data, np.uint8)
    operands: UInt32 = np.ndarray((len(data) - 3,), np.uint32, data, strides=(1,))
    ends = np.cumsum(lengths)
    at = ends - lengths
    counts = np.zeros(len(bodies), dtype=np.int64)
    rounds: list[tuple[Int64, UInt32]] = []
    rows = np.flatnonzero((lengths > 0) & (lengths <= _LONGEST))
    places, stops = at[rows], ends[rows]
    while len(rows):
        long = opcodes[places] == _LONG
        values = operands[places + 1]
        rounds.append((rows, np.where(long, values, values & 0xFF).astype(np.uint32)))
        counts[rows] += 1
        places = places + np.where(long, 5, 2)
        more = places < stops
        rows, places, stops = rows[more], places[more], stops[more]
    alone = {k: _read_long(bodies[k]) for k in np.flatnonzero(lengths > _LONGEST).tolist()}
    for k, found in alone.items():
        counts[k] = len(found)
    first = np.cumsum(counts) - counts
    numbers = np.zeros(int(counts.sum()), dtype=np.uint32)
    for k, (members, values) in enumerate(rounds):
        numbers[first[members] + k] = values
    for k, found in alone.items():
        numbers[first[k] : first[k] + len(found)] = found
    return numbers, counts


def _read_long(body: bytes) -> UInt32:
    gets = (int.from_bytes(get[1:], "little") for get in GETS.findall(body))
    return np.fromiter(gets, np.uint32)
