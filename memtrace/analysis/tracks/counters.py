"""Bytes over time: the totals, and what they consist of, group by group."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from memtrace.snapshot.columns import Int32, Int64
from memtrace.symbols import BLOCK_SLACK
from memtrace.timeline import Accounting, Replay, settle, sizes

OTHERS = "<others>"

# A name, the moments at which its bytes change, and what they then are; both columns (n,).
Counted = tuple[str, Int64, Int64]


def count_totals(run: Replay, begin: int, end: int) -> list[Counted]:
    """The totals that are known, at the moments where they change.

    ``begin`` and ``end`` are the first and last moment. Allocated bytes begin where they are known.
    """
    settled = settle(run, run.allocated_from)
    totals = (
        ("allocated", settled.allocated, settled.allocated_from if run.allocated is None else 0),
        ("requested", run.requested, 0),
        ("reserved", run.reserved, 0),
    )
    found = []
    for name, total, since in totals:
        first = max(begin, since)
        if total is not None and first <= end:
            moments = first + _changes(total[first : end + 1])
            found.append((name, moments, total[moments]))
    return found


def count_groups(
    run: Replay,
    accounting: Accounting,
    names: Sequence[str],
    group: Int32,
    begin: int,
    end: int,
    most: int | None = None,
) -> list[Counted]:
    """The bytes of each group of lifetimes, the one with the greatest maximum first.

    ``group[k]`` is the row in ``names`` of lifetime k. Bytes are requested ones, what the blocks
    hold beyond that is the group ``<block slack>``; so all groups sum to the total of
    ``accounting`` at every moment from ``begin`` to ``end``. Beyond ``most`` groups those with the
    smallest maxima are summed in ``<others>``.
    """
    rows = run.lifetimes
    gone = rows.freed if accounting == "allocated" else rows.completed
    alive = np.flatnonzero((rows.born < end) & (gone >= begin) & (gone > rows.born))
    slack = sizes(run, accounting)[alive] - rows.requested[alive]
    padded = np.flatnonzero(slack)
    names = [*names, BLOCK_SLACK]
    owner = np.concatenate((group[alive], np.full(len(padded), len(names) - 1)))
    size = np.concatenate((rows.requested[alive], slack[padded]))
    chosen = np.concatenate((alive, alive[padded]))
    # A lifetime counts at the moments born + 1 to gone.
    comes = np.maximum(rows.born[chosen] + 1, begin)
    goes = gone[chosen] + 1
    moment = np.concatenate((comes, goes))
    change = np.concatenate((size, -size))
    owner = np.concatenate((owner, owner))
    inside = moment <= end
    series = _sum_series(owner[inside], moment[inside], change[inside], begin)
    weight = {k: int(total.max()) for k, (_, total) in series.items()}
    order = sorted(weight, key=lambda k: (-weight[k], names[k]))
    if most is not None and len(order) > most:
        rest = np.isin(owner, order[most:]) & inside
        others = np.zeros(int(rest.sum()), np.int64)
        ((_, summed),) = _sum_series(others, moment[rest], change[rest], begin).items()
        return [*((names[k], *series[k]) for k in order[:most]), (OTHERS, *summed)]
    return [(names[k], *series[k]) for k in order]


def _sum_series(
    owner: Int64, moment: Int64, change: Int64, begin: int
) -> dict[int, tuple[Int64, Int64]]:
    """For each owner the moments at which its sum changes, ``begin`` first, and the sums."""
    order = np.lexsort((moment, owner))
    owner, moment, change = owner[order], moment[order], change[order]
    total = np.cumsum(change)
    found = {}
    bounds = np.append(np.flatnonzero(np.diff(owner, prepend=-1)), len(owner)).tolist()
    before = 0
    for low, high in pairwise(bounds):
        last = np.append(np.diff(moment[low:high]) != 0, True)  # of several changes at one moment
        moments, sums = moment[low:high][last], total[low:high][last] - before
        before = int(total[high - 1])
        if moments[0] > begin:
            moments, sums = np.append(begin, moments), np.append(0, sums)
        kept = _changes(sums)
        found[int(owner[low])] = (moments[kept], sums[kept])
    return found


def _changes(total: Int64) -> Int64:
    """The first row, and those that differ from the one before."""
    return np.append(0, np.flatnonzero(np.diff(total)) + 1)
