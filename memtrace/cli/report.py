"""``memtrace report``, and the page that ``memtrace view`` opens."""

from __future__ import annotations

import tempfile
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtrace.cli.options import (
    CapturesArgument,
    WindowOption,
    check_captures,
    load_subject,
    say,
    show_status,
)
from memtrace.cli.traces import ForceOption, check_outputs

if TYPE_CHECKING:
    from memtrace.analysis.history import HistoryReport


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace report a.pkl b.pkl -o report.html")(report)


def report(
    captures: CapturesArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")] = Path(
        "report.html"
    ),
    window: WindowOption = None,
    force: ForceOption = False,
) -> None:
    """Write a page about one recording or two, a single file that opens from disk.

    It shows the timeline by symbol, category or layer, what is alive at any moment, the rows of
    the gap between two runs, and the traces' source with the bytes that each line holds.
    """
    from memtrace.render.page import write_page
    from memtrace.render.units import format_bytes

    check_captures(captures)
    check_outputs(captures, [output], force)
    contents = _read_all(captures, window)
    with show_status(f"writing {output}"):
        size = write_page(output, contents, force)
    say(f"{output}: {format_bytes(size)}; open it in a browser")


def open_report(captures: Sequence[Path], window: str | None = None) -> None:
    """Writes the page to a temporary file and opens it in the person's browser.

    The file stays, as the browser reads it when it gets to it; the system clears such files away.
    """
    from memtrace.render.page import write_page

    contents = _read_all(captures, window)
    target = Path(tempfile.mkdtemp(prefix="memtrace-")) / "report.html"
    with show_status("writing the page"):
        write_page(target, contents)
    if webbrowser.open(target.as_uri()):
        say(f"opened {target}")
    else:
        say(
            f"no browser was found here; the page is {target}: open it where there is one (a "
            "single file, it can be copied)"
        )


def _read_all(captures: Sequence[Path], window: str | None) -> HistoryReport:
    """One report of one recording or two."""
    from memtrace.analysis.history import report_history

    subjects = [load_subject(path, window) for path in captures]
    with show_status("naming what is alive"):
        return report_history(subjects)
