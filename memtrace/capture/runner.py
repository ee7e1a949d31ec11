"""Runs a script as ``python SCRIPT`` would, records it, and writes the capture whatever happens."""

from __future__ import annotations

import atexit
import contextlib
import os
import runpy
import sys
import threading
import traceback
import types
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from memtrace.capture.assemble import Collected, Ending, build, collect
from memtrace.capture.options import Options, Outcome
from memtrace.capture.ranks import find_rank, name_output
from memtrace.capture.session import Session
from memtrace.capture.signals import (
    INTERRUPTED,
    TERMINATED,
    Terminated,
    terminable,
    uninterrupted,
)
from memtrace.capture.window import cut
from memtrace.errors import MemtraceError


class Recorder:
    """A session and its end, which comes once: at the script's end or in os._exit."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lock = threading.RLock()
        self._outcome: Outcome | None = None

    def finish(self, ending: Ending) -> Outcome:
        """Stop, write, take back all changes. The second call returns the first one's outcome."""
        with self._lock:
            if os.getpid() != self.session.pid:
                return Outcome(exit_code=ending.code)
            if self._outcome is None:
                # Ctrl-C while a capture is written would lose the run it was pressed to end.
                with uninterrupted():
                    self._outcome = self._finish(ending)
            return self._outcome

    def _finish(self, ending: Ending) -> Outcome:
        session = self.session
        found = Collected()
        error: str | None = None
        path: Path | None = session.options.output
        capture: dict[str, Any] = {}
        try:
            end = session.marks.add("end")
            if session.device:  # torch was imported
                session.find_owners(end)
            session.guard("reading what Thunder compiled", session.thunder_hooks.harvest)()
            session.phases.active = False
            session.profile.end_lines()
            found = collect(session, ending)
            session.profile.finish(found.profile)
            session.release()
            capture = build(session, found, ending)
            if session.window is not None:
                name = str(session.options.output)
                whole, count = capture, session.window.count
                capture = session.guard("cutting", cut)(whole, count, name) or whole
            from memtrace.snapshot.files import write_capture

            write_capture(session.options.output, capture, force=session.options.force)
        except MemtraceError as failure:
            error, path = str(failure), None
        except Exception as failure:
            place = traceback.extract_tb(failure.__traceback__)[-1]
            error = (
                f"{session.options.output}: not written, a bug in memtrace: "
                f"{type(failure).__name__}: {failure} ({place.filename}:{place.lineno})"
            )
            path = None
        finally:
            session.release()
        meta = capture.get("memtrace", {})
        return Outcome(
            exit_code=ending.code,
            path=path,
            error=error,
            device=session.device,
            events=sum(len(t) for t in capture.get("device_traces", ())),
            iterations=len(meta.get("iterations", [])),
            peak_bytes=found.peak,
            compilers=list(meta.get("facts", {}).get("compilers", [])),
            notes=list(session.notes.texts),
        )

    def watch_exit(self, ended: Callable[[Outcome], None] | None = None) -> None:
        """os._exit in this process writes the capture first."""
        leave = os._exit

        def _exit(status: int) -> None:
            if os.getpid() == self.session.pid and self.session.active:
                outcome = self.finish(Ending("exit", int(status)))
                if ended is not None:
                    ended(outcome)
            leave(status)

        self.session.patches.set(os, "_exit", _exit)


def record_script(
    target: str,
    args: list[str],
    *,
    module: bool = False,
    output: Path,
    device: str = "auto",
    stacks: str = "python",
    max_events: int | None = None,
    check_driver: bool = False,
    force: bool = False,
    window: str | None = None,
    ended: Callable[[Outcome], None] | None = None,
) -> Outcome:
    """Run ``target`` (a script, or a module with ``module``) under the recorder.

    Returns when the script has ended, however it did: its exit code is in the outcome, its
    traceback was printed as Python would have. ``ended`` is called with the outcome only where the
    script ends the process itself (os._exit), so that it can still be printed.

    Raises MemtraceError before the script runs if the output cannot be written or the script is
    not there.
    """
    options = _options(output, device, stacks, max_events, check_driver, force, window)
    options.check()
    if not module and not os.path.exists(target):
        raise MemtraceError(f"{target}: no such file; give the path of a Python script")
    # The top package alone: to look for what is in it would import it, before the recording.
    package = target.partition(".")[0]
    if module and not PathFinder.find_spec(package, [os.getcwd(), *sys.path]):
        raise MemtraceError(
            f"{target}: there is no module {package!r}; give one that python -m finds"
        )
    session = Session(options, [target, *args], module=module)
    recorder = Recorder(session)
    session.start()
    recorder.watch_exit(ended)
    with terminable():
        ending = _run(target, args, module)
        if os.getpid() != session.pid:
            _leave_child(ending)
        return recorder.finish(ending)


def _leave_child(ending: Ending) -> None:
    """End a forked child that ran the script to its end, as Python would end it.

    But for the destructors of C++: the profiler's library waits there for a thread that the fork
    left behind, for ever. (So does every process that used torch's profiler and forks.)
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(ending.code)


def _options(
    output: str | os.PathLike[str],
    device: Any,
    stacks: Any,
    max_events: int | None,
    check_driver: bool,
    force: bool,
    window: str | None,
) -> Options:
    limit = {} if max_events is None else {"max_events": max_events}
    path = name_output(Path(output), find_rank())
    return Options(
        path,
        device=device,
        stacks=stacks,
        check_driver=check_driver,
        force=force,
        window=window,
        **limit,
    )


def _run(target: str, args: list[str], module: bool) -> Ending:
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
        _print_exception(end)
        return Ending("interrupt", INTERRUPTED, "KeyboardInterrupt")
    except Terminated:
        return Ending("interrupt", TERMINATED, "SIGTERM")
    except BaseException as end:
        _print_exception(end)
        text = f"{type(end).__name__}: {end}"
        return Ending("oom" if _out_of_memory(end) else "exception", 1, text)
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
    print(code, file=sys.stderr)
    return Ending("exit", 1, str(code))


def _out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    kind = getattr(torch, "OutOfMemoryError", None)
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if (kind is not None and isinstance(cause, kind)) or isinstance(cause, MemoryError):
            return True
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False


def _print_exception(error: BaseException) -> None:
    """As Python would: without the frames that lead to the script, and through sys.excepthook."""
    own = {os.path.abspath(__file__), os.path.abspath(runpy.__file__), "<frozen runpy>"}
    where = error.__traceback__
    while where is not None:
        filename = where.tb_frame.f_code.co_filename
        if filename not in own and os.path.abspath(filename) not in own:
            break
        where = where.tb_next
    try:
        sys.excepthook(type(error), error.with_traceback(where), where)
    except Exception:
        traceback.print_exception(type(error), error, where)
    sys.stderr.flush()
