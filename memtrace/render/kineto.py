"""The profiled iteration as a plain profiler trace, as ``torch.profiler`` writes one.

HolisticTraceAnalysis and Perfetto read it as one of torch's own. ``ts`` and ``dur``
are microseconds with three decimals, from ``baseTimeNanoseconds`` (epoch) on, so that no nanosecond
is lost. Operators are on their threads, kernels on their streams, with an arrow from each launch
to what it launched. The recorder's own ranges (layers, lines of generated code) are annotations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from memtrace.errors import MemtraceError
from memtrace.snapshot import Recording
from memtrace.symbols.launches import find_launches

_FORMAT = 1  # torch's schemaVersion
_Place = tuple[int, int]  # process and thread


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
    # A device's number is its process, as in torch's own; that of the operators is none of these.
    process = max(kernels["device"], default=0) + 1
    threads = [(process, thread) for thread in ops["thread"]]
    streams = list(zip(kernels["device"], kernels["stream"], strict=True))
    hosts, devices = _lanes(ops, threads, "thread"), _lanes(kernels, streams, "stream")
    yield _called("process_name", process, 0, "python")
    for device in sorted(set(kernels["device"])):
        yield _called("process_name", device, 0, f"GPU {device}")
    for place, name in {**hosts.names, **devices.names}.items():
        yield _called("thread_name", *place, name)
    for row in range(len(ops["name"])):
        yield _event(
            ops["kind"][row] if ops["kind"][row] != "python" else "python_function",
            ops["name"][row],
            hosts.places[row],
            ops["start_ns"][row] - base,
            ops["duration_ns"][row],
            _operator_facts(ops, row),
        )
    for row, launch in enumerate(find_launches(ops, kernels).tolist()):
        start = kernels["start_ns"][row] - base
        facts = _kernel_facts(kernels, row)
        name, kind = kernels["name"][row], kernels["kind"][row]
        yield _event(kind, name, devices.places[row], start, kernels["duration_ns"][row], facts)
        if launch >= 0:
            # A number of its own for each: all that a replayed graph runs has one correlation.
            yield _arrow("s", row, hosts.places[launch], ops["start_ns"][launch] - base)
            yield _arrow("f", row, devices.places[row], start)


class _Lanes(NamedTuple):
    """Where each row goes, as process and thread, and what these threads are called."""

    places: list[_Place]
    names: dict[_Place, str]


def _lanes(table: Mapping[str, Any], threads: Sequence[_Place], word: str) -> _Lanes:
    """Threads as they are, and one more for what does not nest in them.

    Kernels of a stream may overlap a little (one is prepared while another ends), and a call of the
    driver may seem to outlast its operator: Perfetto drops such slices. Kernels still say their
    stream; readers that go by that see no difference.
    """
    free = max((thread for _, thread in threads), default=0) + 1
    places: list[_Place] = []
    names: dict[_Place, str] = {}
    tops: dict[_Place, list[list[int]]] = {}  # for each lane of a thread the ends of open slices
    numbers: dict[tuple[_Place, int], _Place] = {}
    for row, thread in enumerate(threads):
        start, end = table["start_ns"][row], table["start_ns"][row] + table["duration_ns"][row]
        lanes = tops.setdefault(thread, [])
        for lane in range(len(lanes) + 1):
            if lane == len(lanes):
                lanes.append([])
            stack = lanes[lane]
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or end <= stack[-1]:
                stack.append(end)
                break
        place = thread if lane == 0 else numbers.get((thread, lane))
        if place is None:
            place = numbers[thread, lane] = (thread[0], free)
            free += 1
        places.append(place)
        names[place] = f"{word} {thread[1]}" + (f" ({lane + 1})" if lane else "")
    return _Lanes(places, names)


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
    place: _Place,
    start: int,
    duration: int,
    facts: Mapping[str, Any],
) -> str:
    return (
        f'{{"ph":"X","cat":{_text(kind)},"name":{_text(name)},"pid":{place[0]},"tid":{place[1]},'
        f'"ts":{_time(start)},"dur":{_time(duration)},"args":{_text(facts)}}}'
    )


def _arrow(phase: str, number: int, place: _Place, at: int) -> str:
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
