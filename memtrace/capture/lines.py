"""Lines of generated code as ranges of the profiler, for the time of the profiled iteration.

Thunder's and Inductor's generated functions are found among Python's objects just before; only
they are watched, so that all other code runs as ever. From Python 3.12 on by ``sys.monitoring``,
on all threads and beside whatever debugger there is; with 3.11 by ``sys.settrace`` on the thread
that runs the model and, while they are in a backward function, on autograd's own.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType

from memtrace.capture.patches import Notes, Patches
from memtrace.capture.ranges import Ranges
from memtrace.capture.watches import Busy, Monitoring, Tracing, Watch


class GeneratedLines:
    """``find``, then ``start`` once the profiler runs, and ``stop`` before it ends."""

    def __init__(self, notes: Notes, patches: Patches) -> None:
        self._notes = notes
        self._patches = patches
        self._codes: list[CodeType] = []
        self._ranges: Ranges | None = None
        self._watch: Watch | None = None

    def find(self) -> None:
        """Look for generated functions: a walk over all objects, a tenth of a second."""
        self._codes = generated_codes()

    def start(self) -> None:
        """Begin to make ranges; a note says so where that cannot be."""
        if not self._codes or self._watch is not None:
            return
        from torch._C._profiler import _RecordFunctionFast

        from memtrace.snapshot.format import LINE_PREFIX

        ranges = Ranges(_RecordFunctionFast, LINE_PREFIX)
        watch: Watch
        if hasattr(sys, "monitoring"):
            watch = Monitoring(ranges, self._failed, sys.monitoring)
        else:
            watch = Tracing(ranges, self._failed, self._patches)
        # Before it starts: should it fail half-way, stop() takes back the rest.
        self._ranges, self._watch = ranges, watch
        try:
            watch.start(self._codes)
        except Busy as error:
            self._notes.add(f"lines of generated code were not timed: {error}")

    def stop(self) -> None:
        """End all ranges and watch no longer; nothing happens where nothing was begun."""
        watch, self._watch = self._watch, None
        ranges, self._ranges = self._ranges, None
        self._codes = []
        try:
            if watch is not None:
                watch.stop()
        finally:
            if ranges is not None:
                ranges.close()

    def _failed(self, error: Exception) -> None:
        self._notes.failure("timing lines of generated code", error)
        self._notes.guard("timing lines of generated code", self.stop)()


def generated_codes() -> list[CodeType]:
    """The code of all generated functions alive, and of functions within them."""
    from memtrace.snapshot.generated import is_generated

    known: dict[str, bool] = {}
    found: dict[int, CodeType] = {}
    for candidate in gc.get_objects():
        # type(), not isinstance(): that asks the object, and some proxies answer by doing work.
        if type(candidate) is FunctionType:
            filename = candidate.__code__.co_filename
            if filename not in known:
                known[filename] = is_generated(filename)
            if known[filename]:
                found.update((id(code), code) for code in _nested(candidate.__code__))
    return list(found.values())


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
