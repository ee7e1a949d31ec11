"""``memtrace show``."""

from __future__ import annotations

from typing import Annotated

import typer

from memtrace.cli.options import (
    CaptureArgument,
    JsonOption,
    TopOption,
    WindowOption,
    load_subject,
    print_json,
    print_report,
)


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace show a.pkl nvFusion2")(show)


def show(
    capture: CaptureArgument,
    name: Annotated[
        str, typer.Argument(help="A symbol, a tensor, a layer, or a part of a layer's path.")
    ],
    window: WindowOption = None,
    top: TopOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a symbol, tensor or layer: its lifetimes, who makes, reads and frees them, and where."""
    from memtrace.analysis import report_show

    report = report_show(load_subject(capture, window), name)
    if as_json:
        from memtrace.render.json import show_object

        print_json(show_object(report, top))
        return
    from memtrace.render.text import print_show

    print_report(lambda console: print_show(console, report, top=top))
