"""Recordings built by hand, for tests with a known answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from memtrace.snapshot.columns import (
    Action,
    Block,
    Events,
    Frame,
    Recording,
    Segment,
    StackTable,
)
from memtrace.snapshot.format import LINE_PREFIX

KIB = 1 << 10
MIB = 1 << 20

ACTIONS = {
    "alloc": Action.ALLOC,
    "free_requested": Action.FREE_REQUESTED,
    "free_completed": Action.FREE_COMPLETED,
    "segment_alloc": Action.SEGMENT_ALLOC,
    "segment_free": Action.SEGMENT_FREE,
    "segment_map": Action.SEGMENT_MAP,
    "segment_unmap": Action.SEGMENT_UNMAP,
    "snapshot": Action.SNAPSHOT,
    "oom": Action.OOM,
}


def events(*rows: tuple[Any, ...]) -> Events:
    """Events from (action, address, size[, stream[, stack[, time_us]]]).

    The action is torch's word; "free" stands for a free_requested and a free_completed in turn.
    """
    flat: list[tuple[Any, ...]] = []
    for row in rows:
        if row[0] == "free":
            flat += [("free_requested", *row[1:]), ("free_completed", *row[1:])]
        else:
            flat.append(row)
    defaults = (0, 0, -1)
    full = [(*row, *defaults[len(row) - 3 :]) for row in flat]

    def column(k: int, kind: Any) -> Any:
        return np.array([row[k] for row in full], dtype=kind)

    return Events(
        action=np.array([ACTIONS[row[0]] for row in full], dtype=np.uint8),
        addr=column(1, np.uint64),
        size=column(2, np.int64),
        stream=column(3, np.uint64),
        time_us=column(5, np.int64),
        stack=column(4, np.int32),
        device_free=np.full(len(full), -1, dtype=np.int64),
    )


def segment(
    address: int,
    blocks: Iterable[tuple[Any, ...]],
    *,
    kind: str = "large",
    expandable: bool = False,
    stream: int = 0,
    pool: tuple[int, int] = (0, 0),
    device: int = 0,
) -> Segment:
    """A segment from (state, size[, requested[, stack]]); states "used", "free" and "pending"."""
    states = {"used": "active_allocated", "free": "inactive", "pending": "active_pending_free"}
    laid: list[Block] = []
    at = address
    for row in blocks:
        usual: tuple[Any, ...] = (row[1], 0)
        state, size, requested, stack = (*row, *usual[len(row) - 2 :])
        laid.append(Block(at, size, 0 if state == "free" else requested, states[state], stack))
        at += size
    return Segment(device, address, at - address, stream, kind, pool, expandable, tuple(laid))


def stack_table(*stacks: Sequence[tuple[str, int, str]]) -> StackTable:
    """A StackTable whose stacks 1, 2, … are the given (file, line, function) rows."""
    frames: list[Frame] = []
    numbers: dict[Frame, int] = {}
    rows: list[tuple[int, ...]] = [()]
    for stack in stacks:
        row = []
        for frame in (Frame(*f) for f in stack):
            if frame not in numbers:
                numbers[frame] = len(frames)
                frames.append(frame)
            row.append(numbers[frame])
        rows.append(tuple(row))
    return StackTable(frames, rows)


def recording(
    *devices: Events,
    segments: Iterable[Segment] = (),
    start: Iterable[Segment] | None = None,
    stacks: StackTable | None = None,
    settings: dict[str, Any] | None = None,
    annotations: list[dict[str, Any]] | None = None,
    meta: dict[str, Any] | None = None,
    path: str = "hand.pkl",
) -> Recording:
    """A Recording with torch's default allocator settings unless told otherwise."""
    defaults: dict[str, Any] = {
        "PYTORCH_CUDA_ALLOC_CONF": "",
        "max_split_size": -1,
        "expandable_segments": False,
        "garbage_collection_threshold": 0.0,
        "roundup_power2_divisions": {str(1 << k): 0 for k in range(16)},
    }
    return Recording(
        path=path,
        events=devices,
        segments=tuple(segments),
        start_segments=None if start is None else tuple(start),
        stacks=stacks or StackTable([], [()]),
        settings=defaults | (settings or {}),
        annotations=annotations or [],
        meta=meta,
    )


