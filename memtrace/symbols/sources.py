"""The generated sources, traces and FX origins of a recording, looked up by file name and line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memtrace.symbols.statements import Source, Statement, Tensor, parse_source
from memtrace.symbols.table import short_path


@dataclass(frozen=True, slots=True)
class Region:
    """A generated file's place: which compiled program, pass and, for a region, symbol it is."""

    module: str
    phase: str
    symbol: str  # 'TorchCompile0' for the inside of a torchcompile region, '' for a whole trace


class Sources:
    """What a capture's ``memtrace`` key knows of generated code; empty for a plain snapshot."""

    def __init__(self, meta: Mapping[str, Any] | None) -> None:
        meta = meta or {}
        self._texts: Mapping[str, str] = meta.get("sources") or {}
        self._parsed: dict[str, Source] = {}
        self._fx = {
            filename: {node["line"]: node for node in nodes}
            for filename, nodes in (meta.get("fx") or {}).items()
        }
        self._regions: dict[str, Region] = {}
        self._outputs: dict[tuple[str, str], tuple[Tensor, ...]] = {}
        self._tensors: dict[str, dict[str, Tensor]] = {}
        for module in meta.get("thunder") or []:
            self._add_module(module)

    def _add_module(self, module: Mapping[str, Any]) -> None:
        # A fusion's outputs carry no type comment where they are made, but one where the backward
        # unpacks them: names are the same throughout a module.
        tensors: dict[str, Tensor] = {}
        for trace in module["traces"]:
            filename, phase = trace["filename"], trace["phase"]
            region = phase.partition(":")[2] if phase.startswith("region:") else ""
            self._tensors[filename] = tensors
            self._regions[filename] = Region(module["name"], "" if region else phase, region)
            for symbol in trace["symbols"]:
                outputs = tuple(
                    Tensor(t["name"], tuple(t["shape"]), t["dtype"]) for t in symbol["outputs"]
                )
                tensors.update((t.name, t) for t in outputs)
                self._outputs[filename, symbol["name"]] = outputs
            tensors.update(self.source(filename).tensors)

    def region(self, filename: str) -> Region | None:
        """The program and pass a Thunder file belongs to, None where the capture does not say."""
        return self._regions.get(filename)

    def source(self, filename: str) -> Source:
        """The parsed text of a generated file; without statements where the text is not there."""
        if filename not in self._parsed:
            self._parsed[filename] = parse_source(filename, self._texts.get(filename, ""))
        return self._parsed[filename]

    def text(self, filename: str) -> str:
        """The whole text of a generated file, '' where the capture does not hold it."""
        return self._texts.get(filename, "")

    def statement(self, filename: str, line: int) -> Statement | None:
        """The statement at a line. A call spread over lines is found from its first line on."""
        return self.source(filename).statements.get(line)

    def outputs(self, filename: str, statement: Statement) -> tuple[Tensor, ...]:
        """The tensors a statement makes, as far as the traces or the comments describe them."""
        if found := self._outputs.get((filename, statement.callee)):
            names = set(statement.outputs)
            if matching := tuple(t for t in found if t.name in names):
                return matching
        known = self._tensors.get(filename, {})
        own = self.source(filename).tensors
        described = (own.get(name) or known.get(name) for name in statement.outputs)
        return tuple(t for t in described if t is not None)

    def model_line(self, statement: Statement | None) -> str:
        """The model's own source line behind a statement of a trace, '' where not known."""
        if statement is None or statement.origin is None:
            return ""
        filename, line = statement.origin
        if filename.startswith("<"):
            return self.fx_line(filename, line)
        # Thunder's own helpers appear as origins too; they say nothing of the model.
        path = short_path(filename)
        return "" if path.startswith(("thunder/", "torch/")) else f"{path}:{line}"

    def fx_line(self, filename: str, line: int) -> str:
        """The model's line behind a line of an FX graph's code."""
        node = self._fx.get(filename, {}).get(line)
        if node is None or not node["source"]:
            return ""
        path, _, number = node["source"].rpartition(":")
        return f"{short_path(path)}:{number}"
