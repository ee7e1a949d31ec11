"""A row of a table in words: its symbol, how it changed, and under it what it holds or ran."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from memtrace.analysis import Measure, PeakReport, Row, folded_symbol
from memtrace.render.times import describe_kernels
from memtrace.render.units import clean, format_delta
from memtrace.render.wording import detail_text, renamed_name

MORE = "red"
LESS = "green"


def describe_row(row: Row, reports: Sequence[PeakReport], sort: Measure) -> Text:
    """The name as found in the trace, folded names in one, and under it the tensors or kernels."""
    text = Text(clean(folded_symbol(row).text))
    if row.members:
        each = ""
        if len(row.sides) == 2 and sort == "bytes":
            each = f" {format_delta(row.delta // len(row.members))}"
        text.append(f" · {len(row.members)} ×{each}", style="bold")
    if row.renamed:
        text.append(f"  ({clean(renamed_name(row))} in A)", style="dim")
    if row.status:
        beside = f" beside {', '.join(row.beside)}" if row.beside else ""
        text.append(f"  {row.status}{clean(beside)}", style=MORE if row.delta > 0 else LESS)
    if sort == "time":
        # Of the side that takes longer: what is slow is what one wants to know of.
        slower = max(range(len(row.sides)), key=lambda k: row.sides[k].time.ns)
        for line in describe_kernels(row.sides[slower].time, reports[slower]):
            text.append(f"\n  {line}", style="dim")
        return text
    if detail := detail_text(row):
        text.append(f"\n  {clean(detail)}", style="dim")
    return text
