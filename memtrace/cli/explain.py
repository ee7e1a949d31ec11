"""``memtrace explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memtrace.cli.options import JsonOption, TopOption, print_json, print_report


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace explain trace.txt")(explain)


def explain(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE",
            help="A text with a Thunder trace, whole or in part, as thunder.last_traces(f)[-1] "
            "prints it.",
            show_default=False,
        ),
    ],
    top: TopOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a program holds for no good reason, and what to try."""
    from memtrace.analysis.findings.program import explain_program
    from memtrace.cli.texts import is_text, read_trace_text
    from memtrace.errors import MemtraceError
    from memtrace.program import read_text

    if not is_text(file):
        raise MemtraceError(f"{file}: is no text; give a Thunder trace as text")
    explained = explain_program(read_text(read_trace_text(file), str(file)))
    if as_json:
        from memtrace.render.explained import trace_object

        print_json(trace_object(str(file), explained, top))
        return
    from memtrace.render.explained import print_trace

    print_report(lambda console: print_trace(console, str(file), explained, top))
