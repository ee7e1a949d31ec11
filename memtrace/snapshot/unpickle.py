"""Unpickling of plain data: containers, numbers and strings, and nothing else, ever.

A pickle is a program, and three of its powers are taken away here:

1. To look up globals (``os.system``): the unpickler's ``find_class`` and ``persistent_load`` raise.
2. To ask for memory out of proportion to the file. ``LONG_BINPUT`` with a great operand makes the
   C unpickler allocate a table of 16 GB from nine bytes.
3. To crash the interpreter: hashing a deeply nested tuple recurses in C with no check.

For 2 and 3 the program is walked before it is run. A resource limit on the process would also do
for 2, but it would hit the other threads of whoever imports memtrace, and exists only on Linux; a
child process costs a start and a second copy. Walking opcode by opcode in Python is ten times
slower than loading, so one regular expression swallows runs of harmless opcodes in C, and Python
sees only the rest.
"""

from __future__ import annotations

import gc
import io
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, BinaryIO, NoReturn

from memtrace.errors import MemtraceError

READS = "memtrace reads captures and torch.cuda.memory snapshots"

# Tuples of anything but two small integers, and sets. Real files hold a few thousand. A nesting
# of 100,000 tuples hashes within the usual 8 MB of stack, so this many can never overflow it.
_MOST_NESTABLE = 50_000
# An empty dict is one byte in the file and 64 in memory. Real files hold one container in 20 bytes
# or more; small files may do as they like.
_MANY_CONTAINERS = 16_000_000

_LINE = frozenset(b"ILFSVgp")  # operand up to a newline
_NESTABLE = frozenset(b"t\x85\x86\x87\x8f\x90\x91")
_LOOKUP = frozenset(b"c\x93iPQ")  # the unpickler below always raises there
_OBJECT = frozenset(b"Rbo\x81\x92\x82\x83\x84\x97\x98")
_BARE = frozenset(b"ld")
# Opcode → width of the length in front of its bytes.
_COUNTED = {
    0x8C: 1, 0x58: 4, 0x8D: 8,  # SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
    0x43: 1, 0x42: 4, 0x8E: 8, 0x96: 8,  # SHORT_BINBYTES, BINBYTES, BINBYTES8, BYTEARRAY8
    0x55: 1, 0x54: 4,  # SHORT_BINSTRING, BINSTRING
    0x8A: 1, 0x8B: 4,  # LONG1, LONG4
}  # fmt: skip


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
        with paused_gc():
            _walk(raw, path)
            return _PlainUnpickler(_OneFrame(raw), path).load()
    except MemtraceError:
        raise
    except MemoryError:
        raise MemtraceError(
            f"{path}: too large for this machine's memory; use one with more"
        ) from None
    except Exception as error:
        # The unpickler raises nearly every built-in exception on damaged data.
        what = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise MemtraceError(f"{path}: damaged pickle ({what}); record or copy it again") from None


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


def _walk(raw: bytes, path: str) -> None:
    """Refuse a pickle that would take too much memory or crash; see the module's docstring.

    Every opcode is seen with its operand, as the unpickler will see it, up to STOP or to the first
    that looks something up, where the unpickler is sure to raise.
    """
    containers = raw.count(b"}") + raw.count(b"]") if len(raw) > _MANY_CONTAINERS else 0
    if containers > max(_MANY_CONTAINERS, len(raw) // 4):
        raise MemtraceError(
            f"{path}: {containers} empty containers, which no snapshot has; {READS}"
        )
    harmless = _harmless(len(raw)).match
    pos = nestable = 0
    size = len(raw)
    while True:
        if pos < size and (found := harmless(raw, pos)):
            pos = found.end()
        if pos >= size:
            raise _truncated(path)
        op = raw[pos]
        if width := _COUNTED.get(op):
            pos += 1 + width + int.from_bytes(raw[pos + 1 : pos + 1 + width], "little")
        elif op in _LINE:
            end = raw.find(b"\n", pos)
            if end < 0:
                raise _truncated(path)
            if op == 0x70 and not 0 <= int(raw[pos + 1 : end]) <= pos:
                raise _bomb(path)
            pos = end + 1
        elif op in _BARE:
            pos += 1
        elif op in _NESTABLE:
            pos += 1
            nestable += 1
            if nestable > _MOST_NESTABLE:
                raise MemtraceError(f"{path}: more tuples than any snapshot has; {READS}")
        elif op == 0x2E or op in _LOOKUP:
            return
        elif op in _OBJECT:
            raise MemtraceError(
                f"{path}: builds Python objects, which plain snapshots never do; {READS}"
            )
        elif op == 0x72 and pos + 5 <= size:
            raise _bomb(path)
        elif op in b"hqKMJjrG\x80\x95":
            raise _truncated(path)  # the operand is cut off
        else:
            raise MemtraceError(
                f"{path}: damaged, or not a pickle (byte {pos} is 0x{op:02x}); {READS}"
            )


@lru_cache(maxsize=8)
def _harmless_for(top: int, wide: bool) -> re.Pattern[bytes]:
    memo = b"[\\x00-\\x%02x]" % top
    counted = b"|".join(b"\\x%02x%s" % (n, b"." * n) for n in range(41))
    longs = b"|".join(b"\\x%02x%s" % (n, b"." * n) for n in (6, 7, 5, 4, 3, 2, 1, 0, 8))
    return re.compile(
        b"(?s)(?:"
        + b"|".join(
            (
                b"j....j....j....j....",  # stacks are mostly these
                b"j....",
                b"h.",
                b"[]\\x94}(aues)N\\x88\\x890]",
                b"K.K.\\x86",  # (0, 0), the pool of every event in newer files
                b"K.",
                b"\\x8a(?:" + longs + b")",
                b"J....|M..",
                b"\\x8c(?:" + counted + b")",
                b"r..." + memo if wide else b"r.." + memo + b"\\x00",
                b"q.|G.{8}|\\x95.{8}|\\x80.|[12]",
            )
        )
        + b")*+"
    )


def _harmless(size: int) -> re.Pattern[bytes]:
    """Runs of opcodes that can do no harm in a pickle of ``size`` bytes.

    LONG_BINPUT is among them with an operand of at most ``size``, rounded up to the next 64 KiB (or
    16 MiB): whoever numbers the memo from 0 needs no more, and its table stays 16 times that.
    """
    wide = size >> 16 > 0xFF
    return _harmless_for(min(size >> 24, 0xFF) if wide else size >> 16, wide)


def _truncated(path: str) -> MemtraceError:
    return MemtraceError(
        f"{path}: truncated, the end of the pickle is missing; record or copy it again"
    )


def _bomb(path: str) -> MemtraceError:
    return MemtraceError(
        f"{path}: asks for memory out of all proportion to its size; do not trust it"
    )


def _hint(name: str) -> str:
    if name.startswith(("torch", "collections.OrderedDict")):
        return " (a torch checkpoint?)"
    if name.startswith("numpy"):
        return " (it holds numpy arrays)"
    return ""
