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
# What gives a tensor another name, perhaps another shape, and moves nothing.
_ALIASES = VIEWS | {"shallow_copy"}
_MOST_VIEWS = 20  # of views, one of another
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
        sizes: dict[str, int] = {}
        for name in (*symbol["args"], *(tensor["name"] for tensor in symbol["outputs"])):
            root, size = self._behind(line.filename, name)
            if size is None:
                return None
            # Two views of one tensor, or a view and the tensor itself, are moved once.
            sizes[root] = max(size, sizes.get(root, 0))
        return sum(sizes.values())

    def _behind(self, filename: str, name: str) -> tuple[str, int | None]:
        """What a tensor is a view of in the end, and its own bytes or those of that, if less."""
        size = self._size(filename, name)
        for _ in range(_MOST_VIEWS):
            maker = self._sources.maker(filename, name)
            if size is None or maker is None or operation_name(maker["name"]) not in _ALIASES:
                break
            base = next((a for a in maker["args"] if self._size(filename, a) is not None), None)
            if base is None:
                break
            name, size = base, min(size, self._size(filename, base) or 0)
        return name, size

    def _size(self, filename: str, name: str) -> int | None:
        tensor = self._sources.tensor(filename, name)
        return tensor.bytes if tensor is not None and tensor.bytes >= 0 else None
