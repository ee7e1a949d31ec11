"""The profiler's event tree as allocator events with Python stacks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any



_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_HIDDEN = "<frozen importlib"
MARK_PREFIX = "memtrace#"


@dataclass(slots=True)
class Tree:
    """What was read from all sessions of the profiler, in no order yet.

    ``allocations``: (time_ns, tie, address, bytes, frames) with bytes < 0 for a free; ``frames`` is
    a list of frame dicts, innermost first, shared between events of one stack.
    ``marks``: mark number → (time_ns, tie).
    """

    allocations: list[tuple[int, int, int, int, list[dict[str, Any]]]] = field(default_factory=list)
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)
    _stacks: dict[Any, list[dict[str, Any]]] = field(default_factory=dict)
    _frames: dict[tuple[str, int, str], dict[str, Any]] = field(default_factory=dict)

    def stack(self, chain: Any) -> list[dict[str, Any]]:
        """The frame dicts of a linked chain ((file, line, name), outer chain) or None."""
        found = self._stacks.get(chain)
        if found is None:
            found = []
            link = chain
            while link is not None:
                (filename, line, name), link = link
                if filename.startswith((_OWN, _HIDDEN)):
                    continue
                key = (filename, line, name)
                frame = self._frames.get(key)
                if frame is None:
                    frame = self._frames[key] = {"filename": filename, "line": line, "name": name}
                found.append(frame)
            self._stacks[chain] = found
        return found


@dataclass(slots=True)
class _Function:
    """A Python function on the stack while the tree is walked. ``line`` is the last one known."""

    outer: Any  # the chain of its callers
    filename: str
    line: int
    name: str


def read_tree(result: Any, tree: Tree) -> None:
    """Add the allocations and marks of one session (torch's _ProfilerResult) to ``tree``.

    A call, Python or C, carries its caller's line. An operator written as ``a + b`` makes no call:
    its allocation gets the line of the call before it in the same function, or the function's first.
    A free gets the line of the call before it: it lies between two calls.
    """
    from torch._C._profiler import _EventType

    alloc, pycall, pyccall, op = (
        _EventType.Allocation,
        _EventType.PyCall,
        _EventType.PyCCall,
        _EventType.TorchOp,
    )
    todo: list[tuple[Any, Any]] = [(iter(result.experimental_event_tree()), None)]
    while todo:
        children, function = todo[-1]
        event = next(children, None)
        if event is None:
            todo.pop()
            continue
        tag = event.tag
        inside = function
        if tag == pycall:
            fields = event.extra_fields
            caller, callee = fields.caller, fields.callsite
            outer = None if function is None else function.outer
            link = (caller.file_name, caller.line_number, caller.function_name)
            # The outermost frame has no caller: torch gives the frame itself.
            if function is not None or (link[0], link[2]) != (callee.file_name, callee.function_name):
                outer = (link, outer)
            if function is not None:
                function.line = link[1]
            inside = _Function(outer, callee.file_name, callee.line_number, callee.function_name)
        elif tag == pyccall:
            if function is not None:
                function.line = event.extra_fields.caller.line_number
        elif tag == alloc:
            fields = event.extra_fields
            if fields.device.type == "cpu" and fields.alloc_size:
                chain = None
                if function is not None:
                    chain = ((function.filename, function.line, function.name), function.outer)
                tie = len(tree.allocations)
                tree.allocations.append(
                    (event.start_time_ns, tie, fields.ptr, fields.alloc_size, tree.stack(chain))
                )
        elif tag == op and event.name.startswith(MARK_PREFIX):
            number = int(event.name.removeprefix(MARK_PREFIX))
            tree.marks[number] = (event.start_time_ns, len(tree.allocations))
        below = event.children
        if below:
            todo.append((iter(below), inside))
