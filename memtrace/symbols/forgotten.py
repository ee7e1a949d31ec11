"""Names for what was made in iterations that the recorder forgot: ``record --window last:3``.

Their marks are gone, and with them the pass and the operator of what they left behind; or they are
older than the history, and only the blocks that are left bear their stacks. But a loop does the
same again and again: what the same stack made of the same size in the iterations that are known
tells both, if it is always the same.
"""

from __future__ import annotations

import numpy as np

from memtrace.distinct import number_rows
from memtrace.snapshot.columns import Int32, Int64, Recording
from memtrace.symbols.owners import members_of
from memtrace.timeline import Replay, Window
from memtrace.timeline.moments import Moments


def name_forgotten(
    recording: Recording, replay: Replay, windows: list[Window], named: Int32, passes: Int64
) -> None:
    """Fills in the rows of ``named`` and ``passes``, shape (lifetimes,), for those lifetimes."""
    lifetimes = replay.lifetimes
    forgotten = (lifetimes.born < 0) & (lifetimes.stack > 0)
    if steps := (recording.meta or {}).get("steps"):
        moments = Moments(recording, replay)
        begin, end = moments.at_mark(steps["mark"] - 1), moments.at_mark(steps["mark"])
        if begin is not None and end is not None:
            forgotten |= (lifetimes.born >= begin) & (lifetimes.born < end)
    lost = np.flatnonzero(forgotten)
    if not len(lost):
        return
    known = np.concatenate(
        [np.arange(*bounds, dtype=np.int64) for bounds in members_of(lifetimes.born, windows)]
        or [lost[:0]]
    )
    _, kind = number_rows(lifetimes.stack, lifetimes.requested)
    found: dict[int, set[tuple[int, int]]] = {}
    for row in known.tolist():
        found.setdefault(int(kind[row]), set()).add((int(named[row]), int(passes[row])))
    for row in lost.tolist():
        names = found.get(int(kind[row]), set())
        if len(names) == 1:
            named[row], passes[row] = next(iter(names))
