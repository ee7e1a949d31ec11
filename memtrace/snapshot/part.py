"""What a capture holds that was cut out of a longer recording: ``memtrace.part``."""

from __future__ import annotations

from typing import TypedDict


class PartSymbols(TypedDict):
    """Symbols as columns, as memtrace.symbols.table.Symbol; '' where a field has nothing."""

    compiler: list[str]
    module: list[str]
    phase: list[str]
    name: list[str]
    operation: list[str]
    line: list[str]


class PartTensors(TypedDict):
    """Tensors as columns, as memtrace.symbols.statements.Tensor."""

    name: list[str]
    shape: list[list[int]]
    dtype: list[str]
    layer: list[str]
    line: list[str]
    strides: list[list[int] | None]
    own: list[int]  # 0 or 1


class PartNamings(TypedDict):
    """Namings as columns, as memtrace.symbols.table.Naming; rows in PartSymbols, PartTensors."""

    symbol: list[int]
    where: list[str]
    layer: list[str]
    tensors: list[list[int]]


class PartDevice(TypedDict):
    """What the whole recording told of one device.

    The columns have a row for each lifetime: those alive at the part's start, by birth, then those
    that its alloc events begin. ``births`` are the addresses of the former. ``name`` is a row in
    PartNamings, ``bare`` the same without the profiler's operators where a line of the program
    names it; ``category`` holds up to moment ``turn`` (an event number, negative before the part),
    ``late`` after it; both are words.
    """

    index: int
    blocks: bool  # the blocks' sizes are known throughout the part
    complete: bool  # nothing was missing in the whole recording
    warnings: list[str]  # of its replay
    reconciled: bool | None  # whether replay and driver agreed over all of it
    differing: str  # what they differed in, '' nothing
    births: list[int]
    name: list[int]
    bare: list[int]
    category: list[str]
    late: list[str]
    turn: list[int]


class Part(TypedDict):
    """In a capture that was cut out of a longer recording: what the whole told of it.

    History, segments and segments at the start are those of the part; the blocks of these bear the
    stacks that allocated them. Marks outside of it have no event (-1). What is evidence for names
    lies all over a recording (the profiled iteration, the iterations after, when something is
    freed), so the names found there come along.
    """

    window: str  # what was kept
    device: int  # of several that have a history, the one with the greatest peak
    symbols: PartSymbols
    tensors: PartTensors
    namings: PartNamings
    devices: list[PartDevice]  # one for each history, in order
    kernels: list[int]  # the namings of the profile's kernels
    bare_kernels: list[int]  # … without operators, as PartDevice.bare
