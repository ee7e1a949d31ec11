"""The FX graphs Dynamo made: which line is which node, of which module, from which model line."""

from __future__ import annotations

import linecache
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memtrace.snapshot.format import FxNode


_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
_ASSIGNED = re.compile(r"^\s+(\w+)(?:\s*:[^=]+)?\s*=(?!=)")
EVAL = "<eval_with_key>"


class FxGraphs:
    """Graphs by the file name of their code; ``nodes`` and ``sources`` go into the capture."""

    def __init__(self) -> None:
        self.nodes: dict[str, list[FxNode]] = {}
        self.sources: dict[str, str] = {}
        self._inductor: set[int] = set()

    def add_inductor(self, module: Any) -> None:
        """Read a graph that Inductor compiles. Its own code is never run, so no frame names it.

        Inductor's comments give the names of nodes: these are found among all graphs.
        """
        graph = getattr(module, "graph", None)
        # compile_fx calls itself with the same graph.
        if graph is None or self.add(module) or id(graph) in self._inductor:
            return
        self._inductor.add(id(graph))
        self.nodes[f"<inductor graph>.{len(self._inductor) - 1}"] = _read(graph, "")

    def add(self, module: Any) -> str:
        """Read a GraphModule; returns '<eval_with_key>.12', '' if it is none."""
        graph = getattr(module, "graph", None)
        if graph is None or not hasattr(graph, "nodes"):
            return ""
        code = getattr(getattr(type(module), "forward", None), "__code__", None)
        filename = str(getattr(code, "co_filename", ""))
        if not filename.startswith(EVAL):  # its code was never generated: no frame can name it
            return ""
        if filename not in self.nodes:
            source = "".join(linecache.getlines(filename))
            self.nodes[filename] = _read(graph, source)
            self.sources[filename] = source
        return filename


def _read(graph: Any, source: str) -> list[FxNode]:
    from memtrace.snapshot.format import FxNode

    lines: dict[str, int] = {}
    for number, text in enumerate(source.splitlines(), 1):
        match = _ASSIGNED.match(text)
        if match:
            lines.setdefault(match.group(1), number)
    found = []
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        path, kind = module_of(node)
        found.append(
            FxNode(
                line=lines.get(node.name, 0),
                node=str(node.name),
                module=path,
                module_class=kind,
                source=source_of_node(node),
                target=_target(node.target),
            )
        )
    return found


def _target(target: Any) -> str:
    if isinstance(target, str):
        return target
    name = getattr(target, "__name__", str(target))
    owner = getattr(target, "__module__", "") or ""
    return f"{owner}.{name}" if owner and not owner.startswith("_") else str(name)


def short_file(filename: str) -> str:
    """From site-packages on, so that two machines' captures compare."""
    return filename.rsplit("site-packages/", 1)[-1]


def source_of_node(node: Any) -> str:
    """'transformers/models/qwen2/modeling_qwen2.py:150': the model's line, '' where unknown."""
    places = _PLACE.findall(str(node.meta.get("stack_trace") or ""))
    if not places:
        return ""
    short = [(short_file(filename), line) for filename, line in places]
    # torch's own lines (under a default device, each call passes through one) are not the model's.
    filename, line = next(
        (one for one in short[::-1] if not one[0].startswith("torch/")), short[-1]
    )
    return f"{filename}:{line}"


def module_of(node: Any) -> tuple[str, str]:
    """Innermost module path and class of a node: ('model.layers.3.self_attn', 'Qwen2Attention')."""
    stack = node.meta.get("nn_module_stack") or {}
    if not stack:
        return "", ""
    path, kind = list(stack.values())[-1]
    return clean_path(str(path)), str(getattr(kind, "__name__", kind)).rsplit(".", 1)[-1]


def clean_path(path: str) -> str:
    """Dynamo's expression for a module as its dotted path.

    "L['self'].model.layers[3]" or "L['self']._modules['model']._modules['layers']._modules['3']"
    → 'model.layers.3'.
    """
    path = re.sub(r"^[LG]\[['\"][^'\"]*['\"]\]", "", path)
    path = re.sub(r"\._modules\b|\._orig_mod\b", "", path)
    path = re.sub(r"\[['\"]?([^'\"\]]+)['\"]?\]", r".\1", path)
    return path.strip(".")


def callable_name(function: Any) -> str:
    """A name for what was compiled: class of a module, qualified name of a function."""
    if hasattr(function, "parameters") and hasattr(function, "forward"):
        return type(function).__name__
    return str(getattr(function, "__qualname__", type(function).__name__))


def module_name(function: Any, root: str) -> str:
    """A name that is the same on every run: the path all nodes have in common, else the root class.

    ``root`` is the name of the call in which it was compiled. '' where nothing is known.
    """
    graph = getattr(function, "graph", None)
    if graph is None or not hasattr(graph, "nodes"):
        return callable_name(function) if function is not None else ""
    paths = []
    for node in graph.nodes:
        path, kind = module_of(node)
        if kind and node.op not in ("placeholder", "output"):
            paths.append(path.split(".") if path else [])
    common: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common) or root or callable_name(function)
