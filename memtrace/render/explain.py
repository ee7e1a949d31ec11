"""Findings and what-if as text: each finding in a few lines, the most bytes first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memtrace.analysis import series
from memtrace.analysis.findings import ExplainPair, ExplainReport, Finding, Part
from memtrace.analysis.whatif import Together, WhatIf
from memtrace.render.names import LESS, MORE
from memtrace.render.text import make_heading, print_warnings
from memtrace.render.units import clean, format_bytes, format_delta, format_exact

_TEXT = 110  # characters of a line of source or of evidence; the JSON has all of it
_NAMES = 3  # symbols that are named


def print_explain(console: Console, report: ExplainReport, *, top: int | None = None) -> None:
    """One recording's findings, and what-if where that was asked."""
    console.print(make_heading(report.peak))
    _print_notes(console, report)
    print_findings(console, report.explained.findings, report.peak.peak_bytes, top)
    if report.whatif is not None:
        _print_whatif(console, report.whatif)


def print_explain_pair(console: Console, pair: ExplainPair, *, top: int | None = None) -> None:
    """What the gap consists of, the causes first; then what-if of B where that was asked."""
    for letter, report in (("A", pair.baseline), ("B", pair.candidate)):
        console.print(make_heading(report.peak, letter))
        _print_notes(console, report)
    for line in pair.gap.diff.differences:
        console.print(Text(f"  differs: {clean(line)}", style="yellow"))
    gap = pair.gap.diff.gap_bytes
    parts = pair.gap.parts
    console.print(
        Text(
            f"B's peak is {format_delta(gap)} ({format_exact(gap, signed=True)}) from A's; "
            f"{len(parts)} part{'' if len(parts) == 1 else 's'} of it"
            if gap or parts
            else "the two peaks are equal",
            style="bold",
        )
    )
    for number, part in enumerate(parts[:top], 1):
        _print_finding(console, part.finding, _part_heading(number, part))
    _print_more(console, len(parts), top)
    if pair.gap.rest:
        console.print(Text(f"\n   {format_delta(pair.gap.rest)} in smaller parts", style="dim"))
    rest = _left_over(pair)
    if rest:
        console.print(Text("\nB's other findings, as large in A or no part of the gap:", "bold"))
        print_findings(console, rest, pair.candidate.peak.peak_bytes, top, headline=False)
    if pair.candidate.whatif is not None:
        _print_whatif(console, pair.candidate.whatif, "B: ")


def print_findings(
    console: Console,
    findings: Sequence[Finding],
    peak_bytes: int,
    top: int | None = None,
    *,
    headline: bool = True,
) -> None:
    """Findings with their share of a peak (0: of none), the largest first."""
    total = sum(finding.bytes for finding in findings)
    if headline:
        console.print(Text(_headline(len(findings), total, peak_bytes), style="bold"))
    for number, finding in enumerate(findings[:top], 1):
        heading = Text(f"{number}  {format_bytes(finding.bytes)}", style="bold")
        share = f"  {finding.bytes / peak_bytes:.1%}" if peak_bytes else ""
        heading.append(f"{share}  {finding.kind} · {finding.sure}", style="not bold")
        _print_finding(console, finding, heading)
    _print_more(console, len(findings), top)


def _headline(count: int, total: int, peak_bytes: int) -> str:
    if not count:
        return "no finding: nothing seen takes 1% of what the program holds without need"
    of = f" of the peak's {format_bytes(peak_bytes)} ({total / peak_bytes:.0%})"
    return (
        f"{count} finding{'' if count == 1 else 's'}, {format_bytes(total)}"
        f"{of if peak_bytes else ''}"
    )


def _left_over(pair: ExplainPair) -> list[Finding]:
    shown = {(part.finding.kind, part.finding.title) for part in pair.gap.parts}
    findings = pair.candidate.explained.findings
    return [one for one in findings if (one.kind, one.title) not in shown]


def _part_heading(number: int, part: Part) -> Text:
    style = MORE if part.delta > 0 else LESS
    heading = Text.assemble((f"{number}  ", "bold"), (format_delta(part.delta), f"bold {style}"))
    amounts = f"{format_bytes(part.baseline_bytes)} → {format_bytes(part.candidate_bytes)}"
    heading.append(f"  {amounts}  {part.finding.kind} · {part.finding.sure}")
    return heading


