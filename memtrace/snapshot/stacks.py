"""Interning of stacks: equal stacks get one number, and few of them are ever looked at twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from memtrace.snapshot.columns import Frame, Int32, StackTable
from memtrace.snapshot.validate import Fault, integer, is_text

Place = Callable[[int], str]


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
        self._stack_by_ids: dict[tuple[int, ...], int] = {(): 0}
        self._stack_by_id: dict[int, int] = {}

    def table(self) -> StackTable:
        return StackTable(frames=list(self._frames), stacks=list(self._stacks))

    def number_all(self, lists: Sequence[Any], place: Place) -> Int32:
        """The stack number of each list, shape (n,). ``place(k)`` names the k-th for a message."""
        ids = list(map(id, lists))
        known = self._stack_by_id
        new = {}
        for k, key in enumerate(ids):
            if key not in known and key not in new:
                new[key] = k
        for key, k in new.items():
            known[key] = self._number_list(lists[k], lambda k=k: f"{place(k)}.frames")  # type: ignore[misc]
        return np.fromiter(map(known.__getitem__, ids), np.int32, len(ids))

    def number(self, frames: Any, place: str) -> int:
        """The stack number of one list of frames."""
        found = self._stack_by_id.get(id(frames))
        if found is None:
            found = self._number_list(frames, lambda: f"{place}.frames")
            self._stack_by_id[id(frames)] = found
        return found

    def _number_list(self, frames: Any, place: Callable[[], str]) -> int:
        if frames is None:
            return 0
        if type(frames) is not list:
            raise Fault.of(place(), frames, "a list")
        key = tuple(map(id, frames))
        found = self._stack_by_ids.get(key)
        if found is None:
            numbers = self._frame_by_id
            try:
                stack = tuple(map(numbers.__getitem__, key))
            except KeyError:
                for k, frame in enumerate(frames):
                    if id(frame) not in numbers:
                        numbers[id(frame)] = self._number_frame(frame, f"{place()}[{k}]")
                stack = tuple(map(numbers.__getitem__, key))
            found = self._stacks.setdefault(stack, len(self._stacks))
            self._stack_by_ids[key] = found
        return found

    def _number_frame(self, frame: Any, place: str) -> int:
        if type(frame) is not dict:
            raise Fault.of(place, frame, "a dict")
        for key in ("filename", "name"):
            if not is_text(frame.get(key)):
                raise Fault.of(f"{place}.{key}", frame.get(key), "a string", key in frame)
        line = integer(frame.get("line"), f"{place}.line", -(1 << 63), present="line" in frame)
        value = Frame(frame["filename"], line, frame["name"])
        return self._frames.setdefault(value, len(self._frames))
