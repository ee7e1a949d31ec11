"""Gives every lifetime of a replay its symbol.

The evidence, strongest first: the innermost generated frame of the allocation's stack (Thunder's
trace, Inductor's output), the profiler's operator for what autograd's C++ nodes allocated, the
user's line for what PyTorch ran itself, and what the program held by name. What none of these
names stays ``<unattributed>``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memtrace.snapshot.columns import Frame, Int32, Recording
from memtrace.symbols import eager, inductor, thunder
from memtrace.symbols.alignment import align
from memtrace.symbols.categories import Categories
from memtrace.symbols.owners import carry_owned, find_owned, name_owned
from memtrace.symbols.phases import Phases
from memtrace.symbols.profiled import Operators, match_memory
from memtrace.symbols.sources import Sources
from memtrace.symbols.stacks import Operator, Stacks
from memtrace.symbols.table import BEFORE, NOT_NAMED, WORKSPACE, Naming
from memtrace.symbols.workspaces import find_workspaces
from memtrace.timeline import Lifetimes, Replay, Window, find_windows


@dataclass(frozen=True, slots=True)
class Attribution:
    """``rows[k]`` is the naming, in ``namings``, of the replay's lifetime k; shape (lifetimes,).

    ``categories`` tells what part each lifetime plays.
    """

    namings: list[Naming]
    rows: Int32
    categories: Categories

    def of(self, lifetime: int) -> Naming:
        """The naming of one lifetime."""
        return self.namings[int(self.rows[lifetime])]


class _Interner:
    def __init__(self) -> None:
        self.items: list[Naming] = []
        self._rows: dict[Naming, int] = {}

    def row(self, naming: Naming) -> int:
        row = self._rows.setdefault(naming, len(self.items))
        if row == len(self.items):
            self.items.append(naming)
        return row


def attribute(recording: Recording, replay: Replay, *, operators: bool = True) -> Attribution:
    """Names every lifetime of ``replay``.

    ``operators=False`` leaves the profiler's operator out of the names of allocations that have a
    Python stack, so that a recording without a profile gives the same names as one with it.
    """
    lifetimes = replay.lifetimes
    sources = Sources(recording.meta)
    stacks = Stacks(recording.stacks)
    phases = Phases(recording, replay)
    passes = phases.at(lifetimes.born)
    generated = _name_generated(lifetimes, stacks, sources)
    eager_rows = [
        k
        for k, (born, stack) in enumerate(
            zip(lifetimes.born.tolist(), lifetimes.stack.tolist(), strict=True)
        )
        if born >= 0 and generated[stack] is None
    ]
    windows = [w for w in find_windows(recording, replay) if w.kind == "iteration"]
    found = _find_operators(recording, replay, windows, stacks, eager_rows)
    namer = _EagerNamer(stacks, sources, found.line, operators)
    named: list[Naming] = []
    births = zip(lifetimes.born.tolist(), lifetimes.stack.tolist(), strict=True)
    for k, (born, stack) in enumerate(births):
        if born < 0:
            named.append(BEFORE)
        else:
            operator = found.operators.get(k)
            named.append(generated[stack] or namer.name(stack, passes[k], operator))
    for k in find_workspaces(recording, replay, windows, named):
        named[k] = WORKSPACE
    owned = carry_owned(find_owned(recording, replay), replay, windows, named)
    table = _Interner()
    rows = []
    for k, naming in enumerate(named):
        if k in owned:
            naming = name_owned(owned[k], NOT_NAMED if naming is WORKSPACE else naming)
        if naming.symbol.phase is None and naming.symbol.compiler and naming is not WORKSPACE:
            naming = replace(naming, symbol=replace(naming.symbol, phase=passes[k]))
        rows.append(table.row(naming))
    columns = np.array(rows, dtype=np.int32)
    categories = Categories(recording, replay, windows, owned, table.items, columns)
    return Attribution(table.items, columns, categories)


def _name_generated(
    lifetimes: Lifetimes, stacks: Stacks, sources: Sources
) -> dict[int, Naming | None]:
    """The naming of each stack in use that ran generated code, None for the others."""
    names: dict[int, Naming | None] = {}
    for stack in np.unique(lifetimes.stack).tolist():
        frames = stacks.python(stack)
        names[stack] = thunder.name_stack(frames, sources) or inductor.name_stack(frames, sources)
    return names


class _EagerNamer:
    """Names allocations outside generated code, once for each stack, pass and operator."""

    def __init__(
        self,
        stacks: Stacks,
        sources: Sources,
        forward_line: Callable[[int], Sequence[Frame]],
        operators: bool,
    ) -> None:
        self._stacks = stacks
        self._sources = sources
        self._forward_frames = forward_line
        self._operators = operators
        self._known: dict[tuple[int, str | None, Operator | None], Naming] = {}

    def name(self, stack: int, phase: str | None, operator: Operator | None) -> Naming:
        key = (stack, phase, operator)
        if key not in self._known:
            self._known[key] = self._make(*key)
        return self._known[key]

    def _make(self, stack: int, phase: str | None, operator: Operator | None) -> Naming:
        frames = self._stacks.python(stack)
        if self._stacks.workspace(stack):
            return WORKSPACE
        operator = operator or self._stacks.native(stack)
        if eager.is_engine(frames):
            if operator is None:
                if not frames:
                    return NOT_NAMED
                return eager.name_stack(frames, phase, "", "", self._sources)
            forward = self._forward_frames(operator.forward)
            return eager.name_node(operator, phase, forward, self._sources)
        layer = operator.layer if operator else ""
        name = operator.name if operator and self._operators else ""
        return eager.name_stack(frames, phase, name, layer, self._sources)


@dataclass(frozen=True, slots=True)
class _Found:
    operators: dict[int, Operator]  # by lifetime
    line: Callable[[int], Sequence[Frame]]  # frames of an allocation within a forward operator


def _find_operators(
    recording: Recording,
    replay: Replay,
    windows: list[Window],
    stacks: Stacks,
    eager_rows: list[int],
) -> _Found:
    """The operator of each eager lifetime, seen in one iteration and carried to the others."""
    profile = recording.meta.get("profile") if recording.meta else None
    profiled = next((w for w in windows if w.profiled), None)
    if profile is None or profiled is None:
        return _Found({}, lambda row: ())
    lifetimes = replay.lifetimes
    born = lifetimes.born
    operators = Operators(profile["ops"])
    inside = np.flatnonzero((born >= profiled.begin) & (born < profiled.end))
    device = (
        -1 if recording.meta and recording.meta["facts"].get("device") == "cpu" else replay.device
    )
    matched = match_memory(profile["memory"], device, lifetimes.address[inside], inside)
    named: dict[int, Operator] = {}
    for k, row in matched.items():
        if (operator := operators.describe(row)) is not None:
            named[k] = operator
    eager = np.array(eager_rows, dtype=np.int64)
    keys = list(
        zip(
            lifetimes.requested[eager].tolist(),
            _line_keys(stacks, lifetimes, eager),
            strict=True,
        )
    )
    model = [i for i, k in enumerate(eager_rows) if profiled.begin <= born[k] < profiled.end]
    found = {eager_rows[i]: named[eager_rows[i]] for i in model if eager_rows[i] in named}
    for window in windows:
        if window is profiled:
            continue
        other = [i for i, k in enumerate(eager_rows) if window.begin <= born[k] < window.end]
        if [keys[i][1] for i in model] == [keys[i][1] for i in other]:
            pairs = [(k, k) for k in range(len(model))]  # alike but for sizes: another batch
        else:
            pairs = align([keys[i] for i in model], [keys[i] for i in other])
        for a, b in pairs:
            if (operator := named.get(eager_rows[model[a]])) is not None:
                found[eager_rows[other[b]]] = operator
    forward = _forward_stacks(operators, matched, lifetimes)
    return _Found(found, lambda row: stacks.python(forward[row]) if row in forward else ())


def _line_keys(stacks: Stacks, lifetimes: Lifetimes, rows: np.ndarray) -> list[int]:
    """A key for each lifetime's stack that leaves out how the iteration was called."""
    keys: dict[tuple[Frame, ...], int] = {}
    by_stack = {
        stack: keys.setdefault(tuple(stacks.python(stack)[:2]), len(keys))
        for stack in np.unique(lifetimes.stack[rows]).tolist()
    }
    return [by_stack[stack] for stack in lifetimes.stack[rows].tolist()]


def _forward_stacks(
    operators: Operators, matched: dict[int, int], lifetimes: Lifetimes
) -> dict[int, int]:
    """For each operator around an allocation with a stack, that stack (the model's line)."""
    forward: dict[int, int] = {}
    for k, row in matched.items():
        stack = int(lifetimes.stack[k])
        while stack and row >= 0:
            forward.setdefault(row, stack)
            row = operators.parent(row)
    return forward
