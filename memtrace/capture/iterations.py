"""Where a repetition of the workload begins, told from the marks alone, live and afterwards.

An iteration begins, in this order of trust: where the script says so (memtrace.step()), at a
profiler's step, or by structure: with the first call after the last iteration's optimizer step, or
after its backward pass where nothing optimizes, or with every call where there is no backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import multimode
from typing import TYPE_CHECKING, NamedTuple

from memtrace.capture.marks import Entry

if TYPE_CHECKING:
    from memtrace.snapshot.format import Iteration

PHASES = ("call", "backward", "optimizer")
# Backward passes without a step after which an optimizer counts as there but not in use.
_IDLE_OPTIMIZER = 64


@dataclass(slots=True)
class Structure:
    """The rule for boundaries by structure, one phase at a time."""

    optimizes: bool = False  # an optimizer is in use: its step ends an iteration
    open: bool = False
    seen: set[str] = field(default_factory=set)  # kinds of phases since the iteration began
    only_inference: bool = True  # so far in this iteration
    leading: int = 0  # calls without gradients since the last training step, before all else
    usual: int = 0  # … of the last training step: teachers' calls belong to it
    trained: bool = False  # a backward pass was seen at all
    called: bool = False  # a call was seen at all
    _idle: int = 0

    def begins(self, kind: str, grad: bool) -> bool:
        """Whether the phase that begins now begins an iteration, too."""
        begins = self._begins(kind, grad)
        if kind == "backward" and "backward" not in self.seen:
            self.usual = min(self.usual, self.leading) if self.trained else self.leading
        if begins:
            self.open = True
            self.leading = 0 if self._done else self.leading
            self.seen = set()
            self.only_inference = True
        self.seen.add(kind)
        if kind == "call":
            self.called = True
            self.only_inference = self.only_inference and not grad
            self.leading += self.only_inference
        else:
            self.only_inference = False
        if kind == "backward":
            self.trained = True
            self._idle += 1
            if self._idle > _IDLE_OPTIMIZER:
                self.optimizes = False
        if kind == "optimizer":
            self._idle = 0
            self.optimizes = True
        return begins

    def _begins(self, kind: str, grad: bool) -> bool:
        if not self.open:
            return True
        if kind == "call":
            if self._done or not self.trained:
                return True
            if not self.only_inference:
                return False
            # More calls without gradients than a step's teachers make are evaluation: each is an
            # iteration, and so is what trains after them.
            return self.leading > self.usual if grad else self.leading >= max(self.usual, 1)
        # A loop that calls nothing we watch: its backward passes are all there is to go by.
        return kind == "backward" and not self.called and self._done

    @property
    def _done(self) -> bool:
        """Whether the iteration so far has all that a training step has."""
        return "optimizer" in self.seen or ("backward" in self.seen and not self.optimizes)


def begins_of(entries: list[Entry]) -> tuple[list[int], int, str]:
    """The numbers of the marks at which iterations begin, the one that ends the last, and the rule.

    The rule is "step", "profiler_step" or "structure".
    """
    phases = [k for k, e in enumerate(entries) if e.kind in PHASES and e.edge == "begin"]
    for kind in ("step", "profiler_step"):
        steps = [k for k, e in enumerate(entries) if e.kind == kind]
        if not steps:
            continue
        # Work before the first step is the iteration that the first step ends; work after the last
        # one is an iteration of its own. A script without any work we know goes by steps alone.
        begins = [p for p in phases if p < steps[0]][:1] + steps
        end = None
        while len(begins) > 1 and not any(p > begins[-1] for p in phases or steps):
            end = begins.pop()
        return begins, _last_phase_end(entries, begins[-1]) if end is None else end, kind
    begins = _structural_begins(entries, phases)
    return begins, _last_phase_end(entries, begins[-1]) if begins else 0, "structure"


def _structural_begins(entries: list[Entry], phases: list[int]) -> list[int]:
    """Where iterations begin, with the whole run in view.

    The run falls into training steps (calls, backward, optimizer step) and what follows the last
    of them. Calls without gradients at a step's beginning are its teachers' as far as most steps
    have them; any beyond that are evaluation, each an iteration of its own.
    """
    steps = _training_steps(entries, phases)
    leading = [_leading(entries, step) for step in steps]
    trains = ["backward" in {entries[p].kind for p in step} for step in steps]
    usual = min(
        multimode(n for n, training in zip(leading, trains, strict=True) if training), default=0
    )
    begins: list[int] = []
    for step, early, training in zip(steps, leading, trains, strict=True):
        if not any(trains):
            begins += [p for p in step if entries[p].kind == "call"] or step[:1]
        elif training or early <= usual:
            begins += step[: max(0, early - usual) + 1]
        else:  # evaluation after the last training step
            begins += step[: early + 1]
    return begins


def _training_steps(entries: list[Entry], phases: list[int]) -> list[list[int]]:
    kinds = {entries[p].kind for p in phases}
    last = "optimizer" if "optimizer" in kinds else "backward"
    first = "call" if "call" in kinds else "backward"
    steps: list[list[int]] = [[]]
    for p in phases:
        if entries[p].kind == first and any(entries[q].kind == last for q in steps[-1]):
            steps.append([])
        steps[-1].append(p)
    return [step for step in steps if step]


def _leading(entries: list[Entry], step: list[int]) -> int:
    """How many calls without gradients a step begins with."""
    count = 0
    while count < len(step) and entries[step[count]].kind == "call":
        if entries[step[count]].grad:
            break
        count += 1
    return count


def iterations_of(
    entries: list[Entry], arrivals: dict[int, int], profiled: int | None, failed: bool
) -> list[Iteration]:
    """All iterations of a run.

    ``arrivals``: mark number → epoch ns at which the script arrived there, before the recorder's
    own work at a boundary (starting a profiler takes a second the first time).
    ``profiled``: the mark at which the profiled iteration began. ``failed``: the script ended with
    an exception or a signal.
    """
    from memtrace.snapshot.format import Iteration

    begins, last, rule = begins_of(entries)
    if not begins:
        return []
    stepped = entries[last].kind == rule  # the last iteration, too, was ended by a step
    bounds = list(zip(begins, [*begins[1:], last], strict=True))
    kinds = [_kinds(entries[b : e + 1]) for b, e in bounds]
    usual = set().union(*kinds[:-1])
    found: list[Iteration] = []
    for index, (begin, end) in enumerate(bounds):
        final = index == len(bounds) - 1
        whole = end > begin and _balanced(entries[begin : end + (final and not stepped)])
        whole = whole and not _in_gap(entries, begin, end)
        if final and not stepped:
            # It never got to its backward pass or step, where the others did.
            missing = (usual & {"backward", "optimizer"}) - kinds[-1]
            begun = [e for e in entries[begin:end] if e.kind in PHASES and e.edge == "begin"]
            if all(e.kind == "call" and not e.grad for e in begun):
                missing = set()  # an evaluation, not a training step broken off
            whole = whole and not missing and not (failed and rule != "structure")
        finish = arrivals.get(end, entries[end].time_ns)
        found.append(
            Iteration(
                index=index,
                begin=begin,
                end=end,
                compiled=any(e.kind == "compile" for e in entries[begin:end]),
                profiled=begin == profiled,
                whole=whole,
                wall_ns=max(0, finish - entries[begin].time_ns),
            )
        )
    return found


class Step(NamedTuple):
    """A steady iteration whose marks were forgotten; ``trains``: it had a backward pass."""

    trains: bool
    begin: int = -1
    end: int = -1
    wall_ns: int = -1


def judge(entries: list[Entry], begin: int, end: int) -> Step | None:
    """The iteration from one mark to another, None where it is not a whole and steady one."""
    marks = entries[begin:end]
    if any(e.kind == "compile" for e in marks) or not _balanced(marks):
        return None
    return None if _in_gap(entries, begin, end) else Step("backward" in _kinds(marks))


def _in_gap(entries: list[Entry], begin: int, end: int) -> bool:
    """Whether allocations between two marks went unseen, in part or all."""
    depth = 0
    for number, entry in enumerate(entries[:end]):
        if entry.kind == "gap":
            depth += 1 if entry.edge == "begin" else -1
            if number >= begin:
                return True
    return depth > 0


def _kinds(entries: list[Entry]) -> set[str]:
    return {e.kind for e in entries if e.kind in PHASES}


def _balanced(entries: list[Entry]) -> bool:
    phases = [e for e in entries if e.kind in PHASES]
    begun = sum(e.edge == "begin" for e in phases)
    ended = sum(e.edge == "end" for e in phases)
    return begun == ended and not any(e.failed for e in phases)


def _last_phase_end(entries: list[Entry], begin: int) -> int:
    for k in range(len(entries) - 1, begin, -1):
        if entries[k].kind in PHASES and entries[k].edge == "end":
            return k
    return len(entries) - 1
