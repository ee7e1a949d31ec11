"""Which symbols the gap between two peaks consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memtrace.analysis.groups import Dimension
from memtrace.analysis.matching import join_rows
from memtrace.analysis.peak import PeakReport, Subject, report_peak
from memtrace.analysis.rows import Row, sort_rows
from memtrace.analysis.tensors import find_beside, join_reshaped
from memtrace.symbols import Attribution, attribute
from memtrace.timeline import Accounting

# Facts whose difference between two runs matters to memory, and how a person calls them.
_COMPARED = {
    "compilers": "compiled by",
    "device": "device",
    "gpu": "GPU",
    "torch": "torch",
    "thunder": "thunder",
    "nvfuser": "nvfuser",
    "transformers": "transformers",
    "python": "Python",
    "cuda": "CUDA",
    "allocator_conf": "allocator settings",
    "allocator_backend": "allocator",
    "rank": "rank",
    "world_size": "ranks",
    "inputs": "inputs",
    "command": "command",
    "git_commit": "git commit",
}


@dataclass(frozen=True, slots=True)
class DiffReport:
    """Two peaks side by side. The rows' deltas sum to ``gap_bytes``, candidate minus baseline.

    Those of their times sum to ``time_gap_ns``, the difference in GPU busy time; it is None where
    one of the runs has none, or rows of this kind have no times.

    ``differences`` says what else differs between the runs than what was meant to.
    """

    baseline: PeakReport
    candidate: PeakReport
    gap_bytes: int
    time_gap_ns: int | None
    differences: tuple[str, ...]
    warnings: tuple[str, ...]
    rows: tuple[Row, ...]


def common_accounting(subjects: Sequence[Subject]) -> Accounting:
    """The best accounting that all of them have."""
    known = all(subject.replay.accounting == "allocated" for subject in subjects)
    return "allocated" if known else "requested"


def attribute_alike(subjects: Sequence[Subject]) -> list[Attribution]:
    """The names of all of them, with the profiler's operators only where every one has these."""
    operators = len({subject.has_profile for subject in subjects}) == 1
    return [attribute(one.recording, one.replay, operators=operators) for one in subjects]


def report_diff(
    baseline: Subject,
    candidate: Subject,
    *,
    by: Dimension = "symbol",
    at: str | None = None,
) -> DiffReport:
    """Compares the peaks of two windows, or another moment of each as ``report_peak`` takes it.

    Both in the same accounting and by the same kind of names.
    """
    subjects = (baseline, candidate)
    accounting = common_accounting(subjects)
    a, b = (
        report_peak(subject, accounting=accounting, by=by, at=at, attribution=attribution)
        for subject, attribution in zip(subjects, attribute_alike(subjects), strict=True)
    )
    return compare_peaks(subjects, a, b)


def compare_peaks(subjects: Sequence[Subject], a: PeakReport, b: PeakReport) -> DiffReport:
    """Compares the baseline's and the candidate's peak, in one accounting and by one dimension."""
    warnings = []
    if len({subject.replay.accounting for subject in subjects}) > 1:
        warnings.append(
            "block sizes are known in one recording only: both are compared by requested bytes"
        )
    if (a.window == "all" and b.window != "all") or (b.window == "all" and a.window != "all"):
        warnings.append(
            f"the windows differ: A is {a.window}, B is {b.window}; choose with --window"
        )
    return DiffReport(
        baseline=a,
        candidate=b,
        gap_bytes=b.peak_bytes - a.peak_bytes,
        time_gap_ns=_time_gap(a, b),
        differences=tuple(_differences(a.facts, b.facts)),
        warnings=tuple(warnings),
        rows=tuple(_join(a, b)),
    )


def _join(a: PeakReport, b: PeakReport) -> list[Row]:
    """The rows of both, those that are the same thing as one."""
    joined = join_reshaped(join_rows(a.rows, b.rows), a.present, b.present)
    return sort_rows(find_beside([_say_where(row, a, b) for row in joined]))


def _time_gap(a: PeakReport, b: PeakReport) -> int | None:
    if a.gpu is None or b.gpu is None or not a.gpu.by_row:
        return None
    return b.gpu.busy_ns - a.gpu.busy_ns


def _say_where(row: Row, a: PeakReport, b: PeakReport) -> Row:
    """Marks a row that one side alone holds at its peak, but both make."""
    counts = [side.count for side in row.sides]
    if all(counts):
        return row
    other = a if not counts[0] else b
    return replace(row, elsewhere=row.symbol in other.present)


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """One line for each fact that both captures or one of them has, and that differs."""
    if not a and not b:
        return []
    lines = []
    for key, name in _COMPARED.items():
        if a.get(key) != b.get(key):
            lines.append(f"{name}: {_fact(a.get(key))} → {_fact(b.get(key))}")
    return lines


def _fact(value: Any) -> str:
    if value in (None, "", []):
        return "unknown"
    if isinstance(value, list):
        return " ".join(_tensor(item) if isinstance(item, dict) else str(item) for item in value)
    return str(value)


def _tensor(info: Mapping[str, Any]) -> str:
    return f"{info.get('name')}: {info.get('dtype')}{info.get('shape')}"
