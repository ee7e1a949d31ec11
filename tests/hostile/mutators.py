"""Small damage to a capture, by its objects or by its bytes: what fuzzing is made of.

A mutation is a function of the file and of a random.Random, so that a seed tells it all.
"""

from __future__ import annotations

import gzip
import pickle
import random
from collections.abc import Callable
from typing import Any

import zstandard

from memtrace.errors import MemtraceError
from memtrace.snapshot.unpickle import load_plain
from tests.hostile.values import INTEGERS, LINES, NAMES, any_value

# Opcodes that a crafted file may put anywhere: what they do is in pickletools.
OPCODES = [
    b"0", b"1", b"2", b"(", b")", b"}", b"]", b"N", b"a", b"e", b"s", b"u", b"t", b"l", b"d",
    b"\x85", b"\x86", b"\x87", b"\x8f", b"\x90", b"\x91", b"\x94", b".", b"h\x05", b"q\x05",
    b"j\x05\x00\x00\x00", b"j\xff\xff\xff\x7f", b"r\x05\x00\x00\x00", b"r\xff\xff\xff\x7f",
    b"r\xff\xff\x00\x00", b"p99999999\n", b"p-1\n", b"g5\n", b"gx\n", b"K\xff", b"M\xff\xff",
    b"J\xff\xff\xff\xff", b"\x8a\x08" + b"\xff" * 8, b"\x8a\xff" + b"\x7f" * 255,
    b"\x8b\xff\xff\xff\x7f", b"G\x7f\xf8" + bytes(6), b"I01\n", b"L9999999999999999999L\n",
    b"F1e999\n", b"S'a'\n", b"V\\ud800\n", b"\x8c\x01x", b"\x8c\xff", b"X\xff\xff\xff\xff",
    b"\x8d\xff\xff\xff\xff\x00\x00\x00\x00", b"\x8d" + b"\xff" * 8, b"B\xff\xff\xff\x7f",
    b"\x8e" + b"\xff" * 8, b"\x96" + b"\xff" * 8, b"C\x04\x00\x00\x00\x00", b"\x80\x04",
    b"\x80\xff",
    b"\x95" + bytes(8), b"\x95" + b"\xff" * 8, b"cos\nsystem\n", b"ios\nsystem\n", b"\x93", b"R",
    b"b", b"o", b"Q", b"Pid\n", b"\x81", b"\x92", b"\x82\x01", b"\x97", b"\x98",
    b"T\xff\xff\xff\x7f",
]  # fmt: skip


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A damaged copy of a file: its objects, mostly, or else its bytes."""
    whole = load(data) if chance.random() < 0.8 else None
    if whole is not None:
        for _ in range(chance.choice((1, 1, 2, 3, 5, 10))):
            whole = damage(whole, chance)
        data = pickle_of(whole, chance.choice((4, 4, 4, 4, 2, 5)))
    elif data.isascii() and chance.random() < 0.8:
        data = cut_lines(data, chance)
    else:
        data = cut_bytes(data, chance)
    if chance.random() < 0.02:
        data = chance.choice((gzip.compress, zstandard.compress))(data)
    return data


def pickle_of(whole: Any, protocol: int = 4) -> bytes:
    """The bytes of a file; those of None for what nests too deep to be written."""
    try:
        return pickle.dumps(whole, protocol)
    except RecursionError:
        return pickle.dumps(None, protocol)


def load(data: bytes) -> Any:
    """The object in a file, None where it cannot be had."""
    try:
        return load_plain(data, "")
    except MemtraceError:
        return None


def cut_lines(data: bytes, chance: random.Random) -> bytes:
    """Damage to a trace as text: lines moved, cut, changed and put in."""
    lines = data.decode("ascii").split("\n")
    for _ in range(chance.choice((1, 2, 5, 20))):
        at = chance.randrange(len(lines))
        how = chance.randrange(5)
        if how == 0:
            lines[at : at + chance.randrange(1, 4)] = []
        elif how == 1:
            lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]
        elif how == 2:
            lines.insert(at, chance.choice((*lines, *LINES, *NAMES)))
        elif how == 3:
            words = lines[at].split(" ")
            words[chance.randrange(len(words))] = chance.choice((*words, *NAMES, "t1", "return"))
            lines[at] = " ".join(words)
        else:
            lines.insert(chance.randrange(len(lines)), lines.pop(at))
        lines = lines or [""]
    return "\n".join(lines).encode("utf-8", "replace")


def cut_bytes(data: bytes, chance: random.Random) -> bytes:
    """Damage to the bytes, of what they are not knowing."""
    raw = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(raw) + 1)
        how = chance.randrange(7)
        if how == 0 and at < len(raw):
            raw[at] ^= 1 << chance.randrange(8)
        elif how == 1 and at < len(raw):
            raw[at] = chance.randrange(256)
        elif how == 2:
            del raw[at : at + chance.choice((1, 1, 2, 4, 100, len(raw)))]
        elif how == 3:
            raw[at:at] = chance.choice(OPCODES)
        elif how == 4:
            opcode = chance.choice(OPCODES)
            raw[at : at + len(opcode)] = opcode
        elif how == 5:
            begin = chance.randrange(len(raw) + 1)
            raw[at:at] = raw[begin : begin + chance.choice((1, 8, 64, 1000))]
        else:
            raw += bytes(chance.randrange(256) for _ in range(chance.randrange(1, 9)))
    return bytes(raw)


def damage(whole: Any, chance: random.Random) -> Any:
    """Changes one place of an object, which may be shared or within itself. Returns the object."""
    how = chance.choice(_HOW)
    # What keeps the types is done to numbers and strings, of which there are more than containers.
    for _ in range(8):
        place = _pick(whole, chance, 0 if how in (_vary, _equal) else 0.3)
        if place is None:
            return any_value(chance)
        inner, key, ancestors = place
        if how not in (_vary, _equal) or type(inner[key]) in (str, int, float, bool):
            how(inner, key, ancestors, whole, chance)
            break
    return whole


def _pick(whole: Any, chance: random.Random, early: float) -> tuple[Any, Any, list[Any]] | None:
    """A container, a key or index in it, and the containers around it: somewhere, at random.

    ``early`` is how likely each container is to be the last that is gone into.
    """
    inner, ancestors = whole, []
    found = None
    while type(inner) in (dict, list) and inner and len(ancestors) < 30:
        ancestors.append(inner)
        key = chance.choice(list(inner)) if type(inner) is dict else chance.randrange(len(inner))
        found = inner, key, list(ancestors)
        if chance.random() < early:
            break
        inner = inner[key]
    return found


def _replace(inner: Any, key: Any, ancestors: list[Any], whole: Any, chance: random.Random) -> None:
    inner[key] = any_value(chance)


def _delete(inner: Any, key: Any, ancestors: list[Any], whole: Any, chance: random.Random) -> None:
    del inner[key]


def _vary(inner: Any, key: Any, ancestors: list[Any], whole: Any, chance: random.Random) -> None:
    """Another value of the same type."""
    value = inner[key]
    if type(value) is bool:
        inner[key] = not value
    elif type(value) is int:
        steps = [value + d for d in (-512, -1, 1, 512, 1 << 20)] + [-value, value * 2, value << 20]
        inner[key] = chance.choice(chance.choice((INTEGERS, steps)))
    elif type(value) is str and "\n" in value:
        lines = value.split("\n")
        at = chance.randrange(len(lines) + 1)
        lines[at : at + chance.randrange(2)] = [chance.choice((chance.choice(LINES), *lines))]
        inner[key] = "\n".join(lines)
    elif type(value) is str:
        pieces = (chance.choice(NAMES), value + chance.choice(NAMES), value[: len(value) // 2])
        inner[key] = chance.choice(pieces)
    else:
        inner[key] = any_value(chance)


def _reorder(inner: Any, key: Any, ancestors: list[Any], whole: Any, chance: random.Random) -> None:
    """A list turned, cut, repeated or with an item moved; or a dict with another name for a key."""
    if type(inner) is dict:
        inner[chance.choice((*NAMES, 7, None))] = inner.pop(key)
        return
    how = chance.randrange(5)
    if how == 0:
        inner.reverse()
    elif how == 1:
        del inner[key:]
    elif how == 2:
        inner.insert(chance.randrange(len(inner) + 1), inner[key])
    elif how == 3 and len(inner) < 5000:
        inner *= chance.choice((2, 3, 20))
    else:
        chance.shuffle(inner)


def _take(inner: Any, key: Any, ancestors: list[Any], whole: Any, chance: random.Random) -> None:
    """Something else of the file, as it is (not a copy), or what it lies in."""
    other = _pick(whole, chance, 0.3)
    if other is None or chance.random() < 0.1:
        inner[key] = chance.choice(ancestors)
    else:
        inner[key] = other[0][other[1]]


def _equal(inner: Any, key: Any, ancestors: list[Any], whole: Any, chance: random.Random) -> None:
    """The value that a neighbour has: an address twice, times that stand still or go back."""
    if type(inner) is list:
        inner[key] = inner[max(0, key - chance.choice((1, 1, 2, 10)))]
    elif len(ancestors) > 1 and type(ancestors[-2]) is list:
        neighbour = chance.choice(ancestors[-2])
        if type(neighbour) is dict and key in neighbour:
            inner[key] = neighbour[key]


_HOW: list[Callable[[Any, Any, list[Any], Any, random.Random], None]] = [
    _replace, _delete, *[_vary] * 8, _reorder, _reorder, _take, *[_equal] * 4,
]  # fmt: skip
