"""The profiler's event tree as allocator events with Python stacks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from memtrace.capture.frames import kind_of

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
    count: int = 0  # of the allocations and frees read so far
    _names: dict[str, str] = field(default_factory=dict)
    _stacks: dict[Any, list[dict[str, Any]]] = field(default_factory=dict)
    _frames: dict[tuple[str, int, str], dict[str, Any]] = field(default_factory=dict)

    def forget(self, first: int, last: int) -> None:
        """Leave out what was allocated and freed between two marks, and the marks between them."""
        if first not in self.marks or last not in self.marks:
            return
        begin, end = self.marks[first], self.marks[last]
        self.allocations.sort(key=lambda row: row[:2])
        gone: set[int] = set()
        made: dict[int, int] = {}  # address → row of what was allocated there within
        for k, (time_ns, tie, address, size, _) in enumerate(self.allocations):
            if not begin <= (time_ns, tie) < end:
                continue
            old = made.pop(address, None)
            if old is not None:
                gone.add(old)
                gone.update((k,) if size < 0 else ())
            if size > 0:
                made[address] = k
        self.allocations = [row for k, row in enumerate(self.allocations) if k not in gone]
        for number in [n for n in self.marks if first < n < last]:
            del self.marks[number]

    def stack(self, chain: Any) -> list[dict[str, Any]]:
        """The frame dicts of a linked chain ((file, line, name), outer chain) or None."""
        found = self._stacks.get(chain)
        if found is None:
            found = []
            link = chain
            while link is not None:
                (short, line, name), link = link
                filename = self._names.get(short)
                if filename is None:
                    filename = self._names[short] = full_name(short)
                kind = kind_of(filename)
                if kind == 2:
                    break
                if kind:
                    continue
                key = (filename, line, name)
                frame = self._frames.get(key)
                if frame is None:
                    frame = self._frames[key] = {"filename": filename, "line": line, "name": name}
                found.append(frame)
            self._stacks[chain] = found
        return found


def full_name(short: str) -> str:
    """The file that the profiler names: it cuts off the folder of sys.path that a file lies in."""
    if os.path.isabs(short) or short.startswith(("<", "thunder.")):
        return short
    from torch.profiler.python_tracer import _prefix_regex

    for folder in _prefix_regex():  # the folders it cuts off, in its order
        path = os.path.join(folder, short)
        if os.path.exists(path):
            return path
    return short


@dataclass(slots=True)
class _Level:
    """One level of the walk: the children of ``event`` and how far they are done."""

    event: Any
    tag: Any
    children: list[Any]
    at: int = 0
    chain: Any = None  # of a Python call: the chain of its callers, once it was asked for
    known: bool = False


def read_tree(result: Any, tree: Tree) -> None:
    """Add the allocations and marks of one session (torch's _ProfilerResult) to ``tree``.

    A call, Python or C, carries its caller's line. An operator written as ``a + b`` makes no call:
    its allocation gets the line of the call before it in the same function, or the function's
    first.
    A free gets the line of the call before it: it lies between two calls.

    There are a thousand calls for every allocation, so stacks are worked out only where one is.
    What happens in the range of a line is taken as if the range were not there: stacks are the same
    in the iteration that has such ranges and in all others.
    """
    from torch._C._profiler import _EventType

    from memtrace.snapshot.format import LINE_PREFIX

    walk = _Walk(_EventType.PyCall, _EventType.PyCCall)
    alloc, op = _EventType.Allocation, _EventType.TorchOp
    levels = [_Level(None, None, result.experimental_event_tree())]
    while levels:
        level = levels[-1]
        if level.at == len(level.children):
            levels.pop()
            continue
        event = level.children[level.at]
        level.at += 1
        tag = event.tag
        if tag == alloc:
            fields = event.extra_fields
            if fields.alloc_size and fields.device.type == "cpu":
                tie = tree.count
                tree.count += 1
                frames = tree.stack(walk.chain(levels))
                row = (event.start_time_ns, tie, fields.ptr, fields.alloc_size, frames)
                tree.allocations.append(row)
        elif tag == op and event.name.startswith(MARK_PREFIX):
            number = int(event.name.removeprefix(MARK_PREFIX))
            tree.marks[number] = (event.start_time_ns, tree.count)
        elif tag == op and event.name.startswith(LINE_PREFIX):
            level.children[level.at - 1 : level.at] = event.children
            level.at -= 1
            continue
        below = event.children
        if below:
            levels.append(_Level(event, tag, below))


@dataclass(slots=True)
class _Walk:
    """Works out stacks from the levels of a walk."""

    pycall: Any
    pyccall: Any

    def chain(self, levels: list[_Level]) -> Any:
        """The stack at the child that the innermost level is at, None where no Python is around."""
        inner = next((k for k in range(len(levels) - 1, 0, -1) if levels[k].tag == self.pycall), 0)
        if not inner:
            return None
        callee = levels[inner].event.extra_fields.callsite
        line = self._line(levels, inner) or callee.line_number
        return (callee.file_name, line, callee.function_name), self._callers(levels, inner)

    def _line(self, levels: list[_Level], inner: int) -> int:
        """The line of the last call that the function at ``levels[inner]`` made so far, 0 none."""
        for k in range(len(levels) - 1, inner - 1, -1):
            level = levels[k]
            for event in reversed(level.children[: level.at]):
                if event.tag in (self.pycall, self.pyccall):
                    return int(event.extra_fields.caller.line_number)
            if level.tag == self.pyccall:
                return int(level.event.extra_fields.caller.line_number)
        return 0

    def _callers(self, levels: list[_Level], inner: int) -> Any:
        level = levels[inner]
        if not level.known:
            level.known = True
            fields = level.event.extra_fields
            caller, callee = fields.caller, fields.callsite
            above = next((k for k in range(inner - 1, 0, -1) if levels[k].tag == self.pycall), 0)
            outer = self._callers(levels, above) if above else None
            # The outermost frame has no caller: torch gives the frame itself.
            if above or (caller.file_name, caller.function_name) != (
                callee.file_name,
                callee.function_name,
            ):
                outer = (caller.file_name, caller.line_number, caller.function_name), outer
            level.chain = outer
        return level.chain
