"""``memtrace view``."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, cast

import typer

from memtrace.cli.options import (
    CapturesArgument,
    WindowOption,
    check_captures,
    load_subject,
    say,
    show_status,
)
from memtrace.cli.report import open_report
from memtrace.cli.traces import perfetto_writer, say_notes

if TYPE_CHECKING:
    from memtrace.analysis.tracks import Trace


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace view a.pkl b.pkl")(view)


def view(
    captures: CapturesArgument,
    perfetto: Annotated[
        bool,
        typer.Option("--perfetto", help="Open it as a trace in ui.perfetto.dev instead."),
    ] = False,
    window: WindowOption = None,
) -> None:
    """Open the page of one recording or two in the browser.

    With --perfetto a trace: ui.perfetto.dev takes it from memtrace, which serves that one file on
    the loopback, to that page alone, and ends when it was fetched.
    """
    check_captures(captures)
    if not perfetto:
        open_report(captures, window)
        return
    from memtrace.cli.loopback import serve_once

    write_perfetto = perfetto_writer()
    trace = _describe(captures, window)
    say_notes(trace)
    with tempfile.TemporaryFile() as file:
        content = cast(BinaryIO, file)
        write_perfetto(trace, content)
        serve_once(f"{captures[-1].name.partition('.')[0]}.pftrace", content, say)


def _describe(captures: Sequence[Path], window: str | None) -> Trace:
    """One recording, all of it unless told otherwise, or two side by side."""
    from memtrace.analysis import report_diff
    from memtrace.analysis.tracks import describe_pair, describe_run

    whole = "all" if len(captures) == 1 else None
    subjects = [load_subject(path, window or whole) for path in captures]
    with show_status("putting the trace together"):
        if len(subjects) == 1:
            return describe_run(subjects[0])
        return describe_pair(report_diff(*subjects), *subjects)