def _print_finding(console: Console, finding: Finding, heading: Text) -> None:
    console.print()
    console.print(heading)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(width=4, style="dim", justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("", Text(clean(_shorten(finding.title, 2 * _TEXT))))
    if place := _place(finding):
        table.add_row("by", Text(clean(place), style="dim"))
    if finding.evidence:
        seen = "; ".join(_shorten(one, 2 * _TEXT) for one in finding.evidence)
        table.add_row("seen", Text(clean(seen), style="dim"))
    if finding.try_:
        table.add_row("try", Text(clean(finding.try_)))
    console.print(table)


def _place(finding: Finding) -> str:
    """Who makes it and where: '…nvFusion2, 6, 10, 14 at thunder.computation_25:91 and 3 more'."""
    names = series(list(finding.symbols)) if _numbered(finding.symbols) else ""
    if not names:
        names = ", ".join(_shorten(name) for name in finding.symbols[:_NAMES])
        more = len(finding.symbols) - _NAMES
        names += f" and {more} more" if more > 0 else ""
    places = dict.fromkeys(line.partition("  ")[0] for line in finding.lines)
    fresh = [place for place in places if place not in names]  # a symbol may end in its line
    if not fresh:
        return names
    more_places = f" and {len(fresh) - 1} more" if len(fresh) > 1 else ""
    return f"{names} at {fresh[0]}{more_places}"


def _numbered(names: Sequence[str]) -> bool:
    """Whether names differ by the number at their end alone."""
    return len({name.rstrip("0123456789") for name in names}) == 1 and len(names) > 1


def _shorten(text: str, most: int = _TEXT) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _print_more(console: Console, count: int, top: int | None) -> None:
    if top is not None and count > top:
        console.print(Text(f"\n… and {count - top} more; see --top", style="dim"))


def _print_notes(console: Console, report: ExplainReport) -> None:
    print_warnings(console, report.peak.warnings)
    if not report.peak.facts:
        text = "a plain snapshot: without traces, marks and a profile most causes cannot be seen"
        print_warnings(console, [text])
    free = (report.reserved_bytes or 0) - report.peak.peak_bytes
    if report.peak.accounting == "allocated" and free > 0:
        console.print(
            Text(
                f"  beside it, {format_bytes(free)} were reserved and free at that moment",
                style="dim",
            )
        )


def _print_whatif(console: Console, whatif: WhatIf, prefix: str = "") -> None:
    console.print()
    if not whatif.offers:
        text = "what if: no change that the evidence allows brings the peak down"
        console.print(Text(prefix + text, style="bold"))
        return
    console.print(
        Text(
            f"{prefix}what if: the peak of {clean(whatif.window)} is "
            f"{format_bytes(whatif.peak.bytes)} now",
            style="bold",
        )
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "saves", "moves", "new peak"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("change", overflow="fold", ratio=1)
    for number, offer in enumerate(whatif.offers, 1):
        change = Text(clean(_shorten(offer.change.title, 2 * _TEXT)))
        where = f"new peak at {offer.position}" if offer.saved else "helps together with others"
        if offer.change.finding >= 0:
            where = f"undoes finding {offer.change.finding + 1}; {where}"
        change.append(f"\n{clean(where)}", style="dim")
        table.add_row(
            str(number),
            format_bytes(offer.saved) if offer.saved else "·",
            format_bytes(offer.change.moved) if offer.change.moved else "·",
            format_bytes(offer.peak.bytes),
            change,
        )
    console.print(table)
    if whatif.together.offers:
        console.print(Text(f"all that go together: {_together(whatif, whatif.together)}"))
    if whatif.target is not None:
        _print_target(console, whatif, whatif.target)
    console.print(
        Text(
            "saves: of the peak, in blocks as the allocator counts them; moves: what the GPU reads "
            "and writes more in an iteration; sorted by saves ÷ (1 + moves ÷ saves)",
            style="dim",
        )
    )


def _together(whatif: WhatIf, plan: Together) -> str:
    numbers = " + ".join(str(number + 1) for number in plan.offers)
    saved = format_bytes(whatif.peak.bytes - plan.peak.bytes)
    verb = "saves" if len(plan.offers) == 1 else "save"
    return f"{numbers} {verb} {saved}, peak {format_bytes(plan.peak.bytes)} at {plan.position}"


def _print_target(console: Console, whatif: WhatIf, target: int) -> None:
    wanted = format_bytes(target)
    if whatif.reached is None:
        lowest = format_bytes(whatif.together.peak.bytes)
        text = f"no list of these changes reaches {wanted}: the lowest found is {lowest}"
    elif not whatif.reached.offers:
        text = f"the peak is not above {wanted} as it is"
    else:
        kind = (
            "the shortest list" if whatif.reached.shortest else "a list (perhaps not the shortest)"
        )
        text = f"{kind} that reaches {wanted}: {_together(whatif, whatif.reached)}"
    console.print(Text(text, style="bold"))
