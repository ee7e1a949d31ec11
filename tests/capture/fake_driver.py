"""torch.cuda as far as the recorder asks it, over the tests' model of the caching allocator.

Lets the whole CUDA path of the recorder run where there is no GPU: history, counters, peaks,
positions of marks, running out of memory, the snapshot. ``install`` changes torch in this process;
run it in one of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from memtrace.capture import bandwidth, hooks
from tests.timeline.allocator_model import Model

TOTAL = 139 << 30
STEP_MS = 1.5  # what the device does for each allocation
OUTSIDE = 300 << 20  # in use on the device by others than the allocator


class FakeEvent:
    """``torch.cuda.Event``: holds the device's clock as it was when the stream came to it."""

    device = torch.device("cuda", 0)

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.at = -1.0

    def record(self, stream: Any = None) -> None:
        assert not fake.capturing
        self.at = fake.clock_ms

    def synchronize(self) -> None:
        assert fake.ended, "the recorder waits for the device while the script runs"

    def elapsed_time(self, later: FakeEvent) -> float:
        return later.at - self.at


class FakeCopies:
    """The driver's own memory and copies: 100 GB/s of reading and writing, after a slow one."""

    held = 0

    def allocate(self, size: int) -> int:
        FakeCopies.held += size
        assert 2 * FakeCopies.held < fake.unused
        return size

    def free(self, pointer: int) -> None:
        FakeCopies.held -= pointer

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        assert fake.ended
        assert target == source == size
        fake.clock_ms += 2 * size / 100e9 * 1e3 * (1 if fake.copies else 3)
        fake.copies += 1


class FakeDriver:
    """One device. ``alloc``, ``free`` and ``run_out`` are what a program does to it.

    The rest is what torch says and does.
    """

    def __init__(self) -> None:
        self.model = Model()
        self.initialized = False
        self.lazy: list[Callable[[], Any]] = []
        self.recording_from: int | None = None  # event at which history was switched on
        self.peaks_from = 0  # event of the last reset of the peaks
        self.counted_from = 0  # event of the last reset of the counters
        self.resets = 0  # of the peaks
        self.clock_ms = 0.0
        self.copies = 0  # within the device's memory
        self.capturing = False  # a CUDA graph is being captured
        self.ended = False  # the history was switched off: the script is over
        self.most = 1 << 62  # events that the history's ring holds
        self.calls: list[dict[str, Any]] = []
        self.observers: list[Callable[[int, int, int, int], Any]] = []

    @property
    def recording(self) -> bool:
        return self.recording_from is not None

    @property
    def unused(self) -> int:
        return TOTAL - OUTSIDE - self.model.reserved[-1]

    def initialize(self) -> None:
        self.initialized = True
        while self.lazy:
            self.lazy.pop(0)()

    def call_lazily(self, function: Callable[[], Any], **options: Any) -> None:
        """Calls at once where CUDA is in use, else when it is initialised."""
        self.lazy.append(function)
        if self.initialized:
            self.initialize()

    def alloc(self, size: int) -> int:
        self.initialize()
        self.clock_ms += STEP_MS
        return self.model.malloc(size)

    def free(self, address: int) -> None:
        self.model.free(address)

    def run_out(self, size: int) -> None:
        self.initialize()
        self.model.note("oom", self.unused, size, 0)
        for observer in self.observers:
            observer(0, size, TOTAL, self.unused)
        raise torch.OutOfMemoryError("CUDA out of memory (fake)")

    def stats(self, device: int = 0) -> dict[str, Any]:
        model = self.model
        counted = [event[0] for event in model.events[self.counted_from :]]

        def total(column: list[int]) -> dict[str, Any]:
            return {"all": {"current": column[-1], "peak": max(column[self.peaks_from :])}}

        def count(freed: str) -> dict[str, Any]:
            return {"all": {"allocated": counted.count("alloc"), "freed": counted.count(freed)}}

        return {
            "allocation": count("free_requested"),
            "active": count("free_completed"),
            "allocated_bytes": total(model.allocated),
            "requested_bytes": total(model.requested),
            "reserved_bytes": total(model.reserved),
        }

    def reset_peaks(self, device: int = 0) -> None:
        self.resets += 1
        self.peaks_from = len(self.model.events)

    def reset_counters(self, device: int = 0) -> None:
        self.counted_from = len(self.model.events)

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
        self.most = max_entries
        if enabled is None:
            self.recording_from = None
            self.ended = True
        elif self.recording_from is None or clear_history:
            self.recording_from = len(self.model.events)

    def record_without_annotations(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = 1 << 62,
        device: Any = None,
        clear_history: bool = False,
    ) -> None:
        """``record`` as an older torch has it."""
        self.record(enabled, context, stacks, max_entries, device, clear_history)

    def snapshot(self) -> dict[str, Any]:
        # Frames are shared between stacks. The outer one is the recorder's, as under its hooks.
        frames = [
            {"filename": "model.py", "line": 1, "name": "forward"},
            {"filename": hooks.__file__, "line": 1, "name": "hook"},
        ]
        events = [] if self.recording_from is None else self.model.events[self.recording_from :]
        trace = [
            {
                "action": action, "addr": address, "size": size, "stream": stream,
                "time_us": 1 + k, "frames": list(frames),
            }
            for k, (action, address, size, stream) in enumerate(events)
        ][-self.most :]  # fmt: skip
        segments = [
            {
                "device": 0, "address": s.address, "total_size": s.total_size, "stream": 0,
                "segment_type": s.kind, "segment_pool_id": s.pool, "is_expandable": False,
                "frames": [],
                "blocks": [
                    {
                        "address": b.address, "size": b.size, "requested_size": b.requested,
                        "state": b.state,
                        "frames": list(frames) if self.recording and b.active else [],
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

    def segments(self, include_traces: bool = True) -> list[dict[str, Any]]:
        assert not include_traces
        found: list[dict[str, Any]] = self.snapshot()["segments"]
        return found

    def install(self) -> None:
        """Puts this driver into torch."""
        cuda: Any = torch.cuda
        core: Any = torch._C
        cuda.init = self.initialize
        cuda.is_initialized = lambda: self.initialized
        cuda._lazy_call = self.call_lazily
        cuda.device_count = lambda: 1
        cuda.current_device = lambda: 0
        cuda.synchronize = lambda device=None: None
        cuda.Event = FakeEvent
        cuda.current_stream = lambda device=None: SimpleNamespace(cuda_stream=0)
        bandwidth._Driver = FakeCopies  # type: ignore[misc, assignment]
        cuda.is_current_stream_capturing = lambda: self.capturing
        cuda.get_allocator_backend = lambda: "native"
        cuda.mem_get_info = lambda device=None: (self.unused, TOTAL)
        properties = SimpleNamespace(name="Fake", total_memory=TOTAL, major=9, minor=0)
        cuda.get_device_properties = lambda device=None: properties
        cuda.memory._record_memory_history = self.record
        cuda.memory._snapshot = self.snapshot
        cuda.memory_snapshot = self.segments
        for module in (cuda._utils, cuda.memory):
            module._get_device_index = lambda device, optional=False: device or 0
        core._cuda_hasPrimaryContext = lambda device: self.initialized
        core._cuda_memoryStats = self.stats
        core._cuda_resetPeakMemoryStats = self.reset_peaks
        core._cuda_resetAccumulatedMemoryStats = self.reset_counters
        core._cuda_attach_out_of_memory_observer = self.observers.append


fake = FakeDriver()
