"""Silences the profiler's Python tracer while Python works for the compiler and not for the model.

A compilation or a large import makes tens of millions of Python calls, 1.6 KB each once the
profiler resolves them: with them a recording with stacks ends for lack of memory. CPython can
suspend tracing for a thread (PyThreadState_EnterTracing, public since 3.11), while the profiler's
operator and memory events go on.

The profiler keeps a stack of calls and returns per thread, so as many returns must go unseen as
calls: ``Quiet`` suspends and resumes at the same depth of the Python stack.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import threading
from typing import Any

from memtrace.capture.patches import Patches

_bootstrap: Any = importlib._bootstrap
# How much deeper than its caller the tracer is suspended, so that the one who resumes, whose own
# depth differs by a little, can climb to the same depth.
_MARGIN = 6

# Importlib calls this by attribute for every module that is not loaded yet. The file name makes
# Python cut the frame from the tracebacks of failed imports, as it does with importlib's own.
_IMPORT_WRAPPER = """
def _find_and_load(name, import_):
    state = enter_here()
    if state is None:
        return inner(name, import_)
    enter(state)
    try:
        return inner(name, import_)
    finally:
        leave(state)
"""


class Quiet:
    """The switch of one thread (the one that made it); calls from others do nothing."""

    def __init__(self) -> None:
        api = ctypes.pythonapi
        self._get = api.PyThreadState_Get
        self._get.restype = ctypes.c_void_p
        self._get.argtypes = []
        self._enter = api.PyThreadState_EnterTracing
        self._leave = api.PyThreadState_LeaveTracing
        for function in (self._enter, self._leave):
            function.restype = None
            function.argtypes = [ctypes.c_void_p]
        self._thread = threading.get_ident()
        self._state: int | None = None
        self._depth = 0
        self._nested = 0
        self.active = True

    def mute(self) -> None:
        """Suspend tracing; nested calls count."""
        if not self.active or threading.get_ident() != self._thread:
            return
        self._nested += 1
        if self._nested == 1:
            self._depth = _depth() + _MARGIN
            self._climb(self._depth, True)

    def unmute(self, *, force: bool = False) -> None:
        """Resume tracing once the outermost mute ended; ``force`` ends all of them."""
        if threading.get_ident() != self._thread or not self._nested:
            return
        self._nested = 0 if force else self._nested - 1
        if not self._nested:
            self._climb(self._depth, False)

    @property
    def nested(self) -> int:
        """How many mutes are in force."""
        return self._nested

    def _climb(self, depth: int, enter: bool) -> None:
        if _depth() < depth:
            self._climb(depth, enter)
        elif enter:
            self._state = self._get()
            self._enter(self._state)
        elif self._state is not None:
            self._leave(self._state)
            self._state = None

    def quiet_imports(self, patches: Patches) -> None:
        """Suspend tracing while modules are imported for the first time."""

        def enter_here() -> int | None:
            if not self.active or threading.get_ident() != self._thread:
                return None
            return int(self._get())

        scope: dict[str, Any] = {
            "inner": _bootstrap._find_and_load,
            "enter_here": enter_here,
            "enter": self._enter,
            "leave": self._leave,
        }
        exec(compile(_IMPORT_WRAPPER, "<frozen importlib._bootstrap>", "exec"), scope)
        patches.set(_bootstrap, "_find_and_load", scope["_find_and_load"])


def _depth() -> int:
    frame = sys._getframe(1)
    count = 0
    here: Any = frame
    while here is not None:
        count += 1
        here = here.f_back
    return count
