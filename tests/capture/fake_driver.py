"""torch.cuda as far as the recorder asks it, over the tests' model of the caching allocator.

Lets the whole CUDA path of the recorder run where there is no GPU: history, counters, peaks,
positions of marks, the snapshot. ``install`` changes torch in this process; run it in one of its
own.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from tests.timeline.allocator_model import Model

GIB = 1 << 30


class FakeDriver:
    """One device. ``malloc`` and ``free`` are what a program does; the rest is what torch says."""

    def __init__(self) -> None:
        self.model = Model()
        self.recording_from: int | None = None  # event at which history was switched on
        self.reset_at = 0  # event of the last reset of the peaks
        self.calls: list[dict[str, Any]] = []
        self.lazy: list[Any] = []

    def malloc(self, size: int) -> int:
        while self.lazy:  # torch runs queued calls when CUDA is initialised
            self.lazy.pop(0)()
        return self.model.malloc(size)

    def free(self, address: int) -> None:
        self.model.free(address)

    def stats(self, device: int = 0) -> dict[str, Any]:
        model, counts = self.model, [event[0] for event in self.model.events]

        def total(column: list[int]) -> dict[str, Any]:
            peak = max(column[self.reset_at :])
            return {"all": {"current": column[-1], "peak": peak, "allocated": 0, "freed": 0}}

        def count(kind: str, freed: str) -> dict[str, Any]:
            return {"all": {"allocated": counts.count(kind), "freed": counts.count(freed)}}

        return {
            "allocation": count("alloc", "free_requested"),
            "active": count("alloc", "free_completed"),
            "allocated_bytes": total(model.allocated),
            "requested_bytes": total(model.requested),
            "reserved_bytes": total(model.reserved),
        }

    def reset(self, device: int = 0) -> None:
        self.reset_at = len(self.model.events)

    def record(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = 1 << 62,
        device: Any = None,
        clear_history: bool = False,
        compile_context: bool = False,
        global_record_annotations: bool = False,
        skip_actions: Any = None,
    ) -> None:
        self.calls.append({"enabled": enabled, "stacks": stacks, "max_entries": max_entries})
        self.recording_from = None if enabled is None else len(self.model.events)

    def snapshot(self) -> dict[str, Any]:
        first = self.recording_from if self.recording_from is not None else 0
        trace = [
            {"action": a, "addr": addr, "size": size, "stream": 0, "time_us": 1 + k, "frames": []}
            for k, (a, addr, size, _) in enumerate(self.model.events[first:])
        ]
        segments = [
            {
                "device": 0, "address": s.address, "total_size": s.total_size, "stream": 0,
                "segment_type": s.kind, "segment_pool_id": s.pool, "is_expandable": False,
                "frames": [],
                "blocks": [
                    {
                        "address": b.address, "size": b.size, "requested_size": b.requested,
                        "state": b.state, "frames": [],
                    }
                    for b in s.blocks
                ],
            }
            for s in self.model.segments()
        ]  # fmt: skip
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1}
        return {
            "segments": segments,
            "device_traces": [trace],
            "allocator_settings": settings,
            "external_annotations": [],
        }

    def install(self) -> None:
        """Puts this driver into torch."""

        def reset_peak_memory_stats(device: Any = None) -> None:
            self.reset()

        torch.cuda.device_count = lambda: 1
        torch.cuda.is_initialized = lambda: not self.lazy
        torch.cuda.synchronize = lambda *a: None
        torch.cuda.current_device = lambda: 0
        torch.cuda._lazy_call = lambda function, **k: self.lazy.append(function)
        torch.cuda.mem_get_info = lambda d=0: (100 * GIB, 139 * GIB)
        properties = SimpleNamespace(name="Fake", total_memory=139 * GIB, major=9, minor=0)
        torch.cuda.get_device_properties = lambda d=0: properties
        torch.cuda.get_device_name = lambda d=0: "Fake"
        torch.cuda.get_allocator_backend = lambda: "native"
        torch.cuda._utils._get_device_index = lambda d, **k: 0
        for module in (torch.cuda, torch.cuda.memory):
            module.reset_peak_memory_stats = reset_peak_memory_stats
        torch.cuda.memory._record_memory_history = self.record
        torch.cuda.memory._snapshot = self.snapshot
        torch._C._cuda_hasPrimaryContext = lambda d: bool(self.model.events)
        torch._C._cuda_memoryStats = self.stats
        torch._C._cuda_resetPeakMemoryStats = self.reset
        torch._C._cuda_attach_out_of_memory_observer = lambda f: None
