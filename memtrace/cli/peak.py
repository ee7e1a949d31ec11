"""``memtrace peak``."""

from __future__ import annotations

import typer

from memtrace.cli.options import (
    AtOption,
    ByOption,
    CaptureArgument,
    ExpandOption,
    JsonOption,
    TopOption,
    WindowOption,
    load_subject,
    print_json,
    print_report,
)


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace peak a.pkl --top 10")(peak)


def peak(
    capture: CaptureArgument,
    window: WindowOption = None,
    by: ByOption = "symbol",
    at: AtOption = None,
    top: TopOption = None,
    as_json: JsonOption = False,
    expand: ExpandOption = False,
) -> None:
    """Say what the peak of one recording consists of, symbol by symbol."""
    from memtrace.analysis import report_peak

    report = report_peak(load_subject(capture, window), by=by, at=at)
    if as_json:
        from memtrace.render.json import peak_object

        print_json(peak_object(report, top))
        return
    from memtrace.render.text import print_peak

    print_report(lambda console: print_peak(console, report, top=top, expand=expand))
