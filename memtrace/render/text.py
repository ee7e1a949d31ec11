"""Reports as text for a terminal: what is compared first, then the rows, then the total."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from memtrace.analysis import (
    DiffReport,
    Measure,
    PeakReport,
    Row,
    Shown,
    ShowReport,
    Side,
    fold_rows,
    limit_rows,
    sort_rows,
)
from memtrace.render.compilations import print_compilations
from memtrace.render.hta import Breakdown
from memtrace.render.names import LESS, MORE, describe_row
from memtrace.render.oom import oom_lines
from memtrace.render.times import print_times, time_amount
from memtrace.render.units import (
    clean,
    format_bytes,
    format_delta,
    format_exact,
    format_time,
    format_time_delta,
)
from memtrace.symbols import Line, Symbol

_CONSUMERS = 3  # uses of a tensor that are printed; the last one always is
_LINE_WIDTH = 160  # characters of a source line


def print_peak(
    console: Console,
    report: PeakReport,
    *,
    sort: Measure = "bytes",
    top: int | None = None,
    expand: bool = False,
    breakdown: Breakdown | None = None,
) -> None:
    """One recording's peak and what it consists of, with the GPU time of its symbols if known."""
    console.print(make_heading(report))
    for k, line in enumerate(oom_lines(report)):
        console.print(Text(f"{'    ' if k else '  '}{clean(line)}", style="" if k else "bold"))
    print_times(console, [report], [breakdown])
    print_compilations(console, [report])
    print_warnings(console, report.warnings)
    timed = report.gpu is not None and report.gpu.by_row
    table = _table("bytes", "share", *(["GPU time"] if timed else []), "count")
    for row in _chosen(report.rows, sort, top, expand):
        side = row.sides[0]
        share = side.bytes / report.peak_bytes if report.peak_bytes else 0.0
        table.add_row(
            _amount(side),
            f"{share:.1%}" if side.count else "",
            *([time_amount(side.time)] if timed else []),
            f"{side.count:,}" if side.count else "",
            describe_row(row, [report], sort),
        )
    table.add_section()
    count = sum(row.sides[0].count for row in report.rows)
    table.add_row(
        format_bytes(report.peak_bytes),
        "100.0%",
        *([format_time(report.gpu.busy_ns)] if report.gpu and timed else []),
        f"{count:,}",
        f"{'then' if report.other_moment else 'peak'}: {format_exact(report.peak_bytes)}",
        style="bold",
    )
    console.print(table)


def print_diff(
    console: Console,
    report: DiffReport,
    *,
    sort: Measure = "bytes",
    top: int | None = None,
    expand: bool = False,
    breakdowns: Sequence[Breakdown | None] = (None, None),
) -> None:
    """Two peaks, what else differs, and the rows that the gap consists of."""
    sides = [report.baseline, report.candidate]
    console.print(make_heading(report.baseline, "A"))
    console.print(make_heading(report.candidate, "B"))
    print_times(console, sides, breakdowns)
    for line in report.differences:
        console.print(Text(f"  differs: {clean(line)}", style="yellow"))
    print_compilations(console, sides)
    for letter, side in zip("AB", sides, strict=True):
        told = (*oom_lines(side)[:1], *side.warnings)
        print_warnings(console, [f"{letter}: {text}" for text in told])
    print_warnings(console, report.warnings)
    timed = report.time_gap_ns is not None
    table = _table("A", "B", "Δ bytes", *(["Δ time"] if timed else []))
    if sort == "time":
        table = _table("A", "B", "Δ time", "Δ bytes")
    for row in _chosen(report.rows, sort, top, expand):
        deltas = [_delta(row.delta), *([_time_delta(row.delta_ns)] if timed else [])]
        amounts = [_amount(side) for side in row.sides]
        if sort == "time":
            amounts = [time_amount(side.time) for side in row.sides]
            deltas.reverse()
        style = _dim(row.delta or row.delta_ns)
        table.add_row(*amounts, *deltas, describe_row(row, sides, sort), style=style)
    table.add_section()
    table.add_row(*_gap(report, sort, timed), style="bold")
    console.print(table)


def _gap(report: DiffReport, sort: Measure, timed: bool) -> list[str | Text]:
    """The last line: both totals and the gaps."""
    gap = f"gap: {format_exact(report.gap_bytes, signed=True)}"
    sides = (report.baseline, report.candidate)
    peaks = [format_bytes(side.peak_bytes) for side in sides]
    if report.time_gap_ns is None or not timed:
        return [*peaks, _delta(report.gap_bytes), gap]
    gap += f", {format_time_delta(report.time_gap_ns)} of GPU time"
    deltas = [_delta(report.gap_bytes), _time_delta(report.time_gap_ns)]
    if sort == "time":
        busy = [format_time(side.gpu.busy_ns) if side.gpu else "·" for side in sides]
        return [*busy, *deltas[::-1], gap]
    return [*peaks, *deltas, gap]


