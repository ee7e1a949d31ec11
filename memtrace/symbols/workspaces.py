"""Which allocations are workspaces of cuBLAS and cuBLASLt.

torch gives each handle and stream one, of a known size, at its first matrix product and for good.
No frame of Python tells it from what that product makes; that no later iteration makes one like it
at the same place does.
"""

from __future__ import annotations

import numpy as np

from memtrace.snapshot.columns import Int32, Int64, Recording
from memtrace.symbols.table import NOT_NAMED, Naming
from memtrace.timeline import Replay, Window

# What torch 2.11 gives cuBLASLt, in captures that do not say it.
_LT_BYTES = 1 << 20


def find_workspaces(
    recording: Recording,
    replay: Replay,
    windows: list[Window],
    namings: list[Naming],
    named: Int32,
) -> Int64:
    """The lifetimes that are workspaces.

    ``named`` are the rows in ``namings`` of all lifetimes by other evidence.
    """
    facts = (recording.meta or {}).get("facts") or {}
    size = facts.get("cublas_workspace_bytes")
    if not size:
        return np.zeros(0, dtype=np.int64)
    sizes = {size, facts.get("cublaslt_workspace_bytes", _LT_BYTES)}
    found = [_of_size(one, replay, windows, namings, named) for one in sorted(sizes)]
    return np.array([k for rows in found for k in rows], dtype=np.int64)


def _of_size(
    size: int, replay: Replay, windows: list[Window], namings: list[Naming], named: Int32
) -> list[int]:
    lifetimes = replay.lifetimes
    sized = np.flatnonzero(lifetimes.requested == size)
    staying = sized[(lifetimes.freed[sized] == replay.n_events) & (lifetimes.born[sized] >= 0)]
    births = lifetimes.born[sized]
    numbers: dict[str, int] = {}
    line = np.array([numbers.setdefault(_place(n), len(numbers)) for n in namings])
    lines = line[named[sized]]
    found = []
    for k in staying.tolist():
        naming, born = namings[named[k]], int(lifetimes.born[k])
        later = [w for w in windows if w.begin > born and w.whole]
        alike = lines == line[named[k]]
        again = bool(later) and bool(np.any(alike & (births >= later[0].begin)))
        within = any(w.begin <= born < w.end for w in windows)
        if naming == NOT_NAMED or _unfit(naming, size) or (within and later and not again):
            found.append(k)
    return found


def _place(naming: Naming) -> str:
    """Where a naming is from: the model's line, since names of operators are not always known."""
    return naming.symbol.line or naming.symbol.text


def _unfit(naming: Naming, size: int) -> bool:
    """Whether a statement whose tensors are all known makes none of this size."""
    return bool(naming.tensors) and all(t.bytes not in (size, -1) for t in naming.tensors)
