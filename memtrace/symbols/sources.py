"""The generated sources, traces and FX origins of a recording, looked up by file name and line."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any

from memtrace.symbols.dataflow import NOWHERE, Place, find_places, parameter_place
from memtrace.symbols.numbers import SHAPE, read_number, read_shape
from memtrace.symbols.statements import Source, Statement, Tensor, parse_source
from memtrace.symbols.table import is_library, short_path

MOST_USES = 1000  # of a tensor, that are listed
# Operations whose result may be the memory of their input.
VIEWS = frozenset(
    {
        "permute", "transpose", "reshape", "view", "expand", "squeeze", "unsqueeze", "getitem",
        "t", "contiguous", "to", "slice", "broadcast_in_dim", "flatten", "unflatten", "movedim",
        "narrow", "select", "split", "chunk", "unbind", "detach", "reinterpret_tensor",
        "stride_order",
    }
)  # fmt: skip
_INDUCTOR_FORWARD = re.compile(r"^# AOT ID: \['\d+_forward'\]")
_VIEW = re.compile(rf"reinterpret_tensor\((?P<name>\w+), \((?P<shape>{SHAPE})\)[^)]*+\)[^)]*+\)")


@dataclass(frozen=True, slots=True)
class Region:
    """A generated file's place: which compiled program, pass and, for a region, symbol it is."""

    module: str
    phase: str
    symbol: str  # 'TorchCompile0' for the inside of a torchcompile region, '' for a whole trace


