"""Gives every lifetime of a replay its symbol.

The evidence, strongest first: the innermost generated frame of the allocation's stack (Thunder's
trace, Inductor's output), the profiler's operator for what autograd's C++ nodes allocated, the
user's line for what PyTorch ran itself, and what the program held by name. What none of these
names stays ``<unattributed>``. Lifetimes of a part that was cut out of a recording have the names
that they had in the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from memtrace.distinct import Interner, number_rows
from memtrace.snapshot.columns import Frame, Int32, Recording
from memtrace.snapshot.generated import is_output_file
from memtrace.symbols import eager, inductor, thunder
from memtrace.symbols.categories import Categories, Places
from memtrace.symbols.forgotten import name_forgotten
from memtrace.symbols.inputs import find_inputs
from memtrace.symbols.likeness import find_alike
from memtrace.symbols.operators import FoundOperators, find_operators
from memtrace.symbols.owners import carry_owned, find_owned, name_owned
from memtrace.symbols.part import KeptCategories, kept_rows, read_namings
from memtrace.symbols.phases import PASSES, Phases
from memtrace.symbols.sources import Sources
from memtrace.symbols.stacks import Stacks
from memtrace.symbols.statements import Tensor
from memtrace.symbols.table import BEFORE, NOT_NAMED, WORKSPACE, Naming
from memtrace.symbols.workspaces import find_workspaces
from memtrace.timeline import Replay, Window, find_windows


@dataclass(frozen=True, slots=True)
class Attribution:
    """``rows[k]`` is the naming, in ``namings``, of the replay's lifetime k; shape (lifetimes,).

    ``alike`` is, for each stack of the recording, the first that names things alike.
    ``categories`` tells what part each lifetime plays. ``operators`` is what was asked for: whether
    names of allocations with a Python stack have the profiler's operator. ``windows``, ``sources``
    and ``stacks`` are the recording's, for whoever needs them again.
    """

    namings: list[Naming]
    rows: Int32
    categories: Categories
    operators: bool
    windows: tuple[Window, ...]
    sources: Sources
    stacks: Stacks
    alike: Int32

    def of(self, lifetime: int) -> Naming:
        """The naming of one lifetime."""
        return self.namings[int(self.rows[lifetime])]


def attribute(recording: Recording, replay: Replay, *, operators: bool = True) -> Attribution:
    """Names every lifetime of ``replay``.

    ``operators=False`` leaves the profiler's operator out of the names of allocations that have a
    Python stack, so that a recording without a profile gives the same names as one with it.
    """
    lifetimes = replay.lifetimes
    sources = Sources(recording.meta)
    stacks = Stacks(recording.stacks)
    alike = find_alike(recording.stacks)
    everything = find_windows(recording, replay)
    windows = [w for w in everything if w.kind == "iteration"]
    kept = kept_rows(recording, replay, operators=operators)
    if kept is not None:
        categories: Categories = KeptCategories(recording, replay)
        namings = read_namings((recording.meta or {})["part"])
        return Attribution(namings, kept, categories, operators, everything, sources, stacks, alike)
    made, freed = alike[lifetimes.stack], alike[lifetimes.free_stack]
    passes = Phases(recording, replay).at(lifetimes.born)
    names: Interner[Naming] = Interner()
    named = _name_generated(names, made, freed, stacks, sources)
    # What was there before, and nothing says by which stack, stays without a name.
    nameless = (lifetimes.born < 0) & (lifetimes.stack == 0)
    rest = np.flatnonzero(~nameless & (named < 0))
    found = find_operators(recording, replay, windows, stacks, made, rest)
    namer = _EagerNamer(stacks, sources, found, operators)
    kinds, kind = number_rows(made[rest], passes[rest], found.rows[rest])
    named[rest] = names.rows(namer.name(*one) for one in kinds)[kind]
    name_forgotten(recording, replay, windows, named, passes)
    named[nameless] = names.row(BEFORE)
    named[find_workspaces(recording, replay, windows, names.items, named)] = names.row(WORKSPACE)
    owners, owned = find_owned(recording, replay)
    owned = carry_owned(owners, owned, replay, windows, names.items, named)
    given = find_inputs(replay, windows, sources.inputs)
    table: Interner[Naming] = Interner()
    kinds, kind = number_rows(named, owned, passes, given.astype(np.int8))
    rows = table.rows(
        _complete(
            names.items[name],
            owners[owner] if owner >= 0 else None,
            sources.inputs if is_input else (),
            PASSES[phase],
        )
        for name, owner, phase, is_input in kinds
    )[kind]
    places = Places(stacks, made, freed)
    categories = Categories(replay, given, windows, places, owners, owned, table.items, rows)
    return Attribution(table.items, rows, categories, operators, everything, sources, stacks, alike)


def name_request(recording: Recording, replay: Replay, names: Attribution, event: int) -> Naming:
    """The naming of what an event of the device asks for, by its stack: of an OOM, say."""
    stack = int(recording.events[replay.device].stack[event])
    frames = names.stacks.python(stack)
    found = thunder.name_stack(frames, names.sources, True)
    found = found or inductor.name_stack(frames, names.sources, True)
    phase = int(Phases(recording, replay).at(np.array([event], dtype=np.int64))[0])
    if found is None:
        none = FoundOperators([], np.zeros(0, dtype=np.int32), {})
        namer = _EagerNamer(names.stacks, names.sources, none, names.operators)
        found = namer.name(stack, phase, -1)
    return _complete(found, None, (), PASSES[phase])


def _name_generated(
    names: Interner[Naming], made: Int32, freed: Int32, stacks: Stacks, sources: Sources
) -> Int32:
    """The naming of each lifetime whose stack ran generated code, -1 for the others.

    ``made`` and ``freed`` are the stacks of the allocations and of the frees.
    """
    kinds, kind = number_rows(made, freed)
    known: dict[tuple[int, bool], int] = {}
    rows = []
    for stack, free_stack in kinds:
        frames = stacks.python(stack)
        kept = _outlives(frames, stacks.python(free_stack))
        if (stack, kept) not in known:
            naming = thunder.name_stack(frames, sources, kept)
            naming = naming or inductor.name_stack(frames, sources, kept)
            known[stack, kept] = -1 if naming is None else names.row(naming)
        rows.append(known[stack, kept])
    return np.array(rows, dtype=np.int32)[kind]


def _outlives(made: Sequence[Frame], freed: Sequence[Frame]) -> bool:
    """Whether an allocation is freed elsewhere than in the file of Inductor's that made it."""
    file = next((frame.filename for frame in made if is_output_file(frame.filename)), None)
    return file is not None and all(frame.filename != file for frame in freed)


