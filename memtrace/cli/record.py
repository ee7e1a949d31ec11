"""``memtrace record``."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memtrace.capture.options import MAX_EVENTS
from memtrace.cli.options import say
from memtrace.errors import Interrupted, MemtraceError

if TYPE_CHECKING:
    from memtrace.capture.options import Outcome


def register(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command(
        epilog="Example:  memtrace record -o a.pkl train.py --layers 4",
        context_settings={
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            # What follows SCRIPT belongs to the script, also what memtrace knows itself.
            "allow_interspersed_args": False,
        },
    )(record)


def record(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(metavar="SCRIPT [ARGS]...", help="The script to run, with its arguments."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The capture to write (.pkl, .pkl.gz, .pkl.zst).")
    ],
    module: Annotated[
        bool, typer.Option("-m", help="SCRIPT is a module's name, as in python -m.")
    ] = False,
    device: Annotated[
        Literal["auto", "cuda", "cpu"],
        typer.Option(help="Whose allocations to record; auto is cuda where there is a GPU."),
    ] = "auto",
    stacks: Annotated[
        Literal["python", "all"],
        typer.Option(help="Python frames, or C++ frames too (slower, a larger file)."),
    ] = "python",
    max_events: Annotated[
        int,
        typer.Option(min=1, help="Keep the last N allocator events; older ones are dropped."),
    ] = MAX_EVENTS,
    check_driver: Annotated[
        bool,
        typer.Option(
            "--check-driver",
            help="Reset the driver's peak statistics at every iteration, to compare each. The "
            "script's own peak figures then start anew at every iteration.",
        ),
    ] = False,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="last:N",
            help="Keep the last N iterations only: memory stays bounded however long the run, and "
            "the capture small.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing capture.")] = False,
) -> None:
    """Run a script and write what its memory consisted of, moment by moment.

    The script runs unchanged, with its own arguments; its exit code is passed on. Under torchrun
    each rank writes a capture of its own: a.rank0.pkl, a.rank1.pkl, …
    """
    from memtrace.capture import record_script
    from memtrace.capture.ranks import is_launcher, launch

    if is_launcher(target, module=module):
        options = ["-o", str(output), "--device", device, "--stacks", stacks]
        options += ["--max-events", str(max_events)]
        options += ["--window", window] if window is not None else []
        options += ["--check-driver"] * check_driver + ["--force"] * force
        launch(target, context.args, options, module=module)

    outcome = record_script(
        target,
        list(context.args),
        module=module,
        output=output,
        device=device,
        stacks=stacks,
        max_events=max_events,
        check_driver=check_driver,
        force=force,
        window=window,
        ended=_conclude,
    )
    # Ctrl-C now is about these lines: the script and its capture are done.
    with contextlib.suppress(KeyboardInterrupt):
        _conclude(outcome)
    if outcome.interrupted:
        raise Interrupted
    raise typer.Exit(outcome.exit_code or (1 if outcome.error else 0))


def _conclude(outcome: Outcome) -> None:
    """Say on stderr where the capture is, its peak, and what to do next.

    The peak is read back from the file: a capture that cannot be read is better noticed now.
    """
    # A script may have closed stderr; then nothing can be said, and its exit code still counts.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if outcome.path is None:
            # The one line that counts; what else there was to note belonged to a capture.
            say(outcome.error or "no capture was written")
            return
        for note in outcome.notes:
            say(f"note: {note}")
        try:
            _say_peak(outcome, _shown(outcome.path))
        except MemtraceError as error:
            say(str(error))
        except MemoryError:
            say(f"{_shown(outcome.path)}: written; not enough memory is left to read it back here")


def _say_peak(outcome: Outcome, path: str) -> None:
    from memtrace.analysis import open_subject
    from memtrace.render.units import format_bytes, format_exact
    from memtrace.snapshot import read
    from memtrace.timeline import peak, position_in

    subject = open_subject(read(path))
    say(
        f"{path}: {format_bytes(os.path.getsize(path))}, "
        f"{outcome.events:,} events, {outcome.iterations} iterations ({outcome.device})"
    )
    top = peak(subject.replay, subject.window, subject.replay.accounting)
    say(
        f"peak {subject.replay.accounting} {format_exact(top.total)} in {subject.window.name}, "
        f"at {position_in(subject.window, top.event)}"
    )
    say(f"next: memtrace peak {path}, or memtrace diff {path} OTHER.pkl")


def _shown(path: Path) -> str:
    """The path as short as it can be said from here."""
    with contextlib.suppress(OSError, ValueError):  # the working directory is gone, or elsewhere
        return str(path.relative_to(os.getcwd()))
    return str(path)
