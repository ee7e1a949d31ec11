"""Stacks as the naming needs them: the Python frames, and what the C++ frames inside them say.

torch records C++ frames with ``stacks="all"`` (its own default, not memtrace's). They come between
the allocator and the Python line, so they name the operator, and on autograd's threads, where there
is no Python at all, the node.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memtrace.snapshot.columns import Frame, StackTable

_NATIVE_FILE = re.compile(r"^$|^\?\?$|\.(?:c|cc|cpp|cxx|cu|h|hh|hpp|cuh|S)$|\.so(?:\.|$)")
_OPERATOR = re.compile(r"\bat::_ops::(?P<name>\w+)::(?:call|redispatch)\b")
_OVERLOAD = re.compile(r"_[A-Z].*")  # of a word: add_Tensor is aten::add, overload Tensor
_NODE = re.compile(r"\btorch::autograd::(?:generated::)?(?P<name>\w+)::apply\b")
_OTHER_NODES = ("Node", "PyNode", "CppNode")  # what calls a node, not one itself
_WORKSPACE = ("getCurrentCUDABlasHandle", "getCUDABlasLtWorkspace")


@dataclass(frozen=True, slots=True)
class Operator:
    """``name``: the outermost operator or the autograd node ('aten::linear', 'MmBackward0');
    ``operation``: the operator within a node ('aten::mm'), '' otherwise;
    ``forward``: row of the forward operator that the node belongs to, -1 where not known;
    ``layer``: path of the module whose call it lies in, '' where not known.
    """

    name: str
    operation: str
    forward: int = -1
    layer: str = ""


def is_native(filename: str) -> bool:
    """Whether a frame with this file is C++'s."""
    return bool(_NATIVE_FILE.search(filename))


class Stacks:
    """The stacks of one recording, each looked at once."""

    def __init__(self, table: StackTable) -> None:
        self._table = table
        self._python: dict[int, list[Frame]] = {}
        self._is_native = [is_native(f.filename) for f in table.frames]

    def python(self, stack: int) -> list[Frame]:
        """The Python frames of a stack, innermost first."""
        if stack not in self._python:
            rows = self._table.stacks[stack]
            frames, native = self._table.frames, self._is_native
            self._python[stack] = [frames[k] for k in rows if not native[k]]
        return self._python[stack]

    def native(self, stack: int) -> Operator | None:
        """The operator or node that the C++ frames inside the innermost Python frame name."""
        inner = self._inner(stack)
        operators = [found["name"] for f in inner if (found := _OPERATOR.search(f.name))]
        operator = f"aten::{_OVERLOAD.sub('', operators[-1])}" if operators else ""
        nodes = [found["name"] for f in inner if (found := _NODE.search(f.name))]
        node = next((name for name in nodes if name not in _OTHER_NODES), "")
        if node:
            return Operator(node, operator)
        return Operator(operator, "") if operator else None

    def workspace(self, stack: int) -> bool:
        """Whether the allocation is the workspace that torch gives a cuBLAS handle."""
        return any(name in f.name for f in self._inner(stack) for name in _WORKSPACE)

    def _inner(self, stack: int) -> Sequence[Frame]:
        rows = self._table.stacks[stack]
        outer = (k for k, row in enumerate(rows) if not self._is_native[row])
        return self._table.at(stack)[: next(outer, len(rows))]
