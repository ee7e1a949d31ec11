"""A tensor saved for the backward pass, made anew there from what is saved anyway.

Thunder's own way (thunder.core.rematerialization, ``RECOMPUTE_IN_BACKWARD``) chooses before fusion
and by its own measure. Here the tensors are named as the recording names them, in the final traces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thunder.core.trace import TraceTag

from memtrace.transforms.again import Stays, Step, changed_in_place, insert, path_back, steps_of
from memtrace.transforms.change import Change, Choice
from memtrace.transforms.saved import backward_trace, save_less, saved_tensors, unpack_less
from memtrace.transforms.statements import finish, made_by, statements_of


class Recompute(Change):
    """Saves the chosen tensors no longer; the backward pass makes them again where it reads them.

    What that takes is copied from the forward trace, up to tensors that are saved in any case.
    Nothing random, in place or with an unsaved input is run again. Where all readers are fusions
    of the executor that made it, they make it themselves and hold no tensor; else it is made right
    before the first reader, for all of them.
    """

    def __init__(self, tensors: Choice) -> None:
        super().__init__(tensors)
        self._plan = Plan([], set(), {}, [])

    def transform_trace_post_optimization(self, computation_trace: Any, **_: Any) -> Any:
        """The final forward trace, and the backward's right after it."""
        tags = computation_trace.tags
        if TraceTag.AUGMENTED_FORWARD in tags:
            backward = backward_trace()
            if backward is None:
                return computation_trace
            self._plan = plan = self.plan(statements_of(computation_trace), statements_of(backward))
            if not plan.dropped:
                return computation_trace
            return save_less(computation_trace, plan.dropped, plan.instead, plan.forward)
        plan, self._plan = self._plan, Plan([], set(), {}, [])
        if TraceTag.BACKWARD not in tags or not plan.dropped:
            return computation_trace
        statements = unpack_less(computation_trace, plan.dropped, plan.instead)
        self.done += insert(statements, plan.steps, plan.dropped)
        return finish(computation_trace, statements, "memtrace: saved tensors made anew")

    def plan(self, forward: list[Any], backward: list[Any]) -> Plan:
        """What to save no longer, and how to make it again."""
        saved = saved_tensors(forward)
        dropped = {name for name, proxy in saved.items() if self.wants(proxy)}
        steps = steps_of(forward)
        changed = changed_in_place(forward) | changed_in_place(backward)
        made = {n for s in backward for n in made_by(s)} - set(saved)
        while dropped:
            try:
                path = path_back(steps, dropped, set(saved) - dropped, changed, made)
            except Stays as stays:
                self.leave(stays.name, str(stays))
                dropped.discard(stays.name)
            else:
                return Plan(path, dropped, {}, forward)
        return Plan([], set(), {}, forward)


class Plan:
    """``steps`` make ``dropped`` again; ``instead`` are saved in their place, by their names.

    ``forward`` are the statements of the forward that save_less starts from.
    """

    def __init__(
        self,
        steps: list[Step],
        dropped: set[str],
        instead: Mapping[str, Any],
        forward: list[Any],
    ) -> None:
        self.steps, self.dropped, self.instead, self.forward = steps, dropped, instead, forward
