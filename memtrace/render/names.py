"""A row of a table in words: its symbol, how it changed, and under it what it holds or ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text

from memtrace.analysis import Measure, PeakReport, Row, Side, describe, layer_pattern
from memtrace.render.times import describe_kernels
from memtrace.render.units import clean, format_delta
from memtrace.symbols import Symbol

_NAME_WIDTH = 40  # characters of a maker's name; Inductor's name all that a kernel fuses
MORE = "red"
LESS = "green"


def describe_row(row: Row, reports: Sequence[PeakReport], sort: Measure) -> Text:
    """The name as found in the trace, folded names in one, and under it the tensors or kernels."""
    text = Text(clean(_folded(row).text))
    if row.members:
        each = ""
        if len(row.sides) == 2 and sort == "bytes":
            each = f" {format_delta(row.delta // len(row.members))}"
        text.append(f" · {len(row.members)} ×{each}", style="bold")
    if row.renamed:
        text.append(f"  ({clean(_renamed(row))} in A)", style="dim")
    if row.status:
        beside = f" beside {', '.join(row.beside)}" if row.beside else ""
        text.append(f"  {row.status}{clean(beside)}", style=MORE if row.delta > 0 else LESS)
    if sort == "time":
        # Of the side that takes longer: what is slow is what one wants to know of.
        slower = max(range(len(row.sides)), key=lambda k: row.sides[k].time.ns)
        for line in describe_kernels(row.sides[slower].time, reports[slower]):
            text.append(f"\n  {line}", style="dim")
        return text
    # The shapes are in a tensor's own row; there the names say more.
    shaped = row.symbol.compiler is None and row.symbol.text.endswith("]")
    for side in row.sides[::-1]:
        if side.tensors:
            text.append(f"\n  {clean(_names(row) if shaped else _tensors(side))}", style="dim")
            break
    return text


def _renamed(row: Row) -> str:
    """The baseline's name; of a tensor, whose place is the same, its shape."""
    assert row.renamed is not None
    here, there = describe(row.symbol.text), describe(row.renamed.text)
    if here is not None and there is not None and here.place == there.place:
        return row.renamed.text.removeprefix(there.place).strip()
    return row.renamed.name


def _folded(row: Row) -> Symbol:
    """The row's symbol with all its members' numbers: 'nvFusion2, 6, 10, 14', 'layers.*.mlp'."""
    if row.members and row.symbol.compiler is None:
        return replace(row.symbol, name=layer_pattern(row.symbol.name))
    names = list(dict.fromkeys(symbol.name for symbol in row.members))
    operations = list(dict.fromkeys(symbol.operation for symbol in row.members))
    return replace(
        row.symbol,
        name=_series(names) or row.symbol.name,
        operation=_series(operations) or row.symbol.operation,
    )


def _series(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    base = names[0].rstrip("0123456789")
    return ", ".join([names[0], *(name.removeprefix(base) for name in names[1:])])


def _tensors(side: Side, most: int = 4) -> str:
    """'4 × float32[1, 28, 4096, 4096], 4 × bfloat16[…]'."""
    parts = [f"{count} × {text}" if count > 1 else text for text, count in side.tensors[:most]]
    if len(side.tensors) > most:
        parts.append(f"{len(side.tensors) - most} more shapes")
    return ", ".join(parts)


def _names(row: Row) -> str:
    """'buf19 by TorchCompile0 → t1112, t1126 by nvFusion2, 6': A's and B's names and makers."""
    return " → ".join(_side_names(side) for side in row.sides)


def _side_names(side: Side, most: int = 4) -> str:
    # What an allocation may be, of many possible ones the first.
    sets = (name.split(" | ") for name in side.names[:most])
    names = [" | ".join([*one[:most], *["…"] * (len(one) > most)]) for one in sets]
    names = names + ["…"] * (len(side.names) > most)
    makers = ", ".join(_makers(side.symbols))
    return " by ".join(part for part in (", ".join(names), makers) if part) or "·"


def _makers(symbols: Sequence[Symbol]) -> list[str]:
    """'nvFusion2, 6, 10': symbols by name and operation, numbered ones in a row."""
    series: dict[tuple[str, str], dict[str, None]] = {}
    for symbol in symbols:
        name = symbol.name
        base = name.rstrip("0123456789") if symbol.compiler in ("thunder", "inductor") else name
        series.setdefault((base, symbol.operation), {})[name] = None
    return [
        (_series(list(names)) or _short(next(iter(names))))
        + (f" › {operation}" if operation else "")
        for (_, operation), names in series.items()
    ]


def _short(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[:_NAME_WIDTH]}…"
