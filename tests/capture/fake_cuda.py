"""A CUDA allocator in forty lines, to run the recorder's CUDA path where there is no GPU."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

BLOCK = 512


class FakeCuda:
    """One device. Sizes are rounded to 512; freed blocks are not reused."""

    def __init__(self) -> None:
        self.recording = False
        self.trace: list[dict[str, Any]] = []
        self.frames = [{"filename": "model.py", "line": 1, "name": "forward"}]
        self.live: dict[int, int] = {}
        self.next = 4096
        self.count = {"allocated": 0, "freed": 0}
        self.current = {"allocated_bytes": 0, "requested_bytes": 0}
        self.peak = dict(self.current)
        self.resets = 0
        self.observers: list[Callable[..., Any]] = []

    def event(self, action: str, addr: int, size: int) -> None:
        if self.recording:
            own = {"filename": inspect.getsourcefile(sys.modules["memtrace.capture.hooks"])}
            frames = [dict(f) for f in self.frames] + [{**own, "line": 1, "name": "hook"}]
            self.trace.append({"action": action, "addr": addr, "size": size, "frames": frames})

    def alloc(self, size: int) -> int:
        addr, self.next = self.next, self.next + size + BLOCK
        self.live[addr] = size
        self.count["allocated"] += 1
        self._change(size, 1)
        self.event("alloc", addr, size)
        return addr

    def free(self, addr: int) -> None:
        size = self.live.pop(addr)
        self.count["freed"] += 1
        self._change(size, -1)
        self.event("free_requested", addr, size)
        self.event("free_completed", addr, size)

    def run_out(self, size: int) -> None:
        self.event("oom", 0, size)
        for observer in self.observers:
            observer(0, size, 1 << 30, 1)
        raise torch.OutOfMemoryError("CUDA out of memory (fake)")

    def _change(self, size: int, sign: int) -> None:
        for name, amount in (
            ("allocated_bytes", -(-size // BLOCK) * BLOCK),
            ("requested_bytes", size),
        ):
            self.current[name] += sign * amount
            self.peak[name] = max(self.peak[name], self.current[name])

    def stats(self, device: int) -> dict[str, Any]:
        sizes = {n: {"current": self.current[n], "peak": self.peak[n]} for n in self.current}
        reserved = 1 << 21 if self.next > 4096 else 0
        sizes["reserved_bytes"] = {"current": reserved, "peak": reserved}
        counts = {"allocation": dict(self.count), "active": dict(self.count)}
        return {name: {"all": value} for name, value in {**sizes, **counts}.items()}

    def reset_peak(self, device: int) -> None:
        self.resets += 1
        self.peak = dict(self.current)

    def reset_accumulated(self, device: int) -> None:
        self.count = {"allocated": 0, "freed": 0}

    def record(
        self,
        enabled: Any = "all",
        context: Any = "all",
        stacks: str = "all",
        max_entries: int = 1 << 60,
        clear_history: bool = False,
    ) -> None:
        self.recording = enabled is not None

    def snapshot(self) -> dict[str, Any]:
        block = {"address": 0, "size": 512, "state": "active_allocated", "frames": []}
        segment = {"device": 0, "address": 0, "total_size": 1 << 21, "blocks": [block]}
        trace = [dict(e, frames=list(e["frames"])) for e in self.trace]
        return {"segments": [segment], "device_traces": [trace], "allocator_settings": {}}

    def install(self) -> None:
        """Put the fake in torch's place."""
        cuda: Any = torch.cuda
        core: Any = torch._C
        cuda.is_initialized = lambda: True
        cuda.device_count = lambda: 1
        cuda.current_device = lambda: 0
        cuda.synchronize = lambda device=None: None
        cuda.get_allocator_backend = lambda: "native"
        cuda.mem_get_info = lambda device=None: ((1 << 33) - (1 << 22), 1 << 33)
        cuda.get_device_properties = lambda device=None: SimpleNamespace(
            name="Fake", total_memory=1 << 33, major=9, minor=0
        )
        cuda.memory._record_memory_history = self.record
        cuda.memory._snapshot = self.snapshot
        core._cuda_hasPrimaryContext = lambda device: True
        core._cuda_memoryStats = self.stats
        core._cuda_resetPeakMemoryStats = self.reset_peak
        core._cuda_resetAccumulatedMemoryStats = self.reset_accumulated
        core._cuda_attach_out_of_memory_observer = self.observers.append
        cuda._utils._get_device_index = lambda device, optional=False: device or 0
        cuda.memory._get_device_index = cuda._utils._get_device_index


fake = FakeCuda()
