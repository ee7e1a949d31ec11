"""Reports as the JSON objects of the contract (schema 1): one object, integers in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from memtrace.analysis import (
    DiffReport,
    PeakReport,
    Row,
    ShowReport,
    layer_pattern,
    limit_rows,
)

SCHEMA = 1


def peak_object(report: PeakReport, top: int | None = None) -> dict[str, Any]:
    """``memtrace peak --json``: every row counts, the rest beyond ``top`` in ``<others>``."""
    return {
        "schema": SCHEMA,
        **summary_object(report),
        "rows": _rows(report.rows, top, _peak_sizes),
    }


def diff_object(report: DiffReport, top: int | None = None) -> dict[str, Any]:
    """``memtrace diff --json``: the rows' ``delta_bytes`` sum to ``gap_bytes``."""
    return {
        "schema": SCHEMA,
        "baseline": {"schema": SCHEMA, **summary_object(report.baseline)},
        "candidate": {"schema": SCHEMA, **summary_object(report.candidate)},
        "gap_bytes": report.gap_bytes,
        "differences": list(report.differences),
        "warnings": list(report.warnings),
        "rows": _rows(report.rows, top, _diff_sizes),
    }


def show_object(report: ShowReport, top: int | None = None) -> dict[str, Any]:
    """``memtrace show --json``: the lifetimes, those alive at the peak first."""
    return {
        "schema": SCHEMA,
        "name": report.name,
        "window": report.window,
        "bytes_at_peak": report.bytes_at_peak,
        "count": len(report.shown),
        "lifetimes": [asdict(one) for one in report.shown[:top]],
    }


def summary_object(report: PeakReport) -> dict[str, Any]:
    """The peak object without its rows."""
    return {
        "path": report.path,
        "label": report.label,
        "accounting": report.accounting,
        "peak_bytes": report.peak_bytes,
        "peak_requested_bytes": report.peak_requested_bytes,
        "peak_allocated_bytes": report.peak_allocated_bytes,
        "driver_peak_bytes": report.driver_peak_bytes,
        "window": report.window,
        "event": report.event,
        "position": report.position,
        "device": report.device,
        "complete": report.complete,
        "reconciled": report.reconciled,
        "warnings": list(report.warnings),
    }


def _rows(rows: Sequence[Row], top: int | None, sizes: Any) -> list[dict[str, Any]]:
    return [{**_names(row), **sizes(row)} for row in limit_rows(rows, top)]


def _names(row: Row) -> dict[str, Any]:
    symbol = row.symbol
    return {
        "symbol": symbol.text,
        "compiler": symbol.compiler,
        "module": symbol.module or None,
        "pass": symbol.phase,
        "name": symbol.name,
        "operation": symbol.operation or None,
        "line": symbol.line or None,
    }


def _peak_sizes(row: Row) -> dict[str, Any]:
    side = row.sides[0]
    return {
        "bytes": side.bytes,
        "count": side.count,
        "layer": _one(side.layers),
        "category": _one(side.categories),
        "where": list(side.where),
        "tensors": dict(side.tensors),
        "names": list(side.names),
        "symbols": [symbol.text for symbol in side.symbols],
        "layers": dict(side.layers),
        "categories": dict(side.categories),
    }


def _one(amounts: Sequence[tuple[str, int]]) -> str | None:
    """The one thing that all bytes are of, repeated layers as one; None where they differ."""
    found = {layer_pattern(text) if len(amounts) > 1 else text for text, _ in amounts}
    return (found.pop() or None) if len(found) == 1 else None


def _diff_sizes(row: Row) -> dict[str, Any]:
    a, b = row.sides
    return {
        "baseline_bytes": a.bytes,
        "candidate_bytes": b.bytes,
        "delta_bytes": row.delta,
        "baseline_count": a.count,
        "candidate_count": b.count,
        "status": row.status or None,
        "baseline_symbol": row.renamed.text if row.renamed else None,
        "layer": _one((a + b).layers),
        "category": _one((a + b).categories),
        "baseline_where": list(a.where),
        "candidate_where": list(b.where),
        "baseline_tensors": dict(a.tensors),
        "candidate_tensors": dict(b.tensors),
        "baseline_names": list(a.names),
        "candidate_names": list(b.names),
        "beside": list(row.beside),
        "baseline_symbols": [symbol.text for symbol in a.symbols],
        "candidate_symbols": [symbol.text for symbol in b.symbols],
        "baseline_categories": dict(a.categories),
        "candidate_categories": dict(b.categories),
    }
