"""``memtrace diff``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from memtrace.cli.options import (
    AtOption,
    ByOption,
    CaptureArgument,
    ExpandOption,
    JsonOption,
    SortOption,
    TopOption,
    WindowOption,
    check_sort,
    load_subject,
    print_json,
    print_report,
    read_breakdowns,
    show_status,
)
from memtrace.cli.traces import ForceOption, check_outputs, say_notes, write_trace

_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_THRESHOLD_EXCEEDED = 3


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace diff baseline.pkl candidate.pkl --top 10")(diff)


def parse_threshold(text: str, peak: int) -> float:
    """Bytes that '5%' (of ``peak``), '200MiB', '1.5 GB' or '4096' stand for.

    typer.BadParameter for anything else.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|[A-Za-z]*)\s*", text)
    if found and found[2] == "%":
        return float(found[1]) / 100 * peak
    if found and found[2].lower() in _UNITS:
        return float(found[1]) * _UNITS[found[2].lower()]
    raise typer.BadParameter(f"{text!r} is no threshold; write one like 5% or 200MiB")


def diff(
    baseline: CaptureArgument,
    candidate: CaptureArgument,
    window: WindowOption = None,
    by: ByOption = "symbol",
    at: AtOption = None,
    sort: SortOption = "bytes",
    top: TopOption = None,
    as_json: JsonOption = False,
    expand: ExpandOption = False,
    fail_over: Annotated[
        str | None,
        typer.Option(
            metavar="5%|200MiB",
            help="Exit with code 3 if the candidate's peak exceeds the baseline's by more.",
        ),
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write both as one trace for ui.perfetto.dev, each pass of B beside A's.",
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Say which symbols the gap between two peaks consists of, to the byte.

    A is the baseline, B the candidate; a positive Δ means that B uses more.
    """
    from memtrace.analysis import report_diff
    from memtrace.errors import MemtraceError

    if fail_over is not None:
        parse_threshold(fail_over, 0)  # a wrong one is said before the files are read
    if perfetto is not None:
        check_outputs([baseline, candidate], [perfetto], force)
    subjects = [load_subject(path, window) for path in (baseline, candidate)]
    for path, subject in zip((baseline, candidate), subjects, strict=True):
        if subject.empty:
            raise MemtraceError(
                f"{path}: nothing was recorded in it, so there is nothing to compare; "
                f"memtrace peak {path} says why"
            )
    report = report_diff(*subjects, by=by, at=at)
    reports = [report.baseline, report.candidate]
    check_sort(sort, by, reports)
    asked = as_json or sort == "time"
    breakdowns = read_breakdowns(subjects, reports) if asked else [None, None]
    if as_json:
        from memtrace.render.json import diff_object

        print_json(diff_object(report, top, sort, breakdowns))
    else:
        from memtrace.render.text import print_diff

        print_report(
            lambda console: print_diff(
                console, report, sort=sort, top=top, expand=expand, breakdowns=breakdowns
            )
        )
    if perfetto is not None:
        from memtrace.analysis.tracks import describe_pair

        with show_status("putting the trace together"):
            trace = describe_pair(report, *subjects)
        say_notes(trace)
        write_trace(trace, perfetto, force)
    if fail_over is not None:
        allowed = parse_threshold(fail_over, report.baseline.peak_bytes)
        if report.gap_bytes > allowed:
            typer.echo(
                f"memtrace: the gap of {report.gap_bytes:,} bytes exceeds {fail_over} "
                f"({allowed:,.0f} bytes)",
                err=True,
            )
            raise typer.Exit(_THRESHOLD_EXCEEDED)
