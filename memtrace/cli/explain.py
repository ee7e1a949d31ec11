"""``memtrace explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memtrace.cli.diff import parse_threshold
from memtrace.cli.options import (
    JsonOption,
    TopOption,
    WindowOption,
    check_captures,
    load_subject,
    print_json,
    print_report,
    show_status,
)
from memtrace.cli.texts import explain_text, is_text


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace explain a.pkl --what-if --target 40GB")(explain)


def explain(
    captures: Annotated[
        list[Path],
        typer.Argument(
            metavar="CAPTURE [CANDIDATE] | TRACE",
            help="One capture or torch memory snapshot, or two to compare; or a text with a "
            "Thunder trace, whole or in part, as thunder.last_traces(f)[-1] prints it.",
            show_default=False,
        ),
    ],
    window: WindowOption = None,
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if",
            help="Say what the peak would be without each cause, and without several.",
        ),
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="40GB|80%",
            help="With --what-if: the shortest list of changes that brings the peak down to this "
            "(a share is of today's peak). Of two captures, A's peak is B's target by default.",
        ),
    ] = None,
    top: TopOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what would bring the peak down: causes, evidence, what to try, and by how much.

    Of two captures: which causes the gap between their peaks consists of.
    """
    from memtrace.analysis.findings import report_explain, report_explain_pair
    from memtrace.errors import MemtraceError
    from memtrace.timeline import peak

    check_captures(captures)
    texts = [path for path in captures if is_text(path)]
    if texts:
        if len(captures) > 1 or what_if or target is not None:
            # No usage error: it is what the file holds that does not fit.
            raise MemtraceError(
                f"{texts[0]}: a text and no capture: nothing was measured, so it can be neither "
                "compared nor replayed; give it alone"
            )
        explain_text(texts[0], top, as_json)
        return
    if target is not None:
        parse_threshold(target, 0)  # a wrong one is said before the files are read
    subjects = [load_subject(path, window) for path in captures]
    last = subjects[-1]
    wanted = None
    if target is not None:
        today = peak(last.replay, last.window, last.replay.accounting).total
        wanted = int(parse_threshold(target, today))
    asked = what_if or target is not None
    with show_status("looking for causes"):
        if len(subjects) == 1:
            report = report_explain(last, whatif=asked, target=wanted)
        else:
            pair = report_explain_pair(*subjects, whatif=asked, target=wanted)
    if as_json:
        from memtrace.render.explain_json import explain_object, explain_pair_object

        print_json(explain_object(report) if len(subjects) == 1 else explain_pair_object(pair))
        return
    from memtrace.render.explain import print_explain, print_explain_pair

    if len(subjects) == 1:
        print_report(lambda console: print_explain(console, report, top=top))
    else:
        print_report(lambda console: print_explain_pair(console, pair, top=top))
