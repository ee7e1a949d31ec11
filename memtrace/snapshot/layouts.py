"""How an event lies in the bytes of a pickle, learned from some of the file's own.

Every event of torch's history is a dict with the same keys, so its opcodes are the same but for
operands: where addresses, sizes, times and frames stand, in how many bytes, is one of a few
layouts. A layout is told by its fixed bytes, so numpy can compare a million events with it at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

_GET = rb"(?:h.|j.{4})"  # BINGET, LONG_BINGET: something that is in the memo
_VALUE = (
    rb"K.K.\x86\x94"  # a pair of small integers, memoized
    rb"|K.|M..|J....|\x8a(?:\x01.|\x02..|\x03...|\x04.{4}|\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8})"
    rb"|\x8c[\x00-\x20][\x20-\x7e]*?\x94"  # a short string, memoized
    rb"|[N\x88\x89]|" + _GET
)
_EVENT = re.compile(
    rb"(?s)\}\x94\("
    rb"(?P<fields>(?:" + _GET + rb"(?:" + _VALUE + rb"))+?)"
    rb"(?P<last>" + _GET + rb")"
    rb"(?P<tail>\]\x94\(" + _GET + rb"{2,}eu|\]\x94" + _GET + rb"au|\]\x94u|" + _GET + rb"u)"
)
_FIELD = re.compile(rb"(?s)(?P<key>" + _GET + rb")(?P<value>" + _VALUE + rb")")
_WIDTHS = {b"K": 1, b"M": 2, b"J": 4, b"h": 1, b"j": 4}


Form = tuple[tuple[bytes, ...], tuple[tuple[int, bool], ...]]


@dataclass(frozen=True, slots=True)
class Field:
    """A value whose bytes differ: ``width`` bytes, little endian, ``offset`` into the event.

    ``place`` is the place of its key. An integer is signed if ``signed``; a ``reference`` is a
    number in the memo.
    """

    place: int
    offset: int
    width: int
    signed: bool
    reference: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """One way in which events lie in a file.

    ``literal`` are the bytes of the part of fixed length, ``mask`` is 255 where they must be these
    and 0 where they are an operand. ``keys`` are the opcodes that fetch the keys; the last one is
    that of the frames. These are a ``tail``: a "list" of references up to the event's end, a list
    of "one" or none ("empty") within the fixed part, or a "reference" to another event's list.
    ``memo`` is how many objects the event puts into the memo, the dict itself first, its own list
    last.
    """

    literal: bytes
    mask: bytes
    keys: tuple[bytes, ...]
    fields: tuple[Field, ...]
    tail: Literal["list", "one", "empty", "reference"]
    memo: int

    @property
    def form(self) -> Form:
        """The keys, and for which of them there is an integer or a reference."""
        frames = len(self.keys) - 1
        return self.keys, tuple((f.place, f.reference) for f in self.fields if f.place != frames)


def learn_layouts(raw: bytes, places: Iterable[int], form: Form | None = None) -> list[Layout]:
    """The layouts of the events that begin at ``places``, most frequent first.

    Only those of one form: that which is given, or else the most frequent. Places where no event
    of a usual form begins are passed over.
    """
    found = Counter(
        layout for at in places if (layout := _read_layout(raw, at)) is not None
    ).most_common()
    if form is None and found:
        forms = Counter[Form]()
        for layout, count in found:
            forms[layout.form] += count
        form = forms.most_common(1)[0][0]
    return [layout for layout, _ in found if layout.form == form]


def _read_layout(raw: bytes, at: int) -> Layout | None:
    event = _EVENT.match(raw, at)
    if event is None:
        return None
    end = event.end()
    tail = event["tail"]
    kind: Literal["list", "one", "empty", "reference"]
    if not tail.startswith(b"]"):
        kind = "reference"
    elif tail.startswith(b"]\x94("):
        kind, end = "list", event.start("tail") + 3
    else:
        kind = "one" if len(tail) > 3 else "empty"
    mask = bytearray(b"\xff" * (end - at))
    keys, fields = [], []
    memo = 1 + (kind != "reference")

    def operand(start: int, width: int, place: int, *, signed: bool, reference: bool) -> None:
        fields.append(Field(place, start - at, width, signed, reference))
        mask[start - at : start - at + width] = bytes(width)

    for place, field in enumerate(_FIELD.finditer(raw, event.start("fields"), event.end("fields"))):
        keys.append(field["key"])
        value, start = field["value"], field.start("value")
        op = value[:1]
        if op == b"\x8c" and value[1] != len(value) - 3:
            return None
        if op == b"\x8c" or value.endswith(b"\x86\x94"):
            memo += 1
        elif op == b"\x8a":
            operand(start + 2, value[1], place, signed=True, reference=False)
        elif op in _WIDTHS:
            operand(start + 1, _WIDTHS[op], place, signed=op == b"J", reference=op in b"hj")
    if kind in ("one", "reference"):
        start = event.start("tail") + (2 if kind == "one" else 0)
        width = _WIDTHS[raw[start : start + 1]]
        operand(start + 1, width, len(keys), signed=False, reference=True)
    return Layout(
        _masked(raw[at:end], mask),
        bytes(mask),
        (*keys, event["last"]),
        tuple(fields),
        kind,
        memo,
    )


def _masked(data: bytes, mask: bytearray) -> bytes:
    """``data`` with zeros where the mask has them, so that equal layouts are equal."""
    both = int.from_bytes(data, "little") & int.from_bytes(mask, "little")
    return both.to_bytes(len(data), "little")
