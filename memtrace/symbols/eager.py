"""Names allocations that PyTorch made without a compiler: the operator and the user's line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memtrace.snapshot.columns import Frame
from memtrace.snapshot.generated import is_output_file
from memtrace.symbols.sources import Sources
from memtrace.symbols.stacks import Operator
from memtrace.symbols.table import Naming, Symbol, is_library, short_path

# Frames under which autograd's engine runs: what they name is the call of backward(), not the
# operation. The profiler's operators say more.
_ENGINE = ("torch/autograd/graph.py", "torch/autograd/__init__.py", "torch/_tensor.py")
_OPTIMIZER = "torch/optim/"
_STANDARD_LIBRARY = re.compile(r"/python3\.\d+/(?!site-packages/|dist-packages/)|^<frozen ")
# The autograd nodes of compiled programs.
_WHOLE_PROGRAM = ("ThunderFunctionBackward", "CompiledFunctionBackward")


def name_stack(
    frames: Sequence[Frame], phase: str | None, operator: str, layer: str, sources: Sources
) -> Naming:
    """The symbol of a stack without generated code.

    ``phase`` is the pass by the recorder's marks, ``operator`` the profiler's word for what ran
    ('aten::mm', 'MmBackward0') and ``layer`` the module it was called in, '' where unknown.
    """
    user = next((frame for frame in frames if is_user(frame.filename)), None)
    line = f"{short_path(user.filename)}:{user.line}" if user else ""
    innermost = next((f for f in frames if not is_wrapper(f.filename)), frames[0])
    path = short_path(innermost.filename)
    if path.startswith(_ENGINE):
        phase = phase or "backward"
    elif any(is_optimizer(frame.filename) for frame in frames):
        phase = "optimizer"
    where = f"{path}:{innermost.line}"
    if innermost.filename.startswith("<eval_with_key>"):  # a line of an FX graph, run as it is
        statement = sources.statement(innermost.filename, innermost.line)
        name = operator or (statement.callee if statement and statement.callee else innermost.name)
        line = sources.fx_line(innermost.filename, innermost.line) or line
        return Naming(Symbol("eager", "", phase, name, "", line), where, (), layer)
    name = operator or _function(innermost)
    return Naming(Symbol("eager", "", phase, name, "", line), where, (), layer)


def name_node(
    operator: Operator, phase: str | None, forward: Sequence[Frame], sources: Sources
) -> Naming:
    """The symbol of an autograd node that the profiler or the C++ frames show.

    ``forward`` are the frames of the forward operator that made the node, empty where unknown:
    they give the model's line.
    """
    user = next((frame for frame in forward if is_user(frame.filename)), None)
    line = f"{short_path(user.filename)}:{user.line}" if user else ""
    symbol = Symbol("eager", "", phase or "backward", operator.name, operator.operation, line)
    if operator.name in _WHOLE_PROGRAM:
        # Gradients of results that nothing used: autograd makes them up, of zeros.
        return Naming(symbol, "", sources.results, sources.root)
    return Naming(symbol, "", (), operator.layer)


def is_engine(frames: Sequence[Frame]) -> bool:
    """Whether a stack shows only that autograd's engine ran, not which of its nodes."""
    return not frames or short_path(frames[0].filename).startswith(_ENGINE)


def is_optimizer(filename: str) -> bool:
    """Whether a file is one of torch's optimizers."""
    return short_path(filename).startswith(_OPTIMIZER)


def is_wrapper(filename: str) -> bool:
    """Under a default device, every function of torch is called through this one."""
    return short_path(filename).endswith("torch/utils/_device.py")


def _function(frame: Frame) -> str:
    """The torch function that allocated, as it is imported; the user's own function by its name."""
    path = short_path(frame.filename)
    if not path.startswith("torch/"):
        return frame.name
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"{module}.{frame.name}"


def is_user(filename: str) -> bool:
    """Whether a file is the user's own, or a library's that is no part of torch."""
    if _STANDARD_LIBRARY.search(filename) or is_output_file(filename):
        return False
    path = short_path(filename)
    library = path.startswith(("memtrace/", "<", "thunder.", "runpy.py"))
    return (
        not library and not is_library(filename) and not path.endswith((".cpp", ".h", ".cu", ".so"))
    )
