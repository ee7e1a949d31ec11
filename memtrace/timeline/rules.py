"""How torch's native CUDA caching allocator sizes a block.

Source of every rule: c10/cuda/CUDACachingAllocator.cpp (``round_size``, ``should_split``,
``get_pool``) and c10/core/AllocatorConfig (``roundup_power2_divisions``), torch 2.x.
All sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memtrace.snapshot.columns import Int64

MIN_BLOCK = 512  # kMinBlockSize: every block size is a multiple of it
SMALL_SIZE = 1 << 20  # kSmallSize: at most this much comes from the small pool
_SMALL_SEGMENT = 2 << 20  # kSmallBuffer
_LARGE_SEGMENT = 20 << 20  # kLargeBuffer, for requests of less than kMinLargeAlloc
_LEAST_LARGE = 10 << 20  # kMinLargeAlloc
_LARGE_STEP = 2 << 20  # kRoundLarge
NEVER = (1 << 63) - 1  # more than any block has
_GREATEST = 1 << 62
_DIVISION_SLOTS = 16  # divisions are set per power of two, from 1 MiB (slot 0) to 32 GiB

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rules:
    """The allocator's settings that decide block sizes.

    ``max_split_size`` is None where there is no limit. ``divisions`` has one number a power of
    two from 1 MiB, 0 where plain rounding to 512 applies; the last holds for larger sizes too.
    """

    max_split_size: int | None = None
    expandable: bool = False
    divisions: tuple[int, ...] = field(default=(0,) * _DIVISION_SLOTS)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Rules:
        """The rules in a snapshot's ``allocator_settings``; torch's defaults where keys miss."""
        limit = settings.get("max_split_size", -1)
        # The snapshot shows SIZE_MAX ("no limit") as -1 (a signed cast), older files as 2**64 - 1.
        unlimited = not isinstance(limit, int) or limit < 0 or limit >= 1 << 62
        raw = settings.get("roundup_power2_divisions") or {}
        divisions = [0] * _DIVISION_SLOTS
        if isinstance(raw, Mapping):
            for slot in range(_DIVISION_SLOTS):
                value = raw.get(str(1 << slot), 0)
                divisions[slot] = int(value) if isinstance(value, int) else 0
        return cls(
            max_split_size=None if unlimited else int(limit),
            expandable=bool(settings.get("expandable_segments", False)),
            divisions=tuple(divisions),
        )

    @property
    def plain(self) -> bool:
        """No power-of-two divisions: rounding is to the next multiple of 512 and nothing else."""
        return not any(d > 1 for d in self.divisions)

    def round(self, requested: int) -> int:
        """The size a request is rounded up to, before splitting is decided (``round_size``)."""
        if requested < MIN_BLOCK:
            return MIN_BLOCK
        # Slots start at 1 MiB = 2**20: smaller sizes use the first, larger than 32 GiB the last.
        slot = min(max(requested.bit_length() - 21, 0), _DIVISION_SLOTS - 1)
        divisions = self.divisions[slot]
        if divisions > 1 and requested > MIN_BLOCK * divisions:
            return _next_division(requested, divisions)
        return -(-requested // MIN_BLOCK) * MIN_BLOCK

    def round_all(self, requested: Int64) -> Int64:
        """``round`` of each of many requests."""
        bounded = np.minimum(requested, _GREATEST)  # or rounding would leave 64 bits
        if not self.plain:
            return np.array([self.round(one) for one in bounded.tolist()], dtype=np.int64)
        rounded: Int64 = np.maximum(-(-bounded // MIN_BLOCK) * MIN_BLOCK, MIN_BLOCK)
        return rounded

    def least_splits(self, rounded: Int64, expandable: Flags | None = None) -> Int64:
        """The least remainder that is split off a free block for each of many rounded requests.

        It stays free (``should_split``). The pool follows from the size alone: up to 1 MiB comes
        from the small pool. ``expandable`` tells for each request whether expandable segments were
        on, where that changed on the way.
        """
        large = SMALL_SIZE + 1
        grown = self.expandable if expandable is None else expandable
        least = np.where((rounded <= SMALL_SIZE) | grown, MIN_BLOCK, large)
        if self.max_split_size is not None:
            never = (least == large) & (rounded >= self.max_split_size)
            return np.where(never, NEVER, least)
        return least

    def segment_size(self, rounded: int) -> int:
        """What is taken from the device where no free block fits a rounded request.

        ``get_allocation_size``; this is what torch's message about missing memory names.
        """
        if rounded <= SMALL_SIZE:
            return _SMALL_SEGMENT
        if rounded < _LEAST_LARGE:
            return _LARGE_SEGMENT
        return -(-rounded // _LARGE_STEP) * _LARGE_STEP

    def may_have_slack(self, rounded: int) -> bool:
        """Whether a block of a request can be larger than the rounded request."""
        return not (rounded <= SMALL_SIZE or self.expandable)


def _next_division(size: int, divisions: int) -> int:
    """Up to the next of ``divisions`` equal steps between two powers of two.

    ``roundup_power2_next_division``: divisions that are no power of two count as the power below.
    """
    if size & (size - 1) == 0:
        return size
    floor = 1 << (size.bit_length() - 1)
    step = floor >> (divisions.bit_length() - 1)
    if step == 0:
        return floor << 1
    return -(-size // step) * step
