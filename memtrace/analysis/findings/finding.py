"""What takes memory for no good reason: one cause, with what shows it and what to try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# What there is to find, in the order in which causes lay claim to a tensor that fits several:
# what can be seen for certain and undone without work first.
Kind = Literal[
    "shape-only fusion",  # a fusion that computes nothing, but copies
    "born early",  # made long before its first use, while the peak passes
    "held after last use",  # dead in the trace, freed later
    "kept over iterations",  # one more in every iteration
    "zeros for an unused result",  # the gradient that autograd makes up for it
    "held twice: dtype",  # the same values in two dtypes
    "held twice: copy",  # a copy of what is alive
    "kept wider than its values",  # cast to a wider dtype, and kept in it
    "wider than its parameter",  # gradients, sums of them, optimizer state
    "cheap to recompute",  # saved for backward, though it could be made again for little
    "optional state",  # optimizer state that only an option of the optimizer needs
    "inside a fusion",  # intermediates of one fusion that its kernels exchange through memory
    "order alone",  # temporaries that another order would not have alive at once
    "block slack",  # what blocks hold beyond what was asked for
    "recomputed in A, saved in B",
    "more in B",  # two captures: what the gap consists of and no other cause explains
    "more in A",
]
# "certain": the trace or the program's own names say so. "likely": what was seen allows little
# else. "possible": worth a look; what was seen has other explanations, too.
Sure = Literal["certain", "likely", "possible"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause of memory at the peak.

    ``bytes`` are those alive at the peak that the cause takes: what would not be there without it,
    never more than ``lifetimes`` (row numbers of the replay) hold then. Of a pasted trace, where
    nothing was measured, they are the tensors' own, and ``lifetimes`` is empty.
    ``lines`` are lines of generated or user source, each with its text where that is known.
    ``evidence`` is what was seen, one sentence each; ``try_`` what would bring the bytes down.
    """

    kind: Kind
    title: str
    bytes: int
    symbols: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    try_: str = ""
    sure: Sure = "likely"
    lifetimes: tuple[int, ...] = ()
