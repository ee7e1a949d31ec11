"""Which lifetimes are the batches that the script calls its model with.

Nothing holds a batch by name, but its shapes are known, and it is made outside of the iterations:
what has an input's size there is taken for one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from memtrace.symbols.owners import members_of
from memtrace.symbols.statements import Tensor
from memtrace.timeline import Replay, Window


def find_inputs(
    replay: Replay, windows: Sequence[Window], inputs: Sequence[Tensor]
) -> npt.NDArray[np.bool_]:
    """Whether each lifetime is an input; shape (lifetimes,). ``windows`` are the iterations."""
    lifetimes = replay.lifetimes
    found = np.isin(lifetimes.requested, [t.bytes for t in inputs]) & (lifetimes.born >= 0)
    for first, last in members_of(lifetimes.born, windows):
        found[first:last] = False
    return found
