"""Signals while a script is recorded and while its capture is written."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

TERMINATED = 128 + signal.SIGTERM
INTERRUPTED = 128 + signal.SIGINT


class Terminated(BaseException):
    """SIGTERM arrived. Not an Exception: a script that catches those must not swallow it."""


class terminable:
    """SIGTERM raises in the main thread, if nobody else has asked for the signal."""

    def __enter__(self) -> None:
        self._before: Any = None
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            self._before = signal.SIG_DFL
            pid = os.getpid()

            def terminate(number: int, frame: Any) -> None:
                if os.getpid() != pid:  # a forked child dies of it as it always did
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                raise Terminated

            signal.signal(signal.SIGTERM, terminate)

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)


class uninterrupted:
    """Ctrl-C and SIGTERM wait until the capture is written; then they are forgotten."""

    def __enter__(self) -> None:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, signal.SIG_IGN)

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            if handler is not None:
                signal.signal(number, handler)
