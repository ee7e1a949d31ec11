"""The CUDA caching allocator's own history, and exact positions in it.

Position of a mark: the driver's counters of allocations, requested and completed frees are read at
the mark (the raw nested dict, without torch's flattening: microseconds). Each of them counts one
kind of the history's events, so at the end the mark's place is where the history, counted from its
end backwards, had reached all of them. No clock is involved, and it stays right when the ring
buffer dropped the oldest events.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memtrace.capture.patches import Notes, Patches

if TYPE_CHECKING:
    pass

# The counters, in the order they are kept.
_COUNTERS = (("allocation", "allocated"), ("allocation", "freed"), ("active", "freed"))
RESERVED = 2  # place of reserved_bytes.current among STAT_FIELDS
# Snapshots taken while memory ran out, of scripts that catch it and go on: each copies the history.
_MOST_OOM_SECONDS = 10.0


@functools.cache
def _fields() -> tuple[tuple[str, str], ...]:
    # Not at import: the package brings numpy, and the script may still have to set its variables.
    from memtrace.snapshot.format import STAT_FIELDS

    return tuple((name.split(".")[0], name.split(".")[1]) for name in STAT_FIELDS)


@dataclass(slots=True)
class Reading:
    """One device's figures at one moment."""

    counters: tuple[int, ...]  # as _COUNTERS, since the process began
    stats: list[int]  # as STAT_FIELDS


@dataclass(slots=True)
class Snapshot:
    """torch's snapshot and the readings of all devices right before it."""

    torch: dict[str, Any]
    readings: list[Reading | None]


@dataclass(slots=True)
class Stretch:
    """The driver's peaks between two resets of one device."""

    device: int
    begin: Reading | None  # None: before the recording
    end: Reading
    why: str


