"""A slow, obvious CUDA caching allocator that writes the history torch would write.

It searches, splits and merges on plain lists, so that what the replay infers from addresses can be
compared with what happened. Rules: c10/cuda/CUDACachingAllocator.cpp. It shares no code with
memtrace.timeline.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from memtrace.snapshot.columns import Block, Segment

MIB = 1 << 20
GAP = 64 * MIB
ROOM = 1 << 40  # address space of an expandable segment


@dataclass
class Piece:
    address: int
    size: int
    state: str  # "free", "used", "pending", "unmapped"
    requested: int = 0

    @property
    def end(self) -> int:
        return self.address + self.size


@dataclass
class Arena:
    """One cudaMalloc, or the address space of one expandable segment."""

    stream: int
    pool: tuple[int, int]
    small: bool
    expandable: bool
    pieces: list[Piece]

    @property
    def page(self) -> int:
        return 2 * MIB if self.small else 20 * MIB

    def merge(self) -> None:
        """Neighbours that are both free, or both unmapped, become one."""
        merged: list[Piece] = []
        for piece in self.pieces:
            if merged and piece.state in ("free", "unmapped") and merged[-1].state == piece.state:
                merged[-1].size += piece.size
            else:
                merged.append(piece)
        self.pieces = merged

    def cut(self, piece: Piece, size: int) -> None:
        """Splits a piece into one of ``size`` and the rest, both in its state."""
        if size < piece.size:
            rest = Piece(piece.address + size, piece.size - size, piece.state)
            self.pieces.insert(self.pieces.index(piece) + 1, rest)
            piece.size = size


@dataclass
class Model:
    expandable: bool = False
    max_split_size: int = 1 << 62
    divisions: int = 0
    whole: tuple[tuple[int, int], ...] = ()  # pools that never split
    arenas: list[Arena] = field(default_factory=list)
    events: list[tuple[str, int, int, int]] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)  # block size at an alloc event, else -1
    allocated: list[int] = field(default_factory=lambda: [0])
    requested: list[int] = field(default_factory=lambda: [0])
    reserved: list[int] = field(default_factory=lambda: [0])
    next_address: int = 1 << 44
    touching: bool = False

    def note(
        self,
        action: str,
        address: int,
        size: int,
        stream: int,
        *,
        allocated: int = 0,
        requested: int = 0,
        reserved: int = 0,
        block: int = -1,
    ) -> None:
        self.events.append((action, address, size, stream))
        self.blocks.append(block)
        self.allocated.append(self.allocated[-1] + allocated)
        self.requested.append(self.requested[-1] + requested)
        self.reserved.append(self.reserved[-1] + reserved)

    def round(self, size: int) -> int:
        if size < 512:
            return 512
        d = self.divisions
        if d > 1 and size > 512 * d:
            power = 1
            while power * 2 <= size:
                power *= 2
            candidates = [power + k * (power // d) for k in range(d)] + [2 * power]
            return next(c for c in candidates if c >= size)
        while size % 512:
            size += 1
        return size

    def malloc(self, size: int, stream: int = 0, pool: tuple[int, int] = (0, 0)) -> int:
        rounded = self.round(size)
        small = rounded <= MIB
        arena, piece = self.find(rounded, small, stream, pool) or self.grow(
            rounded, small, stream, pool
        )
        rest = piece.size - rounded
        if pool in self.whole:
            split = False
        elif small or self.expandable:
            split = rest >= 512
        else:
            split = rounded < self.max_split_size and rest > MIB
        if split:
            arena.cut(piece, rounded)
        piece.state, piece.requested = "used", size
        self.note(
            "alloc",
            piece.address,
            size,
            stream,
            allocated=piece.size,
            requested=size,
            block=piece.size,
        )
        return piece.address

    def find(
        self, rounded: int, small: bool, stream: int, pool: tuple[int, int]
    ) -> tuple[Arena, Piece] | None:
        fitting = [
            (p.size, p.address, a, p)
            for a in self.arenas
            if (a.small, a.stream, a.pool) == (small, stream, pool)
            for p in a.pieces
            if p.state == "free" and p.size >= rounded
        ]
        if not fitting:
            return None
        size, _, arena, piece = min(fitting, key=lambda f: f[:2])
        if rounded < self.max_split_size <= size:
            return None
        if rounded >= self.max_split_size and size >= rounded + 20 * MIB:
            return None
        return arena, piece

    def grow(
        self, rounded: int, small: bool, stream: int, pool: tuple[int, int]
    ) -> tuple[Arena, Piece]:
        if self.expandable:
            return self.expand(rounded, small, stream, pool)
        if small:
            size = 2 * MIB
        elif rounded < 10 * MIB:
            size = 20 * MIB
        else:
            size = -(-rounded // (2 * MIB)) * 2 * MIB
        piece = Piece(self.next_address, size, "free")
        self.next_address += size + (0 if self.touching else GAP)
        arena = Arena(stream, pool, small, False, [piece])
        self.arenas.append(arena)
        self.note("segment_alloc", piece.address, size, stream, reserved=size)
        return arena, piece

    def expand(
        self, rounded: int, small: bool, stream: int, pool: tuple[int, int]
    ) -> tuple[Arena, Piece]:
        for arena in self.arenas:
            if (arena.small, arena.stream, arena.pool, arena.expandable) == (
                small,
                stream,
                pool,
                True,
            ):
                break
        else:
            arena = Arena(stream, pool, small, True, [Piece(self.next_address, ROOM, "unmapped")])
            self.next_address += ROOM
            self.arenas.append(arena)
        # The lowest run of free and unmapped pieces that is long enough and has an unmapped one.
        k = 0
        while True:
            run = []
            for p in arena.pieces[k:]:
                if p.state not in ("free", "unmapped"):
                    break
                run.append(p)
            if sum(p.size for p in run) >= rounded and any(p.state == "unmapped" for p in run):
                break
            k += 1
        head = run[0].address
        covered = 0
        for p in run:
            if covered >= rounded:
                break
            if p.state == "unmapped":
                wanted = min(p.size, rounded - covered)
                wanted = min(-(-wanted // arena.page) * arena.page, p.size)
                arena.cut(p, wanted)
                p.state = "free"
                self.note("segment_map", p.address, wanted, stream, reserved=wanted)
            covered += p.size
        arena.merge()
        return arena, next(p for p in arena.pieces if p.address <= head < p.end)

    def locate(self, address: int) -> tuple[Arena, Piece]:
        return next((a, p) for a in self.arenas for p in a.pieces if p.address == address)

    def free(self, address: int, wait: bool = False) -> None:
        """Frees; with ``wait`` another stream still uses the block until ``complete``."""
        arena, piece = self.locate(address)
        piece.state = "pending"
        self.note("free_requested", address, piece.requested, arena.stream, allocated=-piece.size)
        if not wait:
            self.complete(address)

    def complete(self, address: int) -> None:
        arena, piece = self.locate(address)
        self.note(
            "free_completed", address, piece.requested, arena.stream, requested=-piece.requested
        )
        piece.state, piece.requested = "free", 0
        arena.merge()

    def empty_cache(self) -> None:
        for arena in list(self.arenas):
            if arena.expandable:
                self.unmap(arena)
            elif [p.state for p in arena.pieces] == ["free"]:
                p = arena.pieces[0]
                self.arenas.remove(arena)
                self.note("segment_free", p.address, p.size, arena.stream, reserved=-p.size)

    def unmap(self, arena: Arena) -> None:
        base = arena.pieces[0].address
        for p in [p for p in arena.pieces if p.state == "free"]:
            low = base + -(-(p.address - base) // arena.page) * arena.page
            high = base + (p.end - base) // arena.page * arena.page
            if low >= high:
                continue
            if low > p.address:
                arena.cut(p, low - p.address)
                p = arena.pieces[arena.pieces.index(p) + 1]
            arena.cut(p, high - low)
            p.state = "unmapped"
            self.note("segment_unmap", low, high - low, arena.stream, reserved=low - high)
        arena.merge()

    def segments(self, device: int = 0) -> tuple[Segment, ...]:
        """What torch's snapshot shows: one segment for each contiguous mapped stretch."""
        words = {"used": "active_allocated", "pending": "active_pending_free", "free": "inactive"}
        found = []
        for arena in self.arenas:
            runs: list[list[Piece]] = [[]]
            for p in arena.pieces:
                if p.state == "unmapped":
                    runs.append([])
                else:
                    runs[-1].append(p)
            for run in filter(None, runs):
                found.append(
                    Segment(
                        device,
                        run[0].address,
                        sum(p.size for p in run),
                        arena.stream,
                        "small" if arena.small else "large",
                        arena.pool,
                        arena.expandable,
                        tuple(
                            Block(p.address, p.size, p.requested, words[p.state], 0) for p in run
                        ),
                    )
                )
        return tuple(sorted(found, key=lambda s: s.address))
