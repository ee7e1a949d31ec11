"""How much memory a program takes at each of its statements, by its text alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from memtrace.program.lifetimes import Lifetime, find_lifetimes
from memtrace.program.model import Program, Statement


@dataclass(frozen=True, slots=True)
class Step:
    """One statement: bytes before it, the most while it runs, and after what it deletes is gone.

    ``inside`` is the part of ``during`` that is neither there before nor after: workspaces and
    intermediates, for the reason ``why``.
    """

    statement: Statement
    before: int
    during: int
    after: int
    inside: int
    why: str


@dataclass(frozen=True)
class Prediction:
    """The bytes of a program's own memory (made by its statements, or given to its backward as a
    cotangent) statement by statement; those of its arguments beside them.

    Bytes are as they are requested: what allocators round up and what other code holds is not in.
    ``unknown`` are the roots of storages whose size the text does not give; they count as 0.
    """

    program: Program
    lifetimes: Mapping[str, Lifetime]
    steps: tuple[Step, ...]
    argument_bytes: int
    unknown: tuple[str, ...]

    @cached_property
    def peak(self) -> Step | None:
        """The step of the greatest ``during``, the first of several; None without statements."""
        return max(self.steps, key=lambda step: step.during, default=None)

    @property
    def peak_bytes(self) -> int:
        """Of the program's own memory."""
        return self.peak.during if self.peak is not None else 0

    def alive(self, index: int) -> list[Lifetime]:
        """What is there while statement ``index`` runs, arguments too, the largest first."""
        found = [
            one
            for one in self.lifetimes.values()
            if one.born <= index and (one.freed is None or one.freed >= index)
        ]
        return sorted(found, key=lambda one: -(one.bytes or 0))


def predict(program: Program) -> Prediction:
    """Adds up a program's storages over its statements, and what these need while they run."""
    lifetimes = find_lifetimes(program)
    device = program.device
    counted = {
        root: one
        for root, one in lifetimes.items()
        if program.storages[root].device in ("", device)
    }
    count = len(program.statements)
    born, freed = [0] * (count + 1), [0] * (count + 1)
    at_start = 0
    for one in counted.values():
        if one.kind == "argument":
            continue
        if one.born < 0:
            at_start += one.bytes or 0
        else:
            born[one.born] += one.bytes or 0
        if one.freed is not None:
            freed[one.freed] += one.bytes or 0
    steps = []
    total = at_start
    for statement in program.statements:
        k = statement.index
        before, grown = total, total + born[k]
        inside, why = _inside(program, statement)
        total = grown - freed[k]
        steps.append(Step(statement, before, grown + inside, total, inside, why))
    return Prediction(
        program,
        lifetimes,
        tuple(steps),
        sum(one.bytes or 0 for one in counted.values() if one.kind == "argument"),
        tuple(root for root, one in counted.items() if one.bytes is None),
    )


def _inside(program: Program, statement: Statement) -> tuple[int, str]:
    """How much more than what it makes a statement takes while it runs, and by what this is known;
    0 and '' where nothing is."""
    found = program.needs.get(statement.index, 0)
    if not found:
        return 0, ""
    in_file = statement.index in program.regions
    return found, "buffers of Inductor's file" if in_file else "the operator's own"
