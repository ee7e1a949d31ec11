"""Programs' predicted memory beside what was measured of them, statement by statement.

Nothing measured enters the prediction: both are of the program's own memory, what its statements
make and the cotangents that its backward is given. What else was alive is a figure of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memtrace.analysis.peak import Subject
from memtrace.errors import MemtraceError
from memtrace.program import Prediction, Program, predict, read_programs
from memtrace.symbols.stacks import Stacks
from memtrace.timeline import Window, live

_NAMES, _MOST_CHARACTERS = 4, 60  # of programs, in a message


@dataclass(frozen=True, slots=True)
class Measured:
    """What a program's own memory was in a recording, in requested bytes.

    ``most`` and ``after`` are by the index of a statement: the most while it ran, and once the next
    began; statements that neither allocated nor freed are not there. ``other_bytes`` was alive when
    its forward began: parameters, optimizer state, inputs, and what other programs left.
    """

    peak_bytes: int
    peak_index: int
    most: Mapping[int, int]
    after: Mapping[int, int]
    other_bytes: int


@dataclass(frozen=True, slots=True)
class Predicted:
    """One program; ``measured`` is None where there is no recording of it."""

    prediction: Prediction
    measured: Measured | None

    @property
    def error(self) -> float | None:
        """(predicted − measured) / measured of the peaks."""
        if self.measured is None or not self.measured.peak_bytes:
            return None
        return self.prediction.peak_bytes / self.measured.peak_bytes - 1


@dataclass(frozen=True, slots=True)
class PredictReport:
    """The programs of a file; ``window`` is '' where it is a text."""

    path: str
    window: str
    programs: tuple[Predicted, ...]


def report_prediction(subject: Subject) -> PredictReport:
    """Those Thunder programs that ran in the window. MemtraceError where none did."""
    path = subject.recording.path
    programs = read_programs(subject.recording.meta, fusion_views=True)
    if not programs:
        raise MemtraceError(
            f"{path}: no Thunder program is in it; record a run compiled by Thunder with "
            "memtrace record, or give what thunder.last_traces(f)[-1] prints"
        )
    stacks = Stacks(subject.recording.stacks)
    found = []
    for program in programs:
        measured = _Measurement(subject, program, stacks).run()
        if measured is not None:
            found.append(Predicted(predict(program), measured))
    if not found:
        distinct = list(dict.fromkeys(program.name[:_MOST_CHARACTERS] for program in programs))
        names = ", ".join(distinct[:_NAMES] + ["…"] * (len(distinct) > _NAMES))
        raise MemtraceError(
            f"{path}: none of its Thunder programs ({names}) allocated anything in "
            f"{subject.window.name}; choose another with --window"
        )
    return PredictReport(path, subject.window.name, tuple(found))


class _Measurement:
    """One program's lifetimes in a window, by the lines of its trace that made and freed them."""

    def __init__(self, subject: Subject, program: Program, stacks: Stacks) -> None:
        self._replay = subject.replay
        self._window: Window = subject.window
        self._program = program
        self._stacks = stacks
        self._index = {(s.filename, s.line): s.index for s in program.statements}
        self._files = {s.filename for s in program.statements}
        self._known: dict[int, int] = {}

    def run(self) -> Measured | None:
        lifetimes, window = self._replay.lifetimes, self._window
        inside = np.flatnonzero((lifetimes.born >= window.begin) & (lifetimes.born < window.end))
        own = [k for k in inside.tolist() if self._statement(int(lifetimes.stack[k])) >= 0]
        own = self._last_run(own)
        if not own:
            return None
        begin = int(lifetimes.born[own[0]])
        # Autograd gives cotangents before the first line of the backward runs.
        backward = (s.index for s in self._program.statements if s.phase == "backward")
        given = dict.fromkeys(self._cotangents(own), next(backward, -1))
        changes = []
        for k in (*own, *given):
            size = int(lifetimes.requested[k])
            maker = given.get(k, self._statement(int(lifetimes.stack[k])))
            changes.append((int(lifetimes.born[k]), size, maker))
            end = int(lifetimes.completed[k])
            changes.append((end, -size, self._statement(int(lifetimes.free_stack[k]))))
        other = live(self._replay, begin, "requested")
        return self._add_up(changes, int(lifetimes.requested[other].sum()))

    def _last_run(self, own: list[int]) -> list[int]:
        """Of a program that runs several times in a window, the last run: the passes begin anew
        where the lines of the forward do."""
        lifetimes = self._replay.lifetimes
        places = [self._statement(int(lifetimes.stack[k])) for k in own]
        starts = [n + 1 for n, (one, next_) in enumerate(pairwise(places)) if next_ < one]
        return own[starts[-1] :] if starts else own

    def _cotangents(self, own: list[int]) -> list[int]:
        """What autograd gave to the backward: by its size, the youngest that is not the program's
        own, made after the forward and alive when the backward begins."""
        lifetimes = self._replay.lifetimes
        phases = {k: self._phase(int(lifetimes.stack[k])) for k in own}
        forward = [int(lifetimes.born[k]) for k in own if phases[k] != "backward"]
        backward = [int(lifetimes.born[k]) for k in own if phases[k] == "backward"]
        if not backward:
            return []
        first, last = min(backward), max(forward, default=int(lifetimes.born[own[0]]) - 1)
        between = (lifetimes.born > last) & (lifetimes.born < first) & (lifetimes.freed >= first)
        candidates = [k for k in np.flatnonzero(between).tolist() if k not in phases]
        found: list[int] = []
        for value in self._program.values.values():
            if value.kind != "cotangent":
                continue
            fitting = [
                k
                for k in candidates
                if k not in found and int(lifetimes.requested[k]) == value.bytes
            ]
            found += fitting[-1:]
        return found

    def _add_up(self, changes: Iterable[tuple[int, int, int]], other: int) -> Measured:
        most: dict[int, int] = {}
        after: dict[int, int] = {}
        total = peak = 0
        at = current = -1
        for moment, size, statement in sorted(changes):
            if moment >= self._window.end:
                break
            total += size
            # What has no line of its own (C++ code, another thread) falls into the one that runs.
            current = statement if statement >= 0 else current
            most[current] = max(most.get(current, 0), total)
            after[current] = total
            if total > peak:
                peak, at = total, current
        return Measured(peak, at, most, after, other)

    def _phase(self, stack: int) -> str:
        return self._program.statements[self._statement(stack)].phase

    def _statement(self, stack: int) -> int:
        """The index of the statement whose line a stack shows, -1 where it shows none."""
        if stack not in self._known:
            places = (
                self._index.get((frame.filename, frame.line), -1)
                for frame in self._stacks.python(stack)
                if frame.filename in self._files
            )
            self._known[stack] = next(places, -1)
        return self._known[stack]
