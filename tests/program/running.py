"""Runs the text of a Thunder program with Python itself, and counts the bytes that are alive.

Tensors are stand-ins with a size; what is a view holds the storage of what it is a view of.
Python's own reference counting does the rest, so that a prediction is held against what really
happens.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any


class _Storage:
    """Memory: it counts from its making until nothing holds it."""


class _Tensor:
    def __init__(self, storage: _Storage) -> None:
        self.storage = storage


class Counter:
    """The bytes that are alive, and the most that ever were."""

    def __init__(self) -> None:
        self.live = self.most = 0

    def make(self, size: int) -> _Tensor:
        storage = _Storage()
        self.live += size
        self.most = max(self.most, self.live)
        weakref.finalize(storage, self._free, size)
        return _Tensor(storage)

    def _free(self, size: int) -> None:
        self.live -= size


def run(
    text: str,
    sizes: Mapping[str, int],
    views: Sequence[str],
    arguments: Mapping[str, int],
    cotangents: Sequence[int],
    hold_outputs: bool,
) -> int:
    """The most bytes beside the arguments that a program with a forward and a backward has alive.

    ``sizes`` are the bytes of each name that an operator makes, ``views`` the operators whose
    result has the memory of their first input.
    """
    counter = Counter()
    given = Counter()  # arguments are the caller's

    def operator(name: str) -> Callable[..., Any]:
        def call(*inputs: Any) -> Any:
            *tensors, outputs = inputs
            if name in views:
                return _Tensor(tensors[0].storage)
            made = [counter.make(sizes[one]) for one in outputs]
            return made if len(made) > 1 else made[0]

        return call

    tree = ast.parse(text)
    names = {node.func.attr for node in ast.walk(tree) if _is_operator(node)}
    torch = SimpleNamespace(**{name: operator(name) for name in names})
    # Each call is told which names it makes; all else runs as it stands.
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_operator(node.value):
            target = node.targets[0]
            made = [t.id for t in target.elts] if isinstance(target, ast.List) else [target.id]  # type: ignore[attr-defined]
            node.value.args.append(ast.Constant(tuple(made)))  # type: ignore[attr-defined]
    space: dict[str, Any] = {"torch": torch, "clear_mutable_collection": lambda c: c.clear()}
    exec(compile(ast.fix_missing_locations(tree), "trace", "exec"), space)
    outputs, (saved, other) = space["computation"](*(given.make(s) for s in arguments.values()))
    saved = [list(saved), list(other)]
    outputs = outputs["output"] if hold_outputs else None
    space["backward_fn"](saved, [counter.make(size) for size in cotangents])
    return counter.most


def _is_operator(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "torch"
    )
