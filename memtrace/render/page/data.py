"""What a page carries: a report as plain values for JSON, its long columns apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from memtrace.analysis import PeakReport, Row, Side, folded_symbol
from memtrace.analysis.history import DIMENSIONS, History, HistoryReport, Overview, PeakRow
from memtrace.analysis.rows import repeated_kind
from memtrace.render.oom import oom_lines
from memtrace.render.page.packing import Packer
from memtrace.render.times import gpu_text, spread_text, time_text
from memtrace.render.units import clean
from memtrace.render.wording import detail_text, renamed_name
from memtrace.symbols import Symbol
from memtrace.symbols.categories import CATEGORIES
from memtrace.timeline import Window

_FACTS = ("compilers", "gpu", "torch", "thunder", "nvfuser", "allocator_conf")
_TAB = 4


def page_data(report: HistoryReport, packer: Packer) -> dict[str, Any]:
    """The object that the page's script reads; columns and source texts go into ``packer``."""
    letters = "AB" if len(report.histories) == 2 else " "
    return {
        "schema": 1,
        "runs": [
            _run(history, letters[k].strip(), packer) for k, history in enumerate(report.histories)
        ],
        "rows": {by: [_row(one) for one in report.rows[by]] for by in DIMENSIONS},
        "gap": report.gap_bytes if len(report.histories) == 2 else None,
        "differences": [clean(line) for line in report.differences],
        "warnings": [clean(line) for line in report.warnings],
    }


def _run(history: History, letter: str, packer: Packer) -> dict[str, Any]:
    kinds = history.kinds
    files = {name: k for k, name in enumerate(history.sources)}
    times = history.times
    return {
        "letter": letter,
        "summary": _summary(history.report),
        "facts": _facts(history.report),
        "events": history.n_events,
        "from": history.known_from,
        "windows": [_window(window) for window in history.windows],
        "window": history.windows.index(history.window),
        "born": packer.add(history.born + 1, rising=True),
        "life": packer.add(history.end - history.born),
        "kind": packer.add(kinds.of),
        "times": None if times is None else packer.add(times - times[0], rising=True),
        "kinds": {
            "requested": packer.add(kinds.requested),
            "held": packer.add(kinds.requested + kinds.slack),
            "what": packer.add(kinds.what),
            "category": packer.add(kinds.category),
            "lines": packer.add(kinds.lines),
            "freed": packer.add(kinds.freed),
            "late": packer.add(kinds.late),
            "groups": {by: packer.add(kinds.groups[by]) for by in DIMENSIONS},
        },
        "whats": [[clean(t) for t in (w.tensor, w.shape, w.layer, w.made)] for w in kinds.whats],
        "categories": CATEGORIES,
        "lineSets": [[(files[name], line) for name, line in lines] for lines in kinds.line_sets],
        "freeLines": [clean(text) for text in kinds.free_lines],
        "groups": {by: _groups(kinds.symbols[by]) for by in DIMENSIONS},
        "files": [
            {
                "name": clean(_last_part(name)),
                "full": clean(name),
                "title": clean(history.titles.get(name, "")),
                "text": packer.add_text(_clean_lines(text)),
            }
            for name, text in history.sources.items()
        ],
        "overview": _overview(history.overview, packer),
    }


def _overview(overview: Overview | None, packer: Packer) -> dict[str, Any] | None:
    if overview is None:
        return None
    return {
        "moments": packer.add(overview.moments, rising=True),
        "total": packer.add(overview.total),
        "numbers": dict(overview.numbers),
        "rows": {
            by: [packer.add(np.ascontiguousarray(column)) for column in overview.rows[by].T]
            for by in DIMENSIONS
        },
    }


def _summary(report: PeakReport) -> dict[str, Any]:
    from memtrace.render.json import summary_object

    found = summary_object(report)
    for key in ("path", "label", "window", "position"):
        found[key] = clean(str(found[key]))
    found.pop("oom", None)  # in words
    found["warnings"] = [clean(line) for line in (*oom_lines(report), *report.warnings)]
    return found


def _facts(report: PeakReport) -> list[tuple[str, str]]:
    """What a person should know of a run: how it was compiled, where it ran, how fast."""
    found = []
    for key in _FACTS:
        value = report.facts.get(key)
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
        if text:
            found.append((key.replace("_", " "), clean(text)))
    step = report.steps.gpu or report.steps.wall
    if step is not None:
        found.append(("step", spread_text([step])))
    if report.gpu is not None:
        found.append(("GPU of the profiled step", gpu_text(report.gpu)))
    return found


def _window(window: Window) -> dict[str, Any]:
    return {
        "name": clean(window.name),
        "iteration": window.kind == "iteration",
        "begin": window.begin,
        "end": window.end,
        "phases": [(phase.name, phase.begin, phase.end) for phase in window.phases],
    }


def _groups(symbols: Sequence[Symbol]) -> list[dict[str, Any]]:
    """``fold`` is the same for symbols of repeated layers, -1 for one that is not numbered."""
    folds: dict[Any, int] = {}
    found = []
    for symbol in symbols:
        kind = repeated_kind(symbol)
        fold = -1 if kind is None else folds.setdefault(kind, len(folds))
        parts = (symbol.name, symbol.operation, symbol.line)
        place = "/".join(part for part in (symbol.module, symbol.phase) if part)
        name, operation, line = (clean(part) for part in parts)
        found.append(
            {
                "place": clean(place),
                "name": name,
                "operation": operation,
                "line": line,
                "plain": symbol.compiler is None,
                "fold": fold,
            }
        )
    return found


def _row(one: PeakRow) -> dict[str, Any]:
    row = one.row
    symbol = folded_symbol(row)
    short = f"{symbol.name} › {symbol.operation}" if symbol.operation else symbol.name

    def sides(get: Callable[[Side], Any]) -> list[Any]:
        return [get(side) for side in row.sides]

    return {
        "text": clean(symbol.text),
        "short": clean(short),
        "special": symbol.special,
        "members": len(row.members),
        "bytes": sides(lambda side: side.bytes),
        "counts": sides(lambda side: side.count),
        "delta": row.delta,
        "status": clean(row.status),
        "beside": [clean(text) for text in row.beside],
        "renamed": _renamed(row),
        "detail": clean(" · ".join(filter(None, (time_text(row), detail_text(row))))),
        "where": [[clean(text) for text in side.where] for side in row.sides],
        "groups": one.groups,
    }


def _renamed(row: Row) -> str:
    return clean(renamed_name(row)) if row.renamed is not None else ""


def _last_part(name: str) -> str:
    return name.replace("\\", "/").rsplit("/", 1)[-1]


def _clean_lines(text: str) -> str:
    return "\n".join(clean(line.expandtabs(_TAB)) for line in text.split("\n"))
