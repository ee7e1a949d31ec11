"""Events in bulk: columns straight from the bytes of a pickle, with no object for each event."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memtrace.snapshot.columns import Int32, Int64, UInt8
from memtrace.snapshot.layouts import Layout, learn_layouts

_BEGIN = b"}\x94("  # EMPTY_DICT, MEMOIZE, MARK
_CHUNK = 1 << 16  # events at a time: what they take in between stays in the cache
_SEARCHED = 1 << 22  # … and bytes
_SAMPLES = 256
_STRIDE = 0x9E3779B1  # takes samples from everywhere, out of step with iterations
_BODY = re.compile(rb"(?s)(?:j....|h.)*")
_END, _END_OF_BATCH = b"eu", b"eue("  # what follows a list of frames, up to the next event


Column = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class BulkEvents:
    """Events that lie in a pickle in a usual form, in order. All columns have shape (n,).

    ``begin`` and ``end`` are where each lies. ``values[p]`` are the operands of the key at place p
    of ``keys``: integers or, where ``references[p]``, numbers in the memo. ``body`` is the row in
    ``bodies`` of the event's own list of frames (the opcodes that get them), -1 where it has none
    of its own, but gets another's: the value at the last place is then that one's number. ``memo``
    is how many objects each puts into the memo: itself first, its own list last.
    """

    keys: tuple[bytes, ...]
    begin: Int64
    end: Int64
    values: dict[int, Column]
    references: dict[int, bool]
    body: Int32
    bodies: list[bytes]
    memo: UInt8

    def __len__(self) -> int:
        return len(self.begin)

    def take(self, rows: Int64 | slice) -> BulkEvents:
        """Some of the events."""
        return self._change(lambda column: column[rows])

    def room(self, size: int) -> BulkEvents:
        """Columns of the same kinds for ``size`` events, to be filled."""
        return self._change(lambda column: np.empty(size, column.dtype))

    def fill(self, begin: int, events: BulkEvents) -> None:
        """Puts other events, of the same keys, into the rows from ``begin`` on."""
        for mine, theirs in zip(self._columns(), events._columns(), strict=True):
            mine[begin : begin + len(theirs)] = theirs

    def _columns(self) -> list[Column]:
        return [self.begin, self.end, *self.values.values(), self.body, self.memo]

    def _change(self, change: Callable[[Column], Column]) -> BulkEvents:
        return replace(
            self,
            begin=change(self.begin),
            end=change(self.end),
            values={place: change(column) for place, column in self.values.items()},
            body=change(self.body),
            memo=change(self.memo),
        )


def find_events(raw: bytes) -> BulkEvents | None:
    """The events in a pickle that lie as most of them do; None where there are none.

    What is found is a whole event by its own bytes, whatever it lies in: that it begins where an
    opcode begins is for the caller to see.
    """
    begin = _search(raw)
    sample = np.arange(min(_SAMPLES, len(begin))) * _STRIDE % max(len(begin), 1)
    layouts = learn_layouts(raw, begin[sample].tolist())
    if not layouts:
        return None
    bodies = _Bodies()
    found: BulkEvents | None = None
    count = 0
    for k in range(0, len(begin), _CHUNK):
        # With the beginning of the one that follows, where a list of frames must end.
        chunk = _Chunk(raw, begin[k : k + _CHUNK + 1], layouts, bodies)
        events = chunk.events(min(_CHUNK, len(begin) - k))
        if found is None:
            found = events.room(len(begin))
        found.fill(count, events)
        count += len(events)
    return found.take(slice(count)) if found is not None and count else None


def _search(raw: bytes) -> Int64:
    """Where an event may begin: a dict of several keys, in the part of the file with the history.

    That is from the first key "action" to the key that follows the history.
    """
    start = max(0, raw.find(b"\x8c\x06action\x94") - len(_BEGIN))
    end = raw.rfind(b"\x8c\x12allocator_settings\x94")  # from the end, which is much nearer
    data = np.frombuffer(raw, np.uint8)[start : end if end > start else len(raw)]
    found = [np.zeros(0, dtype=np.int64)]
    first, *others = _BEGIN
    for at in range(0, len(data), _SEARCHED):
        part = data[at : at + _SEARCHED + len(others)]
        places = np.flatnonzero(part[: max(0, len(part) - len(others))] == first)
        for k, byte in enumerate(others, start=1):
            places = places[part[places + k] == byte]
        found.append(places + (start + at))
    return np.concatenate(found)


def _pieces(raw: bytes, at: Int64, width: int) -> UInt8:
    """``width`` bytes from each of some places, shape (n, width)."""
    count = max(0, len(raw) - width + 1)
    everywhere = np.ndarray((count,), dtype=f"V{width}", buffer=raw, strides=(1,))
    found: UInt8 = everywhere[at].view(np.uint8).reshape(len(at), width)
    return found


def _column(pieces: UInt8, rows: Int64, offset: int, width: int) -> Int64:
    """The little-endian numbers of ``width`` bytes at an offset into some of the pieces."""
    count, stride = pieces.shape
    words: Int64 = np.ndarray((count,), np.int64, pieces.data, offset, (stride,))
    numbers = words[rows]
    return numbers & ((1 << 8 * width) - 1) if width < 8 else numbers


class _Bodies(dict[bytes, int]):
    """A number for each list of references, -1 for bytes that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[bytes] = []

    def __missing__(self, body: bytes) -> int:
        if _BODY.fullmatch(body) is None:
            return -1
        self[body] = len(self.found)
        self.found.append(body)
        return self[body]


