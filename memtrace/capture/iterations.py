"""Where a repetition of the workload begins, told from the marks alone, live and afterwards.

An iteration begins, in this order of trust: where the script says so (memtrace.step()), at a
profiler's step, or by structure: with the first call after the last iteration's optimizer step, or
after its backward pass where nothing optimizes, or with every call where there is no backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
    evaluates: bool = False  # calls without gradients follow each other
    trained: bool = False  # a backward pass was seen at all
    called: bool = False  # a call was seen at all
    _idle: int = 0

    def begins(self, kind: str, grad: bool) -> bool:
        """Whether the phase that begins now begins an iteration, too."""
        begins = self._begins(kind, grad)
        if begins:
            self.open = True
            self.seen = set()
            self.only_inference = True
        self.seen.add(kind)
        if kind == "call":
            self.called = True
            self.only_inference = self.only_inference and not grad
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
        done = "optimizer" in self.seen or ("backward" in self.seen and not self.optimizes)
        if kind == "call":
            if done or not self.trained:
                return True
            if not self.only_inference:
                return False
            # Evaluation between training: each call without gradients after another such call,
            # and the training call after those. After a single one it may be a teacher's.
            before, self.evaluates = self.evaluates, not grad
            return not grad or before
        # A loop that calls nothing we watch: its backward passes are all there is to go by.
        return kind == "backward" and not self.called and done


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
    kinds = {e.kind for e in entries}
    structure = Structure(optimizes="optimizer" in kinds, trained="backward" in kinds)
    begins = [p for p in phases if structure.begins(entries[p].kind, entries[p].grad)]
    return begins, _last_phase_end(entries, begins[-1]) if begins else 0, "structure"


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
        if final and not stepped:
            # It never got to its backward pass or step, where the others did.
            missing = (usual & {"backward", "optimizer"}) - kinds[-1]
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
