"""Why a tensor is alive: the statements that make, read and free it.

Of Thunder's tensors the traces tell all of it: names are the same in the forward and the backward
trace. Of Inductor's buffers the output file does. Of the rest the stacks of alloc and free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memtrace.snapshot.columns import Frame
from memtrace.snapshot.generated import is_generated
from memtrace.symbols.sources import MOST_USES, Sources
from memtrace.symbols.table import Naming, short_path


@dataclass(frozen=True, slots=True)
class Line:
    """A line of generated or user source; ``text`` is '' where the capture does not hold it."""

    where: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Life:
    """``consumers`` are in order of execution; the last is the last use. ``freed`` is None where
    the recording ends first. ``idle_lines`` is how many lines of the trace lie between the last
    use and the line that frees it, -1 where they are not in one file.
    """

    producer: Line
    consumers: tuple[Line, ...]
    freed: Line | None
    idle_lines: int


def read_life(naming: Naming, size: int, freed: Sequence[Frame], sources: Sources) -> Life:
    """The life of an allocation of ``size`` bytes; ``freed`` are the frames of its free."""
    short, _, number = naming.where.rpartition(":")
    file = sources.full_name(short)
    made = sources.statement(file, int(number)) if number.isdecimal() else None
    producer = Line(naming.where or naming.symbol.line, made.text if made else "")
    names = {tensor.name for tensor in naming.fitting(size)}
    consumers: list[tuple[str, int, str]] = []
    if len(names) == 1:
        consumers = sources.uses(file, names.pop())
    end = _free_line(freed, sources)
    idle = -1
    if end is not None and 0 < len(consumers) < MOST_USES:
        last_file, last_line, _ = consumers[-1]
        end_file, _, end_line = end.where.rpartition(":")
        if end_file == short_path(last_file) and end_line.isdecimal():
            idle = int(end_line) - last_line
    lines = tuple(Line(f"{short_path(name)}:{line}", text) for name, line, text in consumers)
    return Life(producer, lines, end, idle)


def _free_line(frames: Sequence[Frame], sources: Sources) -> Line | None:
    """The line of a free: of generated source where there is one, else the innermost."""
    if not frames:
        return None
    generated = (f for f in frames if is_generated(f.filename))
    frame = next(generated, frames[0])
    statement = sources.statement(frame.filename, frame.line)
    return Line(f"{short_path(frame.filename)}:{frame.line}", statement.text if statement else "")
