"""Temporary files: their names, and how those are told whose writer was killed."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress

try:
    import fcntl
except ImportError:  # not on Windows: leftovers stay
    fcntl = None  # type: ignore[assignment]

_NAME = 200  # characters of the final name, which may be as long as a name can be


def make_temporary(name: str) -> tuple[int, str]:
    """A new file in the folder of ``name``: '.NAME.1a2b3c4d.tmp', opened and locked, and its path.

    The lock ends with the process, however that ends. OSError where no file can be made.
    """
    while True:
        path = f"{_stem(name)}{secrets.token_hex(4)}.tmp"
        # Not tempfile: its files are private (0600), a capture is as open as the umask lets it be.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if fcntl is not None:
            if handle <= 2:
                # The program has closed its stdout: what writes there must not write into this.
                low, handle = handle, fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, 3)
                os.close(low)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, path
        os.close(handle)  # taken for a leftover before it was locked


def remove_leftovers(name: str) -> None:
    """Remove the temporary files for ``name`` that nobody writes any more."""
    if fcntl is None:
        return
    folder, stem = os.path.split(_stem(name))
    wanted = re.compile(re.escape(stem) + r"[0-9a-f]{8}\.tmp")
    try:
        leftovers = [found for found in os.listdir(folder) if wanted.fullmatch(found)]
    except OSError:  # whoever writes there will say what is wrong with it
        return
    for found in leftovers:
        path = os.path.join(folder, found)
        with suppress(OSError):  # somebody else's
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            except BlockingIOError:  # somebody is writing it
                pass
            finally:
                os.close(handle)


def _stem(name: str) -> str:
    return os.path.join(os.path.dirname(name), f".{os.path.basename(name)[:_NAME]}.")
