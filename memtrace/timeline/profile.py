"""The replayed block sizes against those that torch's profiler saw.

The profiler's [memory] events carry whole blocks (``alloc_found_block`` and ``free`` report
``block->size`` to it), recorded by other code than the allocator's history.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from memtrace.snapshot.columns import Recording
from memtrace.timeline.replay import Replay
from memtrace.timeline.windows import find_windows


class ProfileCheck(NamedTuple):
    """Allocations of the profiled iteration whose block size was compared, and how many differ.

    ``unmatched`` are those the profiler or the history alone has: the profiler starts and stops a
    little off the iteration's ends.
    """

    compared: int
    disagreements: int
    unmatched: int


def cross_check_profile(recording: Recording, replay: Replay) -> ProfileCheck | None:
    """Compares block sizes in the profiled iteration; None where there is nothing to compare.

    The i-th allocation at an address is the profiler's i-th there. Where their numbers differ at
    an address, the sizes must still come in the same order: the longest run of one in the other.
    """
    profile: dict[str, Any] | None = (recording.meta or {}).get("profile")
    if profile is None or replay.reserved is None:
        return None
    memory = profile["memory"]
    window = next(
        (
            w
            for w in find_windows(recording, replay)
            if w.kind == "iteration" and w.index == profile["iteration"]
        ),
        None,
    )
    if window is None:
        return None
    theirs: dict[int, list[int]] = {}
    for address, size, device in zip(
        memory["addr"], memory["bytes"], memory["device"], strict=True
    ):
        if device == replay.device and size > 0:
            theirs.setdefault(address, []).append(size)
    if not theirs:
        return None
    ours: dict[int, list[int]] = {}
    rows = replay.lifetimes
    inside = np.flatnonzero(
        (rows.born >= window.begin) & (rows.born < window.end) & (rows.block >= 0)
    )
    for address, block in zip(
        rows.address[inside].tolist(), rows.block[inside].tolist(), strict=True
    ):
        ours.setdefault(address, []).append(block)
    compared = disagreements = unmatched = 0
    for address in theirs.keys() | ours.keys():
        a, b = ours.get(address, []), theirs.get(address, [])
        pairs = min(len(a), len(b))
        compared += pairs
        unmatched += max(len(a), len(b)) - pairs
        disagreements += _fewest_differences(*sorted((a, b), key=len))
    return ProfileCheck(compared, disagreements, unmatched)


def _fewest_differences(short: list[int], long: list[int]) -> int:
    """Differences at the offset where ``short`` fits ``long`` best (the stretches' ends differ)."""
    return min(
        sum(x != y for x, y in zip(short, long[k:], strict=False))
        for k in range(len(long) - len(short) + 1)
    )
