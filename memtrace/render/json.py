"""Reports as the JSON objects of the contract (schema 1): one object, integers in bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from memtrace.analysis import (
    Bandwidth,
    DiffReport,
    GpuTime,
    Measure,
    PeakReport,
    Row,
    ShowReport,
    Side,
    Spread,
    card_bandwidth,
    layer_pattern,
    limit_rows,
    measure_throughput,
    sort_rows,
    without,
)
from memtrace.render.hta import Breakdown
from memtrace.render.oom import oom_object

SCHEMA = 1


def peak_object(
    report: PeakReport,
    top: int | None = None,
    by: Measure = "bytes",
    breakdown: Breakdown | None = None,
) -> dict[str, Any]:
    """``memtrace peak --json``: every row counts, the rest beyond ``top`` in ``<others>``."""
    return {
        "schema": SCHEMA,
        **summary_object(report, breakdown),
        "rows": _rows(report.rows, top, by, _peak_sizes(report)),
    }


def diff_object(
    report: DiffReport,
    top: int | None = None,
    by: Measure = "bytes",
    breakdowns: Sequence[Breakdown | None] = (None, None),
) -> dict[str, Any]:
    """``memtrace diff --json``: the rows' ``delta_bytes`` sum to ``gap_bytes``.

    And their ``delta_time_ns`` to ``time_gap_ns``; times are null where a run has none.
    """
    return {
        "schema": SCHEMA,
        "baseline": {"schema": SCHEMA, **summary_object(report.baseline, breakdowns[0])},
        "candidate": {"schema": SCHEMA, **summary_object(report.candidate, breakdowns[1])},
        "gap_bytes": report.gap_bytes,
        "time_gap_ns": report.time_gap_ns,
        "steps": {
            "wall": _change(report.baseline.steps.wall, report.candidate.steps.wall),
            "gpu": _change(report.baseline.steps.gpu, report.candidate.steps.gpu),
        },
        "differences": list(report.differences),
        "compilations_only_in_baseline": _only(report.baseline, report.candidate),
        "compilations_only_in_candidate": _only(report.candidate, report.baseline),
        "warnings": list(report.warnings),
        "rows": _rows(report.rows, top, by, _diff_sizes(report)),
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


def summary_object(report: PeakReport, breakdown: Breakdown | None = None) -> dict[str, Any]:
    """The peak object without its rows."""
    gpu = report.gpu
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
        "gpu": gpu and _gpu(gpu, card_bandwidth(report.facts), breakdown),
        "steps": {"wall": _spread(report.steps.wall), "gpu": _spread(report.steps.gpu)},
        "compilations": [asdict(one) for one in report.compilations],
        "warnings": list(report.warnings),
        **({"oom": oom_object(report.oom, report.earlier_ooms)} if report.oom else {}),
    }


def _only(report: PeakReport, other: PeakReport) -> list[dict[str, Any]]:
    """What compilers did in one run and not, or less often, in the other."""
    return [asdict(one) for one in without(report.compilations, other.compilations)]


def _gpu(gpu: GpuTime, card: Bandwidth | None, breakdown: Breakdown | None) -> dict[str, Any]:
    return {
        "iteration": gpu.iteration,
        "kernels": gpu.kernels,
        "busy_ns": gpu.busy_ns,
        "idle_ns": gpu.idle_ns,
        "bandwidth": None if card is None else asdict(card),
        "hta": None if breakdown is None else _breakdown(breakdown),
    }


def _breakdown(breakdown: Breakdown) -> dict[str, Any]:
    return {
        "compute_ns": breakdown.compute,
        "non_compute_ns": breakdown.other,
        "idle_ns": breakdown.idle,
        "streams": [
            {
                "stream": wait.stream,
                "host_bound_ns": wait.host,
                "launch_bound_ns": wait.launch,
                "other_ns": wait.other,
            }
            for wait in breakdown.waits
        ],
        "kernels": breakdown.kernels,
    }


def _change(a: Spread | None, b: Spread | None) -> dict[str, Any] | None:
    """How the median step changed, and whether the middle halves overlap."""
    if a is None or b is None:
        return None
    return {
        "baseline_ns": a.median_ns,
        "candidate_ns": b.median_ns,
        "delta_ns": b.median_ns - a.median_ns,
        "ratio": b.median_ns / a.median_ns if a.median_ns else None,
        "overlap": a.overlaps(b),
    }


def _spread(spread: Spread | None) -> dict[str, Any] | None:
    """The median, and the quartiles of the steps."""
    if spread is None:
        return None
    return {
        "median_ns": spread.median_ns,
        "low_ns": spread.low_ns,
        "high_ns": spread.high_ns,
        "count": spread.count,
    }


def _rows(
    rows: Sequence[Row], top: int | None, by: Measure, sizes: Callable[[Row], dict[str, Any]]
) -> list[dict[str, Any]]:
    limited = limit_rows(sort_rows(rows, by), top)
    return [{**_names(row), **sizes(row)} for row in limited]


def _time(side: Side, report: PeakReport, prefix: str = "") -> dict[str, Any]:
    """A side's GPU time; null where the run has none, or rows of this kind have none."""
    moved = measure_throughput(side.time, card_bandwidth(report.facts))
    time = side.time if report.gpu is not None and report.gpu.by_row else None
    return {
        f"{prefix}time_ns": time and time.ns,
        f"{prefix}kernels": time and time.kernels,
        f"{prefix}longest_kernel": (time and time.longest) or None,
        f"{prefix}longest_kernel_ns": time and time.longest_ns,
        f"{prefix}launched_at": list(time.where) if time else [],
        f"{prefix}operations": list(time.operations) if time else [],
        f"{prefix}moved_bytes": time and time.moved,
        f"{prefix}bandwidth_share": moved.share if moved else None,
    }


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


def _peak_sizes(report: PeakReport) -> Callable[[Row], dict[str, Any]]:
    return lambda row: _peak_row(row, report)


def _peak_row(row: Row, report: PeakReport) -> dict[str, Any]:
    side = row.sides[0]
    return {
        "bytes": side.bytes,
        "count": side.count,
        **_time(side, report),
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


def _diff_sizes(report: DiffReport) -> Callable[[Row], dict[str, Any]]:
    return lambda row: _diff_row(row, report)


def _diff_row(row: Row, report: DiffReport) -> dict[str, Any]:
    a, b = row.sides
    return {
        "baseline_bytes": a.bytes,
        "candidate_bytes": b.bytes,
        "delta_bytes": row.delta,
        "baseline_count": a.count,
        "candidate_count": b.count,
        "delta_time_ns": None if report.time_gap_ns is None else row.delta_ns,
        **_time(a, report.baseline, "baseline_"),
        **_time(b, report.candidate, "candidate_"),
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
