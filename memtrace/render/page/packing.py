"""Columns of whole numbers as text that a page can carry: small, and quick to unpack.

All columns of a page lie in one buffer, deflated and in base64. A column is written byte plane by
byte plane (all lowest bytes first), which makes the empty high bytes vanish and lets the page put
numbers together without a branch. What rises is written as differences.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

_MOST_EXACT = 1 << 53  # whole numbers beyond it are not exact in a page
_LEVEL = 6


class Packer:
    """Collects columns and texts; what ``add`` and ``add_text`` return says where each lies."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0

    def add(self, column: npt.NDArray[np.integer], *, rising: bool = False) -> dict[str, Any]:
        """A column of numbers ≥ 0; ``rising`` where none is less than the one before.

        Numbers beyond 2⁵³ become 2⁵³: no page could tell them from their neighbours.
        """
        values = np.minimum(column.astype(np.int64), _MOST_EXACT)
        steps = np.diff(values, prepend=0) if rising else values
        width = max(1, (int(steps.max(initial=0)).bit_length() + 7) // 8)
        planes = np.ascontiguousarray(steps, dtype="<i8").view(np.uint8).reshape(-1, 8)
        place = self._append(np.ascontiguousarray(planes[:, :width].T).tobytes())
        return {"at": place, "length": len(steps), "width": width, "rising": rising}

    def add_text(self, text: str) -> dict[str, int]:
        """A text, as UTF-8."""
        raw = text.encode("utf-8")
        return {"at": self._append(raw), "length": len(raw)}

    def _append(self, raw: bytes) -> int:
        at = self._length
        self._parts.append(raw)
        self._length += len(raw)
        return at

    def pack(self) -> str:
        """The whole buffer, zlib's format in base64."""
        return base64.b64encode(zlib.compress(b"".join(self._parts), _LEVEL)).decode("ascii")
