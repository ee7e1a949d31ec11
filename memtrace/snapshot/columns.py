"""What a recording is once it has been read: numpy columns and interned stacks.

The shapes here are the border between reading (this room) and replay (timeline): everything a
snapshot holds that later rooms need, and nothing of how it lay in the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
Int32 = npt.NDArray[np.int32]
UInt8 = npt.NDArray[np.uint8]


class Action(IntEnum):
    """One allocator event. The names are those of torch's TraceEntry."""

    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    SNAPSHOT = 7
    OOM = 8
    OTHER = 9


class Frame(NamedTuple):
    """One line of a Python (or C++) stack."""

    filename: str
    line: int
    name: str


@dataclass(frozen=True, slots=True)
class StackTable:
    """Interned stacks.

    ``stacks[k]`` lists frame numbers, innermost first; ``stacks[0]`` is empty.
    """

    frames: list[Frame]
    stacks: list[tuple[int, ...]]

    def at(self, stack: int) -> list[Frame]:
        """The frames of one stack, innermost first."""
        return [self.frames[k] for k in self.stacks[stack]]


@dataclass(frozen=True, slots=True)
class Events:
    """One device's history, oldest first. All columns have shape (n,).

    ``size`` is in bytes: the requested size for alloc and free events (rounding not included), the
    mapped size for segment events, the size asked for in an OOM event.
    ``time_us`` is epoch microseconds, -1 where the file has none (older torch).
    ``stack`` is a row of the recording's StackTable; 0 (the empty stack) where there is none.
    ``device_free`` (OOM only) is the device's free memory then, -1 elsewhere.
    """

    action: UInt8
    addr: UInt64
    size: Int64
    stream: UInt64
    time_us: Int64
    stack: Int32
    device_free: Int64

    def __len__(self) -> int:
        return len(self.action)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a segment.

    ``state`` is torch's word; ``requested`` is 0 where the file has none.
    """

    address: int
    size: int
    requested: int
    state: str
    stack: int

    @property
    def allocated(self) -> bool:
        return self.state == "active_allocated"

    @property
    def active(self) -> bool:
        """Allocated, or freed and waiting for another stream's event."""
        return self.state.startswith("active")


@dataclass(frozen=True, slots=True)
class Segment:
    """A range the allocator took from the device. Blocks lie in address order and fill it."""

    device: int
    address: int
    total_size: int
    stream: int
    kind: str  # "small" or "large"
    pool: tuple[int, int]
    expandable: bool
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """A snapshot or capture, read.

    ``events[d]`` is device d's history. ``segments`` are those at the end of the recording.
    ``start_segments`` are those at its start: None where the file does not say (a plain snapshot),
    empty where history began before the first allocation.
    ``meta`` is the capture's ``memtrace`` key (see memtrace.snapshot.format), None for a plain
    snapshot.
    """

    path: str
    events: tuple[Events, ...]
    segments: tuple[Segment, ...]
    start_segments: tuple[Segment, ...] | None
    stacks: StackTable
    settings: dict[str, Any]
    annotations: list[dict[str, Any]] = field(default_factory=list)
    meta: dict[str, Any] | None = None
