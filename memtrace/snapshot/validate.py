"""Checks of shapes and types, so that nothing read from a file surprises the code after this room.

A Fault says what is wrong at which place in the snapshot; read() adds the file's name.
"""

from __future__ import annotations

from typing import Any, TypeGuard

INT64 = (1 << 63) - 1
UINT64 = (1 << 64) - 1
# Addresses of programs have 57 bits at most, half of which are the system's: no block is larger.
# Beyond 2⁶³ not even the system has any; so an address and a size together fit into 64 bits.
MOST_ADDRESS = 1 << 63
MOST_BYTES = 1 << 56
# Sums below it leave room for what rounding adds, within 64 bits.
MOST_SUM = 1 << 62

_WORDS = {
    int: "an integer",
    str: "a str",
    list: "a list",
    dict: "a dict",
    bool: "a bool",
    tuple: "a tuple",
    float: "a float",
    type(None): "None",
    bytes: "bytes",
    set: "a set",
}


class Fault(Exception):
    """Something in a snapshot is not as it should be."""

    @classmethod
    def of(cls, place: str, value: Any, expected: str, present: bool = True) -> Fault:
        """A value of the wrong type or out of range, or a key that is missing."""
        if not present:
            return cls(f"{place} is missing")
        if isinstance(value, int) and type(value) is int and "integer" in expected:
            return cls(f"{place} is {brief(value)}, not {expected}")
        kind = _WORDS.get(type(value), type(value).__name__)
        if isinstance(value, str) and "str" in expected:
            kind = brief(value)
        return cls(f"{place} is {kind}, not {expected}")


def brief(value: Any) -> str:
    """A value in a message: short and on one line, whatever it is."""
    if type(value) is int:
        # int() to decimal text is quadratic and refused beyond 4300 digits
        return (
            str(value) if value.bit_length() <= 80 else f"an integer of {value.bit_length()} bits"
        )
    if type(value) is str:
        text = ascii(value[:40])
        return text if len(value) <= 40 else f"{text}…"
    return _WORDS.get(type(value), type(value).__name__)


def integer(value: Any, place: str, low: int = 0, high: int = INT64, present: bool = True) -> int:
    """``value`` if it is an int (no bool) in low … high."""
    if type(value) is int and low <= value <= high:
        return value
    if type(value) is int and value < low == 0:
        raise Fault(f"{place} is {brief(value)}, which is negative")
    bits = " of 64 bits" if type(value) is int else ""
    raise Fault.of(place, value, f"an integer{bits}", present)


def is_text(value: Any) -> TypeGuard[str]:
    """A str that can be written anywhere: no lone surrogates, which pickles can hold."""
    if type(value) is not str:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
