"""The Thunder programs of a capture: the sources that ran, with what the traces know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memtrace.program.build import Draft, build_program
from memtrace.program.lines import read_lines
from memtrace.program.model import Operation, Program
from memtrace.program.text import add_pass, read_operation
from memtrace.symbols.statements import Tensor

_PASSES = {"forward": 0, "backward": 1}


def read_programs(meta: Mapping[str, Any] | None) -> tuple[Program, ...]:
    """All programs of a capture's ``memtrace`` key, in the order they were compiled."""
    meta = meta or {}
    sources: Mapping[str, str] = meta.get("sources") or {}
    return tuple(_read_module(module, sources) for module in meta.get("thunder") or [])


def _read_module(module: Mapping[str, Any], sources: Mapping[str, str]) -> Program:
    draft = Draft(module["name"])
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
