"""A recording in torch's own form again: what ``reader.read`` makes columns of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from memtrace.snapshot.columns import Action, Block, Events, Recording, Segment, StackTable

_NAMES = [action.name.lower() for action in Action]


def to_snapshot(recording: Recording) -> dict[str, Any]:
    """The snapshot with the capture's ``memtrace`` key, for ``write_capture``.

    Segments at the start are those of the recording, not of its meta. Stacks are shared, as are
    their frames. What the reader has no column for (torch's newer keys) is not in it.
    """
    stacks = _Stacks(recording.stacks)
    snapshot: dict[str, Any] = {
        "segments": _segments(recording.segments, stacks),
        "device_traces": [_trace(events, stacks) for events in recording.events],
        "allocator_settings": recording.settings,
        "external_annotations": recording.annotations,
    }
    if recording.meta is not None:
        devices = [
            device
            | {
                "start_segments": _segments(
                    (s for s in recording.start_segments or () if s.device == device["index"]),
                    stacks,
                )
            }
            for device in recording.meta["devices"]
        ]
        snapshot["memtrace"] = recording.meta | {"devices": devices}
    return snapshot


class _Stacks:
    """Lists of frame dicts by the number of the stack, each made once."""

    def __init__(self, table: StackTable) -> None:
        self._table = table
        self._frames: dict[int, dict[str, Any]] = {}
        self._lists: dict[int, list[dict[str, Any]]] = {}

    def at(self, stack: int) -> list[dict[str, Any]]:
        if stack not in self._lists:
            self._lists[stack] = [self._frame(k) for k in self._table.stacks[stack]]
        return self._lists[stack]

    def _frame(self, number: int) -> dict[str, Any]:
        if number not in self._frames:
            filename, line, name = self._table.frames[number]
            self._frames[number] = {"name": name, "filename": filename, "line": line}
        return self._frames[number]


def _trace(events: Events, stacks: _Stacks) -> list[dict[str, Any]]:
    columns = (events.action, events.addr, events.size, events.stream, events.time_us)
    numbers = (*columns, events.stack, events.device_free)
    trace = []
    for action, addr, size, stream, time_us, stack, free in zip(
        *(column.tolist() for column in numbers), strict=True
    ):
        entry = {"action": _NAMES[action], "addr": addr, "size": size, "stream": stream}
        if time_us >= 0:
            entry["time_us"] = time_us
        if free >= 0:
            entry["device_free"] = free
        entry["frames"] = stacks.at(stack)
        trace.append(entry)
    return trace


def _segments(segments: Iterable[Segment], stacks: _Stacks) -> list[dict[str, Any]]:
    return [
        {
            "device": s.device,
            "address": s.address,
            "total_size": s.total_size,
            "allocated_size": sum(b.size for b in s.blocks if b.allocated),
            "active_size": sum(b.size for b in s.blocks if b.active),
            "requested_size": sum(b.requested for b in s.blocks if b.active),
            "stream": s.stream,
            "segment_type": s.kind,
            "segment_pool_id": s.pool,
            "is_expandable": s.expandable,
            "frames": [],
            "blocks": [_block(b, stacks) for b in s.blocks],
        }
        for s in segments
    ]


def _block(block: Block, stacks: _Stacks) -> dict[str, Any]:
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": block.requested,
        "state": block.state,
        "frames": stacks.at(block.stack) if block.stack else [],
    }
