"""The one place where bytes and times become text."""

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


_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))


def format_time(ns: int) -> str:
    """'1.23 s', '159.3 ms', '27.5 µs', '0 ns'."""
    size = abs(ns)
    # A thousand of a unit after rounding is one of the next.
    factor, unit = next(((f, u) for f, u in _TIMES if size >= 0.99995 * f), _TIMES[-1])
    digits = 0 if factor == 1 else 2 if size < 9.995 * factor else 1
    return f"{'−' if ns < 0 else ''}{size / factor:.{digits}f} {unit}"


def format_range(low: int, high: int) -> str:
    """'186.9–188.1 ms', '950.0 µs – 1.20 ms'."""
    texts = format_time(low), format_time(high)
    (_, unit), (_, other) = (text.split(" ") for text in texts)
    if unit == other:
        return f"{texts[0].removesuffix(f' {unit}')}–{texts[1]}"
    return " – ".join(texts)


def format_time_delta(ns: int) -> str:
    """'+158.7 ms', '−27.5 µs', '0 ns'."""
    return f"+{format_time(ns)}" if ns > 0 else format_time(ns)


def clean(text: str) -> str:
    """Text from a file, fit for a terminal: control and direction characters become visible.

    A symbol's name cannot move the cursor, set colours or turn the line around.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
