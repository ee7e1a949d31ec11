"""What a pasted trace shows, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from memtrace.analysis.findings.program import TraceExplained
from memtrace.render.units import clean, format_bytes

SCHEMA = 1


def trace_object(path: str, explained: TraceExplained, top: int | None = None) -> dict[str, Any]:
    """``memtrace explain TRACE --json``: the findings, largest first, and what is not known."""
    findings = []
    for one in explained.findings[:top]:
        found = asdict(one)
        findings.append({"try" if key == "try_" else key: value for key, value in found.items()})
    return {
        "schema": SCHEMA,
        "path": path,
        "predicted_peak_bytes": explained.prediction.peak_bytes,
        "findings": findings,
        "unknown": list(explained.gaps),
    }


def print_trace(
    console: Console, path: str, explained: TraceExplained, top: int | None = None
) -> None:
    """Each finding with its evidence, then what the text does not tell."""
    console.print(Text(clean(path), style="bold"))
    if not explained.findings:
        console.print("  nothing found")
    for number, one in enumerate(explained.findings[:top], start=1):
        head = f"{number}. {format_bytes(one.bytes)}  {one.title}  ({one.kind}, {one.sure})"
        _print(console, head, 0)
        for text in (*one.lines, *one.evidence):
            _print(console, text, 3)
        _print(console, f"try: {one.try_}", 3)
    left = len(explained.findings) - len(explained.findings[:top])
    if left:
        _print(console, f"and {left} more", 0)
    if explained.gaps:
        _print(console, "not known:", 0)
        for gap in explained.gaps:
            _print(console, gap, 3)


def _print(console: Console, text: str, indent: int) -> None:
    console.print(Padding(Text(clean(text)), (0, 0, 0, indent), expand=False))