def _chosen(rows: Sequence[Row], sort: Measure, top: int | None, expand: bool) -> list[Row]:
    """The rows of a table: folded unless they are to be open, and at most ``top``."""
    if expand:
        return limit_rows(sort_rows(rows, sort), top)
    return limit_rows(fold_rows(_together(rows, sort), sort), top)


def _together(rows: Sequence[Row], sort: Measure) -> list[Row]:
    """``rows`` with those that the table is not about in one: no bytes, or no time."""
    if sort == "time":
        about = [any(side.time.kernels for side in row.sides) for row in rows]
        name = "hold bytes, but ran nothing"
    else:
        about = [any(side.count for side in row.sides) for row in rows]
        name = "hold nothing then, but ran: see --sort time"
    kept = [row for row, is_about in zip(rows, about, strict=True) if is_about]
    rest = [row for row, is_about in zip(rows, about, strict=True) if not is_about]
    if not rest:
        return kept
    count = f"{len(rest)} symbol{'s' if len(rest) > 1 else ''}"
    one = limit_rows(rest, 0)[0]
    return [*kept, replace(one, symbol=Symbol(None, "", None, f"<{count} that {name}>"))]


def print_show(console: Console, report: ShowReport, *, top: int | None = None) -> None:
    """The lifetimes of a name, alike ones once: who makes, uses and frees them."""
    alike: dict[object, list[Shown]] = {}
    for one in report.shown:
        key = (one.symbol, one.tensor, one.layer, one.category, one.alive_at_peak, one.life)
        alike.setdefault(key, []).append(one)
    console.print(
        Text.assemble(
            (clean(report.name), "bold"),
            f" in {clean(report.window)}: {len(report.shown)} lifetimes, "
            f"{format_bytes(report.bytes_at_peak)} alive at the peak",
        )
    )
    groups = list(alike.values())
    for group in groups[:top]:
        _print_lifetimes(console, group)
    if top is not None and len(groups) > top:
        console.print(Text(f"\n… and {len(groups) - top} more; see --top", style="dim"))


def _print_lifetimes(console: Console, group: list[Shown]) -> None:
    one, life = group[0], group[0].life
    many = f"{len(group)} × " if len(group) > 1 else ""
    console.print(
        Text(f"\n{many}{format_bytes(one.bytes)}  {clean(one.tensor or one.symbol)}", "bold")
    )
    rows = [
        ("symbol", one.symbol),
        ("layer", one.layer),
        ("category", one.category + ("" if one.alive_at_peak else ", not alive at the peak")),
        ("lives", f"from {one.born} to {one.freed}"),
        ("made by", _line(life.producer)),
        *(("used by", _line(line)) for line in life.consumers[:_CONSUMERS]),
        ("freed by", _line(life.freed) if life.freed else "nothing in the recording"),
    ]
    if len(life.consumers) > _CONSUMERS:
        last = _line(life.consumers[-1])
        rows.insert(-1, ("last used by", f"{last} ({len(life.consumers)} uses in all)"))
    if life.idle_lines > 1:
        rows.append(("", f"freed {life.idle_lines} lines after its last use"))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True, justify="right")
    table.add_column(overflow="fold")
    for name, value in rows:
        if value:
            table.add_row(name, Text(clean(value)))
    console.print(table)


def _line(line: Line) -> str:
    text = line.text if len(line.text) <= _LINE_WIDTH else f"{line.text[:_LINE_WIDTH]}…"
    return f"{line.where}  {text}" if text else line.where


def make_heading(report: PeakReport, letter: str = "") -> RenderableType:
    title = Text(f"{letter}  " if letter else "", style="bold")
    title.append(clean(report.label) if report.facts else clean(report.path))
    if report.facts:
        title.append(f"  {clean(report.path)}", style="not bold dim")
    position = f", at {clean(report.position)}" if report.position else ""
    kind = "allocated" if report.accounting == "allocated" else "requested (blocks unknown)"
    what = kind if report.other_moment else f"peak {kind}"
    line = Text(f"  {what} {format_bytes(report.peak_bytes)} in {clean(report.window)}{position}")
    checked = {
        True: "replay equals the driver's figures",
        False: "replay DIFFERS from the driver's figures",
        None: "no figures of the driver to compare with",
    }[report.reconciled]
    if report.driver_peak_bytes is not None:
        checked += f" (driver's peak here: {format_exact(report.driver_peak_bytes)})"
    state = "" if report.complete else "; incomplete, see below"
    style = "red" if report.reconciled is False else "dim"
    return Group(title, line, Text(f"  {checked}{state}", style=style))


def print_warnings(console: Console, warnings: Sequence[str]) -> None:
    for text in warnings:
        console.print(Text(f"  note: {clean(text)}", style="yellow"))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("symbol", overflow="fold", ratio=1)
    return table


def _amount(side: Side) -> str:
    return format_bytes(side.bytes) if side.count else "·"


def _delta(size: int) -> Text:
    return Text(format_delta(size), style=MORE if size > 0 else LESS if size < 0 else "")


def _time_delta(ns: int) -> Text:
    return Text(format_time_delta(ns), style=MORE if ns > 0 else LESS if ns < 0 else "")


def _dim(delta: int) -> str:
    return "" if delta else "dim"
