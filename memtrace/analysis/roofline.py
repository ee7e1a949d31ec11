"""How fast a symbol moves what it must move, against what the card can."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memtrace.analysis.timing import Timing

# Peak memory bandwidth in GB/s by what the driver calls the card, from NVIDIA's data sheets; the
# longer name first. For recordings in which no copy was measured.
_PEAK_GBPS = (
    ("GB200", 8000),
    ("B200", 8000),
    ("GH200 480GB", 4000),
    ("H200 NVL", 4800),
    ("H200", 4800),
    ("H100 PCIe", 2000),
    ("H100 NVL", 3900),
    ("H100", 3350),
    ("H20", 4000),
    ("A100-SXM4-80GB", 2039),
    ("A100 80GB PCIe", 1935),
    ("A100-PCIE-40GB", 1555),
    ("A100-SXM4-40GB", 1555),
    ("A10G", 600),
    ("A10", 600),
    ("A30", 933),
    ("A40", 696),
    ("A6000", 768),
    ("L40S", 864),
    ("L40", 864),
    ("L4", 300),
    ("T4", 320),
    ("V100", 900),
    ("RTX 5090", 1792),
    ("RTX 4090", 1008),
    ("RTX 3090", 936),
)
# Kernels that read more than they write are a little faster than a copy, which turns the bus.
_ABOVE_A_COPY = 1.2


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes a second that the recorded GPU moves: of a copy ``measured`` on it, else its peak by
    the data sheet, of which a copy reaches about nine tenths."""

    per_second: int
    measured: bool

    @property
    def most(self) -> float:
        """What no kernel that streams from memory exceeds."""
        return self.per_second * (_ABOVE_A_COPY if self.measured else 1)


@dataclass(frozen=True, slots=True)
class Throughput:
    """``moved`` bytes, ``per_second``; ``share`` of what the ``card`` does.

    ``share`` is None where the card's is not known, or where more came out than the card can do:
    then not all of the inputs was read from its memory (a gather, or the cache held them).
    """

    moved: int
    per_second: int
    card: Bandwidth | None
    share: float | None


def card_bandwidth(facts: Mapping[str, Any]) -> Bandwidth | None:
    """How fast the recorded GPU moves memory, None where nothing was measured and it is not
    listed."""
    measured = facts.get("copy_bytes_per_second")
    if isinstance(measured, int) and measured > 0:
        return Bandwidth(measured, True)
    name = str(facts.get("gpu") or "")
    peak = next((gbps * 10**9 for card, gbps in _PEAK_GBPS if _is_named(card, name)), None)
    return None if peak is None else Bandwidth(peak, False)


def _is_named(card: str, name: str) -> bool:
    """Whether a driver's name holds the card's as whole words: an 'A100X' is no 'A10'.

    A laptop's card and a slice of a card have less."""
    whole = re.search(rf"\b{re.escape(card)}\b", name)
    return whole is not None and not any(word in name for word in ("Laptop", "MIG "))


def measure_throughput(time: Timing, card: Bandwidth | None) -> Throughput | None:
    """None where what the symbol moves is not known, or it took no time."""
    if time.moved is None or time.moved <= 0 or time.ns <= 0:
        return None
    per_second = time.moved * 10**9 // time.ns
    if card is None or per_second > card.most:
        return Throughput(time.moved, per_second, card, None)
    return Throughput(time.moved, per_second, card, per_second / card.per_second)
