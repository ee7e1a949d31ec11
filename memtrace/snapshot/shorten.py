"""A pickle in which a few bytes stand for each of its usual events.

The C unpickler spends most of its time on a history's events, only for their fields to be taken
out again. So what ``bulk`` has read already is left out. A stretch of events, n objects that are
pushed one after another, becomes one object that is pushed n times and bears the stretch's number.
What the events put into the memo becomes an object that bears nothing, but for the last list of
frames that the stretch makes, to which what follows may refer: that bears the number of its event.

All of these are pairs of bytes and a list. Nothing else in a snapshot is bytes (the walk sees to
that), so none is ever taken for something that the file holds, nor the other way round. Like the
events and lists they stand for they cannot be keys, and unlike these nothing can change them, so
whatever a crafted file does to them fails or shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from memtrace.errors import MemtraceError
from memtrace.snapshot.bulk import BulkEvents
from memtrace.snapshot.columns import Int64
from memtrace.snapshot.unpickle import run_plain
from memtrace.snapshot.walk import Unsuited, check_containers, walk_around

_FRAME = 9  # bytes of a FRAME opcode
STRETCH, LIST = 4, 8  # bytes in the number of a stretch, of an event whose list is meant
_AGAIN, _MEMOIZE, _POP = b"2", b"\x94", b"0"  # DUP, …


class ShortPickle:
    """A pickle without the events in it. Raises Unsuited where they cannot be left out.

    ``events`` are those that begin where an opcode begins. Stretch k has the events ``first[k]``
    to ``last[k]``, the latter not included. ``memo`` is the number of each event's first object in
    the memo, shape (events,).
    """

    def __init__(self, raw: bytes, path: str, events: BulkEvents) -> None:
        self._raw = raw
        self._path = path
        first, last = _stretches(events)
        begins, ends = events.begin[first], events.end[last - 1]
        with _unsuited():
            self._way = walk_around(raw, path, begins.tolist(), ends.tolist())
        met = self._way.met
        if not met or raw[self._way.stop : self._way.stop + 1] != b".":
            raise Unsuited
        if len(met) < len(first):
            events = events.take(np.concatenate([np.arange(first[k], last[k]) for k in met]))
            first, last = _stretches(events)
        self.events, self.first, self.last = events, first, last
        self.memo = np.repeat(self._way.memo, last - first)  # … outside of stretches
        self.memo += np.cumsum(events.memo, dtype=np.int64)
        self.memo -= events.memo

    def load(self, wanted: Sequence[bytes]) -> tuple[Any, list[Any]]:
        """The object, without the events, and what the opcodes ``wanted`` get of the memo.

        Where an event was pushed, there is what bears its stretch's number (see ``borne``), as
        often as that has events; where a stretch's last list was got, what bears its event's.
        """
        short = b"".join([*self._pieces(), b"](", *wanted, b"e\x86."])
        with _unsuited():
            check_containers(short, self._path)
            snapshot, got = run_plain(short, self._path)
        return snapshot, got

    def _pieces(self) -> Iterator[bytes]:
        """What lies between the stretches, and what stands for these."""
        raw, way, events = self._raw, self._way, self.events
        frames = iter([*way.frames, len(raw)])
        frame = next(frames)
        pos = 0
        begins = [*events.begin[self.first].tolist(), way.stop]
        ends = [*events.end[self.last - 1].tolist(), way.stop]
        for begin, end, instead in zip(begins, ends, [*self._stand_ins(), b""], strict=True):
            while frame < begin:  # the lengths that frames announce are no longer right
                yield raw[pos:frame]
                pos = frame + _FRAME
                frame = next(frames)
            yield raw[pos:begin]
            yield instead
            pos = end

    def _stand_ins(self) -> Iterator[bytes]:
        """The opcodes that stand for each stretch."""
        events, first = self.events, self.first
        objects = np.add.reduceat(events.memo, first, dtype=np.int64)
        own = np.where(events.body >= 0, np.arange(len(events)), -1)
        makers = np.maximum.reduceat(own, first)  # of the last lists
        marks = self.memo[makers] + events.memo[makers] - 1 - self.memo[first]
        columns = (self.last - first, objects, makers, marks)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for stretch, (count, filled, maker, mark) in enumerate(rows):
            event = _bear(stretch, STRETCH) + _AGAIN * (count - 1)
            if maker < 0:
                yield _fill(filled) + event
            else:
                made = _bear(maker, LIST) + _MEMOIZE + _POP
                yield _fill(mark) + made + _fill(filled - mark - 1) + event


def _stretches(events: BulkEvents) -> tuple[Int64, Int64]:
    """The first event of each stretch, and the one behind its last."""
    breaks = np.flatnonzero(events.end[:-1] != events.begin[1:]) + 1
    return np.concatenate(([0], breaks)), np.concatenate((breaks, [len(events)]))


def _fill(objects: int) -> bytes:
    """Puts what bears nothing into the memo, so many times."""
    return _bear(0, 0) + _MEMOIZE * objects + _POP if objects else b""


def _bear(number: int, length: int) -> bytes:
    """Pushes what bears a number: SHORT_BINBYTES, EMPTY_LIST, TUPLE2."""
    return b"C" + bytes([length]) + number.to_bytes(length, "little") + b"]\x86"


def borne(item: Any, length: int) -> int:
    """The number that an object bears in ``length`` bytes, -1 if it does not."""
    if type(item) is not tuple or not item or type(item[0]) is not bytes:
        return -1
    return int.from_bytes(item[0], "little") if len(item[0]) == length else -1


@contextmanager
def _unsuited() -> Iterator[None]:
    """Whatever is wrong here is said by the reader that looks at everything."""
    try:
        yield
    except (MemtraceError, ValueError, TypeError):
        raise Unsuited from None
