"""A device's history as columns. The hot path: a recording may hold millions of events."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from memtrace.snapshot.columns import Action, Events, UInt8
from memtrace.snapshot.stacks import StackInterner
from memtrace.snapshot.validate import (
    INT64,
    MOST_ADDRESS,
    MOST_BYTES,
    MOST_SUM,
    UINT64,
    Fault,
    integer,
)

_BOTH = 255  # older torch's 'free': requested and completed in one event


class _Codes(dict[str, int]):
    """Action names to codes; what newer torch may add is carried as OTHER."""

    def __missing__(self, name: str) -> int:
        return int(Action.OTHER)


_CODES = _Codes({action.name.lower(): int(action) for action in Action}, free=_BOTH)
# Events that need not have an address.
_NOWHERE = (Action.SNAPSHOT, Action.OOM, Action.OTHER)


def no_events() -> Events:
    return read_events([], "", StackInterner())


def read_events(trace: list[Any], place: str, stacks: StackInterner) -> Events:
    """The columns of one list of torch's TraceEntry dicts. Raises Fault at the first wrong one."""
    columns, frames = read_columns(trace, place)
    check_sizes(columns, place)
    stack = stacks.number_all(frames, lambda k: f"{place}[{k}]")
    return split_frees(replace(columns, stack=stack))


def action_codes(names: Iterable[str]) -> UInt8:
    """The code of each action; that of older torch's 'free' is for ``split_frees`` alone."""
    return np.frombuffer(bytes(map(_CODES.__getitem__, names)), np.uint8)


def read_columns(trace: list[Any], place: str) -> tuple[Events, Sequence[Any]]:
    """The columns but for the stacks, which are all 0, and each event's frames as they are."""

    def at(k: int) -> str:
        return f"{place}[{k}]"

    names = _column(trace, "action", at, required=True)
    if not set(map(type, names)) <= {str}:
        k = next(k for k, name in enumerate(names) if type(name) is not str)
        raise Fault.of(f"{at(k)}.action", names[k], "a string")
    action = action_codes(names)
    nowhere = np.isin(action, [int(a) for a in _NOWHERE])

    addr = _column(trace, "addr", at, default=0, may_lack=nowhere)
    size = _column(trace, "size", at, default=0, may_lack=action == Action.OTHER)
    stream = _column(trace, "stream", at, default=0)
    time_us = _column(trace, "time_us", at, default=-1)
    free = _column(trace, "device_free", at, default=-1)
    frames = _column(trace, "frames", at)

    events = Events(
        action=action,
        addr=_unsigned(addr, "addr", at),
        size=_signed(size, "size", at, low=0),
        stream=_unsigned(stream, "stream", at),
        time_us=_signed(time_us, "time_us", at, low=-1),
        stack=np.zeros(len(trace), np.int32),
        device_free=_signed(free, "device_free", at, low=-1),
    )
    return events, frames


def check_sizes(events: Events, place: str) -> None:
    """Fault where addresses or sizes are none that memory has, or would not sum within 64 bits.

    What an OOM event asked for was never given, and may be anything.
    """
    given = ~np.isin(events.action, [int(a) for a in _NOWHERE])
    for key, column, most in (
        ("addr", events.addr, MOST_ADDRESS),
        ("size", events.size, MOST_BYTES),
    ):
        if len(column) and column.max() > most and (wrong := given & (column > most)).any():
            k = int(wrong.argmax())
            raise Fault(f"{place}[{k}].{key} is {column[k]}, more than any memory has")
    if events.size.sum(dtype=np.float64, where=given) > MOST_SUM:
        raise Fault(f"the sizes in {place} sum to more than 64 bits hold")


def split_frees(events: Events) -> Events:
    """Two events for each of older torch's 'free'."""
    both = events.action == _BOTH
    if not both.any():
        return events
    rows = np.repeat(np.arange(len(events)), 1 + both)
    action = events.action[rows]
    first = np.flatnonzero(action == _BOTH)[::2]
    action[first] = Action.FREE_REQUESTED
    action[first + 1] = Action.FREE_COMPLETED
    return Events(
        action=action,
        addr=events.addr[rows],
        size=events.size[rows],
        stream=events.stream[rows],
        time_us=events.time_us[rows],
        stack=events.stack[rows],
        device_free=events.device_free[rows],
    )


def _column(
    trace: list[Any],
    key: str,
    at: Callable[[int], str],
    default: Any = None,
    required: bool = False,
    may_lack: Any = None,
) -> Sequence[Any]:
    """The values of one key, shape (n,). Only events where ``may_lack`` is set may lack it."""
    try:
        return list(map(itemgetter(key), trace))
    except (KeyError, TypeError, IndexError):
        pass
    for k, event in enumerate(trace):
        if type(event) is not dict:
            raise Fault.of(at(k), event, "a dict")
        if key not in event and (required or (may_lack is not None and not may_lack[k])):
            raise Fault(f"{at(k)}.{key} is missing")
    return [event.get(key, default) for event in trace]


def _signed(values: Sequence[Any], key: str, at: Callable[[int], str], low: int) -> Any:
    if set(map(type, values)) <= {int}:
        try:
            column = np.frombuffer(array("q", values), np.int64)
        except OverflowError:
            pass
        else:
            if not len(column) or column.min() >= low:
                return column
    return np.array(_checked(values, key, at, low, INT64), np.int64)


def _unsigned(values: Sequence[Any], key: str, at: Callable[[int], str]) -> Any:
    if set(map(type, values)) <= {int}:
        try:
            return np.frombuffer(array("Q", values), np.uint64)
        except OverflowError:
            pass
    return np.array(_checked(values, key, at, 0, UINT64), np.uint64)


def _checked(
    values: Sequence[Any], key: str, at: Callable[[int], str], low: int, high: int
) -> list[int]:
    """The slow path that finds the culprit."""
    return [integer(value, f"{at(k)}.{key}", low, high) for k, value in enumerate(values)]
