"""What surrounds the events: the ``memtrace`` key of a capture, allocator settings, annotations.

schema.py checks the types; here is what types cannot say.
"""

from __future__ import annotations

from typing import Any, TypedDict, cast

from memtrace.errors import MemtraceError
from memtrace.snapshot.columns import Segment
from memtrace.snapshot.format import FORMAT, STAT_FIELDS, Meta, TensorInfo
from memtrace.snapshot.schema import Schema
from memtrace.snapshot.segments import MOST_DEVICES, read_segments
from memtrace.snapshot.stacks import StackInterner
from memtrace.snapshot.validate import Fault, brief


class _Exit(TypedDict):
    kind: str
    code: int
    message: str


class _Facts(TypedDict, total=False):
    """The facts that are more than one value for people to read."""

    command: list[str]
    compilers: list[str]
    inputs: list[TensorInfo]
    exit: _Exit
    notes: list[str]


class _Settings(TypedDict, total=False):
    """The allocator settings that replay works with."""

    PYTORCH_CUDA_ALLOC_CONF: str
    max_split_size: int
    expandable_segments: bool
    roundup_power2_divisions: dict[str, int]


def check_settings(settings: Any) -> dict[str, Any]:
    """Torch's ``allocator_settings``, {} where there are none (older torch)."""
    if settings is None:
        return {}
    schema = Schema()
    schema.check(settings, dict[str, Any], "allocator_settings")
    schema.check(settings, _Settings, "allocator_settings")
    return cast(dict[str, Any], settings)


def check_annotations(annotations: Any) -> list[dict[str, Any]]:
    """Torch's ``external_annotations``, [] where there are none."""
    if annotations is None:
        return []
    Schema().check(annotations, list[dict[str, Any]], "external_annotations")
    return cast(list[dict[str, Any]], annotations)


def check_meta(meta: Any, devices: int, path: str) -> int:
    """Check the ``memtrace`` key of a capture with ``devices`` histories or segments' devices.

    Returns the number of devices with those that only the key knows of. Every mark gets that many
    event numbers: a recorder may leave out the last devices, which it could not read. Raises Fault,
    or MemtraceError for a format that this reader does not know.
    """
    if type(meta) is not dict:
        raise Fault.of("memtrace", meta, "a dict")
    schema = Schema()
    schema.check(meta.get("format", 0), int, "memtrace.format")
    if meta.get("format", 0) > FORMAT:
        raise MemtraceError(
            f"{path}: written in memtrace format {meta['format']}, this memtrace reads up to "
            f"{FORMAT}; upgrade: pip install -U torch-memtrace"
        )
    if meta.get("format", 0) < 1:
        raise Fault("memtrace.format is missing or below 1")
    schema.check(meta, Meta, "memtrace")
    schema.check(meta["facts"], _Facts, "memtrace.facts")
    devices = max(devices, _check_devices(meta["devices"]))
    _check_marks(meta["marks"], devices)
    _check_iterations(meta)
    _check_owners(meta)
    _check_compilations(meta)
    if meta["profile"] is not None:
        _check_profile(meta["profile"], len(meta["iterations"]))
    if "steps" in meta:
        _check_columns(meta["steps"], "memtrace.steps")
        _check_range([meta["steps"]["mark"]], 0, len(meta["marks"]["kind"]), "memtrace.steps.mark")
    if "part" in meta:
        _check_part(meta["part"])
    return devices


def start_segments(meta: dict[str, Any], stacks: StackInterner) -> tuple[Segment, ...] | None:
    """The segments at the start of the recording, of all devices.

    None where the capture does not say: no devices, or an empty list although something preceded
    the recording.
    """
    out: tuple[Segment, ...] = ()
    for k, device in enumerate(meta["devices"]):
        place = f"memtrace.devices[{k}].start_segments"
        segments = read_segments(device["start_segments"], place, stacks)
        if not segments and device["start_events"] != 0:
            return None
        for j, segment in enumerate(segments):
            if segment.device != device["index"]:
                raise Fault(f"{place}[{j}].device is {segment.device}, not {device['index']}")
        out += segments
    return out if meta["devices"] else None


def _check_devices(devices: list[dict[str, Any]]) -> int:
    seen: set[int] = set()
    for k, device in enumerate(devices):
        place = f"memtrace.devices[{k}]"
        _check_range([device["index"]], 0, MOST_DEVICES - 1, f"{place}.index")
        if device["index"] in seen:
            raise Fault(f"{place}.index is {device['index']}, as an earlier one's")
        seen.add(device["index"])
        _check_range([device["start_events"]], -1, None, f"{place}.start_events")
        for j, peak in enumerate(device["peaks"]):
            if peak["device"] != device["index"]:
                raise Fault(f"{place}.peaks[{j}].device is {peak['device']}, not {device['index']}")
            _check_range([peak["begin"], peak["end"]], -1, None, f"{place}.peaks[{j}].begin or end")
    return max(seen, default=-1) + 1


