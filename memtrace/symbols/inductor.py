"""Names allocations that Inductor's generated code made.

The output file's first line is ``# AOT ID: ['0_forward']``: the graph's number and pass. A line of
``call`` either makes a buffer (``buf19 = empty_strided_cuda((1, 28, 4096, 4096), …)``), whose
first use below is the kernel that fills it, or calls an operator that makes its own. A buffer that
is no longer needed gives its memory to another (``buf22 = buf19; del buf19  # reuse``): what
outlives the call is the last of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from memtrace.snapshot.columns import Frame
from memtrace.snapshot.generated import is_generated, is_output_file
from memtrace.symbols.dataflow import layer_of_call
from memtrace.symbols.sources import Sources
from memtrace.symbols.statements import Source, Statement, Tensor
from memtrace.symbols.table import Naming, Symbol, is_library, short_path

_AOT_ID = re.compile(r"^# AOT ID: \['(?P<number>\d+)_(?P<kind>\w+)'\]")
_PHASES = {"forward": "forward", "backward": "backward", "inference": "forward"}
_LOOK_AHEAD = 40  # lines between a buffer and the kernel that first fills it
_COMMENT_ABOVE = 6  # lines between the comment on a kernel and its call
_CALLS = (".run", ".default")  # of kernels and operators


def name_stack(frames: Sequence[Frame], sources: Sources, kept: bool = False) -> Naming | None:
    """The symbol of a stack (innermost first) whose innermost generated frame is Inductor's.

    ``kept`` says that the allocation outlives the call of that file.
    """
    at = next((k for k, frame in enumerate(frames) if is_output_file(frame.filename)), None)
    if at is None:
        return None
    frame = frames[at]
    module, phase = _graph(frame.filename, sources)
    name, fused = kernel_at(frames[at:], sources, kept)
    place = sources.node_place(fused)
    line = place.line
    if not changes_hands(frames[at:], sources, kept):
        # Inductor's frames from compile time say it of what is made at this line.
        line = next((_text(f) for f in frames[at + 1 :] if is_model(f.filename)), "") or line
    symbol = Symbol("inductor", module, phase, name or f"line{frame.line}", "", line)
    where = f"{short_path(frame.filename)}:{frame.line}"
    layer = layer_of_call(place.layer, _given(frames[at + 1 :], sources))
    buffers = buffer_at(frames[: at + 1], sources, kept)
    return Naming(symbol, where, tuple(replace(b, layer=layer) for b in buffers), layer)


def _given(outer: Sequence[Frame], sources: Sources) -> tuple[str, ...]:
    """What the split graph that calls a compiled part of it passes on, () where there is none."""
    split = next((f for f in outer if is_graph(f.filename)), None)
    statement = sources.statement(split.filename, split.line) if split else None
    return statement.arguments if statement else ()


def buffer_at(frames: Sequence[Frame], sources: Sources, kept: bool = False) -> tuple[Tensor, ...]:
    """The buffer that the innermost Inductor frame makes, with its shape and dtype; of an operator
    that it calls, all that this returns. ``kept`` as for ``name_stack``."""
    source, statement = _statement(frames, sources)
    if source is None or statement is None or not statement.outputs:
        return ()
    last = _occupied(source, statement, kept)
    if last is statement and not statement.callee.startswith("empty_strided"):
        return source.returned.get(statement.outputs[0], ())
    made = source.buffers.get(last.outputs[0])
    return (made,) if made is not None else ()


def changes_hands(frames: Sequence[Frame], sources: Sources, kept: bool) -> bool:
    """Whether what the innermost Inductor frame makes is another buffer's memory in the end."""
    source, statement = _statement(frames, sources)
    return (
        source is not None
        and statement is not None
        and _occupied(source, statement, kept) is not statement
    )


def _statement(frames: Sequence[Frame], sources: Sources) -> tuple[Source | None, Statement | None]:
    """The innermost Inductor frame's file and statement."""
    frame = next((frame for frame in frames if is_output_file(frame.filename)), None)
    if frame is None:
        return None, None
    source = sources.source(frame.filename)
    return source, source.statements.get(frame.line)


