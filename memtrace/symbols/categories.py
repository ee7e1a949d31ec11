"""What part a lifetime plays in the run, by evidence; OTHER where there is none.

Parameters, buffers, gradients and optimizer state are what the program itself holds under such a
name (``owners``). Saved for backward is what a forward pass made and a backward pass found alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from memtrace.snapshot.columns import Recording
from memtrace.symbols import inductor
from memtrace.symbols.stacks import Stacks
from memtrace.symbols.statements import Tensor
from memtrace.symbols.table import WORKSPACE, Naming
from memtrace.timeline import Replay, Window

PARAMETER = "parameter"
BUFFER = "buffer"
GRADIENT = "gradient"
OPTIMIZER = "optimizer state"
SAVED = "saved for backward"
INTERMEDIATE = "fusion intermediate"
TEMPORARY = "temporary"
INPUT = "input"
WORKSPACES = "workspace"
BEFORE_RECORDING = "before recording"
OTHER = "other"

_OWNED = {
    "parameter": PARAMETER,
    "buffer": BUFFER,
    "gradient": GRADIENT,
    "optimizer": OPTIMIZER,
}


class Categories:
    """The categories of one replay's lifetimes, looked up as they are asked for."""

    def __init__(
        self,
        recording: Recording,
        replay: Replay,
        windows: list[Window],
        owned: Mapping[int, Mapping[str, Any]],
        namings: list[Naming],
        rows: Any,
    ) -> None:
        self._lifetimes = replay.lifetimes
        self._owned = owned
        self._namings = namings
        self._rows = rows
        self._stacks = Stacks(recording.stacks)
        self._windows: list[Window] = sorted(windows, key=lambda w: w.begin)
        self._begins = np.array([w.begin for w in self._windows], dtype=np.int64)
        facts = (recording.meta or {}).get("facts") or {}
        self._inputs = {
            Tensor(t["name"], tuple(t["shape"]), t["dtype"]).bytes
            for t in facts.get("inputs") or []
        }

    def of(self, lifetimes: Iterable[int], at: int | None = None) -> list[str]:
        """The category of each of some lifetimes (row numbers of the replay).

        With ``at``, an event, the part they play then: what an iteration saved and did not let go
        by its end is not saved for the backward pass of a later one.
        """
        return [self._one(k, at) for k in lifetimes]

    def _one(self, k: int, at: int | None) -> str:
        naming = self._namings[self._rows[k]]
        if k in self._owned:
            return _OWNED[self._owned[k]["kind"]]
        if naming.symbol == WORKSPACE.symbol:
            return WORKSPACES
        born, freed = int(self._lifetimes.born[k]), int(self._lifetimes.freed[k])
        if born < 0:
            return BEFORE_RECORDING
        window = self._window(born)
        if window is None:
            return INPUT if int(self._lifetimes.requested[k]) in self._inputs else OTHER
        if self._is_intermediate(k, naming):
            return INTERMEDIATE
        end, backward = window.forward_end, window.backward_begin
        if at is not None and at > window.end:
            return OTHER
        if end is not None and backward is not None and born < end and freed >= backward:
            return SAVED
        return TEMPORARY if freed <= window.end else OTHER

    def _window(self, event: int) -> Window | None:
        """The iteration that an event lies in."""
        at = int(np.searchsorted(self._begins, event, side="right")) - 1
        if at < 0 or event >= self._windows[at].end:
            return None
        return self._windows[at]

    def _is_intermediate(self, k: int, naming: Naming) -> bool:
        """Made within a fusion and gone before it ends, or nothing that the fusion returns."""
        if naming.symbol.compiler == "thunder" and "Fusion" in naming.symbol.name:
            known = naming.tensors and all(t.bytes >= 0 for t in naming.tensors)
            return bool(known and not naming.fitting(int(self._lifetimes.requested[k])))
        made = self._generated(int(self._lifetimes.stack[k]))
        return bool(made) and made == self._generated(int(self._lifetimes.free_stack[k]))

    def _generated(self, stack: int) -> str:
        """The innermost file of Inductor's in a stack, '' if there is none."""
        frames = self._stacks.python(stack)
        return next((f.filename for f in frames if inductor.is_output_file(f.filename)), "")