class Sources:
    """What a capture's ``memtrace`` key knows of generated code; empty for a plain snapshot.

    ``root`` is the class of the outermost module, ``inputs`` what the script calls it with,
    ``results`` what Thunder's programs return.
    """

    def __init__(self, meta: Mapping[str, Any] | None) -> None:
        meta = meta or {}
        self._texts: Mapping[str, str] = meta.get("sources") or {}
        self._parsed: dict[str, Source] = {}
        self._readers: dict[str, Mapping[str, Sequence[int]]] = {}
        self._full: dict[str, str] = {}
        self._fx = {
            filename: {node["line"]: node for node in nodes}
            for filename, nodes in (meta.get("fx") or {}).items()
        }
        self._nodes: list[dict[str, Any]] = [
            {node["node"]: node for node in nodes} for nodes in (meta.get("fx") or {}).values()
        ]
        self._graphs: dict[str, list[int]] = defaultdict(list)  # that have a node of this name
        for number, graph in enumerate(self._nodes):
            for name in graph:
                self._graphs[name].append(number)
        self.root = _root(meta)
        self.inputs = tuple(
            Tensor(t["name"], tuple(t["shape"]), t["dtype"])
            for t in (meta.get("facts") or {}).get("inputs") or []
        )
        self.results: tuple[Tensor, ...] = ()
        self._regions: dict[str, Region] = {}
        self._symbols: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._region_files: dict[tuple[str, str], str] = {}
        self._tensors: dict[str, dict[str, Tensor]] = {}
        self._makers: dict[str, dict[str, Mapping[str, Any]]] = {}
        for module in meta.get("thunder") or []:
            self._add_module(module)
        for filename, text in self._texts.items():
            if _INDUCTOR_FORWARD.match(text):
                self.results += self._returned(filename)

    def _add_module(self, module: Mapping[str, Any]) -> None:
        """A program: its passes, whose names are the same throughout, and its regions."""
        passes = [trace for trace in module["traces"] if ":" not in trace["phase"]]
        places = find_places(passes, self._origin)
        self._add_traces(module["name"], passes, places)
        for trace in module["traces"]:
            if trace["phase"].startswith("region:"):
                own = find_places([trace], self._origin, places)
                self._add_traces(module["name"], [trace], {**places, **own})
        for trace in passes:
            if trace["phase"] == "forward":
                tensors = self._tensors[trace["filename"]]
                names = dict.fromkeys(tensor["name"] for tensor in trace["outputs"])
                self.results += tuple(tensors[name] for name in names if name in tensors)

    def _add_traces(
        self, module: str, traces: Sequence[Mapping[str, Any]], places: Mapping[str, Place]
    ) -> None:
        # A fusion's outputs carry no type comment where they are made, but one where the backward
        # unpacks them.
        tensors: dict[str, Tensor] = {}
        makers: dict[str, Mapping[str, Any]] = {}
        for trace in traces:
            filename, phase = trace["filename"], trace["phase"]
            region = phase.partition(":")[2]
            self._tensors[filename] = tensors
            self._makers[filename] = makers
            self._regions[filename] = Region(module, "" if region else phase, region)
            if region:
                self._region_files[module, region] = filename
            for symbol in trace["symbols"]:
                if symbol["line"]:
                    self._symbols.setdefault((filename, symbol["line"]), symbol)
                for part in symbol["inside"] or [symbol]:
                    if not part["name"].startswith("unpack"):  # that passes on what there is
                        makers.update((t["name"], part) for t in part["outputs"])
                made = [Tensor(t["name"], tuple(t["shape"]), t["dtype"]) for t in symbol["outputs"]]
                tensors.update((t.name, t) for t in made)
            tensors.update(self.source(filename).tensors)
        for name, tensor in tensors.items():
            place = places.get(name) or parameter_place(name) or NOWHERE
            tensors[name] = replace(tensor, layer=place.layer or self.root, line=place.line)

    def _returned(self, filename: str) -> tuple[Tensor, ...]:
        """The buffers that Inductor's forward returns: results, and what it saves for backward."""
        source = self.source(filename)
        returns = [s.text for s in source.statements.values() if s.text.startswith("return (")]
        found = []
        for text in returns:
            for view in _VIEW.finditer(text):
                base = source.buffers.get(view["name"])
                if base is not None:
                    found.append(replace(base, shape=read_shape(view["shape"])))
            for name in _VIEW.sub("", text).replace("(", ",").replace(")", ",").split(","):
                if (made := source.buffers.get(name.strip())) is not None:
                    found.append(made)
        return tuple(found)

    def region(self, filename: str) -> Region | None:
        """The program and pass a Thunder file belongs to, None where the capture does not say."""
        return self._regions.get(filename)

    def region_file(self, filename: str, line: int) -> str:
        """The file of the region that a line of a trace calls, '' where the capture has none."""
        statement, caller = self.statement(filename, line), self.region(filename)
        if statement is None or caller is None or not statement.callee:
            return ""
        return self._region_files.get((caller.module, statement.callee), "")

    def source(self, filename: str) -> Source:
        """The parsed text of a generated file; without statements where the text is not there."""
        if filename not in self._parsed:
            self._parsed[filename] = parse_source(filename, self._texts.get(filename, ""))
        return self._parsed[filename]

    @property
    def filenames(self) -> tuple[str, ...]:
        """The files whose text the capture holds."""
        return tuple(self._texts)

    def full_name(self, short: str) -> str:
        """The whole name of a generated file that a ``where`` names shortly."""
        if not self._full:
            self._full = {short_path(filename): filename for filename in self._texts}
        return self._full.get(short, short)

    def text(self, filename: str) -> str:
        """The whole text of a generated file, '' where the capture does not hold it."""
        return self._texts.get(filename, "")

    def statement(self, filename: str, line: int) -> Statement | None:
        """The statement at a line. A call spread over lines is found from its first line on."""
        return self.source(filename).statements.get(line)

    def outputs(self, filename: str, statement: Statement) -> tuple[Tensor, ...]:
        """The tensors a statement makes, as far as the traces or the comments describe them."""
        known = self._tensors.get(filename, {})
        own = self.source(filename).tensors
        described = (known.get(name) or own.get(name) for name in statement.outputs)
        return tuple(t for t in described if t is not None)

    def symbol(self, filename: str, line: int) -> Mapping[str, Any] | None:
        """The ThunderSymbol at a line of a trace, None where the capture has none."""
        return self._symbols.get((filename, line))

    def tensor(self, filename: str, name: str) -> Tensor | None:
        """A tensor of the program that a trace belongs to."""
        return self._tensors.get(filename, {}).get(name)

    def maker(self, filename: str, name: str) -> Mapping[str, Any] | None:
        """What makes a tensor of a trace, an operation inside a fusion, too; None for inputs."""
        return self._makers.get(filename, {}).get(name)

    def place(self, statement: Statement | None) -> Place:
        """Where in the model a statement of a trace comes from."""
        if statement is None:
            return NOWHERE
        if statement.origin is not None:
            found = self._origin("{}:{}".format(*statement.origin))
            if found != NOWHERE:
                return found
        return NOWHERE

    def uses(self, filename: str, name: str) -> list[tuple[str, int, str]]:
        """(file, line, text) of the statements that read a tensor, forward before backward.

        In the file where it is made, and in all traces of the program that the file belongs to;
        what reads a view of the tensor reads the tensor. The first ``MOST_USES`` alone, as a chain
        of views can be as long as the file, and all of it be asked for each of its links.
        """
        region = self._regions.get(filename)
        order = {"forward": 0, "backward": 1}
        files = [filename]
        if region is not None:
            files = sorted(
                (f for f, r in self._regions.items() if r.module == region.module and not r.symbol),
                key=lambda f: order.get(self._regions[f].phase, 2),
            )
        names = {name}
        found: list[tuple[str, int, str]] = []
        for file in files:
            statements, readers = self.source(file).statements, self._readers_in(file)
            left = [number for one in names for number in readers.get(one, ())]
            heapify(left)
            seen = 0
            while left and len(found) < MOST_USES:
                number = heappop(left)
                if number <= seen:
                    continue
                seen, statement = number, statements[number]
                if names.isdisjoint(statement.outputs):
                    found.append((file, number, statement.text))
                if operation_name(statement.callee) in VIEWS:
                    for view in set(statement.outputs) - names:
                        names.add(view)  # the same memory under another name
                        for reader in readers.get(view, ()):
                            heappush(left, reader)
        return found

    def _readers_in(self, file: str) -> Mapping[str, Sequence[int]]:
        """The lines of a file whose calls read a name, in order."""
        if file not in self._readers:
            readers: dict[str, list[int]] = defaultdict(list)
            for number, statement in sorted(self.source(file).statements.items()):
                for name in statement.arguments if statement.callee else ():
                    readers[name].append(number)
            self._readers[file] = readers
        return self._readers[file]

    def node_place(self, names: Sequence[str]) -> Place:
        """The place of the last of several nodes, in the FX graph that has most of them.

        A view of the result for its reader, perhaps another layer, does not count as the last.
        """
        hits = Counter(chain.from_iterable(self._graphs.get(name, ()) for name in names))
        if not hits:
            return NOWHERE
        best = self._nodes[max(hits, key=lambda number: (hits[number], -number))]
        there = [best[name] for name in reversed(names) if name in best]
        made = [node for node in there if operation_name(node["target"]) not in VIEWS]
        return self._node_place((made or there)[0])

    def fx_line(self, filename: str, line: int) -> str:
        """The model's line behind a line of an FX graph's code."""
        return self._origin(f"{filename}:{line}").line

    def _origin(self, text: str) -> Place:
        """The place of a traced line: '<eval_with_key>.12:82' or '/home/me/model.py:17'."""
        filename, _, line = text.rpartition(":")
        if filename.startswith("<"):
            node = self._fx.get(filename, {}).get(read_number(line))
            return self._node_place(node) if node is not None else NOWHERE
        # Thunder's own helpers appear as origins too; they say nothing of the model.
        if is_library(filename):
            return NOWHERE
        return Place("", f"{short_path(filename)}:{line}")

    def _node_place(self, node: Mapping[str, Any]) -> Place:
        path, _, number = node["source"].rpartition(":")
        # What runs in the root module itself has no path; its class says what it is.
        layer = node["module"] or node["module_class"] or self.root
        return Place(layer, f"{short_path(path)}:{number}" if path and not is_library(path) else "")


def operation_name(callee: str) -> str:
    """'torch.permute' → 'permute', 'torch_prims_reshape_impl' → 'reshape'."""
    name = callee.rpartition(".")[2]
    return name.removeprefix("torch_prims_").removeprefix("torch_").removesuffix("_impl")


def _root(meta: Mapping[str, Any]) -> str:
    """The class of what the script calls: the layer of whatever no module within it runs."""
    marks = meta.get("marks") or {"kind": (), "name": ()}
    named = zip(marks["kind"], marks["name"], strict=True)
    # Dynamo's own wrappers have names such as 'wrap_inline.<locals>.inner'.
    calls = [name for kind, name in named if kind == "call" and name and "<locals>" not in name]
    return max(set(calls), key=calls.count, default="")
