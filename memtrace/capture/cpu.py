"""Recording without a GPU: the profiler sees what the CPU allocator does, with Python's stacks.

The CPU allocator keeps no history. The profiler reports each allocation and free, and with
``with_stack`` the Python calls around it; both together are turned into the events that the CUDA
allocator's history would hold.

The profiler runs from the end of ``import torch`` to the end of the script. It keeps 1.6 KB for
every Python call, so it is stopped, emptied and started anew ("rotated") at iteration boundaries
once it has grown, and its Python tracer is silent during imports and compilations (quiet.py).
Between stop and start, only this module runs on the script's thread.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from typing import Any

from memtrace.capture import kineto
from memtrace.capture.patches import Notes, Patches
from memtrace.capture.quiet import Quiet
from memtrace.capture.tree import MARK_PREFIX, Tree, read_tree

# Growth of the process since the last rotation that calls for another one. A small model's step is
# a few thousand calls (a few MB); what the script itself allocates counts, too, and does no harm.
_GROWTH = 300 << 20


class CpuRecorder:
    """The backend of ``--device cpu``."""

    def __init__(self, notes: Notes, max_events: int) -> None:
        self._notes = notes
        self._max_events = max_events
        self._thread = threading.get_ident()
        self._resident = 0
        self._open_ranges = 0
        self._emptied = False
        self.quiet = Quiet()
        self.tree = Tree()
        self.start_events = 0
        self.running = False
        self._at_fork: Any = None
        self._muted_at_fork = 0
        self.suspended = False  # a profiler of the script's own is at work

    def start(self, patches: Patches, *, late: bool) -> None:
        """Begin. Must be called on the thread that will run the model.

        ``late``: torch was there before; whether tensors were, the garbage collector knows.
        """
        import torch
        from torch._C._profiler import _RecordFunctionFast

        self._range = _RecordFunctionFast
        self.quiet.quiet_imports(patches)
        self._watch_ranges(patches, torch.autograd.profiler.record_function)
        # By type: isinstance would run the __class__ of every proxy there is.
        if late and any(issubclass(type(o), torch.Tensor) for o in gc.get_objects()):
            self.start_events = 1
            self._notes.add("tensors existed before the recording: their memory is not in it")
        if kineto.running():  # to start another one would end it
            self._make_way()
            return
        # Without a GPU, a CUDA build of the profiler prints an error about that.
        quiet_log = "KINETO_LOG_LEVEL" not in os.environ
        if quiet_log:
            os.environ["KINETO_LOG_LEVEL"] = "5"
        try:
            self._begin()
        finally:
            if quiet_log:
                del os.environ["KINETO_LOG_LEVEL"]

    def _begin(self) -> None:
        kineto.start(cuda=False, stack=True)
        self.running = True
        self._resident = _resident()

    def mark(self, number: int) -> None:
        """Leave a range in the profiler's own stream: its place among the allocations is exact."""
        if threading.get_ident() != self._thread:
            self._notes.add(
                "iterations or passes ran on another thread than the script's first: without a "
                "GPU, allocations there are not seen"
            )
        elif self.running:
            with self._range(f"{MARK_PREFIX}{number}"):
                pass

    def rotate(self, *, force: bool = False) -> Any:
        """Empty the profiler if it has grown, or in any case; returns its results, or None.

        Never while a ``record_function`` range of the script is open: when such a range ends, torch
        writes into the memory of the session it began in, which would be gone.
        """
        if not self.running or threading.get_ident() != self._thread or self._open_ranges > 0:
            return None
        if not force and _resident() - self._resident < _GROWTH:
            return None
        collecting = gc.isenabled()
        gc.disable()  # a collection here would free tensors unseen
        try:
            result = self._end()
            self._begin()
            self._keep(result)
            self._emptied = True
        finally:
            if collecting:
                gc.enable()
        return result

    def settle(self) -> None:
        """Once the results of ``rotate`` are gone: give their memory back, count growth from here.

        Else the next session would fill that memory before the process grew at all, and each
        session would hold more than the one before it.
        """
        if self._emptied:
            self._emptied = False
            _give_back()
            self._resident = _resident()

    def _end(self) -> Any:
        self.quiet.unmute(force=True)
        self.running = False
        return kineto.stop()

    def _keep(self, result: Any) -> None:
        # The next session runs already and would see the calls made here.
        self.quiet.mute()
        try:
            read_tree(result, self.tree)
        except Exception as error:
            self._notes.failure("reading the profiler's events", error)
        finally:
            self.quiet.unmute()

    def suspend(self) -> None:
        """Make way for a profiler of the script's own: there can be only one."""
        if self.running and threading.get_ident() == self._thread:
            self._keep(self._end())
            self._make_way()

    def _make_way(self) -> None:
        self.suspended = True
        self._notes.add(
            "the script ran a profiler of its own: allocations in its time were not seen"
        )

    def resume(self) -> None:
        """The script's own profiler has ended."""
        if self.suspended and not kineto.running():
            self.suspended = False
            self._begin()

    @property
    def out_of_reach(self) -> bool:
        """Whether the profiler runs on another thread than this one, which cannot stop it."""
        return self.running and threading.get_ident() != self._thread

    def finish(self) -> Any:
        """Stop for good; the events are in ``tree``. Returns the last session's results."""
        self.quiet.active = False
        result = None
        if self.out_of_reach:
            self._notes.add(
                "the script was ended by another thread than the one that was recorded: the "
                "allocations since the profiler was last emptied are lost"
            )
        elif self.running:
            result = self._end()
            self._keep(result)
        return result

    def before_fork(self) -> None:
        """Stop, so that the child does not go on recording; see rotate() for the ranges."""
        if self.running and threading.get_ident() == self._thread and not self._open_ranges:
            self._muted_at_fork = self.quiet.nested
            self._at_fork = self._end()

    def after_fork(self) -> None:
        """Go on in the parent."""
        result, self._at_fork = self._at_fork, None
        if result is not None:
            self._begin()
            self._keep(result)
            for _ in range(self._muted_at_fork):  # a compiler forks workers
                self.quiet.mute()

    def leave_child(self) -> None:
        """In a forked child: nothing is recorded; what the parent collected is its own."""
        self.running = False
        self.quiet.active = False
        self._at_fork = None
        sys.setprofile(None)

    def _watch_ranges(self, patches: Patches, record_function: Any) -> None:
        recorder = self
        enter, leave = record_function.__enter__, record_function.__exit__

        def __enter__(self: Any) -> Any:
            recorder._open_ranges += 1
            return enter(self)

        def __exit__(self: Any, *exception: Any) -> Any:
            recorder._open_ranges -= 1
            return leave(self, *exception)

        patches.set(record_function, "__enter__", __enter__)
        patches.set(record_function, "__exit__", __exit__)


def _give_back() -> None:
    """Memory that was freed goes back to the system; glibc would keep it between what is in use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident() -> int:
    """Bytes of memory this process holds; 0 where the system does not say (not Linux)."""
    try:
        with open("/proc/self/statm") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
