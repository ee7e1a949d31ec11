"""Signals while a script is recorded and while its capture is written."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from memtrace.capture.patches import Patches

INTERRUPTED = 128 + signal.SIGINT
# What ends a process that asked for nothing else, and can be asked for.
_DEADLY = [
    getattr(signal, name)
    for name in ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU")
    if hasattr(signal, name)
]


class deadly:
    """Lets ``last`` work before a signal ends the process, which it then does as it always would.

    So no ``finally`` clause runs and no buffer is written. Where ``last`` returns False, it comes
    too late and the signal is forgotten. Not where somebody else has asked for the signal, before
    or since; and whoever asks who has (Lightning does) is not told of us.
    """

    def __init__(self, last: Callable[[signal.Signals], bool], patches: Patches) -> None:
        self._last = last
        self._patches = patches
        self._pid = os.getpid()
        self._ending = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        handle, handler_of = signal.signal, signal.getsignal

        def plain(handler: Any) -> Any:
            return signal.SIG_DFL if handler == self._end else handler

        def signal_(signalnum: Any, handler: Any) -> Any:
            if self._pid == os.getpid() and handler == signal.SIG_DFL and signalnum in _DEADLY:
                handler = self._end
            return plain(handle(signalnum, handler))

        def getsignal(signalnum: Any) -> Any:
            return plain(handler_of(signalnum))

        for number in _DEADLY:
            if handler_of(number) == signal.SIG_DFL:
                handle(number, self._end)
        for name, function in (("signal", signal_), ("getsignal", getsignal)):
            function.__name__ = name
            function.__doc__ = getattr(signal, name).__doc__
            self._patches.set(signal, name, function)

    def __exit__(self, *exception: object) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in _DEADLY:
                if signal.getsignal(number) == self._end:
                    signal.signal(number, signal.SIG_DFL)

    def _end(self, number: int, frame: Any) -> None:
        dies = True
        try:
            # A forked child dies of it, too. A second signal does not wait for the first.
            if os.getpid() == self._pid and not self._ending:
                self._ending = True
                dies = self._last(signal.Signals(number))
        finally:
            self._ending = dies
            if dies:
                self._patches.undo(signal, "signal")
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)


class uninterrupted:
    """Signals wait until the capture is written.

    Then they are forgotten, or delivered where the script ``goes_on``.
    """

    def __init__(self, goes_on: bool) -> None:
        self._goes_on = goes_on
        self._before: dict[int, Any] = {}
        self._arrived: list[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (
                signal.SIGINT,
                signal.SIGTERM,
                getattr(signal, "SIGHUP", signal.SIGTERM),
            ):
                if number not in self._before and signal.getsignal(number) is not None:
                    self._before[number] = signal.signal(number, self._wait)

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for number in self._arrived if self._goes_on else ():
            os.kill(os.getpid(), number)

    def _wait(self, number: int, frame: Any) -> None:
        self._arrived.append(number)
