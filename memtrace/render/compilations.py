"""What compilers did, as text: how often, and why where it is more than compiling once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from memtrace.analysis import Compilation, PeakReport
from memtrace.render.units import clean, format_time

_LIMIT = 3  # reasons of one run that are printed
_REASON = 160  # characters of a reason
_PLAIN = "compile"  # what every compiled run does; it has no reason
_NAMES = {_PLAIN: "compilation", "recompile": "recompilation", "graph break": "graph break"}


def print_compilations(console: Console, reports: Sequence[PeakReport]) -> None:
    """One run's recompilations, graph breaks and splits; of two, what only one of them has first.

    Nothing where there is nothing but first compilations in none of them.
    """
    lists = [report.compilations for report in reports]
    if not any(one.kind != _PLAIN for those in lists for one in those):
        return
    for letter, those in zip(_letters(reports), lists, strict=True):
        if those:
            console.print(Text(f"  {letter}{_summary(those)}", style="dim"))
    if len(lists) == 2:
        a, b = lists
        known = {one.identity for one in a}
        counts = {one.identity: one.count for one in b}
        _print_reasons(console, "only A: ", [one for one in a if one.identity not in counts])
        _print_reasons(console, "only B: ", [one for one in b if one.identity not in known])
        both = [one for one in a if one.identity in counts]
        uneven = [one for one in both if one.count != counts[one.identity]]
        _print_reasons(console, "not as often: ", uneven, counts)
        even = [one for one in both if one.count == counts[one.identity]]
        _print_reasons(console, "both: ", even)
    else:
        _print_reasons(console, "", lists[0])


def _letters(reports: Sequence[PeakReport]) -> list[str]:
    return ["A: ", "B: "] if len(reports) == 2 else [""]


def _summary(those: Sequence[Compilation]) -> str:
    """'3 compilations (41.2 s), 1 recompilation, 2 graph breaks'."""
    counts: dict[str, int] = dict.fromkeys(_NAMES, 0)
    times: dict[str, int] = {}
    for one in those:
        counts[one.kind] = counts.get(one.kind, 0) + one.count
        times[one.kind] = times.get(one.kind, 0) + one.duration_ns
    parts = []
    for kind, count in counts.items():
        if not count:
            continue
        took = f" ({format_time(times[kind])})" if times[kind] else ""
        parts.append(f"{count} {clean(_NAMES.get(kind, kind))}{'s' * (count > 1)}{took}")
    return ", ".join(parts)


def _print_reasons(
    console: Console,
    title: str,
    those: Sequence[Compilation],
    counts: Mapping[tuple[str, str, str, str], int] | None = None,
) -> None:
    """``counts``: how often the other run has them, where that is to be said."""
    told = [one for one in those if one.kind != _PLAIN]
    # A backward pass compiled anew has no reason of its own; those that have one come first.
    told.sort(key=lambda one: not one.reason)
    for one in told[:_LIMIT]:
        times = f"{one.count} × " if one.count > 1 else ""
        if counts is not None:
            times = f"{one.count} → {counts[one.identity]} × "
        text = " ".join(part for part in (one.kind, one.name) if part)
        if one.where:
            text += f" at {one.where}"
        reason = " ".join(one.reason.split())
        if len(reason) > _REASON:
            reason = f"{reason[:_REASON]}…"
        line = f"  {title}{times}{text}" + (f": {reason}" if reason else "")
        console.print(Text(clean(line), style="dim" if title in ("", "both: ") else "yellow"))
    if len(told) > _LIMIT:
        console.print(Text(f"  {title}{len(told) - _LIMIT} more, see --json", style="dim"))
