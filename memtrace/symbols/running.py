"""Which statement of generated code ran when, as far as the allocator's events show it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memtrace.distinct import distinct_values
from memtrace.snapshot.columns import Int32, Int64, Recording
from memtrace.symbols import inductor, thunder
from memtrace.symbols.likeness import find_alike
from memtrace.symbols.sources import Sources
from memtrace.symbols.stacks import Stacks
from memtrace.symbols.table import Symbol, short_path
from memtrace.timeline import Replay, Window


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a Thunder trace or, under torch.compile alone, of Inductor's output.

    ``where`` is 'thunder.computation_25:91'; ``text`` is '' where the capture does not hold it.
    """

    symbol: Symbol
    where: str
    text: str

    @property
    def name(self) -> str:
        """What is called: 'nvFusion2', 'torch.matmul'; the whole text where nothing is."""
        return self.text if self.text.startswith("del ") else self.symbol.name


@dataclass(frozen=True, slots=True)
class Runs:
    """Stretches of consecutive events of one statement; columns of shape (runs,).

    ``statement`` is a row of ``statements``; ``first`` and ``last`` are the events, both included.
    """

    statements: list[Statement]
    statement: Int32
    first: Int64
    last: Int64


def find_runs(recording: Recording, replay: Replay, windows: tuple[Window, ...]) -> Runs:
    """The statements by the stacks of the events, oldest first.

    A run ends where an event has another statement or none, and where an iteration or a pass does.
    When a statement began before its first event, or went on after its last, cannot be seen here.
    """
    empty = np.zeros(0, np.int64)
    if replay.device >= len(recording.events) or not len(recording.events[replay.device]):
        return Runs([], empty.astype(np.int32), empty, empty)
    stack = find_alike(recording.stacks)[recording.events[replay.device].stack]
    statements, numbers = _number_stacks(recording, distinct_values(stack).tolist())
    row = numbers[stack]
    ends = {m for w in windows for m in (w.begin, w.end)}
    ends |= {m for w in windows for phase in w.phases for m in (phase.begin, phase.end)}
    stretch = np.searchsorted(np.array(sorted(ends), np.int64), np.arange(len(row)), side="right")
    changes = np.flatnonzero((row[1:] != row[:-1]) | (stretch[1:] != stretch[:-1])) + 1
    first = np.concatenate(([0], changes))
    last = np.concatenate((changes, [len(row)])) - 1
    known = row[first] >= 0
    return Runs(statements, row[first][known], first[known], last[known])


def _number_stacks(recording: Recording, stacks: list[int]) -> tuple[list[Statement], Int32]:
    """The statements of some stacks, and each stack's row there, -1 for one without."""
    sources, frames_of = Sources(recording.meta), Stacks(recording.stacks)
    rows: dict[str, int] = {}
    statements: list[Statement] = []
    numbers = np.full(len(recording.stacks.stacks), -1, dtype=np.int32)
    for stack in stacks:
        frames = frames_of.python(stack)
        naming = thunder.name_stack(frames, sources) or inductor.name_stack(frames, sources)
        if naming is None:
            continue
        where = naming.where or naming.symbol.text
        if where not in rows:
            rows[where] = len(statements)
            filename, _, line = where.rpartition(":")
            found = sources.statement(sources.full_name(filename), int(line or 0))
            text = found.text if found else ""
            statements.append(Statement(naming.symbol, short_path(where), text))
        numbers[stack] = rows[where]
    return statements, numbers
