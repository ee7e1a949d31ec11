"""A map of the allocator's memory: which stretches are free, which in use.

Splitting and merging as in ``free_block``, ``try_merge_blocks``, ``map_block``, ``unmap_block``
and ``release_block`` of c10/cuda/CUDACachingAllocator.cpp. Addresses and sizes in bytes.
"""

from __future__ import annotations

from bisect import bisect_right

from memtrace.snapshot.columns import Action
from memtrace.timeline.start import Start


class BlockMap:
    """Free and used blocks by address. Links to neighbours are the addresses themselves.

    ``free`` and ``used`` map a block's address to its size, ``free_end`` a free block's end to its
    address. Blocks never merge across the borders of one cudaMalloc (``fixed``/``fixed_end``),
    even where two happen to touch.
    """

    def __init__(self, start: Start) -> None:
        self.free: dict[int, int] = {}
        self.free_end: dict[int, int] = {}
        self.used: dict[int, int] = {}
        self.fixed: dict[int, int] = {}
        self.fixed_end: set[int] = set()
        # Blocks in use at the start whose size may exceed what is noted in ``used``, by the
        # address where the noted size ends.
        self.open_end: dict[int, int] = {}
        self.misfits = 0
        order = sorted(start.blocks)
        for r in start.ranges:
            end = r.address + r.size
            if not r.expandable:
                self.fixed[r.address] = r.size
                self.fixed_end.add(end)
            at = r.address
            for address in order[bisect_right(order, at - 1) : bisect_right(order, end - 1)]:
                b = start.blocks[address]
                if address < at or address + b.size > end:
                    self.misfits += 1
                    continue
                if address > at:
                    self.put_free(at, address - at)
                self.used[address] = b.size
                at = address + b.size
                if not b.exact:
                    self.open_end[at] = address
            if at < end:
                self.put_free(at, end - at)
        self.misfits += sum(a not in self.used for a in order)

    def put_free(self, address: int, size: int) -> None:
        """Notes a free block, with no merging."""
        self.free[address] = size
        self.free_end[address + size] = address

    def release(self, address: int, size: int) -> None:
        """A block becomes free and grows together with its free neighbours."""
        end = address + size
        free = self.free
        if end in free and end not in self.fixed and end not in self.fixed_end:
            size += free.pop(end)
            self.free_end.pop(address + size, None)
        if address in self.free_end and address not in self.fixed and address not in self.fixed_end:
            low = self.free_end.pop(address)
            size += address - low
            address = low
        free[address] = size
        self.free_end[address + size] = address

    def carve(self, address: int, size: int) -> int:
        """Cuts a free block so that one begins at ``address``; returns its size, -1 if none can.

        Needed for unmapping, and where an alloc shows that a block of the start is larger than
        its request: free memory is always handed out from its beginning, so what lies before
        belongs to the block in front.
        """
        low = self._free_around(address)
        if low is None or self.free[low] - (address - low) < size:
            return -1
        total = self.free.pop(low)
        owner = self.open_end.pop(low, None)
        self.free_end.pop(low + total, None)
        if owner is not None and owner in self.used:
            self.used[owner] += address - low
        else:
            self.put_free(low, address - low)
        self.put_free(address, low + total - address)
        return low + total - address

    def _free_around(self, address: int) -> int | None:
        # Rare (a few times a recording at most), so a scan is cheaper than keeping an order.
        for low, size in self.free.items():
            if low < address < low + size:
                return low
        return None

    def segment_event(self, action: int, address: int, size: int) -> None:
        """Memory comes from or goes back to the device.

        Broken files name segments that overlap or are empty. Overlap leaves links that lead
        nowhere, so links are dropped without insisting that they exist.
        """
        if size <= 0:
            self.misfits += 1
        elif action == Action.SEGMENT_ALLOC:
            self.fixed[address] = size
            self.fixed_end.add(address + size)
            self.put_free(address, size)
        elif action == Action.SEGMENT_FREE:
            if self.free.get(address) != size or self.fixed.pop(address, None) != size:
                self.misfits += 1
                return
            del self.free[address]
            self.free_end.pop(address + size, None)
            self.fixed_end.discard(address + size)
        elif action == Action.SEGMENT_MAP:
            # Merges like a freed block (map_block). Neighbours by address are neighbours in one
            # expandable segment: each reserves more addresses than the device has memory, so the
            # mapped parts of two never touch.
            self.release(address, size)
        else:
            self._unmap(address, size)

    def _unmap(self, address: int, size: int) -> None:
        # Whole pages within a free block go; what is left of it on both sides stays free.
        if address not in self.free and self.carve(address, size) < 0:
            self.misfits += 1
            return
        total = self.free.get(address, 0)
        if total < size:
            self.misfits += 1
            return
        del self.free[address]
        self.free_end.pop(address + total, None)
        if total > size:
            self.put_free(address + size, total - size)
