"""Messages by the million: laid out once, filled in by numpy.

A protobuf object costs Python microseconds, and a trace has millions. But most messages of a trace
are alike: the same fields, other numbers. A varint may be written longer than it need be
(``85 80 00`` is 5), so all of a kind can have one layout, a matrix of bytes with a row a message.
Field numbers and all that is not a column come from the ``perfetto`` package's own classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memtrace.snapshot.columns import Int64

Bytes = npt.NDArray[np.uint8]
Piece = bytes | Bytes  # the same in every row, or shape (rows, width)

_VARINT, _EIGHT_BYTES, _LENGTH = 0, 1, 2  # protobuf's wire types


def fixed(message: Any) -> list[Piece]:
    """A message whose fields are the same in every row."""
    return [message.SerializeToString()]


def number(message: Any, field: str, column: Int64) -> list[Piece]:
    """A varint field (of no sint type) of a message class, a value a row."""
    return [_tag(message, field, _VARINT), pad_varints(column)]


def eight_bytes(message: Any, field: str, column: Int64) -> list[Piece]:
    """A fixed64 field of a message class, a value a row."""
    values = np.ascontiguousarray(column.astype("<u8")).view(np.uint8)
    return [_tag(message, field, _EIGHT_BYTES), values.reshape(len(column), 8)]


def inside(
    message: Any, field: str, pieces: Sequence[Piece], tail: Int64 | None = None
) -> list[Piece]:
    """A field that is itself a message of ``pieces``, to which ``tail`` bytes more are appended."""
    length = np.array([sum(_width(piece) for piece in pieces)], np.int64)
    if tail is None:
        return [_tag(message, field, _LENGTH), pad_varints(length).tobytes(), *pieces]
    return [_tag(message, field, _LENGTH), pad_varints(length + tail), *pieces]


def join(pieces: Sequence[Piece], rows: int) -> Bytes:
    """The pieces side by side; shape (rows, bytes of a row)."""
    found = np.empty((rows, sum(_width(piece) for piece in pieces)), np.uint8)
    at = 0
    for piece in pieces:
        part = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else piece
        found[:, at : at + part.shape[-1]] = part
        at += part.shape[-1]
    return found


def split(rows: Bytes) -> list[bytes]:
    """The rows one by one."""
    width, blob = rows.shape[1], rows.tobytes()
    return [blob[at : at + width] for at in range(0, len(blob), width)]


def pad_varints(column: Int64) -> Bytes:
    """The numbers as varints of one width, the widest's; shape (rows, width).

    A negative number takes ten bytes, as protobuf has it for int32, int64 and enum.
    """
    bits = column.astype(np.uint64)
    most = int(bits.max()) if len(bits) else 0
    width = max((most.bit_length() + 6) // 7, 1)
    found = np.empty((len(bits), width), np.uint8)
    for k in range(width):
        found[:, k] = (bits >> np.uint64(7 * k)).astype(np.uint8) & 0x7F
    found[:, : width - 1] |= 0x80
    return found


def _tag(message: Any, field: str, wire: int) -> bytes:
    key = message.DESCRIPTOR.fields_by_name[field].number << 3 | wire
    return pad_varints(np.array([key], np.int64)).tobytes()


def _width(piece: Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else int(piece.shape[1])
