"""Which allocations are workspaces of cuBLAS.

torch gives each cuBLAS handle and stream one, of a known size, at its first matrix product and for
good. No frame of Python tells it from what that product makes; that no later iteration makes one
like it at the same place does.
"""

from __future__ import annotations

import numpy as np

from memtrace.snapshot.columns import Recording
from memtrace.symbols.table import NOT_NAMED, Naming
from memtrace.timeline import Replay, Window


def find_workspaces(
    recording: Recording, replay: Replay, windows: list[Window], named: list[Naming]
) -> list[int]:
    """The lifetimes that are workspaces; ``named`` are the names of all by other evidence."""
    size = ((recording.meta or {}).get("facts") or {}).get("cublas_workspace_bytes")
    if not size:
        return []
    lifetimes = replay.lifetimes
    sized = np.flatnonzero(lifetimes.requested == size)
    staying = sized[(lifetimes.freed[sized] == replay.n_events) & (lifetimes.born[sized] >= 0)]
    births = lifetimes.born[sized].tolist()
    found = []
    for k in staying.tolist():
        naming, born = named[k], int(lifetimes.born[k])
        later = [w for w in windows if w.begin > born and w.whole]
        again = any(
            named[other].symbol.line == naming.symbol.line
            for other, event in zip(sized.tolist(), births, strict=True)
            if later and event >= later[0].begin
        )
        within = any(w.begin <= born < w.end for w in windows)
        if naming is NOT_NAMED or _unfit(naming, size) or (within and later and not again):
            found.append(k)
    return found


def _unfit(naming: Naming, size: int) -> bool:
    """Whether a statement whose tensors are all known makes none of this size."""
    return bool(naming.tensors) and all(t.bytes not in (size, -1) for t in naming.tensors)
