"""What a command opens, runs, connects to: seen by Python's own audit events."""

from __future__ import annotations

import collections
import dataclasses
import os
import sys
import traceback
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIBRARIES = [
    os.path.dirname(os.path.dirname(os.__file__)),
    sys.prefix,
    str(Path(__file__).parent.parent.parent / "memtrace"),
    "/dev/null",
    "/proc/self",
    "/usr/share/zoneinfo",
]


@contextmanager
def watched(folder: Path, allowed: list[str]) -> Iterator[list[str]]:
    """Collects what is opened outside of some folders, run, compiled, connected to or imported.

    For good, so there is one watch for a process: sys.addaudithook has no way back.
    """
    roots = tuple(os.path.realpath(one) for one in (str(folder), *allowed))
    seen: list[str] = []
    state["seen"] = seen
    state["roots"] = roots
    if "hook" not in state:
        state["hook"] = True
        sys.addaudithook(_audit)
    state["on"] = True
    try:
        yield seen
    finally:
        state["on"] = False


state: dict[str, Any] = {"on": False}
_MAKERS = (typing.__file__, dataclasses.__file__, collections.__file__, traceback.__file__)
_FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "subprocess.Popen",
    "socket.connect", "socket.bind", "exec", "compile", "ctypes.dlopen", "pickle.find_class",
    "shutil.rmtree", "os.remove", "os.chmod", "os.symlink", "urllib.Request", "webbrowser.open",
)  # fmt: skip


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not state["on"]:
        return
    if event in _FORBIDDEN:
        if event == "os.remove" and _within(arguments[0]):
            return
        if event == "ctypes.dlopen" and arguments[0] is None:
            return  # the C library that is loaded already
        if event in ("exec", "compile") and _is_pythons(sys._getframe(1).f_code.co_filename):
            return
        state["seen"].append(f"{event} {str(arguments)[:200]}")
    elif event == "open" and not isinstance(arguments[0], int) and not _within(arguments[0]):
        state["seen"].append(f"open {arguments[0]!r}")


def _is_pythons(filename: str) -> bool:
    """Whether it is one of the standard library's files that run what they made up themselves:
    the hints of memtrace's own types, the methods of its own dataclasses, its modules."""
    return filename.startswith("<frozen importlib") or filename in _MAKERS


def _within(path: Any) -> bool:
    return os.path.realpath(os.fspath(path)).startswith(state["roots"])
