"""Whole numbers in text from a file: whatever it says, they stay small enough to reckon with."""

from __future__ import annotations

import re

_MOST_DIGITS = 15  # int() refuses thousands of them, and 10¹⁵ lines or elements has nothing
_MOST_DIMENSIONS = 64
NUMBER = rf"[0-9]{{1,{_MOST_DIGITS}}}"
# '4, 8', '4,' or nothing, as Python prints a tuple or list without its brackets
SHAPE = rf"(?:{NUMBER}(?:, ?{NUMBER}){{0,{_MOST_DIMENSIONS - 1}}},? ?)?"
_NUMBER = re.compile(NUMBER)


def read_number(text: str) -> int:
    """A number that is all of ``text``; -1 for anything else, or one of too many digits."""
    return int(text) if _NUMBER.fullmatch(text) else -1


def read_shape(text: str) -> tuple[int, ...]:
    """The numbers in what ``SHAPE`` matches."""
    return tuple(map(int, _NUMBER.findall(text)))
