"""The ways to be told of the lines that chosen functions run.

``sys.monitoring`` tells of calls, and lines are looked up: its own events for lines take time in
proportion to the length of the function (20 µs for a line of a thousand, 100 µs for one of 4000, by
Python 3.12 and 3.13), those for calls 0.1 µs. So a line that calls nothing, a ``del``, counts as a
part of the one before it. Python 3.12.1 does not tell of calls of Python functions with more than
30 arguments (3.12.3 does): where there are such, each instruction is told of, once (0.1 µs).
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable
from opcode import opmap
from types import CodeType
from typing import Any, Protocol

from memtrace.capture.patches import Patches
from memtrace.capture.ranges import Ranges

_TOOL = "memtrace"
# Tools' numbers without a meaning of their own (0 debugger, 1 coverage, 2 profiler, 5 optimizer).
_TOOL_NUMBERS = (3, 4)
_LONG_CALL = opmap.get("CALL_FUNCTION_EX", -1)


class Busy(Exception):
    """Somebody else uses what Python has for this; the text says who or what."""


class Watch(Protocol):
    """A way to be told of lines."""

    def start(self, codes: list[CodeType]) -> None:
        """Begin. Raises Busy, with nothing changed, where somebody else is there already."""

    def stop(self) -> None:
        """End; nothing is left behind."""


class Monitoring:
    """Python 3.12 and newer. ``api`` is ``sys.monitoring``."""

    def __init__(self, ranges: Ranges, failed: Callable[[Exception], None], api: Any) -> None:
        self._api = api
        self._codes: list[CodeType] = []
        self._tool: int | None = None
        # By id of the code: where in its bytes lines begin, and their numbers; and its long calls.
        self._tables: dict[int, tuple[list[int], list[int]]] = {}
        self._long_calls: dict[int, frozenset[int]] = {}
        events, tables, long_calls = api.events, self._tables, self._long_calls

        def enter(code: CodeType, *_: Any) -> None:
            try:
                ranges.enter(code)
            except Exception as error:
                failed(error)

        def call(code: CodeType, offset: int, *_: Any) -> None:
            try:
                begins, numbers = tables[id(code)]
                ranges.line(code, numbers[bisect_right(begins, offset) - 1])
            except Exception as error:
                failed(error)

        def instruction(code: CodeType, offset: int) -> Any:
            if offset not in long_calls[id(code)]:
                return api.DISABLE
            return call(code, offset)

        def leave(code: CodeType, *_: Any) -> None:
            try:
                ranges.leave(code)
            except Exception as error:
                failed(error)

        self._callbacks = {
            events.PY_START: enter,
            events.PY_RESUME: enter,
            events.CALL: call,
            events.INSTRUCTION: instruction,
            events.PY_RETURN: leave,
            events.PY_YIELD: leave,
            # Cannot be had for single functions; costs where an exception passes through one.
            events.PY_UNWIND: leave,
        }

    def start(self, codes: list[CodeType]) -> None:
        api = self._api
        tool = next((n for n in _TOOL_NUMBERS if api.get_tool(n) is None), None)
        if tool is None:
            raise Busy("other tools use Python's monitoring")
        api.use_tool_id(tool, _TOOL)
        self._tool, self._codes = tool, codes
        local = 0
        for event, callback in self._callbacks.items():
            api.register_callback(tool, event, callback)
            if event not in (api.events.PY_UNWIND, api.events.INSTRUCTION):
                local |= event
        for code in codes:
            self._tables[id(code)] = _line_table(code)
            self._long_calls[id(code)] = found = _long_calls(code)
            more = api.events.INSTRUCTION if found and sys.version_info < (3, 12, 3) else 0
            api.set_local_events(tool, code, local | more)
        api.set_events(tool, api.events.PY_UNWIND)

    def stop(self) -> None:
        api, tool = self._api, self._tool
        if tool is None:
            return
        self._tool = None
        api.set_events(tool, 0)
        for code in self._codes:
            api.set_local_events(tool, code, 0)
        for event in self._callbacks:
            api.register_callback(tool, event, None)
        api.free_tool_id(tool)


def _line_table(code: CodeType) -> tuple[list[int], list[int]]:
    """Offsets at which the bytes of a line begin, ascending, and the numbers of the lines."""
    rows = [(begin, number or code.co_firstlineno) for begin, _, number in code.co_lines()]
    return [begin for begin, _ in rows], [number for _, number in rows]


def _long_calls(code: CodeType) -> frozenset[int]:
    """Offsets of calls with more than 30 arguments, or with ``*`` or ``**``."""
    # Instructions are two bytes each, the first says which; what caches follow are zero.
    kinds = code.co_code[::2]
    return frozenset(2 * k for k, kind in enumerate(kinds) if kind == _LONG_CALL)


class Tracing:
    """Python 3.11."""

    def __init__(
        self, ranges: Ranges, failed: Callable[[Exception], None], patches: Patches
    ) -> None:
        self._patches = patches
        self._codes: dict[int, CodeType] = {}

        def trace_line(frame: Any, event: str, argument: Any) -> Any:
            try:
                if event == "line":
                    ranges.line(frame.f_code, frame.f_lineno)
                elif event == "return":  # also where an exception leaves it
                    ranges.leave(frame.f_code)
            except Exception as error:
                failed(error)
            return trace_line

        def trace_call(frame: Any, event: str, argument: Any) -> Any:
            if id(frame.f_code) not in self._codes:
                return None
            try:
                ranges.enter(frame.f_code)
            except Exception as error:
                failed(error)
            return trace_line

        self._trace_call = trace_call

    def start(self, codes: list[CodeType]) -> None:
        if sys.gettrace() is not None:
            raise Busy("a debugger or coverage tool traces the program (Python 3.12 knows both)")
        self._codes = {id(code): code for code in codes}
        self._watch_backward()
        sys.settrace(self._trace_call)

    def stop(self) -> None:
        # One that the script has set since stays.
        if sys.gettrace() is self._trace_call:
            sys.settrace(None)
        self._codes = {}
        from torch.autograd.function import BackwardCFunction

        self._patches.undo(BackwardCFunction, "apply")

    def _watch_backward(self) -> None:
        """The engine's threads enter Python here; tracing is a matter of each thread."""
        from torch.autograd.function import BackwardCFunction

        apply, trace_call = BackwardCFunction.apply, self._trace_call

        def traced_apply(self: Any, *args: Any) -> Any:
            if sys.gettrace() is not None:
                return apply(self, *args)
            sys.settrace(trace_call)
            try:
                return apply(self, *args)
            finally:
                if sys.gettrace() is trace_call:
                    sys.settrace(None)

        self._patches.set(BackwardCFunction, "apply", traced_apply)
