"""Interning of stacks: equal stacks get one number, and few of them are ever looked at twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from memtrace.snapshot.bodies import Bodies
from memtrace.snapshot.columns import Frame, Int32, Int64, StackTable
from memtrace.snapshot.validate import Fault, integer, is_text

Place = Callable[[int], str]

_CHUNK = 4096  # lists at a time: small enough for the cache, large enough to be worth it
# Characters of frames that are fine however few strings they share, and how often long ones may be
# shared beyond: a file's name is that of all its lines, of which stacks seldom have a hundred.
_ALWAYS_FINE = 64_000_000
_MOST_SHARING = 20
_POINTER = np.dtype(object).itemsize

# A Python frame without a line number: CPython's -1, which torch writes unsigned.
_NO_LINE = (1 << 64) - 1


class StackInterner:
    """Gives numbers to lists of frame dicts.

    Torch shares one list between the two events of a free, and one dict among all stacks that pass
    through a line, so identity settles nearly everything; values decide the rest. Identities hold
    only while the objects live: keep the snapshot until ``table`` has been taken.
    """

    def __init__(self) -> None:
        self._frames: dict[Frame, int] = {}
        self._frame_by_id: dict[int, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {(): 0}
        self._stack_by_ids: dict[bytes, int] = {b"": 0}
        self._stack_by_id: dict[int, int] = {}
        self._numbers_of: dict[int, npt.NDArray[np.object_]] = {}
        # Characters of all frames written out, and of the strings that they share (by id).
        self._written = self._held = 0
        self._texts: set[int] = set()

    def table(self) -> StackTable:
        return StackTable(frames=list(self._frames), stacks=list(self._stacks))

    def number_all(self, lists: Sequence[Any], place: Place) -> Int32:
        """The stack number of each list, shape (n,). ``place(k)`` names the k-th for a message."""
        ids = list(map(id, lists))
        known = self._stack_by_id
        # Backwards, so that the first of equal ids stays, for the message.
        where = dict(zip(reversed(ids), range(len(ids) - 1, -1, -1), strict=True))
        new = [k for key, k in where.items() if key not in known]
        new.sort()
        for begin in range(0, len(new), _CHUNK):
            self._number_some(lists, new[begin : begin + _CHUNK], place)
        return np.fromiter(map(known.__getitem__, ids), np.int32, len(ids))

    def _number_some(self, lists: Sequence[Any], rows: list[int], place: Place) -> None:
        """Number ``lists[k]`` for each k of ``rows``.

        A list's key is the identities of its frames, taken as the bytes of an array of objects:
        twice as fast as a tuple of id(), of which deep stacks need tens of millions.
        """
        chunk = [lists[k] for k in rows]
        if not set(map(type, chunk)) <= {list}:
            for k, frames in zip(rows, chunk, strict=True):
                self._stack_by_id[id(frames)] = self._number_list(frames, place, k)
            return
        lengths = list(map(len, chunk))
        pointers = np.fromiter(chain.from_iterable(chunk), object, sum(lengths)).tobytes()
        end = 0
        for k, frames, length in zip(rows, chunk, lengths, strict=True):
            begin, end = end, end + length * _POINTER
            key = pointers[begin:end]
            found = self._stack_by_ids.get(key)
            if found is None:
                found = self._stack_by_ids[key] = self._number_list(frames, place, k)
            self._stack_by_id[id(frames)] = found

    def number(self, frames: Any, place: str) -> int:
        """The stack number of one list of frames."""
        found = self._stack_by_id.get(id(frames))
        if found is None:
            found = self._number_list(frames, lambda _: place, 0)
            self._stack_by_id[id(frames)] = found
        return found

    def number_bodies(
        self, frames: Sequence[Any], bodies: Bodies, rows: Int64, place: str
    ) -> list[int]:
        """The stack numbers of some lists of ``frames``, as places among which ``bodies`` has them.

        ``rows`` are the lists' in ``bodies``. The frames must live as long as this.
        """
        found: list[int] = []
        known = self._stacks
        # By place, None of those not seen yet. Objects, since stacks hold millions of numbers.
        numbers = self._numbers_of.get(id(frames))
        if numbers is None:
            numbers = self._numbers_of[id(frames)] = np.full(len(frames), None, object)
        for begin in range(0, len(rows), _CHUNK):
            some = bodies.take(rows[begin : begin + _CHUNK])
            row = numbers[some.numbers].tolist()
            if None in row:
                new = (k for k, one in zip(some.numbers.tolist(), row, strict=True) if one is None)
                for k in dict.fromkeys(new):
                    numbers[k] = self._number_known(frames[k], f"{place}.frames")
                row = numbers[some.numbers].tolist()
            ends = some.ends.tolist()
            bounds = zip([0, *ends[:-1]], ends, strict=True)
            found += [known.setdefault(tuple(row[low:high]), len(known)) for low, high in bounds]
        return found

    def _number_known(self, frame: Any, place: str) -> int:
        number = self._frame_by_id.get(id(frame))
        if number is None:
            number = self._frame_by_id[id(frame)] = self._number_frame(frame, place)
        return number

    def _number_list(self, frames: Any, place: Place, row: int) -> int:
        if frames is None:
            return 0
        if type(frames) is not list:
            raise Fault.of(f"{place(row)}.frames", frames, "a list")
        numbers = self._frame_by_id
        try:
            stack = tuple(map(numbers.__getitem__, map(id, frames)))
        except KeyError:
            for k, frame in enumerate(frames):
                self._number_known(frame, f"{place(row)}.frames[{k}]")
            stack = tuple(map(numbers.__getitem__, map(id, frames)))
        return self._stacks.setdefault(stack, len(self._stacks))

    def _number_frame(self, frame: Any, place: str) -> int:
        if type(frame) is not dict:
            raise Fault.of(place, frame, "a dict")
        for key in ("filename", "name"):
            if not is_text(frame.get(key)):
                raise Fault.of(f"{place}.{key}", frame.get(key), "a string", key in frame)
        line = frame.get("line")
        if line == _NO_LINE:
            line = -1
        line = integer(line, f"{place}.line", -(1 << 63), present="line" in frame)
        value = Frame(frame["filename"], line, frame["name"])
        if value not in self._frames:
            self._weigh(value)
        return self._frames.setdefault(value, len(self._frames))

    def _weigh(self, frame: Frame) -> None:
        """Fault where few strings make up very many frames: written out they fill the memory."""
        for text in (frame.filename, frame.name):
            self._written += len(text)
            if id(text) not in self._texts:
                self._texts.add(id(text))
                self._held += len(text)
        if self._written > _ALWAYS_FINE + _MOST_SHARING * self._held:
            raise Fault(f"the frames repeat their names until they are {self._written} characters")
