"""A file that shows a fault, made smaller as long as it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.hostile.mutators import load, pickle_of

Fails = Callable[[bytes], bool]


def minimise(data: bytes, fails: Fails, seconds: float) -> bytes:
    """The smallest file found in so many seconds by leaving things out; ``data`` itself fails."""
    end = time.time() + seconds
    smaller = True
    while smaller and time.time() < end:
        smaller = False
        for candidate in _smaller(data):
            if time.time() > end:
                break
            if len(candidate) < len(data) and fails(candidate):
                data, smaller = candidate, True
                break
    return data


def _smaller(data: bytes) -> Iterator[bytes]:
    """Files with something left out, the most first: items of the objects, or else bytes."""
    whole = load(data)
    if whole is None:
        size = len(data) // 2
        while size:
            for begin in range(0, len(data), size):
                yield data[:begin] + data[begin + size :]
            size //= 2
        return
    containers = sorted(_containers(whole), key=len, reverse=True)
    for container in containers:
        if type(container) is list:
            yield from _without_runs(container, whole)
    for container in containers:
        if type(container) is dict:
            for key in list(container):
                value = container.pop(key)
                yield pickle_of(whole)
                container[key] = value


def _without_runs(items: list[Any], whole: Any) -> Iterator[bytes]:
    before = list(items)
    size = len(items)
    while size:
        for begin in range(0, len(before), size):
            items[:] = before[:begin] + before[begin + size :]
            yield pickle_of(whole)
            items[:] = before
        size //= 2


def _containers(whole: Any) -> list[Any]:
    """Every list and dict once, what they lie in first."""
    found: dict[int, Any] = {}
    waiting = [whole]
    while waiting:
        inner = waiting.pop(0)
        if type(inner) in (list, dict) and id(inner) not in found:
            found[id(inner)] = inner
            waiting += inner.values() if type(inner) is dict else inner
    return list(found.values())