def _check_marks(marks: dict[str, Any], devices: int) -> None:
    _check_columns(marks, "memtrace.marks")
    for k, row in enumerate(marks["event"]):
        place = f"memtrace.marks.event[{k}]"
        if len(row) > devices:
            raise Fault(f"{place} has {len(row)} devices, the capture {devices}")
        _check_range(row, -1, None, place)
        if len(row) < devices:
            marks["event"][k] = row + [-1] * (devices - len(row))
    for k, row in enumerate(marks["stats"]):
        place = f"memtrace.marks.stats[{k}]"
        if len(row) > devices:
            raise Fault(f"{place} has {len(row)} devices, the capture {devices}")
        for d, figures in enumerate(row):
            if len(figures) not in (0, len(STAT_FIELDS)):
                raise Fault(f"{place}[{d}] has {len(figures)} figures, not {len(STAT_FIELDS)}")


def _check_iterations(meta: dict[str, Any]) -> None:
    last = len(meta["marks"]["kind"]) - 1
    before = 0
    for k, iteration in enumerate(meta["iterations"]):
        place = f"memtrace.iterations[{k}]"
        # One after another: what overlaps would be gone through again and again.
        _check_range([iteration["begin"]], before, last, f"{place}.begin")
        _check_range([iteration["end"]], iteration["begin"], last, f"{place}.end")
        _check_range([iteration.get("gpu_ns", -1)], -1, None, f"{place}.gpu_ns")
        before = iteration["end"]


def _check_owners(meta: dict[str, Any]) -> None:
    last = len(meta["marks"]["kind"]) - 1
    for k, owner in enumerate(meta["owners"]):
        place = f"memtrace.owners[{k}]"
        _check_range([owner["mark"]], 0, last, f"{place}.mark")
        _check_range([owner["address"], owner["bytes"]], 0, None, f"{place}.address or bytes")


def _check_compilations(meta: dict[str, Any]) -> None:
    last = len(meta["marks"]["kind"]) - 1
    for k, compilation in enumerate(meta.get("compilations", [])):
        place = f"memtrace.compilations[{k}]"
        _check_range([compilation["mark"]], 0, last, f"{place}.mark")
        _check_range([compilation["duration_ns"]], -1, None, f"{place}.duration_ns")


def _check_profile(profile: dict[str, Any], iterations: int) -> None:
    place = "memtrace.profile"
    _check_range([profile["iteration"]], 0, iterations - 1, f"{place}.iteration")
    for table in ("ops", "kernels", "memory"):
        _check_columns(profile[table], f"{place}.{table}")
    _check_range(profile["memory"]["op"], -1, len(profile["ops"]["name"]) - 1, f"{place}.memory.op")


def _check_part(part: dict[str, Any]) -> None:
    place = "memtrace.part"
    for table in ("symbols", "tensors", "namings"):
        _check_columns(part[table], f"{place}.{table}")
    symbols, tensors = len(part["symbols"]["name"]), len(part["tensors"]["name"])
    namings = len(part["namings"]["symbol"])
    _check_range(part["namings"]["symbol"], 0, symbols - 1, f"{place}.namings.symbol")
    for k, row in enumerate(part["namings"]["tensors"]):
        _check_range(row, 0, tensors - 1, f"{place}.namings.tensors[{k}]")
    for k, device in enumerate(part["devices"]):
        here = f"{place}.devices[{k}]"
        _check_columns(device, here, leave_out=("warnings", "births"))
        for column in ("name", "bare"):
            _check_range(device[column], 0, namings - 1, f"{here}.{column}")
    for column in ("kernels", "bare_kernels"):
        _check_range(part[column], 0, namings - 1, f"{place}.{column}")


def _check_columns(table: dict[str, Any], place: str, leave_out: tuple[str, ...] = ()) -> None:
    """Columns of one table have one length."""
    columns = (key for key, column in table.items() if type(column) is list)
    first, *others = (key for key in columns if key not in leave_out)
    for key in others:
        if len(table[key]) != len(table[first]):
            raise Fault(
                f"{place}.{key} has {len(table[key])} entries, {place}.{first} {len(table[first])}"
            )


def _check_range(values: list[int], low: int, high: int | None, place: str) -> None:
    if not values:
        return
    for value in (min(values), max(values)):
        if value < low or (high is not None and value > high):
            bounds = f"at least {low}" if high is None else f"in {low} … {high}"
            raise Fault(f"{place} is {brief(value)}, not {bounds}")
