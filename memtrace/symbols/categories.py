"""What part a lifetime plays in the run, by evidence; OTHER where there is none.

Parameters, buffers, gradients and optimizer state are what the program itself holds under such a
name (``owners``). Saved for backward is what a forward pass made and a backward pass found alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from memtrace.snapshot.columns import Int32, Int64, Recording, UInt8
from memtrace.symbols import inductor
from memtrace.symbols.distinct import number_rows
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

CATEGORIES = (
    OTHER,
    PARAMETER,
    BUFFER,
    GRADIENT,
    OPTIMIZER,
    SAVED,
    INTERMEDIATE,
    TEMPORARY,
    INPUT,
    WORKSPACES,
    BEFORE_RECORDING,
)
_NUMBERS = {name: number for number, name in enumerate(CATEGORIES)}
_OWNED = {
    "parameter": PARAMETER,
    "buffer": BUFFER,
    "gradient": GRADIENT,
    "optimizer": OPTIMIZER,
}
_NEVER = -1  # a moment that a window does not have


class Categories:
    """The categories of one replay's lifetimes, looked up as they are asked for.

    ``owned`` are the lifetimes' rows in ``owners``, -1 for none; ``rows`` those in ``namings``.
    """

    def __init__(
        self,
        recording: Recording,
        replay: Replay,
        windows: list[Window],
        stacks: Stacks,
        owners: list[dict[str, Any]],
        owned: Int32,
        namings: list[Naming],
        rows: Int32,
    ) -> None:
        self._lifetimes = replay.lifetimes
        self._owned = owned
        self._owners = np.array([_NUMBERS[_OWNED[row["kind"]]] for row in owners], dtype=np.uint8)
        self._namings = namings
        self._rows = rows
        self._is_workspace = np.array([n.symbol == WORKSPACE.symbol for n in namings], dtype=bool)
        self._is_fusion = np.array(
            [n.symbol.compiler == "thunder" and "Fusion" in n.symbol.name for n in namings],
            dtype=bool,
        )
        self._stacks = stacks
        self._files: dict[str, int] = {"": 0}
        self._file_of: dict[int, int] = {}
        ordered = sorted(windows, key=lambda w: w.begin)
        self._begins = np.array([w.begin for w in ordered], dtype=np.int64)
        self._ends = np.array([w.end for w in ordered], dtype=np.int64)
        self._forward_ends = _moments([w.forward_end for w in ordered])
        self._backward_begins = _moments([w.backward_begin for w in ordered])
        facts = (recording.meta or {}).get("facts") or {}
        self._inputs = np.array(
            [
                Tensor(t["name"], tuple(t["shape"]), t["dtype"]).bytes
                for t in facts.get("inputs") or []
            ],
            dtype=np.int64,
        )

    def of(self, lifetimes: Iterable[int], at: int | None = None) -> list[str]:
        """The category of each of some lifetimes (row numbers of the replay).

        With ``at``, an event, the part they play then: what an iteration saved and did not let go
        by its end is not saved for the backward pass of a later one.
        """
        rows = np.fromiter(lifetimes, dtype=np.int64)
        return [CATEGORIES[number] for number in self.numbers(rows, at).tolist()]

    def numbers(self, rows: Int64, at: int | None = None) -> UInt8:
        """As ``of``, as places in CATEGORIES; same shape as ``rows``."""
        lifetimes = self._lifetimes
        born, freed = lifetimes.born[rows], lifetimes.freed[rows]
        window, inside = self._windows(born)
        found = np.full(len(rows), _NUMBERS[OTHER], dtype=np.uint8)
        # The weakest evidence first: what comes later is written over it.
        found[~inside & np.isin(lifetimes.requested[rows], self._inputs)] = _NUMBERS[INPUT]
        if len(self._begins):
            end, backward = self._forward_ends[window], self._backward_begins[window]
            both = (end != _NEVER) & (backward != _NEVER)
            saved = both & (born < end) & (freed >= backward)
            now = inside if at is None else inside & (self._ends[window] >= at)
            found[now & (freed <= self._ends[window])] = _NUMBERS[TEMPORARY]
            found[now & saved] = _NUMBERS[SAVED]
            where = np.flatnonzero(inside)
            found[where[self._are_intermediates(rows[where])]] = _NUMBERS[INTERMEDIATE]
        found[born < 0] = _NUMBERS[BEFORE_RECORDING]
        found[self._is_workspace[self._rows[rows]]] = _NUMBERS[WORKSPACES]
        owned = self._owned[rows]
        found[owned >= 0] = self._owners[owned[owned >= 0]]
        return found

    def _windows(self, events: Int64) -> tuple[Int64, npt.NDArray[np.bool_]]:
        """The iteration that each event lies in, and whether it lies in one."""
        at = np.searchsorted(self._begins, events, side="right") - 1
        if not len(self._begins):
            return at, np.zeros(len(events), dtype=bool)
        return at, (at >= 0) & (events < self._ends[at])

    def _are_intermediates(self, rows: Int64) -> npt.NDArray[np.bool_]:
        """Made within a fusion and gone before it ends, or nothing that the fusion returns."""
        lifetimes, naming = self._lifetimes, self._rows[rows]
        made = self._generated(lifetimes.stack[rows])
        found: npt.NDArray[np.bool_] = made > 0
        found &= made == self._generated(lifetimes.free_stack[rows])
        fusions = np.flatnonzero(self._is_fusion[naming])
        kinds, kind = number_rows(naming[fusions], lifetimes.requested[rows[fusions]])
        answers = [self._within_fusion(self._namings[row], size) for row, size in kinds]
        found[fusions] = np.array(answers, dtype=bool)[kind]
        return found

    def _within_fusion(self, naming: Naming, size: int) -> bool:
        """Whether a size is none of what a fusion returns, as far as that is known."""
        known = bool(naming.tensors) and all(t.bytes >= 0 for t in naming.tensors)
        return known and not naming.fitting(size)

    def _generated(self, stacks: Int32) -> Int64:
        """A number for the innermost file of Inductor's in each stack, 0 if there is none."""
        kinds, kind = number_rows(stacks)
        return np.array([self._file(stack) for (stack,) in kinds], dtype=np.int64)[kind]

    def _file(self, stack: int) -> int:
        if stack not in self._file_of:
            frames = self._stacks.python(stack)
            name = next((f.filename for f in frames if inductor.is_output_file(f.filename)), "")
            self._file_of[stack] = self._files.setdefault(name, len(self._files))
        return self._file_of[stack]


def _moments(moments: list[int | None]) -> Int64:
    return np.array([_NEVER if m is None else m for m in moments], dtype=np.int64)
