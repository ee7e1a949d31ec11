"""Reports as text for a terminal: what is compared first, then the rows, then the total."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from memtrace.analysis import (
    DiffReport,
    PeakReport,
    Row,
    Shown,
    ShowReport,
    Side,
    fold_rows,
    folded_symbol,
    limit_rows,
)
from memtrace.render.units import clean, format_bytes, format_delta, format_exact
from memtrace.render.wording import detail_text, renamed_name
from memtrace.symbols import Line

_CONSUMERS = 3  # uses of a tensor that are printed; the last one always is
_LINE_WIDTH = 160  # characters of a source line
_MORE = "red"
_LESS = "green"


def print_peak(
    console: Console, report: PeakReport, *, top: int | None = None, expand: bool = False
) -> None:
    """One recording's peak and what it consists of."""
    console.print(_heading(report))
    _print_warnings(console, report.warnings)
    table = _table("bytes", "share", "count")
    for row in limit_rows(report.rows if expand else fold_rows(report.rows), top):
        share = row.sides[0].bytes / report.peak_bytes if report.peak_bytes else 0.0
        table.add_row(
            format_bytes(row.sides[0].bytes),
            f"{share:.1%}",
            f"{row.sides[0].count:,}",
            _symbol(row),
        )
    table.add_section()
    count = sum(row.sides[0].count for row in report.rows)
    table.add_row(
        format_bytes(report.peak_bytes),
        "100.0%",
        f"{count:,}",
        f"{'then' if report.other_moment else 'peak'}: {format_exact(report.peak_bytes)}",
        style="bold",
    )
    console.print(table)


def print_diff(
    console: Console, report: DiffReport, *, top: int | None = None, expand: bool = False
) -> None:
    """Two peaks, what else differs, and the rows that the gap consists of."""
    console.print(_heading(report.baseline, "A"))
    console.print(_heading(report.candidate, "B"))
    for line in report.differences:
        console.print(Text(f"  differs: {clean(line)}", style="yellow"))
    _print_warnings(console, [f"A: {text}" for text in report.baseline.warnings])
    _print_warnings(console, [f"B: {text}" for text in report.candidate.warnings])
    _print_warnings(console, report.warnings)
    table = _table("A", "B", "Δ bytes")
    rows = report.rows if expand else fold_rows(report.rows)
    for row in limit_rows(rows, top):
        a, b = row.sides
        table.add_row(
            _amount(a), _amount(b), _delta(row.delta), _symbol(row), style=_dim(row.delta)
        )
    table.add_section()
    table.add_row(
        format_bytes(report.baseline.peak_bytes),
        format_bytes(report.candidate.peak_bytes),
        _delta(report.gap_bytes),
        f"gap: {format_exact(report.gap_bytes, signed=True)}",
        style="bold",
    )
    console.print(table)


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


def _heading(report: PeakReport, letter: str = "") -> RenderableType:
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


def _print_warnings(console: Console, warnings: Sequence[str]) -> None:
    for text in warnings:
        console.print(Text(f"  note: {clean(text)}", style="yellow"))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("symbol", overflow="fold", ratio=1)
    return table


def _symbol(row: Row) -> Text:
    """The name as found in the trace, folded names in one, and the tensors under it."""
    text = Text(clean(folded_symbol(row).text))
    if row.members:
        each = f" {format_delta(row.delta // len(row.members))}" if len(row.sides) == 2 else ""
        text.append(f" · {len(row.members)} ×{each}", style="bold")
    if row.renamed:
        text.append(f"  ({clean(renamed_name(row))} in A)", style="dim")
    if row.status:
        beside = f" beside {', '.join(row.beside)}" if row.beside else ""
        text.append(f"  {row.status}{clean(beside)}", style=_MORE if row.delta > 0 else _LESS)
    if detail := detail_text(row):
        text.append(f"\n  {clean(detail)}", style="dim")
    return text


def _amount(side: Side) -> str:
    return format_bytes(side.bytes) if side.count else "·"


def _delta(size: int) -> Text:
    return Text(format_delta(size), style=_MORE if size > 0 else _LESS if size < 0 else "")


def _dim(delta: int) -> str:
    return "" if delta else "dim"
