"""A small program compiled by Thunder on the CPU, under the stand-in for nvFuser."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).parents[2] / "scripts"))


class Block(torch.nn.Module):
    """Attention with a softmax in float32 and a gated MLP, as Qwen2 has them."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(16, 16) for _ in range(3))
        self.up, self.gate = torch.nn.Linear(16, 64), torch.nn.Linear(16, 64)
        self.down = torch.nn.Linear(64, 16)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = (self.q(x) @ self.k(x).transpose(-1, -2)).float() * 0.25
        x = x + torch.softmax(scores, -1).to(x.dtype) @ self.v(x)
        inner = F.silu(self.gate(x)) * self.up(x)
        if self.dropout:
            inner = F.dropout(inner, self.dropout)
        return x + self.down(inner)


class Compiled:
    """One training step: ``gradients`` by name, the final traces, what they save."""

    def __init__(
        self, transforms: Sequence[Any] = (), *, fuser: str = "stand_in", dropout: float = 0.0
    ) -> None:
        import thunder
        from stand_in import register

        register()
        torch.manual_seed(0)
        model = Block(dropout).to(torch.bfloat16)
        x = torch.randn(2, 32, 16, dtype=torch.bfloat16)
        compiled = thunder.jit(
            model,
            executors=["sdpa", fuser, "torch"],
            transforms=list(transforms),
            fusion_type="dataflow",
        )
        self.loss = compiled(x).float().pow(2).sum()
        self.loss.backward()
        self.gradients = {
            n: p.grad.float() for n, p in model.named_parameters() if p.grad is not None
        }
        self.forward = thunder.last_traces(compiled)[-1]
        self.backward = thunder.last_backward_traces(compiled)[-1]

    @property
    def saved(self) -> dict[str, Any]:
        """The tensors that the backward unpacks, by name."""
        return {
            p.name: p
            for s in self.backward.bound_symbols
            if s.sym.name == "unpack_sequence"
            for p in s.flat_proxy_outs
            if hasattr(p, "shape")
        }

    def fusions(self, trace: Any) -> Iterator[Any]:
        """The fusions of a trace."""
        return (s for s in trace.bound_symbols if s.sym.is_fusion)

    def apart(self, other: Compiled) -> float:
        """How far the gradients are apart, relative to all of them."""
        total = sum(float(g.norm()) ** 2 for g in other.gradients.values()) ** 0.5
        difference = sum(
            float((g - other.gradients[n]).norm()) ** 2 for n, g in self.gradients.items()
        )
        return float(difference**0.5 / total)
