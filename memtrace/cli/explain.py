"""``memtrace explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memtrace.cli.options import JsonOption, TopOption
from memtrace.cli.texts import explain_text, is_text


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
    from memtrace.errors import MemtraceError

    if not is_text(file):
        raise MemtraceError(f"{file}: is no text; give a Thunder trace as text")
    explain_text(file, top, as_json)