def _occupied(source: Source, statement: Statement, kept: bool) -> Statement:
    """Where the memory made at ``statement`` gets its last occupant, if it is ``kept``."""
    last = made = statement
    seen = {statement.line}
    while kept and last.outputs:
        later = source.reused.get(last.outputs[0])
        if later is None or later.line in seen:
            break
        seen.add(later.line)
        last = later
    # Another name alone, for the result of an operator, is no other occupant.
    return last if any(line != made.line and _frees(source, line) for line in seen) else made


def _frees(source: Source, line: int) -> bool:
    return bool(source.statements[line].deletes)


def _graph(filename: str, sources: Sources) -> tuple[str, str | None]:
    """The graph's name and pass: from the AOT ID, else from the file's content hash."""
    first = sources.text(filename).split("\n", 1)[0]
    if found := _AOT_ID.match(first):
        return f"graph {found['number']}", _PHASES.get(found["kind"])
    stem = filename.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".py")
    return f"graph {stem[:9]}", None


def kernel_at(
    frames: Sequence[Frame], sources: Sources, kept: bool = False
) -> tuple[str, tuple[str, ...]]:
    """The kernel that fills the buffer made at the innermost Inductor frame, and what it fuses.

    That is the names of the operations' results in order of execution, as the comment above the
    kernel's call lists them; C++ kernels have no such comment. ('', ()) where nothing is known.
    ``kept`` as for ``name_stack``.
    """
    source, statement = _statement(frames, sources)
    if source is None or statement is None:
        return "", ()
    kernel = _kernel(source, _occupied(source, statement, kept))
    return kernel.callee.removesuffix(".run"), _fused(source, kernel)


def lines_filled(source: Source) -> dict[int, list[int]]:
    """{line of a call: lines that make the buffers it is the first to fill}, the largest first.

    A line that gives a buffer's memory to another one makes that one.
    """
    reusing = {statement.line for statement in source.reused.values() if statement.deletes}
    found: dict[int, list[tuple[int, int]]] = {}
    for line, statement in source.statements.items():
        if not statement.callee.startswith("empty_strided") and line not in reusing:
            continue
        kernel = _kernel(source, statement)
        if kernel is not statement:
            made = source.buffers.get(statement.outputs[0]) if statement.outputs else None
            found.setdefault(kernel.line, []).append((-made.bytes if made else 0, line))
    return {call: [line for _, line in sorted(made)] for call, made in found.items()}


def find_calls(sources: Sources) -> dict[str, list[Frame]]:
    """{name of a kernel: the lines of all output files that run it}."""
    found: dict[str, list[Frame]] = {}
    for filename in sources.filenames:
        if is_output_file(filename):
            for line, statement in sources.source(filename).statements.items():
                if statement.callee.endswith(".run"):
                    name = statement.callee.removesuffix(".run")
                    found.setdefault(name, []).append(Frame(filename, line, "call"))
    return found


def _fused(source: Source, kernel: Statement) -> tuple[str, ...]:
    """What the comment above a kernel's call lists, unless it is another kernel's."""
    for number in range(kernel.line - 1, kernel.line - _COMMENT_ABOVE, -1):
        if number in source.nodes:
            return source.nodes[number]
        between = source.statements.get(number)
        if between is not None and between.callee.endswith(_CALLS):
            break
    return ()


def _kernel(source: Source, statement: Statement) -> Statement:
    """What fills the buffer made at ``statement``; the statement itself if it makes none."""
    if (
        not statement.callee.startswith(("empty_strided", "reinterpret_tensor"))
        and statement.callee
    ):
        return statement
    buffers = set(statement.outputs)
    for number in range(statement.line + 1, statement.line + 1 + _LOOK_AHEAD):
        later = source.statements.get(number)
        if later is None or not buffers.intersection(later.arguments):
            continue
        if later.callee in ("", "reinterpret_tensor"):  # another name or a view of it
            buffers.update(later.outputs)
            continue
        return later
    return statement


def is_graph(filename: str) -> bool:
    """Whether a file is an FX graph's code."""
    return filename.startswith("<eval_with_key>")


def is_model(filename: str) -> bool:
    """Whether a file is neither a compiler's, nor torch's or Thunder's own, nor without a name."""
    return not (
        is_library(filename) or is_generated(filename) or short_path(filename).startswith("<")
    )


def _text(frame: Frame) -> str:
    return f"{short_path(frame.filename)}:{frame.line}"
