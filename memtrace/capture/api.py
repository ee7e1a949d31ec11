"""``with memtrace.record("a.pkl"): …`` and ``memtrace.step()``."""

from __future__ import annotations

import contextlib
import os
import sys
from types import TracebackType
from typing import Self

from memtrace.capture.assemble import Ending
from memtrace.capture.options import DeviceChoice, Outcome, StackChoice
from memtrace.capture.program import error_ending
from memtrace.capture.runner import Recorder, _options
from memtrace.capture.session import Session, current
from memtrace.capture.signals import INTERRUPTED


class record:
    """Record what runs inside the ``with`` block; the options are those of ``memtrace record``.

    The capture is written when the block ends, also by an exception, which goes on. Afterwards
    ``outcome`` says what came of it. Best entered before the model is built, so that everything
    alive at the peak was seen being allocated; entered later, the blocks alive then are kept.

    Raises MemtraceError if the output cannot be written, RuntimeError inside another recording.
    """

    def __init__(
        self,
        output: str | os.PathLike[str],
        *,
        device: DeviceChoice = "auto",
        stacks: StackChoice = "python",
        max_events: int | None = None,
        check_driver: bool = False,
        force: bool = False,
        window: str | None = None,
    ) -> None:
        self._options = _options(output, device, stacks, max_events, check_driver, force, window)
        self._recorder: Recorder | None = None
        self.outcome: Outcome | None = None

    def __enter__(self) -> Self:
        self._options.check()
        if current() is not None:
            raise RuntimeError("memtrace is recording already; end that recording first")
        session = Session(self._options, list(sys.argv))
        self._recorder = Recorder(session, goes_on=True)
        session.start()
        self._recorder.watch_exits()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._recorder is None:
            return
        self.outcome = self._recorder.finish(_ending(error))
        if self.outcome.error is not None and sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # closed
                print(f"memtrace: {self.outcome.error}", file=sys.stderr)


def step() -> None:
    """An iteration begins here and the one before it ends. Nothing happens outside a recording."""
    session = current()
    if session is not None:
        session.step()


def _ending(error: BaseException | None) -> Ending:
    if error is None:
        return Ending()
    if isinstance(error, SystemExit):
        code = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
        return Ending("exit", code, f"SystemExit: {error}")
    if isinstance(error, KeyboardInterrupt):
        return Ending("interrupt", INTERRUPTED, "KeyboardInterrupt")
    return error_ending(error)
