"""``memtrace peak``."""

from __future__ import annotations

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
)


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace peak a.pkl --top 10")(peak)


def peak(
    capture: CaptureArgument,
    window: WindowOption = None,
    by: ByOption = "symbol",
    at: AtOption = None,
    sort: SortOption = "bytes",
    top: TopOption = None,
    as_json: JsonOption = False,
    expand: ExpandOption = False,
) -> None:
    """Say what the peak of one recording consists of, symbol by symbol.

    Where the script ended because memory ran out: what was asked for, and what held the rest then.
    """
    from memtrace.analysis import report_peak, usual_moment

    subject = load_subject(capture, window)
    report = report_peak(subject, by=by, at=at or usual_moment(subject))
    check_sort(sort, by, [report])
    asked = as_json or sort == "time"
    breakdowns = read_breakdowns([subject], [report]) if asked else [None]
    if as_json:
        from memtrace.render.json import peak_object

        print_json(peak_object(report, top, sort, breakdowns[0]))
        return
    from memtrace.render.text import print_peak

    print_report(
        lambda console: print_peak(
            console, report, sort=sort, top=top, expand=expand, breakdown=breakdowns[0]
        )
    )