def _complete(
    naming: Naming,
    owner: dict[str, Any] | None,
    inputs: tuple[Tensor, ...],
    phase: str | None,
) -> Naming:
    """``naming`` with what the program calls it and, where nothing better told it, the pass."""
    if inputs and not naming.tensors:
        naming = replace(naming, tensors=inputs)
    if owner is not None:
        naming = name_owned(owner, NOT_NAMED if naming is WORKSPACE else naming)
    if naming.symbol.phase is None and naming.symbol.compiler and naming is not WORKSPACE:
        return replace(naming, symbol=replace(naming.symbol, phase=phase))
    return naming


class _EagerNamer:
    """Names allocations outside generated code."""

    def __init__(
        self, stacks: Stacks, sources: Sources, found: FoundOperators, operators: bool
    ) -> None:
        self._stacks = stacks
        self._sources = sources
        self._found = found
        self._operators = operators

    def name(self, stack: int, phase_row: int, operator_row: int) -> Naming:
        """The naming of a stack, a row of PASSES and a row of the found operators (-1: none)."""
        frames = self._stacks.python(stack)
        if self._stacks.workspace(stack):
            return WORKSPACE
        phase = PASSES[phase_row]
        seen = self._found.operators[operator_row] if operator_row >= 0 else None
        operator = seen or self._stacks.native(stack)
        if eager.is_engine(frames):
            if operator is None:
                if not frames:
                    return NOT_NAMED
                return eager.name_stack(frames, phase, "", "", self._sources)
            forward = self._found.forward.get(operator.forward, ())
            return eager.name_node(operator, phase, forward, self._sources)
        layer = operator.layer if operator else ""
        name = operator.name if operator and self._operators else ""
        return eager.name_stack(frames, phase, name, layer, self._sources)
