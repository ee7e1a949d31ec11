"""What is said where memory ran out, the same on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memtrace.analysis import Oom, PeakReport
from memtrace.render.units import format_bytes, format_exact

_MOST = 8  # earlier ones that are named


def oom_lines(report: PeakReport) -> list[str]:
    """The answer in a few lines, the first says what was asked for; [] where memory never ran out.

    One line where the script went on and another moment is looked at.
    """
    oom = report.oom
    if oom is None:
        return []
    if not oom.ended and report.event != oom.event:
        return [
            f"memory ran out {_times(1 + len(report.earlier_ooms))}, and the script went on: "
            f"{format_bytes(oom.asked)} were asked for at event {oom.event}; see --at oom"
        ]
    lines = [f"out of memory at event {oom.event}: {_asked(oom)}"]
    lines += [text for text in (_device(oom), _allocator(oom), _cause(oom)) if text]
    if report.earlier_ooms:
        lines.append(_earlier(report.earlier_ooms))
    return lines


def oom_object(oom: Oom, earlier: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """``oom`` of the peak object: bytes, null where not known."""
    return {
        "event": oom.event,
        "ended_the_run": oom.ended,
        "asked_bytes": oom.asked,
        "segment_bytes": oom.segment,
        "symbol": oom.naming.symbol.text,
        "where": oom.naming.where,
        "layer": oom.naming.layer,
        "tensor": oom.tensor,
        "device_free_bytes": oom.free,
        "device_total_bytes": oom.total,
        "outside_bytes": oom.outside,
        "limit": oom.limit,
        "allocated_bytes": oom.allocated,
        "reserved_bytes": oom.reserved,
        "pending_bytes": oom.pending,
        "unused_bytes": oom.unused,
        "usable_bytes": oom.usable,
        "largest_usable_bytes": oom.largest,
        "fragmented": oom.fragmented,
        "earlier": [{"event": event, "asked_bytes": asked} for event, asked in earlier],
    }


def _asked(oom: Oom) -> str:
    text = f"{format_exact(oom.asked)} were asked for by {oom.naming.symbol.text}"
    if oom.tensor:
        text += f", for {oom.tensor}"
    if oom.naming.layer:
        text += f", in {oom.naming.layer}"
    if oom.segment != oom.asked:
        text += f"; with no such block free, {format_bytes(oom.segment)} of the device"
    return text


def _device(oom: Oom) -> str:
    if oom.free is None:
        return ""
    text = f"the device had {format_bytes(oom.free)} free"
    if oom.total is not None:
        text += f" of {format_bytes(oom.total)}"
    if oom.outside is not None:
        text += f"; {format_bytes(oom.outside)} held by CUDA itself and by other processes"
    return text


def _allocator(oom: Oom) -> str:
    if oom.reserved is None or oom.allocated is None:
        return "" if oom.allocated is None else f"allocated {format_bytes(oom.allocated)}"
    text = (
        f"the allocator had {format_bytes(oom.reserved)} reserved, {format_bytes(oom.allocated)} "
        "of it allocated"
    )
    if oom.pending:
        text += f", {format_bytes(oom.pending)} freed but awaited by other streams"
    if oom.unused is not None and oom.usable is not None and oom.largest is not None:
        text += f", {format_bytes(oom.unused)} unused"
        if oom.usable != oom.unused:
            text += f" ({format_bytes(oom.usable)} of that open to such a request)"
        if oom.usable:
            text += f"; the largest block it could have used: {format_bytes(oom.largest)}"
    return text


def _cause(oom: Oom) -> str:
    """What stood in the way, where the figures say it."""
    if oom.fragmented and oom.usable is not None and oom.largest is not None:
        return (
            f"lost to fragmentation: {format_bytes(oom.usable)} would have been enough, but lies "
            "in pieces"
        )
    if oom.free is None or oom.free < oom.segment:
        return ""
    if oom.limit:
        return (
            f"the device had enough; this process is allowed {oom.limit}, says torch "
            "(set_per_process_memory_fraction)"
        )
    return "the device had enough: a limit that the process set itself stood in the way, perhaps"


def _earlier(earlier: Sequence[tuple[int, int]]) -> str:
    told = [f"event {event} ({format_bytes(asked)})" for event, asked in earlier[-_MOST:]]
    if len(earlier) > _MOST:
        told.insert(0, "…")
    return f"it had run out {_times(len(earlier))} before, and the script went on: " + ", ".join(
        told
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
