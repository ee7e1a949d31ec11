"""Options that several commands share, and the steps that they have in common."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from memtrace.analysis import PeakReport, Subject
    from memtrace.render.hta import Breakdown

WindowOption = Annotated[
    str | None,
    typer.Option(
        help="Which stretch: an iteration's number, a range of them (3-5), 'last', 'last:3', or "
        "'all'. By default the last whole steady iteration, or all where there is none.",
    ),
]
TopOption = Annotated[
    int | None, typer.Option(min=1, help="Print the N weightiest rows; the rest becomes one row.")
]
ByOption = Annotated[
    Literal["symbol", "tensor", "layer", "category", "line"],
    typer.Option(help="What a row stands for."),
]
SortOption = Annotated[
    Literal["bytes", "time"],
    typer.Option(help="What weighs: bytes at the peak, or GPU time in the profiled iteration."),
]
AtOption = Annotated[
    str | None,
    typer.Option(
        metavar="MOMENT",
        help="Another moment than the peak: forward-end, backward-start, oom (when memory ran out) "
        "or an event's number.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, rows unfolded.")]
ExpandOption = Annotated[bool, typer.Option("--expand", help="Open rows of repeated layers.")]
CaptureArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CAPTURE",
        help="A memtrace capture or a torch memory snapshot (.pkl, .pickle, .gz, .zst).",
        show_default=False,
    ),
]

CapturesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="CAPTURE [CANDIDATE]",
        help="One capture or torch memory snapshot, or two to compare.",
        show_default=False,
    ),
]


def check_captures(captures: list[Path]) -> None:
    """typer.BadParameter for more than two."""
    if len(captures) > 2:
        raise typer.BadParameter("give one capture, or two to compare")


def load_subject(path: Path, window: str | None) -> Subject:
    """Reads and replays a file, with a word on stderr while it lasts if that is a terminal."""
    from memtrace.analysis import open_subject
    from memtrace.cli.memory import keep_memory
    from memtrace.errors import MemtraceError
    from memtrace.snapshot import read

    keep_memory()
    with show_status(f"reading {path}"):
        recording = read(str(path))
        # All of it stays to the end, so the collector need not look at it again and again.
        gc.freeze()
        try:
            return open_subject(recording, window)
        except MemtraceError as error:
            raise MemtraceError(f"{path}: {error}") from error


def check_sort(sort: str, by: str, reports: Sequence[PeakReport]) -> None:
    """Whether the rows can be sorted so. MemtraceError or typer.BadParameter where not."""
    from memtrace.errors import MemtraceError

    if sort != "time":
        return
    for report in reports:
        if report.gpu is None:
            raise MemtraceError(
                f"{report.path}: no GPU time is known: no kernel was seen in a profiled iteration; "
                "record it again on a GPU with memtrace record, or leave --sort time out"
            )
        if not report.gpu.by_row:
            raise typer.BadParameter(
                f"a row by {by} has no time; use --by symbol, layer or line", param_hint="--sort"
            )


def read_breakdowns(
    subjects: Sequence[Subject], reports: Sequence[PeakReport]
) -> list[Breakdown | None]:
    """What HolisticTraceAnalysis says of each run; None where it is not installed or cannot tell.

    Takes seconds, with a word on stderr while it lasts if that is a terminal.
    """
    from memtrace.render.hta import break_down, is_installed

    if not is_installed():
        return [None] * len(reports)
    found: list[Breakdown | None] = []
    with show_status("asking HolisticTraceAnalysis about idle time"):
        for subject, report in zip(subjects, reports, strict=True):
            try:
                found.append(break_down(subject.recording) if report.gpu else None)
            except Exception as error:  # whatever another program's fault is, the table stands
                found.append(None)
                what = " ".join(f"{type(error).__name__}: {error}".split())
                typer.echo(
                    f"memtrace: note: HolisticTraceAnalysis cannot read {report.path} ({what})",
                    err=True,
                )
    return found


def print_json(value: Any) -> None:
    """One object on stdout, nothing else."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=True, allow_nan=False)
    sys.stdout.write("\n")


def print_report(render: Callable[[Console], None]) -> None:
    """Results go to stdout; NO_COLOR is honoured by rich; a pipe gets plain text, 100 wide."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(highlight=False, soft_wrap=False, width=100)
    render(console)


def say(text: str) -> None:
    """One line for the person at the terminal, on stderr."""
    from memtrace.render.units import clean

    typer.echo(f"memtrace: {clean(text)}", err=True)


def show_status(text: str) -> Any:
    """A context with a word on stderr while it lasts."""
    from rich.console import Console

    # On anything but a terminal rich's status prints nothing.
    return Console(stderr=True).status(text)
