"""Names allocations that Thunder's generated code made.

Thunder compiles each trace under a file name such as ``thunder.computation_25``, so a frame of
that file is a line of the trace, and the statement there names the symbol. Within a torchcompile
region the stack shows, innermost first: the Inductor output file, then the frame that Inductor
adds from compile time (``thunder.to_be_compiled_17`` at the operation's line), then the frame that
ran (the same file at its call's first line), then ``thunder.computation_n`` at the region's line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from memtrace.snapshot.columns import Frame
from memtrace.symbols import inductor
from memtrace.symbols.sources import Region, Sources
from memtrace.symbols.statements import Statement, Tensor
from memtrace.symbols.table import Naming, Symbol

_FILE = re.compile(r"^thunder\.(?P<function>[A-Za-z_]\w*?)_(?P<number>\d+)$")
_REGION = "to_be_compiled"
_PHASES = {
    "computation": "forward",
    "augmented_forward_fn": "forward",
    "backward_fn": "backward",
    "prologue": "prologue",
    "epilogue": "epilogue",
}
# Where the capture has no sources, the executor's own frame tells what kind of symbol it was.
_EXECUTOR_FRAMES = (
    ("thunder/executors/nvfuserex_impl.py", "nvFusion"),
    ("thunder/executors/torch_compile.py", "TorchCompile"),
    ("thunder/executors/triton", "triton"),
    ("thunder/executors/cudnn", "cudnn"),
)


def is_trace_file(filename: str) -> bool:
    """Whether a file is a trace that ran, not the region that Inductor compiled."""
    found = _FILE.match(filename)
    return found is not None and found["function"] != _REGION


def is_region_file(filename: str) -> bool:
    """Whether a file is a region that Inductor compiled."""
    found = _FILE.match(filename)
    return found is not None and found["function"] == _REGION


def name_stack(frames: Sequence[Frame], sources: Sources, kept: bool = False) -> Naming | None:
    """The symbol of a stack (innermost frame first) that ran Thunder's code, else None.

    ``kept`` says that the allocation outlives the call of Inductor's file in it.
    """
    found = [
        (k, match)
        for k, frame in enumerate(frames)
        if frame.filename.startswith("thunder.") and (match := _FILE.match(frame.filename))
    ]
    executed = next((k for k, match in found if match["function"] != _REGION), None)
    if executed is None:
        return None
    frame = frames[executed]
    region = sources.region(frame.filename) or _guess_region(frame)
    statement = sources.statement(frame.filename, frame.line)
    name = (statement.callee if statement else "") or _guess_name(frames[:executed], frame)
    where = f"{frame.filename}:{frame.line}"
    inside = [frames[k] for k, match in found if k < executed and match["function"] == _REGION]
    if not inside:
        outputs = sources.outputs(frame.filename, statement) if statement else ()
        line = "" if _is_fusion(name) else sources.place(statement).line
        symbol = Symbol("thunder", region.module, region.phase, name, "", line)
        return Naming(symbol, where, outputs, _common_layer(outputs))
    compiled = _own(inside, sources)
    operation, made = _operation(compiled, frames[:executed], sources, kept)
    line = sources.place(made).line
    symbol = Symbol("thunder", region.module, region.phase, name, operation, line)
    layer = _common_layer(sources.outputs(compiled.filename, made)) if made else ""
    buffers = inductor.buffer_at(frames[:executed], sources, kept)
    return Naming(symbol, where, tuple(replace(b, layer=layer) for b in buffers), layer)


def _own(inside: Sequence[Frame], sources: Sources) -> Frame:
    """The operation's frame in the file of the region that ran.

    Inductor compiles regions that are alike once, so that the frame from compile time, the
    innermost, may be of another layer's region. The same line of the own one is meant.
    """
    compiled, own = inside[0], inside[-1].filename
    if compiled.filename == own:
        return compiled
    there = sources.statement(compiled.filename, compiled.line)
    here = sources.statement(own, compiled.line)
    alike = here is not None and there is not None and here.callee == there.callee
    return compiled._replace(filename=own) if alike else compiled


def _common_layer(tensors: Sequence[Tensor]) -> str:
    """The layer of all tensors, '' where they come from several."""
    layers = {tensor.layer for tensor in tensors}
    return layers.pop() if len(layers) == 1 else ""


def _operation(
    frame: Frame, inner: Sequence[Frame], sources: Sources, kept: bool
) -> tuple[str, Statement | None]:
    """The operation of a region behind an allocation, and its statement where that is known.

    ``frame`` is the innermost of the region's file: the one that Inductor adds from compile time,
    at the operation's line, or (always on the CPU) the one that ran, at the region's first line.
    Then, and where the memory is another buffer's in the end, the comment on Inductor's kernel
    names what it fuses, and the last of that is taken; a kernel without one stands for itself.
    """
    source = sources.source(frame.filename)
    statement = source.statements.get(frame.line)
    if statement is None and not source.statements:
        return f"line{frame.line}", None
    passed_on = inductor.changes_hands(inner, sources, kept)
    if statement is None or not statement.outputs or passed_on:
        kernel, fused = inductor.kernel_at(inner, sources, kept)
        statement = next((source.makers[n] for n in reversed(fused) if n in source.makers), None)
        if statement is None:
            return kernel, None
    return statement.callee, statement


def _guess_region(frame: Frame) -> Region:
    """Without the capture's word: the pass by the function's name, no program name."""
    match = _FILE.match(frame.filename)
    function = match["function"] if match else frame.name
    phase = _PHASES.get(function) or ("backward" if "backward" in function else "forward")
    return Region("thunder", phase, "")


def _guess_name(inner: Sequence[Frame], frame: Frame) -> str:
    """Without the source: the executor seen in the inner frames, and the trace's line."""
    for one in inner:
        path = one.filename.replace("\\", "/")
        for part, kind in _EXECUTOR_FRAMES:
            if part in path:
                return f"{kind}@line{frame.line}"
    return f"line{frame.line}"


def _is_fusion(name: str) -> bool:
    """Whether a symbol's name is unique in its trace (a numbered fusion) and needs no line."""
    return bool(re.search(r"(Fusion|Compile|Region)\d+$|@line\d+$", name))
