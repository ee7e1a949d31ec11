"""``memtrace predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memtrace.cli.options import (
    JsonOption,
    TopOption,
    WindowOption,
    load_subject,
    print_json,
    print_report,
)

_ROWS = 12  # statements printed for a program


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace predict trace.txt")(predict)


def predict(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="CAPTURE|TRACE",
            help="A memtrace capture, or a text with what thunder.last_traces(f)[-1] prints, "
            "whole or in part.",
            show_default=False,
        ),
    ],
    window: WindowOption = None,
    top: TopOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a Thunder program's peak is by its symbols alone, beside what was measured."""
    from memtrace.analysis.predicted import Predicted, PredictReport, report_prediction
    from memtrace.cli.texts import is_text, read_trace_text
    from memtrace.program import predict as predict_program
    from memtrace.program import read_text

    if is_text(file):
        program = read_text(read_trace_text(file), str(file))
        report = PredictReport(str(file), "", (Predicted(predict_program(program), None),))
    else:
        report = report_prediction(load_subject(file, window))
    if as_json:
        from memtrace.render.predictions import predict_object

        print_json(predict_object(report))
        return
    from memtrace.render.predictions import print_predictions

    print_report(lambda console: print_predictions(console, report, top or _ROWS))
