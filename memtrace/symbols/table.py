"""What a lifetime is named after."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from memtrace.symbols.statements import Tensor

_WIDTHS = (1, 2, 4, 8, 16)
UNATTRIBUTED = "<unattributed>"
BEFORE_RECORDING = "<before recording>"
BLOCK_SLACK = "<block slack>"


@dataclass(frozen=True, slots=True)
class Symbol:
    """What made an allocation. Two lifetimes with equal symbols go into one row.

    ``compiler``  "thunder", "inductor", "eager", None for the rows in angle brackets
    ``module``    the compiled program: 'Qwen2ForCausalLM', 'graph 0'; '' for eager
    ``phase``     "forward", "backward", "optimizer", …, None where it is not known
    ``name``      'nvFusion23', 'TorchCompile0', 'triton_red_fused__softmax_8', 'aten::linear'
    ``operation`` the operation within a region: 'Tensor.to'; '' where the name says all
    ``line``      the model's own line: 'modeling_qwen2.py:150'; '' where not known
    """

    compiler: str | None
    module: str
    phase: str | None
    name: str
    operation: str = ""
    line: str = ""

    @property
    def special(self) -> bool:
        """Whether it stands for bytes that nothing made by name: '<unattributed>', …"""
        # A function may be called so, too: '<module>', '<lambda>'.
        return self.compiler is None and self.name.startswith("<")

    @property
    def text(self) -> str:
        """The symbol on one line, the same on every run of the same program."""
        place = "/".join(part for part in (self.module, self.phase) if part)
        words = [place, self.name] if place else [self.name]
        if self.operation:
            words.append(f"› {self.operation}")
        if self.line:
            words.append(f"({self.line})")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Naming:
    """A symbol, and where in this very recording it was seen (not the same from run to run).

    ``where``   a line of generated or user source: 'thunder.computation_25:91'
    ``tensors`` what the statement there makes, as far as known, each with its place in the model
    ``layer``   the module whose code ran: 'model.layers.3.self_attn', '' where not known
    """

    symbol: Symbol
    where: str = ""
    tensors: tuple[Tensor, ...] = ()
    layer: str = ""

    def fitting(self, size: int) -> tuple[Tensor, ...]:
        """Those of the tensors that take ``size`` bytes: one, or an honest set.

        Where none does, those of unknown dtype that do so with elements of 1 to 16 bytes.
        """
        exact = tuple(tensor for tensor in self.tensors if tensor.bytes == size)
        if exact or size <= 0:
            return exact
        unknown = [t for t in self.tensors if not t.dtype and t.extent and size % t.extent == 0]
        return tuple(
            replace(tensor, dtype=f"{8 * width}-bit")
            for tensor in unknown
            if (width := size // tensor.extent) in _WIDTHS
        )

    def layer_of(self, size: int) -> str:
        """The layer of an allocation of ``size`` bytes; several, where it can be any of them."""
        layers = dict.fromkeys(tensor.layer for tensor in self.fitting(size) if tensor.layer)
        return " | ".join(layers) or self.layer

    def line_of(self, size: int) -> str:
        """The model's line of an allocation of ``size`` bytes; several, as for its layer."""
        lines = dict.fromkeys(tensor.line for tensor in self.fitting(size) if tensor.line)
        return self.symbol.line or " | ".join(lines)


NOT_NAMED = Naming(Symbol(None, "", None, UNATTRIBUTED))
WORKSPACE = Naming(Symbol("eager", "", None, "cuBLAS workspace"))
BEFORE = Naming(Symbol(None, "", None, BEFORE_RECORDING))


# torch and thunder, also where they lie outside of site-packages.
_LIBRARY = re.compile(
    r"(?:^|/)(?:torch/(?:_\w+|utils|nn|autograd|fx|optim|overrides\.py|functional\.py)"
    r"|thunder/(?:core|torch|clang|numpy|executors|transforms|dynamo|__init__\.py))(?:/|$)"
)


def is_library(filename: str) -> bool:
    """Whether a source file is torch's or Thunder's own and no line of a model."""
    path = filename.replace("\\", "/")
    return short_path(path).startswith(("torch/", "thunder/")) or bool(_LIBRARY.search(path))


def short_path(filename: str) -> str:
    """The end of a source path that says which file it is, without the machine it lay on.

    Inside site-packages the path from the package on; elsewhere the last two parts.
    """
    path = filename.replace("\\", "/")
    for root in ("/site-packages/", "/dist-packages/"):
        if root in path:
            return path.rsplit(root, 1)[1]
    return "/".join(path.rsplit("/", 2)[-2:]) if path.startswith("/") else path
