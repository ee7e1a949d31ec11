"""Operations run once more: the steps to a tensor, and where they go in the backward pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from thunder.core import prims

from memtrace.transforms.change import Done
from memtrace.transforms.fusions import fuse, next_number, number_of, run_by_torch
from memtrace.transforms.move import sink_views
from memtrace.transforms.statements import is_repeatable, made_by, names, views, written


@dataclass(frozen=True)
class Step:
    """An operation to run again: ``executor`` fuses it, None where it is a statement of its own."""

    operation: Any
    executor: Any


class Stays(Exception):
    """Why a tensor cannot be made again."""


def steps_of(statements: Iterable[Any]) -> dict[str, Step]:
    """The operation that makes each tensor, those inside fusions included; in order."""
    steps: dict[str, Step] = {}
    for statement in statements:
        fused = bool(statement.sym.is_fusion)
        for operation in statement.subsymbols if fused else (statement,):
            step = Step(operation, statement.sym.executor if fused else None)
            for name in made_by(operation):
                steps.setdefault(name, step)
    return steps


def changed_in_place(statements: Sequence[Any]) -> set[str]:
    """The tensors that anything writes in place, under all names they are seen by."""
    looks_at = views(statements)
    changed = {n for s in statements for n in written(s)}
    roots = changed | {looks_at.get(name, name) for name in changed}
    return roots | {name for name, root in looks_at.items() if root in roots}


def path_back(
    steps: Mapping[str, Step],
    wanted: str,
    there: Collection[str],
    changed: Collection[str],
    taken_names: Collection[str],
) -> list[Step]:
    """The steps that lead from the tensors ``there`` to the one ``wanted``, in any order.

    Stays if there is no way: through something random, something in ``changed`` that is written in
    place, an argument that is not there, or a name that the backward gives to something else.
    """
    taken: dict[int, Step] = {}
    todo, seen = [wanted], set()
    while todo:
        here = todo.pop()
        if here in changed:
            raise Stays(f"{here} is written in place")
        if here in there or here in seen:
            continue
        seen.add(here)
        step = steps.get(here)
        if step is None or step.operation.sym.id == prims.PrimIDs.UNPACK_TRIVIAL:
            raise Stays(f"it takes {here}, which is not saved")
        if not is_repeatable(step.operation):
            raise Stays(f"{step.operation.sym.name} is random or writes in place")
        if made_by(step.operation) & set(taken_names):
            raise Stays(f"{here} is something else in the backward")
        taken[id(step.operation)] = step
        todo += sorted(names(step.operation.flat_proxy_args))
    return list(taken.values())


def insert(statements: list[Any], steps: Sequence[Step], wanted: set[str]) -> list[Done]:
    """Puts the steps to each of ``wanted`` into, or right before, what reads it first."""
    sink_views(statements, wanted)
    left = set(wanted)
    done: list[Done] = []
    while left:
        made: set[str] = set()
        for at, statement in enumerate(statements):
            if found := names(statement.flat_proxy_args) & left:
                new = _insert_at(statements, at, steps, found, left - found, made)
                done += new
                left -= {one.tensor for one in new}
                break
            made |= names(statement.flat_proxy_outs)
        else:
            return done
    return done


def _insert_at(
    statements: list[Any],
    at: int,
    steps: Sequence[Step],
    found: set[str],
    later: set[str],
    made: set[str],
) -> list[Done]:
    """The steps to ``found`` at the statement ``at``; those of ``later`` that lie on the way are
    made with them."""
    path = _lead(steps, found, made)
    executor = path[0].executor
    inside = {n for step in path for n in made_by(step.operation)}
    read = {n for step in path for n in names(step.operation.flat_proxy_args)}
    sources = tuple(sorted(read - inside))
    readers = [k for k, s in enumerate(statements) if names(s.flat_proxy_args) & found]
    passed = {n for step in path for n in made_by(step.operation)} & later
    if executor is not None and all(step.executor is executor for step in path) and not passed:
        same = [statements[k].sym.is_fusion and statements[k].sym.executor is executor
                for k in readers]  # fmt: skip
        if all(same):
            for k in readers:
                statements[k] = _merge(statements[k], [step.operation for step in path])
            return [Done(name, "made by its readers", sources) for name in sorted(found)]
    number = next_number(statements)
    new: list[Any] = []
    groups = [(key, list(group)) for key, group in groupby(path, key=lambda s: s.executor)]
    for k, (key, group) in enumerate(groups):
        operations = [step.operation for step in group]
        if key is None:
            new += [s for operation in operations for s in _standing_alone(operation)]
            continue
        behind = [step.operation for _, group in groups[k + 1 :] for step in group]
        after = {n for operation in behind for n in names(operation.flat_proxy_args)}
        outputs = [
            p for o in operations for p in o.flat_proxy_outs if p.name in found | after | later
        ]
        new.append(fuse(key, operations, outputs, number))
        number += 1
    statements[at:at] = new
    made_now = {n for s in new for n in made_by(s)}
    between = tuple(sorted(made_now - found - passed))
    return [Done(name, "made again", sources, between) for name in sorted(found | passed)]


def _lead(steps: Sequence[Step], found: set[str], made: set[str]) -> list[Step]:
    """Those of ``steps`` that lead to ``found`` from what is ``made``."""
    wanted = set(found)
    path = []
    for step in reversed(steps):
        if made_by(step.operation) & wanted and not made_by(step.operation) <= made:
            path.append(step)
            wanted |= names(step.operation.flat_proxy_args)
    return path[::-1]


def _standing_alone(operation: Any) -> list[Any]:
    """A statement as it was in the forward; one that no executor has claimed, by torch."""
    if operation.sym.executor is None and operation.sym.python_impl is None:
        return run_by_torch([operation])
    return [operation.from_bsym()]


def _merge(fusion: Any, operations: Sequence[Any]) -> Any:
    """A fusion that runs ``operations`` first, instead of taking what they make."""
    inside = {n for operation in fusion.subsymbols for n in made_by(operation)}
    first = [o for o in operations if not made_by(o) <= inside]
    operations = [*first, *fusion.subsymbols]
    return fuse(fusion.sym.executor, operations, fusion.flat_proxy_outs, number_of(fusion))
