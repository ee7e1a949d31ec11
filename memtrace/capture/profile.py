"""One steady iteration under torch's profiler, as columns."""

from __future__ import annotations

import json
import os
import tempfile
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memtrace.snapshot.format import Profile


_OPS = {"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"}
_KERNELS = {"kernel", "gpu_memcpy", "gpu_memset"}
_SHAPES = 300  # characters of an operator's shapes that are kept


def read_profile(
    result: Any, iteration: int, begin_ns: int, end_ns: int, marker: str
) -> Profile | None:
    """torch's _ProfilerResult as columns; None if it holds no operator in [begin_ns, end_ns].

    Through the profiler's own JSON: it is the one form that names everything (sequence numbers,
    forward threads, correlation, bytes of copies) in every version. Operators and memory events
    outside the iteration are dropped; kernels stay if their launch does.
    """
    # A folder: where the profiler cannot write all of it, it leaves a file of another name.
    with tempfile.TemporaryDirectory(prefix="memtrace-") as folder:
        path = os.path.join(folder, "profile.json")
        result.save(path)
        if not os.path.exists(path):
            raise OSError(f"torch could not write its trace into {folder}: is the disk full?")
        with open(path, encoding="utf-8", errors="replace") as stream:
            # Decimals: an epoch in microseconds with three decimals does not fit a float.
            trace = json.load(stream, parse_float=Decimal, strict=False)
    return columns_of(trace, iteration, begin_ns, end_ns, marker)


def columns_of(
    trace: dict[str, Any], iteration: int, begin_ns: int, end_ns: int, marker: str = "\0"
) -> Profile | None:
    """The columns of a parsed Chrome trace. ``marker``: prefix of our own ranges, left out."""
    from memtrace.snapshot.format import (
        LINE_PREFIX,
        Profile,
        ProfileKernels,
        ProfileMemory,
        ProfileOps,
    )

    base = int(trace.get("baseTimeNanoseconds", 0))
    ops: list[tuple[Any, ...]] = []
    kernels: list[tuple[Any, ...]] = []
    memory: list[tuple[Any, ...]] = []
    for event in trace.get("traceEvents", ()):
        kind = event.get("cat")
        args = event.get("args") or {}
        if kind == "cpu_instant_event" and event.get("name") == "[memory]":
            at = base + _ns(event["ts"])
            if begin_ns <= at <= end_ns:
                memory.append(_memory_row(event, args, at))
        elif event.get("ph") != "X":
            continue
        elif kind in _OPS:
            start = base + _ns(event["ts"])
            if begin_ns <= start <= end_ns and not event["name"].startswith(marker):
                # A line's range looks to torch like an operator, as that is cheapest to make.
                kind = "user_annotation" if event["name"].startswith(LINE_PREFIX) else kind
                ops.append(_op_row(event, args, kind, start))
        elif kind in _KERNELS:
            kernels.append(_kernel_row(event, args, base + _ns(event["ts"])))
    if not ops:
        return None
    # Outer operators first where two start together.
    ops.sort(key=lambda row: (row[3], -row[4]))
    launched = {row[7] for row in ops if row[7] >= 0}
    kernels = sorted(
        (k for k in kernels if k[6] in launched or begin_ns <= k[4] <= end_ns),
        key=lambda row: row[4],
    )
    memory.sort(key=lambda row: row[4])
    inner = _innermost(ops, memory)
    happened = [(*row, op) for row, op in zip(memory, inner, strict=True)]
    return Profile(
        iteration=iteration,
        ops=_transposed(ProfileOps, ops),
        kernels=_transposed(ProfileKernels, kernels),
        memory=_transposed(ProfileMemory, happened),
    )


def _transposed(kind: Any, rows: list[tuple[Any, ...]]) -> Any:
    # The rows are made in the order of the contract's columns.
    names = list(kind.__annotations__)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return dict(zip(names, map(list, columns), strict=True))


def _ns(microseconds: Any) -> int:
    return int(Decimal(microseconds) * 1000)


def _integer(value: Any, default: int = -1) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return default


def _op_row(event: dict[str, Any], args: dict[str, Any], kind: str, start: int) -> tuple[Any, ...]:
    shapes = args.get("Input Dims")
    text = "" if shapes in (None, []) else json.dumps(shapes, separators=(",", ":"), default=str)
    return (
        str(event["name"]),
        kind,
        _integer(event.get("tid")),
        start,
        _ns(event.get("dur", 0)),
        _integer(args.get("Sequence number")),
        _integer(args.get("Fwd thread id")),
        # A launch's is "correlation"; an operator's "External id" is another number.
        _integer(args.get("correlation")),
        text[:_SHAPES],
    )


def _kernel_row(event: dict[str, Any], args: dict[str, Any], start: int) -> tuple[Any, ...]:
    return (
        str(event["name"]),
        str(event["cat"]),
        _integer(args.get("device"), _integer(event.get("pid"))),
        _integer(args.get("stream"), _integer(event.get("tid"))),
        start,
        _ns(event.get("dur", 0)),
        _integer(args.get("correlation")),
        _integer(args.get("bytes")),
    )


def _memory_row(event: dict[str, Any], args: dict[str, Any], at: int) -> tuple[Any, ...]:
    # Device Type is c10's number: 0 is the CPU, 1 CUDA.
    device = -1 if _integer(args.get("Device Type"), 0) == 0 else _integer(args.get("Device Id"), 0)
    return (
        _integer(args.get("Addr"), 0),
        _integer(args.get("Bytes"), 0),
        device,
        _integer(event.get("tid")),
        at,
    )


def _innermost(ops: list[tuple[Any, ...]], memory: list[tuple[Any, ...]]) -> list[int]:
    """For each memory event the row of the innermost cpu_op around it on its thread, -1 none."""
    found = [-1] * len(memory)
    stacks: dict[int, list[int]] = {}
    at = 0
    for k, row in enumerate(memory):
        thread, time_ns = row[3], row[4]
        while at < len(ops) and ops[at][3] <= time_ns:
            if ops[at][1] == "cpu_op":
                stacks.setdefault(ops[at][2], []).append(at)
            at += 1
        stack = stacks.get(thread, [])
        # Operators of one thread nest: what has ended on top of the stack will not be asked again.
        while stack and ops[stack[-1]][3] + ops[stack[-1]][4] < time_ns:
            stack.pop()
        if stack:
            found[k] = stack[-1]
    return found
