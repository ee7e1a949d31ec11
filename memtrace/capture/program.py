"""Runs a program as ``python SCRIPT`` would, and ends as Python would."""

from __future__ import annotations

import atexit
import contextlib
import os
import runpy
import sys
import threading
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memtrace.capture.assemble import Ending
from memtrace.capture.frames import is_own
from memtrace.capture.signals import INTERRUPTED


def run_program(target: str, args: list[str], module: bool) -> Ending:
    """Run the program; prints what Python would print about its end."""
    sys.argv = [target, *args]
    before = sys.modules.get("__main__")
    try:
        if module:
            sys.path[0:1] = [os.getcwd()]
            _keep.append(runpy.run_module(target, run_name="__main__", alter_sys=True))
        elif os.path.isfile(target) and not _is_archive(target):
            sys.path[0:1] = [os.path.dirname(os.path.realpath(target))]
            _run_file(target)
        else:
            _keep.append(runpy.run_path(target, run_name="__main__"))
        _join_threads()
        return Ending()
    except SystemExit as end:
        return _exit_ending(end)
    except KeyboardInterrupt as end:
        return _print_exception(end) or Ending("interrupt", INTERRUPTED, "KeyboardInterrupt")
    except BaseException as end:
        return _print_exception(end) or error_ending(end)
    finally:
        # The script's module stays alive until the capture is written: what its globals hold is
        # alive at the end of the recording. `before` is kept for the same reason.
        _keep.append(before)


_keep: list[Any] = []


def _run_file(target: str) -> None:
    # Absolute, as Python has it since 3.9; sys.argv[0] stays as it was given.
    target = os.path.abspath(target)
    main = types.ModuleType("__main__")
    main.__file__ = target
    main.__dict__["__builtins__"] = __builtins__
    main.__dict__["__cached__"] = None
    main.__spec__ = None
    # Read as bytes: the source may declare its encoding.
    code = compile(Path(target).read_bytes(), target, "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _is_archive(target: str) -> bool:
    with open(target, "rb") as stream:
        return stream.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def _join_threads() -> None:
    """Python waits for a program's threads before it ends; so do we before we look.

    Not for the workers of executors: those wait for work until the interpreter itself tells them
    that it ends, which is after the capture.
    """
    workers: set[Any] = set()
    for module, table in (("thread", "_threads_queues"), ("process", "_threads_wakeups")):
        found = getattr(sys.modules.get(f"concurrent.futures.{module}"), table, None)
        workers.update(found or ())
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread.daemon or thread in workers:
            continue
        thread.join()


def _exit_ending(end: SystemExit) -> Ending:
    code = end.code
    if code is None:
        return Ending("exit", 0)
    if isinstance(code, int):
        return Ending("exit", int(code) & 0xFF)
    with contextlib.suppress(Exception):  # closed, perhaps
        if sys.stderr is not None:
            print(code, file=sys.stderr)
    return Ending("exit", 1, str(code))


def error_ending(error: BaseException) -> Ending:
    """How a script ends that this error ended."""
    text = f"{type(error).__name__}: {error}"
    causes = list(_causes(error))
    kind = getattr(sys.modules.get("torch"), "OutOfMemoryError", None)
    device_full = kind is not None and any(isinstance(cause, kind) for cause in causes)
    oom = device_full or any(
        isinstance(cause, MemoryError) or _CPU_ALLOCATOR in str(cause) for cause in causes
    )
    return Ending("oom" if oom else "exception", 1, text, device_full)


# What the RuntimeError of torch's allocator for the CPU begins with.
_CPU_ALLOCATOR = "DefaultCPUAllocator: "


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and those it followed from."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _print_exception(error: BaseException) -> Ending | None:
    """As Python would: without the frames that lead to the script, and through sys.excepthook.

    Returns how the script ends where its hook decides that: by SystemExit.
    """
    where = _without_own(error)
    try:
        sys.excepthook(type(error), error.with_traceback(where), where)
    except SystemExit as end:
        return _exit_ending(end)
    except Exception as fault:
        with contextlib.suppress(Exception):
            print("Error in sys.excepthook:", file=sys.stderr)
            fault.__context__ = None
            traceback.print_exception(fault.with_traceback(_without_own(fault)))
            print("\nOriginal exception was:", file=sys.stderr)
            traceback.print_exception(type(error), error, where)
    with contextlib.suppress(Exception):
        sys.stderr.flush()
    return None


def _without_own(error: BaseException) -> types.TracebackType | None:
    """The error's traceback without the frames that lead to the script, nor our hooks'.

    Those of the errors that it followed from are made so, too.
    """
    for cause in _causes(error):
        frames: list[types.TracebackType] = []
        where = cause.__traceback__
        while where is not None:
            filename = where.tb_frame.f_code.co_filename
            leads = not frames and filename in (runpy.__file__, "<frozen runpy>")
            if not leads and not is_own(filename):
                frames.append(where)
            where = where.tb_next
        for frame, inner in zip(frames, [*frames[1:], None], strict=False):
            frame.tb_next = inner
        cause.__traceback__ = frames[0] if frames else None
    return error.__traceback__


def leave_child(ending: Ending) -> None:
    """End a forked child that ran the script to its end, as Python would end it.

    But for the destructors of C++: the profiler's library waits there for a thread that the fork
    left behind, for ever. (So does every process that used torch's profiler and forks.)
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(ending.code)
