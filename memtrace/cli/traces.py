"""What the commands that write traces have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from memtrace.cli.options import say, show_status

if TYPE_CHECKING:
    from memtrace.analysis.tracks import Trace
    from memtrace.snapshot import Recording

ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


def check_outputs(
    inputs: Sequence[Path], outputs: Sequence[Path], force: bool, *, viewed: bool = True
) -> None:
    """Refuses outputs that cannot be meant or are there already, before any work is done.

    ``viewed``: they are for other programs to view. typer.BadParameter or MemtraceError.
    """
    from memtrace.snapshot import check_target

    read = {os.path.realpath(path) for path in inputs}
    written: set[str] = set()
    for path in outputs:
        name = os.path.realpath(path)
        if viewed and path.suffix.lower() == ".zst":
            raise typer.BadParameter(f"{path}: the viewers open .gz, but not .zst; name it so")
        if name in read:
            raise typer.BadParameter(f"{path} is what is to be read; give another name")
        if name in written:
            raise typer.BadParameter(f"{path} is given twice; give each trace a name of its own")
        written.add(name)
        check_target(path, force)


def say_notes(trace: Trace) -> None:
    """What must be known of a trace, on stderr."""
    for note in trace.notes:
        say(f"note: {note}")


def perfetto_writer() -> Callable[[Trace, BinaryIO], None]:
    """``write_perfetto``; MemtraceError where an older protobuf keeps it from being loaded."""
    from memtrace.errors import MemtraceError

    try:
        import perfetto.protos.perfetto.trace.perfetto_trace_pb2  # noqa: F401
    except Exception as error:  # protobuf's own kind, which only a newer protobuf has
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise MemtraceError(
            f"the perfetto package cannot be loaded ({what}); run pip install -U perfetto protobuf,"
            " or write a trace with --chrome, which needs neither"
        ) from error
    from memtrace.render.perfetto import write_perfetto

    return write_perfetto


def write_trace(
    trace: Trace, path: Path, force: bool, *, form: Literal["perfetto", "chrome"] = "perfetto"
) -> None:
    """Writes a trace whole or not at all, and says where it is and what to do with it."""
    if form == "perfetto":
        write = perfetto_writer()
    else:
        from memtrace.render.chrome import write_chrome as write
    write_whole(path, force, lambda stream: write(trace, stream))
    _say_opened(path)


def write_plain_profile(recording: Recording, path: Path, force: bool) -> None:
    """The same for the profiled iteration, as torch.profiler would have written it."""
    from memtrace.render.kineto import write_profile

    write_whole(path, force, lambda stream: write_profile(recording, stream))
    profile = (recording.meta or {}).get("profile") or {"kernels": {"name": []}}
    if profile["kernels"]["name"]:
        # Without that variable it rounds every time to whole microseconds.
        also = " or in HolisticTraceAnalysis, with HTA_DISABLE_NS_ROUNDING=1"
    else:
        also = "; it has no kernels, without which HolisticTraceAnalysis has nothing to say"
    _say_opened(path, also)


def write_whole(path: Path, force: bool, write: Callable[[BinaryIO], None]) -> None:
    """Writes a file whole or not at all, compressed if its name says so."""
    from memtrace.snapshot import compress, write_atomically

    name = os.fspath(path)
    with show_status(f"writing {name}"):
        write_atomically(path, lambda stream: compress(stream, name, write, level=1), force)


def _say_opened(path: Path, also: str = "") -> None:
    from memtrace.render.units import format_bytes

    size = format_bytes(path.stat().st_size)
    say(f"{os.fspath(path)}: {size}; open it at https://ui.perfetto.dev{also}")
