"""What part a lifetime plays in the run, by evidence; OTHER where there is none.

Parameters, buffers, gradients and optimizer state are what the program itself holds under such a
name (``owners``). Saved for backward is what was there before a backward pass of its iteration and
was let go in it: what the program itself keeps until later may be saved as well, but nothing says
so.
What one statement of generated code makes and frees again before it is done, it does not return:
the inside of a fusion, or the workspace of an operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from memtrace.distinct import number_rows
from memtrace.snapshot.columns import Int32, Int64, UInt8
from memtrace.snapshot.generated import is_output_file
from memtrace.symbols import thunder
from memtrace.symbols.stacks import Stacks
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


class Categories:
    """The categories of one replay's lifetimes, looked up as they are asked for.

    ``inputs`` tells which lifetimes are batches, shape (lifetimes,);
    ``owned`` are the lifetimes' rows in ``owners``, -1 for none; ``rows`` those in ``namings``.
    """

    def __init__(
        self,
        replay: Replay,
        inputs: npt.NDArray[np.bool_],
        windows: list[Window],
        places: Places,
        owners: list[dict[str, Any]],
        owned: Int32,
        namings: list[Naming],
        rows: Int32,
    ) -> None:
        self._lifetimes = replay.lifetimes
        self._never = replay.n_events  # "freed" of what is alive at the end
        self._owned = owned
        self._owners = np.array([_NUMBERS[_OWNED[row["kind"]]] for row in owners], dtype=np.uint8)
        self._namings = namings
        self._rows = rows
        self._is_workspace = np.array([n.symbol == WORKSPACE.symbol for n in namings], dtype=bool)
        self._is_fusion = np.array(
            [n.symbol.compiler == "thunder" and "Fusion" in n.symbol.name for n in namings],
            dtype=bool,
        )
        self._places = places
        ordered = sorted(windows, key=lambda w: w.begin)
        self._begins = np.array([w.begin for w in ordered], dtype=np.int64)
        self._ends = np.array([w.end for w in ordered], dtype=np.int64)
        passes = [
            (phase.begin, phase.end, k)
            for k, window in enumerate(ordered)
            for phase in sorted(window.phases, key=lambda p: p.begin)
            if phase.name == "backward"
        ]
        # Columns: begin, end, row of the iteration.
        self._backwards = np.array(passes, dtype=np.int64).reshape(-1, 3)
        self._inputs = inputs

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
        found[self._inputs[rows]] = _NUMBERS[INPUT]
        if len(self._begins):
            now = inside if at is None else inside & (self._ends[window] >= at)
            gone = (freed <= self._ends[window]) & (freed < self._never)
            found[now & gone] = _NUMBERS[TEMPORARY]
            found[now & self._are_saved(born, freed, window)] = _NUMBERS[SAVED]
            where = np.flatnonzero(inside)
            intermediate, workspace = self._within(rows[where])
            found[where[intermediate]] = _NUMBERS[INTERMEDIATE]
            found[where[workspace]] = _NUMBERS[WORKSPACES]
        before = (born < 0) & (lifetimes.stack[rows] == 0)
        found[before] = _NUMBERS[BEFORE_RECORDING]
        found[self._is_workspace[self._rows[rows]]] = _NUMBERS[WORKSPACES]
        owned = self._owned[rows]
        found[owned >= 0] = self._owners[owned[owned >= 0]]
        return found

    def turns(self, rows: Int64) -> Int64:
        """The moment up to which each lifetime plays the part it was made for.

        That is its iteration's end; -1 for those of no iteration, which play one part always.
        """
        window, inside = self._windows(self._lifetimes.born[rows])
        if not len(self._ends):
            return np.full(len(rows), -1, dtype=np.int64)
        return np.where(inside, self._ends[window], -1)

    def _are_saved(self, born: Int64, freed: Int64, window: Int64) -> npt.NDArray[np.bool_]:
        """Made in an iteration before one of its backward passes, and let go in that."""
        if not len(self._backwards):
            return np.zeros(len(born), dtype=bool)
        begins, ends, iterations = self._backwards.T
        at = np.searchsorted(begins, freed, side="right") - 1
        within: npt.NDArray[np.bool_] = np.array(at >= 0, dtype=bool)
        within &= (born < begins[at]) & (freed < ends[at]) & (iterations[at] == window)
        return within

    def _windows(self, events: Int64) -> tuple[Int64, npt.NDArray[np.bool_]]:
        """The iteration that each event lies in, and whether it lies in one."""
        at = np.searchsorted(self._begins, events, side="right") - 1
        if not len(self._begins):
            return at, np.zeros(len(events), dtype=bool)
        return at, (at >= 0) & (events < self._ends[at])

    def _within(self, rows: Int64) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """What lies within a fusion, and what within an operator that generated code calls.

        Within a fusion: made and freed in one file of Inductor's, or by one statement that is a
        fusion, or of a size that the fusion does not return.
        """
        lifetimes, naming = self._lifetimes, self._rows[rows]
        made, freed = self._places.of(rows)
        fusion = self._is_fusion[naming]
        # Columns: the innermost generated statement, and Inductor's file.
        once = (made[:, 0] > 0) & (made[:, 0] == freed[:, 0])
        workspace: npt.NDArray[np.bool_] = once & ~fusion
        within: npt.NDArray[np.bool_] = (made[:, 1] > 0) & (made[:, 1] == freed[:, 1]) & ~once
        fusions = np.flatnonzero(fusion)
        kinds, kind = number_rows(naming[fusions], lifetimes.requested[rows[fusions]])
        answers = [self._within_fusion(self._namings[row], size) for row, size in kinds]
        within[fusions] = np.array(answers, dtype=bool)[kind] | once[fusions]
        return within, workspace

    def _within_fusion(self, naming: Naming, size: int) -> bool:
        """Whether a size is none of what a fusion returns, as far as that is known."""
        known = bool(naming.tensors) and all(t.bytes >= 0 for t in naming.tensors)
        return known and not naming.fitting(size)


class Places:
    """Numbers for lifetimes' innermost generated statements and Inductor's files, 0: none.

    ``made`` and ``freed`` are the stacks of the lifetimes' allocations and of their frees.
    """

    def __init__(self, stacks: Stacks, made: Int32, freed: Int32) -> None:
        self._stacks = stacks
        self._made, self._freed = made, freed
        self._names: dict[str, int] = {"": 0}
        self._place_of: dict[int, tuple[int, int]] = {}

    def of(self, rows: Int64) -> tuple[Int64, Int64]:
        """Where some lifetimes were made, and where freed; each of shape (n, 2)."""
        return self._places(self._made[rows]), self._places(self._freed[rows])

    def _places(self, stacks: Int32) -> Int64:
        kinds, kind = number_rows(stacks)
        places = np.array([self._place(stack) for (stack,) in kinds], dtype=np.int64)
        return places.reshape(-1, 2)[kind]

    def _place(self, stack: int) -> tuple[int, int]:
        if stack not in self._place_of:
            frames = self._stacks.python(stack)
            inner = next((f for f in frames if is_output_file(f.filename)), None)
            traced = next((f for f in frames if thunder.is_trace_file(f.filename)), None)
            frame = inner or traced
            statement = f"{frame.filename}:{frame.line}" if frame else ""
            self._place_of[stack] = (
                self._number(statement),
                self._number(inner.filename if inner else ""),
            )
        return self._place_of[stack]

    def _number(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))
