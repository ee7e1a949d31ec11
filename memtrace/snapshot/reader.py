"""From a file to a Recording: the one entrance for captures and for snapshots of plain torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from memtrace.errors import MemtraceError
from memtrace.snapshot.columns import Events, Recording, Segment
from memtrace.snapshot.events import no_events, read_events
from memtrace.snapshot.files import read_bytes
from memtrace.snapshot.meta import check_annotations, check_meta, check_settings, start_segments
from memtrace.snapshot.segments import MOST_DEVICES, read_segments
from memtrace.snapshot.stacks import StackInterner
from memtrace.snapshot.traces import load_in_bulk
from memtrace.snapshot.unpickle import load_plain, paused_gc
from memtrace.snapshot.validate import Fault, brief
from memtrace.snapshot.walk import READS, Unsuited


def read(path: str | os.PathLike[str]) -> Recording:
    """Read a capture or a plain torch snapshot, compressed or not.

    Raises MemtraceError, one line naming the file, for whatever is wrong with it.
    """
    name = os.fspath(path)
    raw = read_bytes(path)
    with paused_gc():
        try:
            snapshot, traces = load_in_bulk(raw, name)
            return _recording(snapshot, name, traces.read)
        except (Unsuited, Fault, MemtraceError):
            pass  # what is wrong, if anything, is found out by looking at every object
        snapshot = load_plain(raw, name)
        try:
            return _recording(snapshot, name, read_events)
        except Fault as fault:
            raise MemtraceError(f"{name}: {fault}; {_ADVICE}") from None
        except MemoryError:
            raise MemtraceError(
                f"{name}: too large for this machine's memory; use one with more"
            ) from None


def take(snapshot: dict[str, Any], path: str) -> Recording:
    """A snapshot or capture that is in memory already. Raises MemtraceError as ``read``."""
    with paused_gc():
        try:
            return _recording(snapshot, path, read_events)
        except Fault as fault:
            raise MemtraceError(f"{path}: {fault}") from None


_ADVICE = "the file is damaged or was not written by torch or memtrace: record it again"


_ReadEvents = Callable[[list[Any], str, StackInterner], Events]


def _recording(snapshot: Any, path: str, read: _ReadEvents) -> Recording:
    snapshot = _as_snapshot(snapshot, path)
    stacks = StackInterner()
    events = _read_traces(snapshot.get("device_traces"), stacks, read)
    segments = read_segments(snapshot.get("segments"), "segments", stacks)
    devices = max([len(events), *(segment.device + 1 for segment in segments)])
    settings = check_settings(snapshot.get("allocator_settings"))
    annotations = check_annotations(snapshot.get("external_annotations"))
    meta = snapshot.get("memtrace")
    start: tuple[Segment, ...] | None = None
    if "memtrace" in snapshot:
        devices = check_meta(meta, devices, path)
        start = start_segments(meta, stacks)
    # A device may have segments and no history: older snapshots, a recording that failed.
    events += (no_events(),) * (devices - len(events))
    return Recording(
        path=path,
        events=events,
        segments=segments,
        start_segments=start,
        stacks=stacks.table(),
        settings=settings,
        annotations=annotations,
        meta=meta,
    )


def _as_snapshot(snapshot: Any, path: str) -> dict[str, Any]:
    """The snapshot as a dict: the oldest form is the bare list of segments."""
    if type(snapshot) is dict:
        if "segments" in snapshot or "device_traces" in snapshot:
            return snapshot
        if "traceEvents" in snapshot:
            raise MemtraceError(f"{path}: looks like a profiler trace; {READS}")
        keys = ", ".join(brief(key) for key in list(snapshot)[:3]) or "nothing"
        raise MemtraceError(
            f"{path}: a pickled dict of {keys}{', …' if len(snapshot) > 3 else ''}, without "
            f"'segments' and 'device_traces'; {READS}"
        )
    if type(snapshot) is list and all(
        type(item) is dict and "total_size" in item for item in snapshot
    ):
        return {"segments": snapshot}
    what = (
        f"a pickled list of {brief(snapshot[0])}, …" if type(snapshot) is list else brief(snapshot)
    )
    raise MemtraceError(f"{path}: holds {what}, not a snapshot; {READS}")


def _read_traces(traces: Any, stacks: StackInterner, read: _ReadEvents) -> tuple[Events, ...]:
    if traces is None:
        return ()
    if type(traces) is not list:
        raise Fault.of("device_traces", traces, "a list")
    if len(traces) > MOST_DEVICES:
        raise Fault(f"device_traces has {len(traces)} devices, more than torch can have")
    seen: set[int] = set()
    for d, trace in enumerate(traces):
        if type(trace) is not list:
            raise Fault.of(f"device_traces[{d}]", trace, "a list")
        # One list for all devices would make a small file large.
        if trace and id(trace) in seen:
            raise Fault(f"device_traces[{d}] is the same list as an earlier one")
        seen.add(id(trace))
    return tuple(read(trace, f"device_traces[{d}]", stacks) for d, trace in enumerate(traces))
