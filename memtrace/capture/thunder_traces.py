"""Thunder's trace objects as plain data: symbols, insides of fusions, lines of the source."""

from __future__ import annotations

import inspect
import linecache
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memtrace.snapshot.format import Operation, TensorInfo, ThunderSymbol, ThunderTrace


def filename_of(function: Any, depth: int = 8) -> str:
    """'thunder.computation_25' for a function Thunder made, through its wrappers; '' if none."""
    todo, seen = [(function, depth)], set()
    while todo:
        here, left = todo.pop()
        if id(here) in seen or left == 0 or not callable(here):
            continue
        seen.add(id(here))
        code = getattr(here, "__code__", None)
        if code is not None and code.co_filename.startswith("thunder."):
            return str(code.co_filename)
        wrapped = getattr(here, "__wrapped__", None)
        if wrapped is not None:
            todo.append((inspect.unwrap(here), left - 1))
            continue
        for cell in getattr(here, "__closure__", None) or ():
            try:
                todo.append((cell.cell_contents, left - 1))
            except ValueError:  # an empty cell
                continue
    return ""


def source_of(filename: str) -> str:
    """The text linecache has for a generated file; '' if none."""
    return "".join(linecache.getlines(filename))


def read_trace(trace: Any, filename: str, phase: str) -> ThunderTrace:
    """A Thunder TraceCtx as plain data. ``line`` numbers are those of the executed source."""
    from thunder.core.pytree import tree_flatten
    from thunder.core.trace import tracectx

    from memtrace.snapshot.format import ThunderSymbol, ThunderTrace

    lines = source_of(filename).splitlines()
    at = 0
    symbols: list[ThunderSymbol] = []
    with tracectx(trace):
        for bound in trace.bound_symbols:
            at, line = _find_line(bound, lines, at)
            symbols.append(
                ThunderSymbol(
                    name=str(bound.sym.name),
                    line=line,
                    origin=_origin(bound),
                    args=_tensor_names(bound.flat_proxy_args),
                    outputs=tensors(bound.flat_proxy_outs),
                    inside=[_operation(s) for s in bound.subsymbols] if bound.sym.is_fusion else [],
                )
            )
    flat_inputs, _ = tree_flatten((trace.args, trace.kwargs))
    output = trace.bound_symbols[-1].flat_proxy_args if trace.bound_symbols else []
    return ThunderTrace(
        phase=phase,
        filename=filename,
        symbols=symbols,
        inputs=tensors(flat_inputs),
        outputs=tensors(output),
    )


def _find_line(bound: Any, lines: list[str], at: int) -> tuple[int, int]:
    """(where to look next, line number or 0) of a bound symbol, looking on from line ``at``."""
    name = str(bound.sym.name)
    if name == "unpack_trivial":  # printed as a comment or not at all
        return at, 0
    if name == "python_del":
        start = "del " + ", ".join(p.name for p in bound.flat_proxy_args)
    elif name == "python_return":
        start = "return"
    else:
        text = [t.strip() for t in bound.python(indent=1, print_depth=1)]
        start = next((t for t in text if t and not t.startswith("#")), "")
    if not start:
        return at, 0
    for compare in (start, start.split("  #")[0], _head(start)):
        for number in range(at, len(lines)):
            if lines[number].strip().startswith(compare):
                return number + 1, number + 1
    return at, 0


def _head(text: str) -> str:
    """'t5 = ltorch.add(' of a statement: the executed trace may print other arguments."""
    return re.split(r"(?<=\()", text, maxsplit=1)[0]


def _tensor_names(proxies: Any) -> list[str]:
    return [str(p.name) for p in proxies if hasattr(p, "name")]


def tensors(proxies: Any) -> list[TensorInfo]:
    """The tensor proxies among ``proxies`` (nested ones flattened by the caller)."""
    from memtrace.snapshot.format import TensorInfo

    found = []
    for proxy in proxies:
        shape, dtype = getattr(proxy, "shape", None), getattr(proxy, "dtype", None)
        if shape is None or dtype is None or not hasattr(proxy, "name"):
            continue
        found.append(
            TensorInfo(
                name=str(proxy.name),
                shape=[_length(s) for s in shape],
                dtype=_dtype(dtype),
                device=_device(proxy.device),
            )
        )
    return found


def _length(size: Any) -> int:
    # A NumberProxy under symbolic values; unknown lengths are -1.
    value = size if isinstance(size, int) else getattr(size, "value", None)
    return int(value) if isinstance(value, int) else -1


def _device(device: Any) -> str:
    text = getattr(device, "device_str", None)
    return str(text() if callable(text) else device)


def _dtype(dtype: Any) -> str:
    from thunder.core import dtypes

    try:
        return str(dtypes.to_torch_dtype(dtype)).removeprefix("torch.")
    except Exception:
        return str(dtype)


def _origin(symbol: Any) -> str:
    """'<eval_with_key>.12:82' or '/home/me/model.py:17': the line that Thunder traced it from."""
    filename = getattr(symbol, "source_filename", None)
    line = getattr(getattr(symbol, "source_positions", None), "lineno", None)
    return f"{filename}:{line}" if filename and line else ""


def _operation(symbol: Any) -> Operation:
    from memtrace.snapshot.format import Operation

    text = [t.strip() for t in symbol.python(indent=0, print_depth=1)]
    statement = next((t for t in text if t and not t.startswith("#")), "")
    name = re.search(r"(?:=\s*|^)([\w.]+)\(", statement)
    return Operation(
        text=statement,
        name=name.group(1) if name else str(symbol.sym.name),
        origin=_origin(symbol),
        args=_tensor_names(symbol.flat_proxy_args),
        outputs=tensors(symbol.flat_proxy_outs),
    )
