"""What a trace consists of, whatever the format it is written in.

Times are nanoseconds since the trace's own start and never negative; columns are numpy arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from memtrace.snapshot.columns import Int32, Int64

Value = str | int | tuple[str, ...]
Facts = Mapping[str, Value]
# The number by which arrows find their ends.
CORRELATION = "correlation"
# A number that a slice does not have.
ABSENT = np.iinfo(np.int64).min


def arrow_ids(correlation: Int64, pid: int) -> Int64:
    """Correlations, unique in their process only, as numbers unique in a trace; exact in a double.

    Those that are no id a driver gives (32 bits) may meet others: an arrow too many is drawn.
    """
    return (correlation & 0xFFFF_FFFF) + (pid << 32)


@dataclass(frozen=True, slots=True)
class Counter:
    """Bytes over time: ``value[k]`` holds from ``time[k]`` on; shape (n,), times increase.

    ``folder`` is the group that the track stands in, '' for none. ``scale`` names the counters that
    are drawn on one scale, '' for one of its own.
    """

    name: str
    time: Int64
    value: Int64
    folder: str = ""
    scale: str = ""
    about: str = ""


@dataclass(frozen=True, slots=True)
class Slices:
    """Stretches of time of one kind, or moments: then ``end`` is None.

    All columns have shape (n,), in order of lane, begin, and end (the longest first). ``lane``
    counts from 0; on one lane two slices lie within each other or apart, never across. Slice k is
    called ``labels[label[k]]``, and described by ``details[detail[k]]`` and by ``numbers``, where a
    slice without one has ABSENT. Arrows lead from slices of ``arrows`` "from" to those of "to" that
    have the same ``correlation`` among their numbers.
    """

    name: str
    begin: Int64
    end: Int64 | None
    lane: Int32
    labels: Sequence[str]
    label: Int32
    details: Sequence[Facts]
    detail: Int32
    numbers: Mapping[str, Int64] = field(default_factory=dict)
    folder: str = ""
    about: str = ""
    arrows: Literal["", "from", "to"] = ""

    def __len__(self) -> int:
        return len(self.begin)

    def shapes(self) -> Iterator[tuple[Int64, list[str]]]:
        """Rows with the same numbers present, and the names of these."""
        present = np.zeros(len(self), np.int64)
        for k, column in enumerate(self.numbers.values()):
            present |= (column != ABSENT).astype(np.int64) << k
        for mask in np.unique(present).tolist():
            names = [name for k, name in enumerate(self.numbers) if mask >> k & 1]
            yield np.flatnonzero(present == mask), names


@dataclass(frozen=True, slots=True)
class Process:
    """One recording: its tracks in the order in which they are shown."""

    name: str
    tracks: Sequence[Counter | Slices]


@dataclass(frozen=True, slots=True)
class Trace:
    """``start_ns`` is the epoch time of time 0; None where the clock counts events instead.

    ``facts`` say what was recorded and what is incomplete, ``notes`` what must be said at once.
    """

    processes: Sequence[Process]
    start_ns: int | None
    facts: Facts
    notes: tuple[str, ...]
