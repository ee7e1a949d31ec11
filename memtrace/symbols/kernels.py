"""Names the kernels, copies and memsets of the profiled iteration, with the launch as proof.

A kernel belongs to what ran on its launching thread: the innermost line of generated code, which
gives the symbol that the memory made there has; else the operator or autograd node; else the
kernel's own name. What was launched before the iteration stays ``<unattributed>``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memtrace.distinct import Interner
from memtrace.snapshot.columns import Frame, Int32, Int64, Recording
from memtrace.snapshot.generated import is_generated, is_output_file
from memtrace.symbols import eager, inductor, thunder
from memtrace.symbols.filled import Filled
from memtrace.symbols.launches import find_launches
from memtrace.symbols.likeness import find_alike
from memtrace.symbols.operators import forward_frames
from memtrace.symbols.part import kept_kernels
from memtrace.symbols.phases import PassTimes
from memtrace.symbols.profiled import Operators
from memtrace.symbols.sources import Sources
from memtrace.symbols.stacks import Stacks
from memtrace.symbols.table import NOT_NAMED, Naming, Symbol
from memtrace.symbols.traffic import Traffic
from memtrace.timeline import Replay, find_windows

if TYPE_CHECKING:
    from memtrace.symbols.attribution import Attribution

_TEMPLATE = re.compile(r"(?s)[<(].*")


@dataclass(frozen=True, slots=True)
class KernelNames:
    """``rows[k]`` is the naming, in ``namings``, of the profile's kernel k; shape (kernels,).

    ``ranges[k]`` is the row in ProfileOps of the innermost line of generated code that launched
    it, -1 where there was none; ``moved`` are the bytes that such a run of a line must move, by
    row, None where that is not known. ``operations`` are those that the line fuses, as the
    trace has them, by row too.
    """

    namings: list[Naming]
    rows: Int32
    ranges: Int64
    moved: Mapping[int, int | None]
    operations: Mapping[int, tuple[str, ...]]


def name_kernels(
    recording: Recording,
    replay: Replay,
    *,
    operators: bool = True,
    attribution: Attribution | None = None,
) -> KernelNames:
    """Names every device-side row of the capture's profile; none where it has no profile.

    ``operators`` as in ``attribute``: without it what has a line of the program is named by that.
    What ``attribution`` has found out of the recording already is not looked up again.
    """
    meta = recording.meta or {}
    profile = meta.get("profile")
    table: Interner[Naming] = Interner()
    if profile is None:
        nothing = np.zeros(0, dtype=np.int64)
        return KernelNames([], nothing.astype(np.int32), nothing, {}, {})
    ops, kernels = profile["ops"], profile["kernels"]
    launches = find_launches(ops, kernels)
    namer = _Namer(recording, replay, operators, attribution)
    names: dict[int, Naming] = {}
    rows, ranges = [], []
    moved: dict[int, int | None] = {}
    operations: dict[int, tuple[str, ...]] = {}
    kept = kept_kernels(recording, operators=operators)
    for k, (launch, kernel) in enumerate(zip(launches.tolist(), kernels["name"], strict=True)):
        inside = namer.lines(launch)
        if inside:
            if launch not in names:
                names[launch] = namer.name_line([frame for _, frame in inside])
            naming = names[launch]
            moved[inside[0][0]] = namer.traffic.of(inside[0][1])
            operations[inside[0][0]] = namer.operations([frame for _, frame in inside])
        else:
            naming = namer.name_launch(launch, kernel) if launch >= 0 else NOT_NAMED
        rows.append(table.row(naming if kept is None else kept[k]))
        ranges.append(inside[0][0] if inside else -1)
    return KernelNames(
        table.items,
        np.array(rows, dtype=np.int32),
        np.array(ranges, dtype=np.int64),
        moved,
        operations,
    )


class _Namer:
    """The names of one recording's launches."""

    def __init__(
        self,
        recording: Recording,
        replay: Replay,
        operators: bool,
        attribution: Attribution | None,
    ) -> None:
        meta: Mapping[str, Any] = recording.meta or {}
        self._ops = meta["profile"]["ops"]
        if attribution is None:
            self._sources, self._stacks = Sources(meta), Stacks(recording.stacks)
            alike = find_alike(recording.stacks)
            windows = find_windows(recording, replay)
        else:
            self._sources, self._stacks = attribution.sources, attribution.stacks
            alike, windows = attribution.alike, attribution.windows
        self._operators = Operators(self._ops)
        self._named = operators
        self._filled = Filled(self._stacks, alike, self._sources)
        self._passes = PassTimes(meta)
        self._forward = forward_frames(recording, replay, windows, self._operators, self._stacks)
        self._calls: Mapping[str, Sequence[Frame]] | None = None
        self.traffic = Traffic(self._sources)
        self._lines: dict[tuple[Frame, ...], Naming] = {}
        self._launched: dict[tuple[int, str], Naming] = {}

    def lines(self, launch: int) -> list[tuple[int, Frame]]:
        """The lines of generated code around a launch that name something, innermost first."""
        return self._operators.lines(launch) if launch >= 0 else []

    def name_line(self, frames: Sequence[Frame]) -> Naming:
        """The symbol of lines of generated code, innermost first."""
        key = tuple(frames)
        if key not in self._lines:
            self._lines[key] = self._name_line(frames)
        return self._lines[key]

    def _name_line(self, frames: Sequence[Frame]) -> Naming:
        if is_output_file(frames[0].filename):
            naming = self._filled.name(frames)
        else:
            naming = thunder.name_stack(frames, self._sources) or inductor.name_stack(
                frames, self._sources
            )
        return NOT_NAMED if naming is None else naming

    def operations(self, frames: Sequence[Frame]) -> tuple[str, ...]:
        """What lines of generated code fuse into one kernel or call; () where it is no fusion."""
        if is_output_file(frames[0].filename):
            return self._filled.operations(frames)
        symbol = self._sources.symbol(frames[0].filename, frames[0].line)
        return tuple(part["text"] for part in symbol["inside"]) if symbol else ()

    def name_launch(self, launch: int, kernel: str) -> Naming:
        """The symbol of a launch outside of any known line of generated code."""
        place = self._operators.parent(launch)
        key = (place, kernel)
        if key not in self._launched:
            phase = self._passes.at(self._ops["start_ns"][launch])
            self._launched[key] = self._name_launch(place, kernel, phase, self._ops["name"][launch])
        return self._launched[key]

    def _name_launch(self, place: int, kernel: str, phase: str | None, call: str) -> Naming:
        if (compiled := self._called(kernel)) is not None:
            return compiled
        operator = self._operators.describe(place)
        if operator is None:
            # Nothing around it: a program's own kernel, or a graph that it replays.
            name = call if "GraphLaunch" in call else _TEMPLATE.sub("", kernel) or kernel
            return Naming(Symbol("eager", "", phase, name))
        if operator.operation or operator.forward >= 0 or "Backward" in operator.name:
            forward = self._forward.get(operator.forward, ())
            return eager.name_node(operator, phase, forward, self._sources)
        frames = self._frames(place)
        if frames:
            name = operator.name if self._named else ""
            return eager.name_stack(frames, phase, name, operator.layer, self._sources)
        return Naming(Symbol("eager", "", phase, operator.name), "", (), operator.layer)

    def _frames(self, row: int) -> Sequence[Frame]:
        """The stack of what was allocated within an operator at ``row``, () where nothing was.

        Operators call no Python, so that it is the operator's own; what Dynamo and autograd's
        functions put around it does.
        """
        while row >= 0 and "::" in self._ops["name"][row]:
            if frames := self._forward.get(row, ()):
                return () if any(is_generated(f.filename) for f in frames) else frames
            row = self._operators.parent(row)
        return ()

    def _called(self, kernel: str) -> Naming | None:
        """By its own name, where Inductor's files call it and all calls have one symbol.

        For captures without ranges of lines.
        """
        if self._calls is None:
            self._calls = inductor.find_calls(self._sources)
        found = {
            naming.symbol: naming
            for frame in self._calls.get(kernel, ())
            for naming in self._filled.every(frame)
        }
        return next(iter(found.values())) if len(found) == 1 else None


def made_by(naming: Naming) -> tuple[str, ...]:
    """What a kernel's statement makes, as far as known: 'float32[4, 8]', in order."""
    return tuple(tensor.text for tensor in naming.tensors)


def layer_of(naming: Naming) -> str:
    """The layer that a kernel works for: the module whose code ran, or those of all it makes."""
    return naming.layer or " | ".join(dict.fromkeys(t.layer for t in naming.tensors if t.layer))


def line_of(naming: Naming) -> str:
    """The model's line behind a kernel; several, where it works for several."""
    lines = dict.fromkeys(t.line for t in naming.tensors if t.line)
    return naming.symbol.line or " | ".join(lines)
