"""The profiler's operator of each allocation, seen in one iteration and carried to the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memtrace.distinct import number_rows
from memtrace.snapshot.columns import Frame, Int32, Int64, Recording
from memtrace.symbols.alignment import Aligner
from memtrace.symbols.owners import members_of
from memtrace.symbols.profiled import Operators, match_memory
from memtrace.symbols.stacks import Operator, Stacks
from memtrace.timeline import Lifetimes, Replay, Window


@dataclass(frozen=True, slots=True)
class FoundOperators:
    """``rows[k]`` is the operator, in ``operators``, of the replay's lifetime k, -1 for none.

    ``forward`` are the frames of an allocation within a forward operator, by the operator's row.
    """

    operators: list[Operator]
    rows: Int32
    forward: dict[int, list[Frame]]


def find_operators(
    recording: Recording,
    replay: Replay,
    windows: list[Window],
    stacks: Stacks,
    made: Int32,
    eager: Int64,
) -> FoundOperators:
    """The operators of the lifetimes ``eager``, which no generated code made.

    ``made`` are stacks that stand for those of all lifetimes: alike to all who name things.
    """
    lifetimes = replay.lifetimes
    rows = np.full(len(lifetimes), -1, dtype=np.int32)
    profiled = next((w for w in windows if w.profiled), None)
    if recording.meta is None or recording.meta.get("profile") is None or profiled is None:
        return FoundOperators([], rows, {})
    operators = Operators(recording.meta["profile"]["ops"])
    matched = _match(recording, replay, profiled)
    numbers: dict[Operator, int] = {}
    seen = np.full(len(lifetimes), -1, dtype=np.int32)
    for k, row in matched.items():
        if (operator := operators.describe(row)) is not None:
            seen[k] = numbers.setdefault(operator, len(numbers))
    _carry(seen, rows, profiled, windows, lifetimes, eager, _line_numbers(stacks, made[eager]))
    return FoundOperators(
        list(numbers), rows, _frames_around(operators, matched, lifetimes, stacks)
    )


def _carry(
    seen: Int32,
    rows: Int32,
    profiled: Window,
    windows: list[Window],
    lifetimes: Lifetimes,
    eager: Int64,
    line: Int64,
) -> None:
    """Writes into ``rows`` what was seen of the profiled iteration, for all iterations.

    ``line`` is a number for where each of ``eager`` was made.
    """
    _, alike = number_rows(lifetimes.requested[eager], line)
    born = lifetimes.born[eager]
    begin, end = members_of(born, [profiled])[0]
    model = seen[eager[begin:end]]
    rows[eager[begin:end]] = model
    aligner = Aligner(alike[begin:end])
    everything = np.arange(end - begin)
    for window, (first, last) in zip(windows, members_of(born, windows), strict=True):
        if window is profiled:
            continue
        if np.array_equal(line[first:last], line[begin:end]):
            mine = theirs = everything  # alike but for sizes: another batch
        else:
            mine, theirs = aligner.pairs(alike[first:last])
        known = model[mine] >= 0
        rows[eager[first + theirs[known]]] = model[mine[known]]


def _line_numbers(stacks: Stacks, column: Int32) -> Int64:
    """A number for each stack of a column that leaves out how the iteration was called."""
    kinds, kind = number_rows(column)
    numbers: dict[tuple[Frame, ...], int] = {}
    lines = [
        numbers.setdefault(tuple(stacks.python(stack)[:2]), len(numbers)) for (stack,) in kinds
    ]
    return np.array(lines, dtype=np.int64)[kind]


def forward_frames(
    recording: Recording,
    replay: Replay,
    windows: Sequence[Window],
    operators: Operators,
    stacks: Stacks,
) -> dict[int, list[Frame]]:
    """For each operator of the profile around an allocation with a stack, that stack."""
    profiled = next((w for w in windows if w.profiled), None)
    if profiled is None:
        return {}
    matched = _match(recording, replay, profiled)
    return _frames_around(operators, matched, replay.lifetimes, stacks)


def _match(recording: Recording, replay: Replay, profiled: Window) -> dict[int, int]:
    """The row in ProfileOps that each lifetime of the profiled iteration was allocated in."""
    assert recording.meta is not None
    lifetimes = replay.lifetimes
    device = -1 if recording.meta["facts"].get("device") == "cpu" else replay.device
    begin, end = members_of(lifetimes.born, [profiled])[0]
    memory = recording.meta["profile"]["memory"]
    return match_memory(memory, device, lifetimes.address[begin:end], np.arange(begin, end))


def _frames_around(
    operators: Operators, matched: dict[int, int], lifetimes: Lifetimes, stacks: Stacks
) -> dict[int, list[Frame]]:
    """For each operator around an allocation with a stack, that stack (the model's line)."""
    forward: dict[int, list[Frame]] = {}
    for k, row in matched.items():
        stack = int(lifetimes.stack[k])
        while stack and row >= 0:
            forward.setdefault(row, stacks.python(stack))
            row = operators.parent(row)
    return forward
