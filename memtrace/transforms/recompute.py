"""A tensor saved for the backward pass, made anew there from what is saved anyway.

Thunder's own way (thunder.core.rematerialization, ``RECOMPUTE_IN_BACKWARD``) chooses before fusion
and by its own measure. Here the tensors are named as the recording names them, in the final traces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thunder.core import prims
from thunder.core.proxies import TensorProxy
from thunder.core.trace import TraceTag

from memtrace.transforms.again import Stays, Step, changed_in_place, insert, path_back, steps_of
from memtrace.transforms.change import Change, Choice
from memtrace.transforms.saved import backward_trace, save_less, saved_tensors, unpack_less
from memtrace.transforms.statements import finish, made_by, names, statements_of

_FAR = 16


class Recompute(Change):
    """Saves the chosen tensors no longer; the backward pass makes them again where it reads them.

    What that takes is copied from the forward trace, up to tensors that are saved in any case and
    arguments of the program that are far smaller (a bias, positions). Nothing random, in place or
    with another input is run again. Where all readers are fusions of the executor that made it,
    they make it themselves and hold no tensor; else it is made right before the first reader, for
    all of them.
    """

    def __init__(self, tensors: Choice) -> None:
        super().__init__(tensors)
        self._plan = Plan([], set(), [])

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
            return save_less(
                computation_trace, plan.dropped, plan.instead, plan.extra, plan.forward
            )
        plan, self._plan = self._plan, Plan([], set(), [])
        if TraceTag.BACKWARD not in tags or not plan.dropped:
            return computation_trace
        statements = unpack_less(computation_trace, plan.dropped, plan.instead, plan.extra)
        self.done += insert(statements, plan.steps, plan.dropped)
        return finish(computation_trace, statements, "memtrace: saved tensors made anew")

    def plan(self, forward: list[Any], backward: list[Any]) -> Plan:
        """What to save no longer, and how to make it again."""
        saved = saved_tensors(forward)
        arguments = _arguments(forward)
        dropped = {n for n, p in saved.items() if self.wants(p) and n not in arguments}
        for name in sorted(n for n, p in saved.items() if self.wants(p) and n in arguments):
            self.leave(name, "it is an argument of the program, which holds it anyway")
        steps = steps_of(forward)
        changed = changed_in_place(forward) | changed_in_place(backward)
        made = {n for s in backward for n in made_by(s)} - set(saved)
        paths: dict[str, list[Step]] = {}
        while dropped - set(paths):
            paths = {}
            for name in sorted(dropped):
                small = {n for n, p in arguments.items() if _is_small(p, saved[name])}
                there = (set(saved) - dropped) | small
                try:
                    paths[name] = path_back(steps, name, there, changed, made)
                except Stays as stays:
                    self.leave(name, str(stays))
                    dropped.discard(name)
                    paths = {}
                    break  # what others were to be made from is saved after all
        path = {id(step.operation): step for found in paths.values() for step in found}
        ordered = [s for s in dict.fromkeys(steps.values()) if id(s.operation) in path]
        read = {n for step in ordered for n in names(step.operation.flat_proxy_args)}
        extra = [p for n, p in arguments.items() if n in read and n not in saved]
        return Plan(ordered, dropped, forward, extra=extra)


def _arguments(forward: list[Any]) -> dict[str, Any]:
    """The tensors that a program is called with."""
    return {
        p.name: p
        for s in forward
        if s.sym.id == prims.PrimIDs.UNPACK_TRIVIAL
        for p in s.flat_proxy_outs
        if isinstance(p, TensorProxy)
    }


def _is_small(argument: Any, tensor: Any) -> bool:
    """Whether saving the argument costs next to nothing of what the tensor takes."""
    return bool(argument.numel * argument.dtype.bytes * _FAR <= tensor.numel * tensor.dtype.bytes)


class Plan:
    """``steps`` make ``dropped`` again; ``instead`` are saved in their place, by their names, and
    ``extra`` on top. ``forward`` are the statements of the forward that save_less starts from.
    """

    def __init__(
        self,
        steps: list[Step],
        dropped: set[str],
        forward: list[Any],
        instead: Mapping[str, Any] | None = None,
        extra: Sequence[Any] = (),
    ) -> None:
        self.steps, self.dropped, self.forward = steps, dropped, forward
        self.instead, self.extra = instead or {}, tuple(extra)
