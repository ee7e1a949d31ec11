"""Decides which iteration runs under the profiler, and keeps what it saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memtrace.capture import kineto
from memtrace.capture.lines import GeneratedLines

if TYPE_CHECKING:
    from memtrace.capture.session import Session

_TRIES = 5


class ProfiledIteration:
    """One iteration that compiled nothing, after one that compiled nothing.

    The first steady iteration after that of the compilation is still let pass: what the second call
    of a compiled model does (first frees of the cache, lazy initialisation) is not steady yet.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.compiled = False  # something was compiled since the last boundary
        self.result: Any = None  # torch's _ProfilerResult of the profile that was kept
        self.begin: int | None = None  # the mark its iteration began at
        self._running = False
        self._begun = False  # an iteration began already: at the next boundary one has completed
        self._tries = 0
        self._lines = GeneratedLines(session.notes, session.patches)
        self.error = ""

    @property
    def running(self) -> bool:
        """Whether the iteration in progress runs under the profiler."""
        return self._running

    def boundary(self) -> None:
        """An iteration ends and another begins."""
        steady = self._begun and not self.compiled
        self._stop(keep=not self.compiled)
        self.compiled = False
        if steady and self.result is None and self._tries < _TRIES:
            self._start()

    def began(self, mark: int) -> None:
        """The iteration that ``boundary`` made way for begins at this mark."""
        self._begun = True
        if self._running and self.begin is None:
            self.begin = mark

    def _start(self) -> None:
        session = self._session
        if not session.profiler_allowed:
            return
        self._tries += 1
        session.quietly("looking for generated code", self._lines.find)
        try:
            if session.cpu is not None:
                # The recorder's own profiler runs anyway: a session of it for this iteration alone.
                self._running = session.cpu.rotate(force=True) is not None
            elif session.history is not None and session.history.started:
                if kineto.running():
                    self.error = "another profiler was running"
                    return
                _synchronize()
                kineto.start(cuda=True, stack=False)
                self._running = True
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            session.notes.failure("starting the profiler", error)
        if self._running:
            session.guard("timing lines of generated code", self._lines.start)()

    def _stop(self, *, keep: bool) -> None:
        if not self._running:
            return
        session = self._session
        self._running = False
        self.end_lines()
        begin, self.begin = self.begin, None
        try:
            if session.cpu is not None:
                result = session.cpu.rotate(force=True) if session.cpu.running else None
            else:
                _synchronize()
                result = kineto.stop()
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            session.notes.failure("stopping the profiler", error)
            return
        if keep and begin is not None and result is not None:
            self.result, self.begin = result, begin
        elif self.compiled:
            session.notes.add(
                "something was compiled in the iteration under the profiler; another one was taken"
                if self._tries < _TRIES
                else "no iteration without compilation was found to profile"
            )

    def end_lines(self) -> None:
        """Make no more ranges for lines: something is compiled, or the profiler is to end."""
        self._session.guard("timing lines of generated code", self._lines.stop)()

    def restart(self) -> None:
        """What was taken for iterations so far were none: forget what was profiled of them."""
        self.end_lines()
        if self._running and self._session.cpu is None:
            kineto.stop()
        # The CPU recorder's own profiler goes on; it is emptied at the next boundary.
        self._running = False
        self.result = self.begin = None
        self._tries = 0

    def abandon(self, why: str) -> None:
        """End without a result: a profiler of the script's own starts."""
        if self._running:
            self._stop(keep=False)
        if self.result is None:
            self.error = why

    def finish(self, last: Any) -> None:
        """The script has ended. ``last``: the CPU recorder's last results, if it had one."""
        if self._running and self._session.cpu is not None:
            self._running = False
            if not self.compiled and last is not None and self.begin is not None:
                self.result = last
            return
        self._stop(keep=not self.compiled)


def _synchronize() -> None:
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
