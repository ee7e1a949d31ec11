"""``memtrace export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memtrace.cli.options import CaptureArgument, load_subject, show_status
from memtrace.cli.traces import (
    ForceOption,
    check_outputs,
    say_notes,
    write_plain_profile,
    write_trace,
)


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace export a.pkl --perfetto a.pftrace")(export)


def export(
    capture: CaptureArgument,
    perfetto: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a trace for ui.perfetto.dev (.pftrace)."),
    ] = None,
    chrome: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a trace for chrome://tracing and Perfetto (.json, .json.gz).",
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the profiled iteration alone, as torch.profiler does, for "
            "HolisticTraceAnalysis and Perfetto (.json, .json.gz).",
        ),
    ] = None,
    window: Annotated[
        str,
        typer.Option(
            help="Which stretch: an iteration's number, a range of them (3-5), 'last', 'last:3', "
            "or 'all'."
        ),
    ] = "all",
    force: ForceOption = False,
) -> None:
    """Write a recording as a trace to look at: counters, passes, symbols, lifetimes, kernels."""
    outputs = [path for path in (perfetto, chrome, profile) if path is not None]
    if not outputs:
        raise typer.BadParameter(
            "nothing to write; give --perfetto FILE, --chrome FILE or --profile FILE",
            param_hint="--perfetto",
        )
    check_outputs([capture], outputs, force)
    subject = load_subject(capture, window)
    if profile is not None:
        write_plain_profile(subject.recording, profile, force)
    if perfetto is None and chrome is None:
        return
    from memtrace.analysis.tracks import describe_run

    with show_status("putting the trace together"):
        trace = describe_run(subject)
    say_notes(trace)
    if perfetto is not None:
        write_trace(trace, perfetto, force)
    if chrome is not None:
        write_trace(trace, chrome, force, form="chrome")
