"""What operators of torch take beside their results while they run."""

from __future__ import annotations

from memtrace.symbols.statements import Tensor


def workspace(name: str, inputs: tuple[Tensor, ...]) -> int:
    """Bytes of an operator's workspaces and intermediates; 0 where none are known."""
    return 0