class _Chunk:
    """The columns of BulkEvents, a row for each place where one may begin, as they are filled."""

    def __init__(self, raw: bytes, begin: Int64, layouts: list[Layout], bodies: _Bodies) -> None:
        self._raw = raw
        self._begin = begin
        self._bodies = bodies
        self._keys = layouts[0].keys
        n = len(begin)
        self._end = np.full(n, -1, dtype=np.int64)
        self._references = {f.place: f.reference for layout in layouts for f in layout.fields}
        self._values: dict[int, Column] = {
            place: np.zeros(n, dtype=np.uint32 if reference else np.int64)
            for place, reference in self._references.items()
        }
        self._body = np.full(n, -1, dtype=np.int32)
        self._memo = np.zeros(n, dtype=np.uint8)
        # Once for all layouts: later looks at the same bytes find them in the cache.
        width = 8 * max(len(layout.literal) // 8 + 2 for layout in layouts)
        rows = np.flatnonzero(begin <= len(raw) - width)
        self._heads = _pieces(raw, begin[rows], width)
        for layout in layouts:
            self._match(rows, layout)
            rows = rows[self._end[rows] < 0]

    def events(self, count: int) -> BulkEvents:
        """Those found among the first ``count`` rows."""
        everywhere = BulkEvents(
            keys=self._keys,
            begin=self._begin,
            end=self._end,
            values=self._values,
            references=self._references,
            body=self._body,
            bodies=self._bodies.found,
            memo=self._memo,
        )
        return everywhere.take(np.flatnonzero(self._end[:count] >= 0))

    def _match(self, rows: Int64, layout: Layout) -> None:
        """Fills in those of ``rows`` that lie by a layout."""
        found = self._compare(rows, layout)
        if not len(found):
            return
        values = {}
        good: npt.NDArray[np.bool_] = np.ones(len(found), dtype=bool)
        for field in layout.fields:
            values[field.place] = _column(self._heads, found, field.offset, field.width)
            if field.signed:  # negative numbers are left to the unpickler
                good &= self._heads[found, field.offset + field.width - 1] < 0x80
        end = self._begin[found] + len(layout.literal)
        first: Int64 = end
        last: Int64 = end
        if layout.tail == "list":
            last = self._list_ends(found)
            good &= last > first
            end = last + len(_END)
        elif layout.tail == "one":
            frame = layout.fields[-1]  # its opcode and number are the list's body
            first = self._begin[found] + (frame.offset - 1)
            last = first + (1 + frame.width)
            del values[frame.place]
        if layout.tail != "reference":
            raw, bodies = self._raw, self._bodies
            slices = zip(first.tolist(), np.where(good, last, first).tolist(), strict=True)
            body: Int32 = np.array([bodies[raw[a:b]] for a, b in slices], dtype=np.int32)
            good &= body >= 0
            self._body[found[good]] = body[good]
        found = found[good]
        self._end[found] = end[good]
        self._memo[found] = layout.memo
        for place, column in values.items():
            self._values[place][found] = column[good]

    def _compare(self, rows: Int64, layout: Layout) -> Int64:
        """Those of ``rows`` with a layout's fixed bytes."""
        length = len(layout.literal)
        # The last 8 bytes tell most layouts apart: what differs in front shifts them.
        for at in (length - 8, *range(0, length - 8, 8)):
            literal, mask = (
                np.frombuffer(text[at : at + 8], np.int64)[0]
                for text in (layout.literal, layout.mask)
            )
            if mask:
                rows = rows[_column(self._heads, rows, at, 8) & mask == literal]
        return rows

    def _list_ends(self, rows: Int64) -> Int64:
        """Where the list of frames ends in events that go on up to the next one, -1 elsewhere."""
        following = np.minimum(rows + 1, len(self._begin) - 1)
        at = self._begin[following]
        before = _pieces(self._raw, np.maximum(at - len(_END_OF_BATCH), 0), len(_END_OF_BATCH))
        closed = before.view(np.uint16)[:, 1] == np.frombuffer(_END, np.uint16)
        batch = before.view(np.uint32)[:, 0] == np.frombuffer(_END_OF_BATCH, np.uint32)
        ends = np.where(closed, at - len(_END), np.where(batch, at - len(_END_OF_BATCH), -1))
        return np.where(following == rows, -1, ends)
