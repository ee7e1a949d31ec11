"""``memtrace view``."""

from __future__ import annotations

import tempfile
from typing import Annotated, BinaryIO, cast

import typer

from memtrace.cli.options import CaptureArgument, load_subject, say, show_status
from memtrace.cli.traces import perfetto_writer, say_notes


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace view a.pkl --perfetto")(view)


def view(
    capture: CaptureArgument,
    perfetto: Annotated[
        bool,
        typer.Option("--perfetto", help="Open it as a trace in ui.perfetto.dev."),
    ] = False,
    window: Annotated[
        str, typer.Option(help="Which stretch: an iteration's number, 'last', or 'all'.")
    ] = "all",
) -> None:
    """Open a recording in the browser.

    ui.perfetto.dev takes the trace from memtrace, which serves that one file on the loopback, to
    that page alone, and ends when it was fetched.
    """
    if not perfetto:
        raise typer.BadParameter(
            "give it, to open the trace in ui.perfetto.dev", param_hint="--perfetto"
        )
    from memtrace.analysis.tracks import describe_run
    from memtrace.cli.loopback import serve_once

    write_perfetto = perfetto_writer()
    subject = load_subject(capture, window)
    with show_status("putting the trace together"):
        trace = describe_run(subject)
    say_notes(trace)
    with tempfile.TemporaryFile() as file:
        content = cast(BinaryIO, file)
        write_perfetto(trace, content)
        serve_once(f"{capture.name.partition('.')[0]}.pftrace", content, say)
