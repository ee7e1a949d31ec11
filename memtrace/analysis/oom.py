"""Memory ran out: what was asked for, what was free, and what stood in the way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memtrace.snapshot.columns import Action, Recording
from memtrace.symbols import Attribution, Naming, name_request
from memtrace.timeline import Replay, Rules, Unused, unused_blocks
from memtrace.timeline.replay import device_meta

_SMALL = 1 << 20  # requests up to here come from the small pool
_ALLOWED = re.compile(r"(?<![\d.])([\d.]++ (?:bytes|[KMG]iB)) allowed")
# A script ended by the host's memory and not by the device's; torch's is 'OutOfMemoryError'.
_OF_HOST = re.compile(r"(?<![\w.])(\w++\.)*+_?(Array)?MemoryError\b")


@dataclass(frozen=True, slots=True)
class Oom:
    """The allocator could not give what was asked for, at ``event`` of the device's history.

    All in bytes, None where it is not known. ``asked`` is the request as the allocator rounds it,
    ``segment`` what it then wanted of the device (torch's message names that). ``free`` was free
    on the device, ``total`` is its memory, ``outside`` what neither was free nor the allocator's:
    CUDA's context, other processes. ``reserved`` = ``allocated`` + ``unused`` + ``pending``:
    ``pending`` was freed, but other streams might still use it; ``unused`` lay in the allocator's
    free blocks. ``usable`` of it could have served this request, by size, stream and pool, had it
    been in one piece; its largest piece is ``largest``. ``limit`` is what the process was allowed,
    in the words of torch's message, '' where it says nothing. ``ended``: the script ended by it.
    """

    event: int
    ended: bool
    asked: int
    segment: int
    naming: Naming
    tensor: str
    free: int | None
    total: int | None
    outside: int | None
    limit: str
    allocated: int | None
    reserved: int | None
    pending: int | None
    unused: int | None
    usable: int | None
    largest: int | None

    @property
    def fragmented(self) -> bool | None:
        """Whether it failed although the allocator held enough, only not in one piece."""
        return None if self.usable is None else self.usable >= self.asked


def oom_events(recording: Recording, device: int) -> list[int]:
    """The events of a device at which memory ran out, in order."""
    if device >= len(recording.events):
        return []
    found: list[int] = np.flatnonzero(recording.events[device].action == Action.OOM).tolist()
    return found


def ended_by_oom(recording: Recording) -> bool:
    """Whether the script ended because the device's memory ran out, as far as the file tells."""
    ending = ((recording.meta or {}).get("facts") or {}).get("exit") or {}
    of_host = _OF_HOST.match(str(ending.get("message", "")))
    return ending.get("kind") == "oom" and not of_host


def device_of_oom(recording: Recording) -> int | None:
    """The device on which memory ran out last; None where it did on none."""
    last = {
        device: (int(events.time_us[found[-1]]), device)
        for device, events in enumerate(recording.events)
        if (found := oom_events(recording, device))
    }
    return max(last, key=lambda device: last[device]) if last else None


def describe_oom(recording: Recording, run: Replay, names: Attribution, event: int) -> Oom:
    """All about the OOM at one event of the replayed device."""
    events = recording.events[run.device]
    rules = Rules.from_settings(recording.settings)
    asked, free = int(events.size[event]), int(events.device_free[event])
    total = int((device_meta(recording, run.device) or {}).get("total_bytes", -1))
    known = run.allocated is not None and int(run.allocated[event]) >= 0
    allocated = int(run.allocated[event]) if known and run.allocated is not None else None
    reserved = int(run.reserved[event]) if run.reserved is not None else None
    blocks = unused_blocks(recording, run, event)
    if blocks is not None and (reserved is None or allocated is None):
        blocks = None
    unused = None if blocks is None else sum(block.size for block in blocks)
    usable = _usable(blocks or (), asked, int(events.stream[event]))
    pending = None
    if reserved is not None and allocated is not None and unused is not None:
        pending = reserved - allocated - unused
    naming = name_request(recording, run, names, event)
    ended = ended_by_oom(recording) and event == oom_events(recording, run.device)[-1]
    return Oom(
        event=event,
        ended=ended,
        asked=asked,
        segment=rules.segment_size(asked),
        naming=naming,
        tensor=_tensor(naming, asked, rules),
        free=free if free >= 0 else None,
        total=total if total >= 0 else None,
        outside=None if min(free, total) < 0 or reserved is None else total - free - reserved,
        limit=_limit(recording) if ended else "",
        allocated=allocated,
        reserved=reserved,
        pending=pending,
        unused=unused,
        usable=None if blocks is None else sum(usable),
        largest=None if blocks is None else max(usable, default=0),
    )


def _usable(blocks: Sequence[Unused], asked: int, stream: int) -> list[int]:
    """The sizes of the blocks that are for such requests."""
    small = asked <= _SMALL
    return [b.size for b in blocks if (b.small, b.stream, b.private) == (small, stream, False)]


def _tensor(naming: Naming, asked: int, rules: Rules) -> str:
    """The tensors that the statement makes and that take as much; '' where none is known."""
    fitting = [t for t in naming.tensors if t.bytes and rules.round(t.bytes) == asked]
    return " | ".join(dict.fromkeys(f"{t.name} {t.text}".strip() for t in fitting))


def _limit(recording: Recording) -> str:
    """What torch's message says that the process is allowed (set_per_process_memory_fraction)."""
    ending = ((recording.meta or {}).get("facts") or {}).get("exit") or {}
    found = _ALLOWED.search(str(ending.get("message", "")))
    return found[1] if found else ""
