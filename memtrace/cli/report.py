"""``memtrace report``, and the page that ``memtrace view`` opens."""

from __future__ import annotations

import tempfile
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtrace.cli.options import WindowOption, load_subject, working_on

if TYPE_CHECKING:
    from memtrace.analysis.history import HistoryReport


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace report a.pkl b.pkl -o report.html")(report)


def report(
    captures: Annotated[
        list[Path],
        typer.Argument(
            metavar="CAPTURE [CANDIDATE]",
            help="One capture or torch memory snapshot, or two to compare.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")] = Path(
        "report.html"
    ),
    window: WindowOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing page.")] = False,
) -> None:
    """Write a page about one recording or two, a single file that opens from disk.

    It shows the timeline by symbol, category or layer, what is alive at any moment, the rows of
    the gap between two runs, and the traces' source with the bytes that each line holds.
    """
    from memtrace.render.page import write_page
    from memtrace.render.units import clean, format_bytes

    contents = _read_all(captures, window)
    with working_on(f"writing {output}"):
        size = write_page(output, contents, force)
    typer.echo(
        f"memtrace: {clean(str(output))}: {format_bytes(size)}; open it in a browser", err=True
    )


def open_report(captures: Sequence[Path], window: str | None = None) -> None:
    """Writes the page to a temporary file and opens it in the person's browser.

    The file stays, as the browser reads it when it gets to it; the system clears such files away.
    """
    from memtrace.render.page import write_page

    contents = _read_all(captures, window)
    target = Path(tempfile.mkdtemp(prefix="memtrace-")) / "report.html"
    with working_on("writing the page"):
        write_page(target, contents)
    if webbrowser.open(target.as_uri()):
        typer.echo(f"memtrace: opened {target}", err=True)
    else:
        typer.echo(
            f"memtrace: no browser was found here; the page is {target}: open it where there is "
            "one (a single file, it can be copied)",
            err=True,
        )


def _read_all(captures: Sequence[Path], window: str | None) -> HistoryReport:
    """One report of one recording or two; typer.BadParameter for more."""
    from memtrace.analysis.history import report_history

    if len(captures) > 2:
        raise typer.BadParameter("give one capture, or two to compare")
    subjects = [load_subject(path, window) for path in captures]
    with working_on("naming what is alive"):
        return report_history(subjects)
