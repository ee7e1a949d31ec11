"""The profiled iteration as a plain profiler trace, as ``torch.profiler`` writes one.

HolisticTraceAnalysis, Perfetto and TensorBoard read it as one of torch's own. ``ts`` and ``dur``
are microseconds with three decimals, from ``baseTimeNanoseconds`` (epoch) on, so that no nanosecond
is lost. Operators are on their threads, kernels on their streams, with an arrow from each launch
to what it launched. The recorder's own ranges (layers, lines of generated code) are annotations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from memtrace.errors import MemtraceError
from memtrace.snapshot import Recording
from memtrace.symbols.launches import find_launches

_FORMAT = 1  # torch's schemaVersion


def write_profile(recording: Recording, stream: BinaryIO) -> None:
    """Writes the trace. MemtraceError where the recording has no profiled iteration."""
    profile = (recording.meta or {}).get("profile")
    if profile is None:
        raise MemtraceError(
            f"{recording.path}: no iteration was profiled in it, so there is no profile to export; "
            "record it again with memtrace record"
        )
    base = _base(profile)
    head = {
        "schemaVersion": _FORMAT,
        "deviceProperties": _devices(recording),
        "distributedInfo": {"rank": 0, "world_size": 1},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base,
        "traceName": Path(recording.path).name,
    }
    stream.write(_text(head)[:-1].encode())
    stream.write(b',"traceEvents":[')
    separator = b"\n"
    for event in _events(profile, base):
        stream.write(separator + event.encode())
        separator = b",\n"
    stream.write(b"\n]}\n")


def _base(profile: Mapping[str, Any]) -> int:
    """The first moment of the profile, in epoch nanoseconds."""
    return min(min(profile[table]["start_ns"], default=1 << 62) for table in ("ops", "kernels"))


def _devices(recording: Recording) -> list[dict[str, Any]]:
    return [
        {"id": device["index"], "name": device["name"], "totalGlobalMem": device["total_bytes"]}
        for device in (recording.meta or {}).get("devices") or []
    ]


def _events(profile: Mapping[str, Any], base: int) -> Iterator[str]:
    """The events, each as JSON."""
    ops, kernels = profile["ops"], profile["kernels"]
    launches = find_launches(ops, kernels).tolist()
    # A device's number is its process, as in torch's own; that of the operators is none of these.
    process = max(kernels["device"], default=0) + 1
    yield from _names(ops, kernels, process)
    for row in range(len(ops["name"])):
        yield _event(
            ops["kind"][row] if ops["kind"][row] != "python" else "python_function",
            ops["name"][row],
            (process, ops["thread"][row]),
            ops["start_ns"][row] - base,
            ops["duration_ns"][row],
            _operator_facts(ops, row),
        )
    for row, launch in enumerate(launches):
        place = (kernels["device"][row], kernels["stream"][row])
        start = kernels["start_ns"][row] - base
        facts = _kernel_facts(kernels, row)
        name, kind = kernels["name"][row], kernels["kind"][row]
        yield _event(kind, name, place, start, kernels["duration_ns"][row], facts)
        if launch >= 0:
            caller = (process, ops["thread"][launch])
            number = kernels["correlation"][row]
            yield _arrow("s", number, caller, ops["start_ns"][launch] - base)
            yield _arrow("f", number, place, start)


def _names(ops: Mapping[str, Any], kernels: Mapping[str, Any], process: int) -> Iterator[str]:
    """What processes and threads are called."""
    yield _called("process_name", process, 0, "python")
    for thread in sorted(set(ops["thread"])):
        yield _called("thread_name", process, thread, f"thread {thread}")
    for device in sorted(set(kernels["device"])):
        yield _called("process_name", device, 0, f"GPU {device}")
    for device, stream in sorted(set(zip(kernels["device"], kernels["stream"], strict=True))):
        yield _called("thread_name", device, stream, f"stream {stream}")


def _called(what: str, process: int, thread: int, name: str) -> str:
    return _text({"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}})


def _operator_facts(ops: Mapping[str, Any], row: int) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if ops["correlation"][row] >= 0:
        facts["correlation"] = ops["correlation"][row]
    if ops["sequence"][row] >= 0:
        facts["Sequence number"] = ops["sequence"][row]
    if ops["forward_thread"][row] >= 0:
        facts["Fwd thread id"] = ops["forward_thread"][row]
    if ops["shapes"][row]:
        facts["Input Dims"] = _shapes(ops["shapes"][row])
    return facts


def _shapes(text: str) -> Any:
    """The shapes as a list; as text where the recorder cut them short."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _kernel_facts(kernels: Mapping[str, Any], row: int) -> dict[str, Any]:
    facts = {"device": kernels["device"][row], "stream": kernels["stream"][row]}
    if kernels["correlation"][row] >= 0:
        facts["correlation"] = kernels["correlation"][row]
    if kernels["bytes"][row] >= 0:
        facts["bytes"] = kernels["bytes"][row]
    return facts


def _event(
    kind: str,
    name: str,
    place: tuple[int, int],
    start: int,
    duration: int,
    facts: Mapping[str, Any],
) -> str:
    return (
        f'{{"ph":"X","cat":{_text(kind)},"name":{_text(name)},"pid":{place[0]},"tid":{place[1]},'
        f'"ts":{_time(start)},"dur":{_time(duration)},"args":{_text(facts)}}}'
    )


def _arrow(phase: str, number: int, place: tuple[int, int], at: int) -> str:
    end = ',"bp":"e"' if phase == "f" else ""
    return (
        f'{{"ph":"{phase}","id":{number},"pid":{place[0]},"tid":{place[1]},"ts":{_time(at)},'
        f'"cat":"ac2g","name":"ac2g"{end}}}'
    )


def _time(ns: int) -> str:
    """Microseconds with three decimals. A clock that went backwards begins at nothing."""
    ns = max(ns, 0)
    return f"{ns // 1000}.{ns % 1000:03d}"


def _text(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
