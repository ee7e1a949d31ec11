"""How many bytes a line of generated code must move: what it reads and what it makes.

Each input once and each output once, whatever the kernel really does. Views count as what they are
views of, so that a broadcast is no more than its base. Lines that multiply matrices have none:
arithmetic bounds them, not bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from memtrace.snapshot.columns import Frame
from memtrace.snapshot.generated import is_output_file
from memtrace.symbols.sources import VIEWS, Sources, operation_name

_CONTRACTION = re.compile(
    r"matmul|linear|addmm|(?<![a-z])b?mm(?![a-z])|conv(?!ert)|attention|einsum|sdpa|gemm"
)
# What stands in a call of Inductor's beside its tensors.
_NO_TENSOR = re.compile(r"^(?:stream\d*|out|reinterpret_tensor|torch|c_\w+|constant\w*)$")


class Traffic:
    """The bytes of each line, looked up once."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._known: dict[tuple[str, int], int | None] = {}

    def of(self, line: Frame) -> int | None:
        """The bytes of one run of a line; None where not all inputs and outputs are known."""
        key = (line.filename, line.line)
        if key not in self._known:
            if is_output_file(line.filename):
                self._known[key] = self._of_kernel(line)
            else:
                self._known[key] = self._of_symbol(line)
        return self._known[key]

    def _of_kernel(self, line: Frame) -> int | None:
        """Of a call of one of Inductor's own kernels."""
        source = self._sources.source(line.filename)
        statement = source.statements.get(line.line)
        if statement is None or not statement.callee.endswith(".run"):
            return None
        if _CONTRACTION.search(statement.callee) and "template" in statement.callee:
            return None
        total = 0
        for name in statement.arguments:
            if _NO_TENSOR.match(name):
                continue
            tensor = source.buffers.get(name) or source.inputs.get(name)
            if tensor is None or tensor.bytes < 0:
                return None
            total += tensor.bytes
        return total

    def _of_symbol(self, line: Frame) -> int | None:
        """Of a bound symbol of Thunder's, by its trace."""
        symbol = self._sources.symbol(line.filename, line.line)
        if symbol is None:
            return None
        inside: Sequence[Mapping[str, Any]] = symbol["inside"]
        if any(_CONTRACTION.search(part["name"].lower()) for part in (symbol, *inside)):
            return None
        makers = {tensor["name"]: part for part in inside for tensor in part["outputs"]}
        total = 0
        for name in dict.fromkeys((*symbol["args"], *(t["name"] for t in symbol["outputs"]))):
            size = self._behind(line.filename, name, makers)
            if size is None:
                return None
            total += size
        return total

    def _behind(
        self, filename: str, name: str, makers: Mapping[str, Mapping[str, Any]], depth: int = 8
    ) -> int | None:
        """The bytes of a tensor, or of what it is a view of where that is less."""
        tensor = self._sources.tensor(filename, name)
        if tensor is None or tensor.bytes < 0:
            return None
        base = self._base(filename, name, makers)
        if base is None or depth == 0:
            return tensor.bytes
        behind = self._behind(filename, base, makers, depth - 1)
        return tensor.bytes if behind is None else min(tensor.bytes, behind)

    def _base(
        self, filename: str, name: str, makers: Mapping[str, Mapping[str, Any]]
    ) -> str | None:
        """The tensor that ``name`` is a view of, None where it is none."""
        maker = makers.get(name)
        if maker is None:
            statement = self._sources.source(filename).makers.get(name)
            if statement is None:
                return None
            callee, arguments = statement.callee, statement.arguments
        else:
            callee, arguments = maker["name"], tuple(maker["args"])
        if operation_name(callee) not in VIEWS:
            return None
        known = (a for a in arguments if a != name and self._sources.tensor(filename, a))
        return next(known, None)
