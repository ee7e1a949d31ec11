"""Runs a script as ``python SCRIPT`` would, records it, and writes the capture whatever happens."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from memtrace.capture.assemble import Collected, Ending, build, collect
from memtrace.capture.options import Options, Outcome
from memtrace.capture.program import leave_child, run_program
from memtrace.capture.ranks import find_rank, name_output
from memtrace.capture.session import Session
from memtrace.capture.signals import INTERRUPTED, deadly, uninterrupted
from memtrace.capture.window import cut
from memtrace.errors import MemtraceError

ABORTED = 128 + signal.SIGABRT


class Recorder:
    """A session and its end, which comes once: at the script's end, or just before it is killed."""

    def __init__(self, session: Session, *, goes_on: bool = False) -> None:
        """``goes_on``: the script does, when the recording has ended."""
        self.session = session
        self.finishing = False
        self._goes_on = goes_on
        self._lock = threading.RLock()
        self._outcome: Outcome | None = None

    def finish(self, ending: Ending) -> Outcome:
        """Stop, write, take back all changes. The second call returns the first one's outcome."""
        with self._lock:
            if os.getpid() != self.session.pid:
                return Outcome(exit_code=ending.code)
            if self._outcome is None:
                # Ctrl-C while a capture is written would lose the run it was pressed to end.
                with uninterrupted(self._goes_on):
                    self.finishing = True
                    self._outcome = self._finish(ending)
            return self._outcome

    def _finish(self, ending: Ending) -> Outcome:
        session = self.session
        found = Collected()
        error: str | None = None
        path: Path | None = session.options.output
        capture: dict[str, Any] = {}
        try:
            if session.cpu is not None and session.cpu.out_of_reach:
                session.marks.add("gap", "begin", "thread")
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
        except MemoryError:
            error = (
                f"{path}: not written: there was not enough memory left to put the capture "
                "together; record less with --max-events, or give the script less"
            )
            path = None
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
            interrupted=(ending.kind, ending.code) == ("interrupt", INTERRUPTED),
        )

    def watch_exits(self, ended: Callable[[Outcome], None] | None = None) -> None:
        """What ends or replaces this process with no word to Python writes the capture first."""

        def last(ending: Ending) -> None:
            if os.getpid() == self.session.pid and self.session.active:
                outcome = self.finish(ending)
                if ended is not None:
                    ended(outcome)

        leave, abort = os._exit, os.abort

        def _exit(status: int) -> None:
            last(Ending("exit", int(status)))
            leave(status)

        def abort_() -> None:
            last(Ending("interrupt", ABORTED, "os.abort()"))
            abort()

        self.session.patches.set(os, "_exit", _exit)
        self.session.patches.set(os, "abort", abort_)
        for name in ("execv", "execve"):
            self.session.patches.set(os, name, self._before_exec(name, last))

    def _before_exec(self, name: str, last: Callable[[Ending], None]) -> Callable[..., None]:
        replace = getattr(os, name)

        def exec_(path: Any, *rest: Any, **more: Any) -> None:
            # os.execvp tries one folder after the other: the attempts that fail end nothing.
            if os.path.exists(path) and os.access(path, os.X_OK):
                self.session.notes.add(
                    f"the script replaced itself by os.{name}({path!r}): what ran then was not "
                    "recorded"
                )
                last(Ending("exit", 0, f"os.{name}"))
            replace(path, *rest, **more)

        return exec_


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
    process ends without a return (os._exit, a signal), so that it can still be printed.

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
    recorder.watch_exits(ended)

    def killed(number: signal.Signals) -> bool:
        if recorder.finishing:
            return False
        outcome = recorder.finish(Ending("interrupt", 128 + number, number.name))
        if ended is not None:
            ended(outcome)
        return True

    with deadly(killed, session.patches):
        try:
            ending = run_program(target, args, module)
        except KeyboardInterrupt:  # as the script had just ended
            ending = Ending("interrupt", INTERRUPTED, "KeyboardInterrupt")
        if os.getpid() != session.pid:
            leave_child(ending)
        try:
            return recorder.finish(ending)
        except KeyboardInterrupt:  # just before, or just after
            return recorder.finish(ending)


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
        # The script may change the working directory.
        Path(os.path.abspath(path)),
        device=device,
        stacks=stacks,
        check_driver=check_driver,
        force=force,
        window=window,
        **limit,
    )