@dataclass(slots=True)
class CudaHistory:
    """The backend of ``--device cuda``. Nothing happens until the script initialises CUDA."""

    notes: Notes
    stacks: str
    max_events: int
    pid: int = field(default_factory=os.getpid)
    started: bool = False
    active: bool = True
    start_segments: list[dict[str, Any]] = field(default_factory=list)
    base: list[Reading | None] = field(default_factory=list)
    readings: dict[int, list[Reading | None]] = field(default_factory=dict)
    stretches: list[Stretch] = field(default_factory=list)
    failure: Snapshot | None = None  # of the last time memory ran out
    failed_after: int = -1  # the last mark before that
    on_script_reset: Callable[[int], None] | None = None
    _offsets: dict[int, list[int]] = field(default_factory=dict)
    _last_reset: dict[int, tuple[Reading, str]] = field(default_factory=dict)
    _record: Any = None
    _spent: float = 0.0

    def install(self, patches: Patches) -> None:
        """Queue the start for the moment CUDA is initialised: before the first allocation."""
        import torch

        memory = torch.cuda.memory
        self._record = memory._record_memory_history
        self._patch_script_calls(patches)
        # Runs at once if CUDA is initialised already.
        torch.cuda._lazy_call(self.notes.guard("starting the allocator's history", self._start))

    def _start(self) -> None:
        import torch

        if not self.active or os.getpid() != self.pid or self.started:
            return
        devices = torch.cuda.device_count()
        self.base = [self._read(d) for d in range(devices)]
        # Segments that exist already: CUDA was in use before the recording.
        if any(r is not None and r.stats[RESERVED] for r in self.base):
            self.start_segments = list(_snapshot()["segments"])
        self._record(**self._arguments())
        self.started = True
        attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is None:
            self.notes.add("this torch has no out-of-memory observer")
        else:
            attach(self.notes.guard("the snapshot at an out-of-memory error", self._on_oom))

    def _arguments(self) -> dict[str, Any]:
        wanted = {
            "enabled": "all",
            "context": "all",
            "stacks": self.stacks,
            "max_entries": self.max_events,
            "clear_history": True,
            "global_record_annotations": True,
        }
        try:
            # torch sets the signature of the implementation on the public function.
            known = inspect.signature(self._record).parameters
        except (TypeError, ValueError):
            return wanted
        missing = [name for name in wanted if name not in known]
        if missing:
            self.notes.add(f"this torch's history has no {', '.join(missing)}")
        return {k: v for k, v in wanted.items() if k in known}

    def mark(self, number: int) -> None:
        """Keep the figures of all devices in use at a mark."""
        if self.started and self.active:
            self.readings[number] = [self._read(d) for d in range(len(self.base))]

    def _read(self, device: int) -> Reading | None:
        """The figures of a device, None where nothing was ever allocated on it."""
        import torch

        # A device without a context holds nothing; to ask costs less than to read its figures.
        has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
        if has_context is not None and not has_context(device):
            return None
        raw = torch._C._cuda_memoryStats(device)
        offset = self._offsets.get(device, (0, 0, 0))
        counters = tuple(
            int(raw[name]["all"][key]) + offset[k] for k, (name, key) in enumerate(_COUNTERS)
        )
        stats = [int(raw[name]["all"][key]) for name, key in _fields()]
        return Reading(counters, stats) if any(counters) or any(stats) else None

    # -- peaks ---------------------------------------------------------------------------------

    def before_reset(self, device: int, why: str) -> None:
        """The peaks of ``device`` are about to be reset: keep those of the stretch that ends."""
        reading = self._read(device) if self.started and self.active else None
        if reading is None:
            return
        begin, reason = self._last_reset.get(device, (self._first(device), "run"))
        self.stretches.append(Stretch(device, begin, reading, reason))
        self._last_reset[device] = (reading, why)

    def _first(self, device: int) -> Reading | None:
        """Where the first stretch begins: at the first event, unless there was a life before."""
        base = self.base[device] if device < len(self.base) else None
        return Reading((0, 0, 0), []) if base is None else None

    def reset_peaks(self) -> None:
        """For --check-driver: read the peaks of all devices in use and reset them."""
        import torch

        if not self.started or not self.active:
            return
        for device in range(len(self.base)):
            if self._read(device) is not None:
                self.before_reset(device, "check")
                torch._C._cuda_resetPeakMemoryStats(device)

    # -- what the script does itself -----------------------------------------------------------

    def _patch_script_calls(self, patches: Patches) -> None:
        import torch

        memory, history = torch.cuda.memory, self
        reset_peak = memory.reset_peak_memory_stats
        reset_accumulated = memory.reset_accumulated_memory_stats

        def device_number(device: Any) -> int:
            return int(torch.cuda._utils._get_device_index(device, optional=True))

        def reset_peak_memory_stats(device: Any = None) -> None:
            if history.started and history.active:
                history.notes.guard("reading the peaks", history.script_resets)(
                    device_number(device)
                )
            reset_peak(device)

        def reset_accumulated_memory_stats(device: Any = None) -> None:
            if not (history.started and history.active):
                reset_accumulated(device)
                return
            number = device_number(device)
            before = history._read(number)
            reset_accumulated(device)
            if before is not None:
                history._offsets[number] = [0, 0, 0]
                after = history._read(number)
                left = after.counters if after is not None else (0, 0, 0)
                history._offsets[number] = [
                    b - a for b, a in zip(before.counters, left, strict=True)
                ]

        def _record_memory_history(enabled: Any = "all", *args: Any, **kwargs: Any) -> None:
            if not history.active or os.getpid() != history.pid:
                history._record(enabled, *args, **kwargs)
                return
            history.notes.add(
                f"the script called _record_memory_history({enabled!r}): memtrace's own recording "
                "went on instead; snapshots the script takes hold it"
            )

        # reset_max_memory_allocated and reset_max_memory_cached call reset_peak_memory_stats.
        for name, function in (
            ("reset_peak_memory_stats", reset_peak_memory_stats),
            ("reset_accumulated_memory_stats", reset_accumulated_memory_stats),
        ):
            function.__doc__ = getattr(memory, name).__doc__
            patches.set(memory, name, function)
            patches.set(torch.cuda, name, function)
        _record_memory_history.__signature__ = inspect.signature(  # type: ignore[attr-defined]
            self._record
        )
        patches.set(memory, "_record_memory_history", _record_memory_history)

    def script_resets(self, device: int) -> None:
        """The script itself is about to reset the peaks of ``device``."""
        if self.on_script_reset is not None:
            self.on_script_reset(device)
        self.before_reset(device, "script")

    def _on_oom(self, device: int, alloc: int, device_alloc: int, device_free: int) -> None:
        # The allocator has let go of its locks before it calls, says its source.
        if not self.active or os.getpid() != self.pid:
            return
        self.failure, self.failed_after = None, max(self.readings, default=-1)
        if self._spent > _MOST_OOM_SECONDS:
            return
        begin = time.monotonic()
        self.failure = self.take()
        self._spent += time.monotonic() - begin

    # -- the end -------------------------------------------------------------------------------

    def take(self) -> Snapshot:
        """A snapshot now, with the readings that fix its end."""
        readings = [self._read(d) for d in range(len(self.base))]
        return Snapshot(_snapshot(), readings)

    def stop(self) -> None:
        """Switch torch's recording off. Reading a snapshot afterwards would find it empty."""
        if self.started and self.active:
            self._record(enabled=None)
        self.active = False

    def last_stretches(self) -> None:
        """The peaks since the last reset, for the end of the recording."""
        for device in range(len(self.base)):
            self.before_reset(device, "run")


def _snapshot() -> dict[str, Any]:
    import torch

    snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
    return snapshot
