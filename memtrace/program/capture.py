"""The Thunder programs of a capture: the sources that ran, with what the traces know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memtrace.program.build import Draft, build_program
from memtrace.program.lines import read_lines
from memtrace.program.model import Operation, Program
from memtrace.program.regions import Region, read_region
from memtrace.program.text import add_pass, read_operation
from memtrace.program.workspaces import workspace
from memtrace.snapshot.generated import is_output_file
from memtrace.symbols.statements import Tensor

_PASSES = {"forward": 0, "backward": 1}


def read_programs(
    meta: Mapping[str, Any] | None, *, fusion_views: bool = False
) -> tuple[Program, ...]:
    """All programs of a capture's ``memtrace`` key, in the order they were compiled.

    Whether an output of a fusion that is a view has memory of its own is the compiler's choice.
    ``fusion_views`` takes it to have none, as nvFuser 0.2.36 does it: for those who predict. Who
    looks at what was allocated sees it, and gets each output as a memory.
    """
    meta = meta or {}
    sources: Mapping[str, str] = meta.get("sources") or {}
    files = [name for name in sources if is_output_file(name)]
    found = (read_region(name, sources[name], workspace) for name in files)
    regions = tuple(region for region in found if region is not None)
    modules = meta.get("thunder") or []
    trained = [one for one in modules if any(t["phase"] == "backward" for t in one["traces"])]
    parts = len({tuple(_shapes(one)) for one in trained}) > 1
    return tuple(_read_module(one, sources, regions, parts, fusion_views) for one in modules)


def _shapes(module: Mapping[str, Any]) -> list[str]:
    """What a program is given, by which it is told from another compilation of the same."""
    return [tensor["name"] for trace in module["traces"] for tensor in trace["inputs"]]


def _read_module(
    module: Mapping[str, Any],
    sources: Mapping[str, str],
    regions: tuple[Region, ...],
    is_part: bool,
    fusion_views: bool,
) -> Program:
    draft = Draft(
        module["name"],
        regions=regions,
        by_dynamo=bool(module.get("fx_filename")),
        is_part=is_part,
        fusion_views=fusion_views,
    )
    traces = [trace for trace in module["traces"] if trace["phase"] in _PASSES]
    for trace in sorted(traces, key=lambda t: _PASSES[t["phase"]]):
        _add_trace(draft, trace, sources.get(trace["filename"], ""))
    return build_program(draft)


def _add_trace(draft: Draft, trace: Mapping[str, Any], source: str) -> None:
    phase, filename = trace["phase"], trace["filename"]
    if not source:
        draft.notes.append(f"the capture does not hold the source of {filename}")
    # Thunder's own sources are whole lines: nothing is quoted, wrapped or left out.
    lines = list(read_lines(source))
    head = next((k for k, line in enumerate(lines) if line.text.startswith("def ")), -1)
    signature = lines[head].text.partition("(")[2] if head >= 0 else ""
    begin = len(draft.statements)
    add_pass(draft, phase, filename, lines[head + 1 :], signature)
    _describe(draft, trace["inputs"])
    by_line: dict[int, Mapping[str, Any]] = {}
    for symbol in trace["symbols"]:
        _describe(draft, symbol["outputs"])
        for part in symbol["inside"]:
            _describe(draft, part["outputs"])
        if symbol["line"]:
            by_line.setdefault(symbol["line"], symbol)
    for k in range(begin, len(draft.statements)):
        statement = draft.statements[k]
        symbol = by_line.get(statement.line, {})
        if symbol.get("inside") and statement.kind == "call":
            inside = tuple(_operation(part) for part in symbol["inside"])
            draft.statements[k] = replace(statement, inside=inside, origin=statement.origin)


def _operation(part: Mapping[str, Any]) -> Operation:
    read = read_operation(part["text"])
    outputs = tuple(tensor["name"] for tensor in part["outputs"])
    return replace(read, name=part["name"], inputs=tuple(part["args"]), outputs=outputs)


def _describe(draft: Draft, tensors: Sequence[Mapping[str, Any]]) -> None:
    for tensor in tensors:
        name = tensor["name"]
        if all(length >= 0 for length in tensor["shape"]):
            draft.tensors[name] = Tensor(name, tuple(tensor["shape"]), tensor["dtype"])
            draft.devices[name] = tensor["device"]
