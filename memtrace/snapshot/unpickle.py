"""Unpickling of plain data: containers, numbers and strings, and nothing else, ever.

A pickle is a program, and three of its powers are taken away here:

1. To look up globals (``os.system``): the unpickler's ``find_class`` and ``persistent_load`` raise.
2. To ask for memory out of proportion to the file. ``LONG_BINPUT`` with a great operand makes the
   C unpickler allocate a table of 16 GB from nine bytes.
3. To crash the interpreter: hashing a deeply nested tuple recurses in C with no check.

For 2 and 3 the program is walked before it is run (walk.py). A resource limit on the process would
also do for 2, but it would hit the other threads of whoever imports memtrace, and exists only on
Linux; a child process costs a start and a second copy.

What is run need not be all of the file. The events of a history, nearly all of it, are read from
their bytes (bulk.py) and left out of the program (shorten.py). This gives the file no power more:
reading bytes makes columns, whose size is bounded by the file's; what is left of the program is
walked as before; and each event that is left out is known, byte by byte, to have pushed one dict
and filled so many places of the memo, which is what stands in its place does too. Whatever does
not fit this picture, and whatever goes wrong in it, leads to the whole program being walked and run
instead, so what is refused, and in which words, is the same.
"""

from __future__ import annotations

import gc
import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NoReturn

from memtrace.errors import MemtraceError
from memtrace.snapshot.walk import READS, walk


class _OneFrame:
    """A pickle as a file in which one FRAME opcode announces all of it.

    The C unpickler then takes the whole pickle at once, without a copy. From a file it would take
    one frame at a time, and where an operand reaches over the end of a frame it drops what it has
    of it: a crafted file would be read otherwise than it was walked.
    """

    def __init__(self, raw: bytes) -> None:
        self._head = io.BytesIO(b"\x95" + len(raw).to_bytes(8, "little"))
        self._raw = raw
        self._pos = 0

    def read(self, size: int, /) -> bytes:
        if head := self._head.read(size):
            return head
        begin, self._pos = self._pos, self._pos + size
        return self._raw[begin : self._pos]  # all of it is no copy

    def readline(self) -> bytes:
        return b""  # lines are found in what has been read


class _PlainUnpickler(pickle.Unpickler):
    """The C unpickler without its two doors. Overriding methods costs nothing where none is hit."""

    def __init__(self, stream: _OneFrame, path: str) -> None:
        super().__init__(stream)
        self._path = path

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        name = f"{module_name}.{global_name}"[:80]
        raise MemtraceError(
            f"{self._path}: asks for the Python object {name!r}, which plain snapshots never do"
            f"{_hint(name)}; {READS}, and never runs what a file asks for"
        )

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise MemtraceError(
            f"{self._path}: refers to objects outside the file, as the pickle inside a torch.save "
            f"checkpoint does; {READS}"
        )


def load_plain(data: bytes | BinaryIO, path: str) -> Any:
    """The object in a pickle of plain data. ``path`` is for messages only.

    Takes memory in proportion to the data (at worst some 30 times). Raises MemtraceError for
    everything that can be wrong with the data.
    """
    try:
        raw = data if isinstance(data, bytes) else data.read()
        walk(raw, path)
    except MemtraceError:
        raise
    except Exception as error:
        raise _damaged(error, path) from None
    return run_plain(raw, path)


def run_plain(raw: bytes, path: str) -> Any:
    """The object in a pickle that has been walked. Raises MemtraceError."""
    try:
        with paused_gc():
            return _PlainUnpickler(_OneFrame(raw), path).load()
    except MemtraceError:
        raise
    except Exception as error:
        # The unpickler raises nearly every built-in exception on damaged data.
        raise _damaged(error, path) from None


def _damaged(error: Exception, path: str) -> MemtraceError:
    if isinstance(error, MemoryError):
        return MemtraceError(f"{path}: too large for this machine's memory; use one with more")
    what = " ".join(f"{type(error).__name__}: {error}".split())[:120]
    return MemtraceError(f"{path}: damaged pickle ({what}); record or copy it again")


@contextmanager
def paused_gc() -> Iterator[None]:
    """No cyclic garbage collection inside: it would walk millions of new containers in vain."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _hint(name: str) -> str:
    if name.startswith(("torch", "collections.OrderedDict")):
        return " (a torch checkpoint?)"
    if name.startswith("numpy"):
        return " (it holds numpy arrays)"
    return ""
