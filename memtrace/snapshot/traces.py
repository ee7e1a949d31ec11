"""Traces whose usual events were read in bulk: joined with the others and with their stacks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from memtrace.distinct import number_rows
from memtrace.snapshot.bodies import Bodies, read_bodies
from memtrace.snapshot.bulk import BulkEvents, find_events
from memtrace.snapshot.columns import Events, Int64, UInt8
from memtrace.snapshot.events import action_codes, check_sizes, read_columns, split_frees
from memtrace.snapshot.shorten import LIST, STRETCH, ShortPickle, borne
from memtrace.snapshot.stacks import StackInterner
from memtrace.snapshot.walk import Unsuited

_NO_FRAMES = -1
_NUMBERS = ("addr", "size", "stream", "time_us", "device_free")


def load_in_bulk(raw: bytes, path: str) -> tuple[Any, BulkTraces]:
    """The object in a pickle, and what reads the traces in it. Raises Unsuited."""
    events = find_events(raw)
    if events is None:
        raise Unsuited
    short = ShortPickle(raw, path, events)
    wanted = _Wanted(short)
    snapshot, got = short.load(wanted.opcodes)
    return snapshot, BulkTraces(short, wanted, got)


class _Wanted:
    """What is to be got of the memo: the names of keys and actions, frames, and lists of frames.

    ``texts`` are those of a key's values and which of them each event has, by the key's place.
    ``bodies`` are the events' lists of frames, as places among ``frames``. ``keys`` are the body of
    each event, its own or another's, but for ``borrowers``, whose list was made outside of
    stretches: these are ``lists``. Slices are places in ``opcodes``.
    """

    def __init__(self, short: ShortPickle) -> None:
        events = short.events
        self.opcodes = list(events.keys)
        frames = len(events.keys) - 1
        self.texts: dict[int, tuple[slice, Int64]] = {}
        for place, column in events.values.items():
            if not events.references[place]:
                continue
            # Nothing is got that comes later. Most of it came before all events.
            if column.max() >= short.memo[0] and (column >= short.memo).any():
                raise Unsuited
            if place != frames:
                kinds, kind = number_rows(column)
                self.texts[place] = self._add([_get(number) for (number,) in kinds]), kind
        bodies = read_bodies(events.bodies)
        self._check_bodies(short, bodies)
        self.bodies, numbers = _close_up(bodies)
        self.frames = self._add([_get(number) for number in numbers])
        self.keys, self.borrowers = _find_lists(short)
        lists = events.values.get(frames)
        others = [] if lists is None else lists[self.borrowers].tolist()
        self.lists = self._add([_get(number) for number in others])

    def _add(self, opcodes: list[bytes]) -> slice:
        begin = len(self.opcodes)
        self.opcodes += opcodes
        return slice(begin, len(self.opcodes))

    def _check_bodies(self, short: ShortPickle, bodies: Bodies) -> None:
        """Unsuited where a list gets what the memo has not yet."""
        latest = bodies.greatest()
        own = np.flatnonzero(short.events.body >= 0)[::-1]
        first = np.zeros(len(latest), dtype=np.int64)
        first[short.events.body[own]] = short.memo[own]  # of several values, the last is kept
        if (latest >= first).any():
            raise Unsuited


def _close_up(bodies: Bodies) -> tuple[Bodies, list[int]]:
    """The same lists with places in another list in place of numbers, and that list.

    The numbers are bounded by the memo, and so by the file.
    """
    seen = np.zeros(int(bodies.numbers.max(initial=0)) + 1, dtype=bool)
    seen[bodies.numbers] = True
    place = np.cumsum(seen, dtype=np.uint32) - np.uint32(1)
    return Bodies(place[bodies.numbers], bodies.ends), np.flatnonzero(seen).tolist()


def _find_lists(short: ShortPickle) -> tuple[Int64, Int64]:
    """The body of each event's list of frames, its own or another's; and the events without one.

    A list is the last of the objects that its event puts into the memo.
    """
    events = short.events
    keys = events.body.astype(np.int64)
    lists = events.values.get(len(events.keys) - 1)
    borrowers = np.flatnonzero(keys < 0)
    owners = np.flatnonzero(keys >= 0)
    if lists is None or not len(owners):
        return keys, borrowers
    numbers = short.memo[owners] + events.memo[owners] - 1
    place = np.minimum(np.searchsorted(numbers, lists[borrowers]), len(owners) - 1)
    known = numbers[place] == lists[borrowers]
    keys[borrowers[known]] = keys[owners[place[known]]]
    return keys, borrowers[~known]


def _get(number: int) -> bytes:
    return b"j" + number.to_bytes(4, "little")


class BulkTraces:
    """Reads the lists of events in an object in which numbers stand for most of them."""

    def __init__(self, short: ShortPickle, wanted: _Wanted, got: list[Any]) -> None:
        events = short.events
        names = got[: len(events.keys)]
        places = {name: place for place, name in enumerate(names) if type(name) is str}
        if len(places) != len(names) or places.get("frames") != len(names) - 1:
            raise Unsuited
        self._columns = {
            name: self._numbers(events, places[name]) for name in _NUMBERS if name in places
        }
        if places.get("action") not in wanted.texts or not {"addr", "size"} <= set(self._columns):
            raise Unsuited
        taken, kind = wanted.texts[places["action"]]
        actions = got[taken]
        if not set(map(type, actions)) <= {str}:
            raise Unsuited
        self._action: UInt8 = action_codes(actions)[kind]
        self._frames = got[wanted.frames]
        self._bodies = wanted.bodies
        self._first, self._last = short.first.tolist(), short.last.tolist()
        self._own = events.body
        self._lists: list[Any] = []
        self._list_rows: dict[int, int] = {}
        self._keys = wanted.keys
        self._keys[wanted.borrowers] = self._find_keys(got[wanted.lists])

    @staticmethod
    def _numbers(events: BulkEvents, place: int) -> Int64:
        column = events.values.get(place)
        if column is None or events.references[place]:
            raise Unsuited
        return column

    def _find_keys(self, frames: Sequence[Any]) -> Int64:
        """A number for each list of frames: its row among the bodies, or behind these.

        ``frames`` are lists, None, or what bears the number of an event whose list it is.
        """
        keys = []
        for one in frames:
            if type(one) is list:
                row = self._list_rows.setdefault(id(one), len(self._lists))
                if row == len(self._lists):
                    self._lists.append(one)
                keys.append(len(self._bodies) + row)
            elif one is None:
                keys.append(_NO_FRAMES)
            elif (event := borne(one, LIST)) >= 0:
                keys.append(int(self._own[event]))
            else:
                raise Unsuited
        return np.array(keys, dtype=np.int64)

    def _find_events(self, trace: list[Any]) -> Int64:
        """Which event read in bulk each item stands for, -1 for those that are there themselves."""
        found = np.full(len(trace), -1, dtype=np.int64)
        at = 0
        while at < len(trace):
            item = trace[at]
            if type(item) is dict:
                at += 1
                continue
            if (stretch := borne(item, STRETCH)) < 0:
                raise Unsuited
            first, last = self._first[stretch], self._last[stretch]
            end = at + last - first
            if trace[at:end].count(item) != last - first:
                raise Unsuited
            found[at:end] = np.arange(first, last)
            at = end
        return found

    def read(self, trace: list[Any], place: str, stacks: StackInterner) -> Events:
        """As ``read_events``. Raises Fault or Unsuited where anything is wrong."""
        events = self._find_events(trace)
        others = np.flatnonzero(events < 0)
        rest, frames = read_columns([trace[k] for k in others.tolist()], place)

        def join(theirs: npt.NDArray[Any], ours: npt.NDArray[Any] | None, missing: int = 0) -> Any:
            column = np.full(len(trace), missing, theirs.dtype)
            if ours is not None:
                # Straight into the column: memory that is new to the process is what costs here.
                np.take(ours.view(theirs.dtype), events, out=column, mode="clip")
            column[others] = theirs
            return column

        columns = self._columns
        keys = join(self._find_keys(frames), self._keys)
        whole = Events(
            action=join(rest.action, self._action),
            addr=join(rest.addr, columns["addr"]),
            size=join(rest.size, columns["size"]),
            stream=join(rest.stream, columns.get("stream")),
            time_us=join(rest.time_us, columns.get("time_us"), -1),
            stack=self._number_stacks(keys, place, stacks),
            device_free=join(rest.device_free, columns.get("device_free"), -1),
        )
        check_sizes(whole, place)
        return split_frees(whole)

    def _number_stacks(self, keys: Int64, place: str, stacks: StackInterner) -> Any:
        kinds, kind = number_rows(keys)
        numbers: list[int] = []
        bodies = range(len(self._bodies))
        for alike, some in groupby((key for (key,) in kinds), bodies.__contains__):
            if alike:
                rows = np.array(list(some), dtype=np.int64)
                numbers += stacks.number_bodies(self._frames, self._bodies, rows, place)
                continue
            for key in some:
                frames = None if key == _NO_FRAMES else self._lists[key - len(bodies)]
                numbers.append(stacks.number(frames, place))
        return np.array(numbers, dtype=np.int32)[kind]
