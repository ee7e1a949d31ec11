"""The one place where bytes become text."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def format_bytes(size: int) -> str:
    """'939.5 MB', '2.82 GB', '512 B': decimal units, as torch's users quote them."""
    value, unit = float(abs(size)), 0
    while value >= 999.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if unit == 0 else 2 if value < 10 and unit >= 3 else 1
    sign = "−" if size < 0 else ""
    return f"{sign}{value:.{digits}f} {_UNITS[unit]}"


def format_delta(size: int) -> str:
    """'+939.5 MB', '−2.82 GB', '0 B'."""
    return f"+{format_bytes(size)}" if size > 0 else format_bytes(size)


def format_exact(size: int, *, signed: bool = False) -> str:
    """'17,025,765,376 bytes'."""
    return f"{size:+,} bytes".replace("-", "−") if signed else f"{size:,} bytes".replace("-", "−")


def clean(text: str) -> str:
    """Text from a file, fit for a terminal: control and direction characters become visible.

    A symbol's name cannot move the cursor, set colours or turn the line around.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
