"""Walks the program that a pickle is, before it is run, and refuses what would do harm.

Every opcode is seen with its operand, as the unpickler will see it, up to STOP or to the first
that looks something up, where the unpickler is sure to raise. Walking opcode by opcode in Python is
ten times slower than loading, so one regular expression swallows runs of harmless opcodes in C, and
Python sees only the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

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
# Numbers of the memo that the file chooses, bytes, and whatever the unpickler raises at.
_NOT_IN_BULK = frozenset(b"pqrCB\x8e\x96") | _LOOKUP | _OBJECT
# Opcode → width of the length in front of its bytes.
_COUNTED = {
    0x8C: 1, 0x58: 4, 0x8D: 8,  # SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
    0x43: 1, 0x42: 4, 0x8E: 8, 0x96: 8,  # SHORT_BINBYTES, BINBYTES, BINBYTES8, BYTEARRAY8
    0x55: 1, 0x54: 4,  # SHORT_BINSTRING, BINSTRING
    0x8A: 1, 0x8B: 4,  # LONG1, LONG4
}  # fmt: skip


class Unsuited(Exception):
    """A pickle whose events cannot be read in bulk."""


@dataclass(frozen=True, slots=True)
class Way:
    """What a walk around some stretches of a pickle met.

    ``met`` are the numbers of the stretches that begin where an opcode begins, ``memo`` how many
    objects were put into the memo outside of stretches before each of these, ``frames`` the places
    of the FRAME opcodes outside of them, ``stop`` the place of the STOP opcode.
    """

    met: list[int]
    memo: list[int]
    frames: list[int]
    stop: int


def walk(raw: bytes, path: str) -> None:
    """Refuse a pickle that would take too much memory or crash, with a MemtraceError."""
    check_containers(raw, path)
    _follow(raw, path, _harmless(len(raw)), [], [], bulk=False)


def walk_around(raw: bytes, path: str, begins: Sequence[int], ends: Sequence[int]) -> Way:
    """``walk``, but leaving out stretches that are known to push one object each time and no more.

    They are in order, without overlap. Unsuited, too, where something stands between them that
    does not go with leaving them out: numbers of the memo that the file chooses, or bytes.
    """
    return _follow(raw, path, _harmless_for(-1, False), begins, ends, bulk=True)


def check_containers(raw: bytes, path: str) -> None:
    """Refuse a pickle that is mostly empty containers."""
    containers = raw.count(b"}") + raw.count(b"]") if len(raw) > _MANY_CONTAINERS else 0
    if containers > max(_MANY_CONTAINERS, len(raw) // 4):
        raise MemtraceError(
            f"{path}: {containers} empty containers, which no snapshot has; {READS}"
        )


def _follow(
    raw: bytes,
    path: str,
    pattern: re.Pattern[bytes],
    begins: Sequence[int],
    ends: Sequence[int],
    bulk: bool,
) -> Way:
    harmless = pattern.match
    way = Way([], [], [], 0)
    pos = nestable = stretch = memo = 0
    size = len(raw)
    while True:
        while stretch < len(begins) and begins[stretch] < pos:
            stretch += 1  # it lies within an operand
        limit = begins[stretch] if stretch < len(begins) else size
        if pos < limit and (found := harmless(raw, pos, limit)):
            pos = found.end()
            if stretch < len(begins):  # behind the last stretch nobody asks
                memo += _UP_TO_MEMOIZE.findall(found.group()).count(_MEMOIZE)
        if pos >= size:
            raise _truncated(path)
        if pos == limit:
            way.met.append(stretch)
            way.memo.append(memo)
            pos = ends[stretch]
            continue
        op = raw[pos]
        if bulk and op in _NOT_IN_BULK:
            raise Unsuited
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
            return replace(way, stop=pos)
        elif op in _OBJECT:
            raise MemtraceError(
                f"{path}: builds Python objects, which plain snapshots never do; {READS}"
            )
        elif op == 0x95 and pos + 9 <= size:
            if int.from_bytes(raw[pos + 1 : pos + 9], "little") > size - pos - 9:
                raise _truncated(path)
            way.frames.append(pos)
            pos += 9
        elif op == 0x72 and pos + 5 <= size:
            raise _bomb(path)
        elif op in b"hqKMJjrG\x80\x95":
            if limit == size:
                raise _truncated(path)  # the operand is cut off
            stretch += 1  # it reaches into the stretch, which is no event then
        else:
            raise MemtraceError(
                f"{path}: damaged, or not a pickle (byte {pos} is 0x{op:02x}); {READS}"
            )


def _alternatives(memoize: bytes = b"") -> list[bytes]:
    """Opcodes with their operands that can do no harm, but for those that fill the memo."""
    counted = b"|".join(b"\\x%02x%s" % (n, b"." * n) for n in range(41))
    longs = b"|".join(b"\\x%02x%s" % (n, b"." * n) for n in (6, 7, 5, 4, 3, 2, 1, 0, 8))
    return [
        b"j....j....j....j....",  # stacks are mostly these
        b"j....",
        b"h.",
        b"[]}(aues)N\\x88\\x890" + memoize + b"]",
        b"K.K.\\x86",  # (0, 0), the pool of every event in newer files
        b"K.",
        b"\\x8a(?:" + longs + b")",
        b"J....|M..",
        b"\\x8c(?:" + counted + b")",
        b"G.{8}|\\x80.|[12]",
    ]


def _repeated(alternatives: list[bytes]) -> bytes:
    return b"(?s)(?:" + b"|".join(alternatives) + b")*+"


_MEMOIZE = b"\x94"
# Up to the end as well, or the search for the next would go on in the middle of an operand.
_UP_TO_MEMOIZE = re.compile(_repeated(_alternatives()) + b"(" + _MEMOIZE + b"|\\Z)")


@lru_cache(maxsize=8)
def _harmless_for(top: int, wide: bool) -> re.Pattern[bytes]:
    """``top`` bounds the highest byte of a chosen number in the memo; -1: none, and no frames."""
    found = _alternatives(_MEMOIZE)
    if top >= 0:
        memo = b"[\\x00-\\x%02x]" % top
        found += [b"r..." + memo if wide else b"r.." + memo + b"\\x00", b"q.|\\x95.{8}"]
    return re.compile(_repeated(found))


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