def capture_meta(
    *,
    marks: Iterable[tuple[Any, ...]] = (),
    iterations: Iterable[dict[str, Any]] = (),
    peaks: Iterable[dict[str, Any]] = (),
    dropped: int = 0,
    device: str = "cuda",
    **more: Any,
) -> dict[str, Any]:
    """A capture's ``memtrace`` key for one device.

    Marks are (kind, edge, event[, name[, stats]]); iterations dicts of the fields that differ from
    a whole, steady, unprofiled one; peaks dicts of Peak's fields (``why`` defaults to "run").
    """
    full = [(*row, *("", [])[len(row) - 3 :]) for row in marks]
    steps = [
        {
            "index": k,
            "compiled": False,
            "profiled": False,
            "whole": True,
            "wall_ns": 1,
            **step,
        }
        for k, step in enumerate(iterations)
    ]
    return {
        "format": 1,
        "label": "hand",
        "facts": {"device": device},
        "devices": [
            {
                "index": 0,
                "name": "hand",
                "total_bytes": 0,
                "outside_bytes": -1,
                "start_events": 0,
                "dropped_events": dropped,
                "start_segments": [],
                "peaks": [{"device": 0, "why": "run", **peak} for peak in peaks],
            }
        ],
        "marks": {
            "kind": [r[0] for r in full],
            "edge": [r[1] for r in full],
            "event": [[r[2]] for r in full],
            "name": [r[3] for r in full],
            "time_ns": [0 for _ in full],
            "stats": [[r[4]] for r in full],
        },
        "iterations": steps,
        "profile": None,
        "owners": [],
        "sources": {},
        "thunder": [],
        "fx": {},
        **more,
    }


def op(
    name: str,
    start: int,
    end: int,
    *,
    kind: str = "cpu_op",
    thread: int = 1,
    sequence: int = -1,
    forward_thread: int = -1,
) -> dict[str, Any]:
    """An operator or range, in nanoseconds."""
    return {
        "name": name, "kind": kind, "thread": thread, "start_ns": start,
        "duration_ns": end - start, "sequence": sequence, "forward_thread": forward_thread,
        "correlation": -1, "shapes": "",
    }  # fmt: skip


def ran(line: str, start: int, end: int, *, thread: int = 1) -> dict[str, Any]:
    """The range of a line of generated code."""
    return op(LINE_PREFIX + line, start, end, kind="user_annotation", thread=thread)


def launch(
    number: int, at: int, *, thread: int = 1, call: str = "cuLaunchKernel", length: int = 1
) -> dict[str, Any]:
    """A call of the CUDA driver."""
    row = op(call, at, at + length, kind="cuda_driver", thread=thread)
    return row | {"correlation": number}


def kernel(
    name: str, start: int, end: int, number: int, *, stream: int = 7, kind: str = "kernel"
) -> dict[str, Any]:
    """A kernel that the launch ``number`` put there."""
    return {
        "name": name, "kind": kind, "device": 0, "stream": stream, "start_ns": start,
        "duration_ns": end - start, "correlation": number, "bytes": -1,
    }  # fmt: skip


def profile(
    ops: Iterable[dict[str, Any]],
    kernels: Iterable[dict[str, Any]],
    iteration: int = 0,
    memory: dict[str, list[int]] | None = None,
) -> dict[str, Any]:
    """A capture's profile; rows may be in any order."""
    rows = sorted(ops, key=lambda row: (row["start_ns"], -row["duration_ns"]))
    device = sorted(kernels, key=lambda row: row["start_ns"])
    nothing: list[int] = []
    names = ("addr", "bytes", "device", "thread", "time_ns", "op")
    return {
        "iteration": iteration,
        "ops": {key: [row[key] for row in rows] for key in op("", 0, 0)},
        "kernels": {key: [row[key] for row in device] for key in kernel("", 0, 0, 0)},
        "memory": memory or dict.fromkeys(names, nothing),
    }
