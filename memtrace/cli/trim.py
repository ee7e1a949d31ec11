"""``memtrace trim``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memtrace.cli.options import CaptureArgument, WindowOption, load_subject, say, show_status
from memtrace.cli.traces import ForceOption, check_outputs


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(epilog="Example:  memtrace trim big.pkl --window last:3 -o small.pkl.gz")(trim)


def trim(
    capture: CaptureArgument,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The capture to write (.pkl, .pkl.gz, .pkl.zst).")
    ],
    window: WindowOption = None,
    force: ForceOption = False,
) -> None:
    """Cut a small capture out of a large one: of its window all commands say the same.

    What was alive before keeps its names, stacks and blocks, and the names that the rest of the
    recording is evidence for come along. pytorch.org/memory_viz opens it.
    """
    check_outputs([capture], [output], force, viewed=False)
    subject = load_subject(capture, window)
    from memtrace.analysis.trim import trim as cut
    from memtrace.render.units import format_bytes
    from memtrace.snapshot import write_capture
    from memtrace.snapshot.torch_form import to_snapshot

    with show_status(f"writing {output}"):
        part = cut(subject)
        write_capture(output, to_snapshot(part), force=force)
    count, whole = (sum(map(len, one.events)) for one in (part, subject.recording))
    say(
        f"{output}: {format_bytes(output.stat().st_size)}, {subject.window.name}, "
        f"{count:,} of {whole:,} events"
    )
