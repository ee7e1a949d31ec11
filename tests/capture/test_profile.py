"""Kineto's JSON as columns."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from memtrace.capture.profile import columns_of

BASE = 1_700_000_000_000_000_000


def parsed(events: list[dict[str, Any]]) -> dict[str, Any]:
    text = json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": events})
    found: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return found


def op(name: str, ts: float, dur: float, kind: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "tid": 7,
        "pid": 1,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def memory(ts: float, size: int, device: int = 1) -> dict[str, Any]:
    args = {"Addr": 64, "Bytes": size, "Device Type": device, "Device Id": 0}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "tid": 7,
        "ts": ts,
        "args": args,
    }


def test_columns() -> None:
    events = [
        op(
            "inner", 12.001, 2, **{"Sequence number": 5, "Fwd thread id": 1, "Input Dims": [[2, 3]]}
        ),
        op("outer", 10, 10),
        op("memtrace#3", 11, 1, kind="user_annotation"),
        op("cudaLaunchKernel", 13, 1, kind="cuda_runtime", correlation=9),
        op("late", 99, 1),
        memory(13.5, 512),
        memory(15, -512),
        memory(16, 8, device=0),
        {**op("k", 14, 4, kind="kernel", correlation=9, stream=7, device=0), "pid": 0},
        {**op("other", 99, 4, kind="kernel", correlation=10, stream=7, device=0), "pid": 0},
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 1},
    ]
    profile = columns_of(parsed(events), 3, BASE, BASE + 50_000, "memtrace#")
    assert profile is not None
    assert profile["iteration"] == 3
    assert profile["ops"]["name"] == ["outer", "inner", "cudaLaunchKernel"]
    assert profile["ops"]["start_ns"] == [BASE + 10_000, BASE + 12_001, BASE + 13_000]
    assert profile["ops"]["sequence"] == [-1, 5, -1]
    assert profile["ops"]["forward_thread"] == [-1, 1, -1]
    assert profile["ops"]["correlation"] == [-1, -1, 9]
    assert profile["ops"]["shapes"] == ["", "[[2,3]]", ""]
    assert profile["kernels"]["name"] == ["k"]
    assert profile["kernels"]["duration_ns"] == [4000]
    assert profile["memory"]["bytes"] == [512, -512, 8]
    assert profile["memory"]["device"] == [0, 0, -1]
    # Inside `inner`, after it, and in the outer one only.
    assert profile["memory"]["op"] == [1, 0, 0]


def test_nothing_in_the_iteration_is_no_profile() -> None:
    assert columns_of(parsed([op("late", 99, 1)]), 0, BASE, BASE + 10, "x") is None
