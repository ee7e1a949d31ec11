"""From a finished run to the capture's dictionary."""

from __future__ import annotations

import bisect
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memtrace.capture import facts as about
from memtrace.capture.bandwidth import copy_bandwidth
from memtrace.capture.frames import strip
from memtrace.capture.history import CudaHistory, Snapshot
from memtrace.capture.iterations import iterations_of
from memtrace.capture.late import begin_late
from memtrace.capture.patches import Notes
from memtrace.capture.positions import Positions, device_rows, stacks_of
from memtrace.capture.profile import read_profile
from memtrace.capture.ranks import find_rank, rank_facts
from memtrace.capture.thunder_traces import source_of
from memtrace.capture.tree import MARK_PREFIX

if TYPE_CHECKING:
    from memtrace.capture.cpu import CpuRecorder
    from memtrace.capture.session import Session
    from memtrace.snapshot.format import Device, Iteration, Profile, Steps


@dataclass(slots=True)
class Ending:
    """How the script ended: facts["exit"]."""

    kind: str = "ok"  # "ok", "exception", "exit", "interrupt", "oom"
    code: int = 0
    message: str = ""
    device_full: bool = False  # of kind "oom": it was the device's memory, not the host's

    @property
    def failed(self) -> bool:
        return self.kind in ("exception", "interrupt", "oom")


@dataclass(slots=True)
class Collected:
    """What a backend recorded, in the contract's terms."""

    snapshot: dict[str, Any] = field(
        default_factory=lambda: {
            "segments": [],
            "device_traces": [],
            "allocator_settings": {},
            "external_annotations": [],
        }
    )
    devices: list[Device] = field(default_factory=list)
    events: dict[int, list[int]] = field(default_factory=dict)
    stats: dict[int, list[list[int]]] = field(default_factory=dict)
    peak: int | None = None
    profile: Any = None  # torch's results of the CPU recorder's last session
    copied_per_second: int | None = None  # bytes read and written by a copy on the GPU


def collect(session: Session, ending: Ending) -> Collected:
    """Stop the backend and take what it has. Must run before the script's objects are freed."""
    if session.history is not None:
        return _collect_cuda(session, session.history, ending)
    if session.cpu is not None:
        return _collect_cpu(session, session.cpu)
    session.notes.add("the script never imported torch: nothing was recorded")
    return Collected()


def _collect_cuda(session: Session, history: CudaHistory, ending: Ending) -> Collected:
    if not history.started:
        if not sys.modules["torch"].cuda.is_initialized():
            session.notes.add(
                "CUDA was never used: nothing was recorded; to record on the CPU give --device cpu"
            )
        history.active = False
        return Collected()
    history.last_stretches()
    now = history.take()
    snapshot = now
    # The moment memory ran out, if that is what ended the script: since then all was freed.
    if ending.device_full and history.failure is not None and not _went_on(session, history):
        snapshot = history.failure
    noted = Notes()
    places = _positions(history, snapshot, noted)
    found = Collected(snapshot=snapshot.torch)
    for number, readings in history.readings.items():
        found.events[number] = [p.of(_at(readings, d)) for d, p in enumerate(places)]
        found.stats[number] = [
            r.stats if (r := _at(readings, d)) is not None else [] for d in range(len(places))
        ]
    # Marks before CUDA was initialised, or before a recording that began late: at its beginning.
    first = min(history.readings, default=session.marks.next)
    for number in range(first):
        found.events[number] = [-1 if p.dropped or p.end is None else 0 for p in places]
    found.devices = device_rows(history, snapshot, places)
    found.peak = max((p["allocated"] for d in found.devices for p in d["peaks"]), default=None)
    history.stop()
    if not ending.failed:
        found.copied_per_second = session.guard(
            "measuring how fast the GPU copies", copy_bandwidth
        )()
    strip(stacks_of(found.snapshot))
    wrapped = any(place.dropped for place in places)
    if not (wrapped and session.states is not None and begin_late(found, session.states)):
        for text in noted.texts:
            session.notes.add(text)
    return found


def _went_on(session: Session, history: CudaHistory) -> bool:
    """Whether the script computed anything after the last time memory ran out."""
    since = session.marks.entries[session.marks.position(history.failed_after) + 1 :]
    return any(e.edge == "begin" or e.kind in ("step", "profiler_step") for e in since)


def _positions(history: CudaHistory, snapshot: Snapshot, notes: Notes) -> list[Positions]:
    return [
        Positions(
            trace,
            _at(snapshot.readings, d),
            _at(history.base, d),
            notes,
            history.max_events,
        )
        for d, trace in enumerate(snapshot.torch["device_traces"])
    ]


def _at(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else None


def _collect_cpu(session: Session, cpu: CpuRecorder) -> Collected:
    from memtrace.snapshot.format import Device

    last = cpu.finish()
    # Our own marks are ordered with the allocations by the same clock.
    rows = sorted(cpu.tree.allocations, key=lambda row: row[:2])
    trace: list[dict[str, Any]] = []
    keys: list[tuple[int, int]] = []
    total = peak = 0
    alive: dict[int, int] = {}
    for time_ns, tie, address, size, frames in rows:
        actions = ("alloc",) if size > 0 else ("free_requested", "free_completed")
        if size > 0:
            # An address given out twice was freed unseen (another profiler's time).
            total += size - alive.get(address, 0)
            alive[address] = size
        else:
            total -= alive.pop(address, 0)
        peak = max(peak, total)
        for action in actions:
            keys.append((time_ns, tie))
            trace.append(
                {
                    "action": action,
                    "addr": address,
                    "size": abs(size),
                    "stream": 0,
                    "time_us": time_ns // 1000,
                    "frames": frames,
                }
            )
    dropped = max(0, len(trace) - session.options.max_events)
    if dropped:
        del trace[:dropped], keys[:dropped]
        session.notes.add(f"{dropped} events were dropped, the oldest first: raise --max-events")
    found = Collected(profile=last, peak=peak if trace else None)
    found.snapshot["device_traces"] = [trace]
    for number, key in cpu.tree.marks.items():
        found.events[number] = [bisect.bisect_left(keys, key)]
        if dropped and found.events[number] == [0]:
            found.events[number] = [-1]
    _fill_gaps(found.events, session.marks.next, keys, session)
    name, total_bytes = about.cpu_name()
    found.devices = [
        Device(
            index=0,
            name=name,
            total_bytes=total_bytes,
            outside_bytes=-1,
            start_events=cpu.start_events,
            dropped_events=dropped,
            start_segments=[],
            peaks=[],
        )
    ]
    return found


def _fill_gaps(
    events: dict[int, list[int]], marks: int, keys: list[tuple[int, int]], session: Session
) -> None:
    """Marks that left no range (before the start, from other threads): the first and the last."""
    events.setdefault(0, [0])
    if marks - 1 not in events:
        events[marks - 1] = [len(keys)]


def build(session: Session, found: Collected, ending: Ending) -> dict[str, Any]:
    """The whole capture."""
    from memtrace.snapshot.format import FORMAT, Meta

    marks = session.marks
    arrivals = {marks.position(number): time for number, time in session.arrivals.items()}
    profiled = session.profile.begin
    profiled = None if profiled is None else marks.position(profiled)
    iterations = iterations_of(marks.entries, arrivals, profiled, ending.failed)
    if session.window is not None:
        iterations = session.window.number(iterations)
    session.guard("timing the GPU", _add_gpu_times)(session, iterations)
    profile = _profile(session, iterations)
    for iteration in iterations:
        if profile is None:
            iteration["profiled"] = False
    facts = _facts(session, found, ending, profile)
    meta = Meta(
        format=FORMAT,
        label=session.options.output.name.split(".")[0],
        facts=facts,
        devices=found.devices,
        marks=session.marks.columns(found.events, found.stats, len(found.devices)),
        iterations=iterations,
        profile=profile,
        owners=[{**row, "mark": marks.position(row["mark"])} for row in session.owners.rows],
        sources=_sources(session, found.snapshot, profile),
        thunder=session.thunder_hooks.modules,
        compilations=[
            {**row, "mark": marks.position(row["mark"])} for row in session.compilations.rows
        ],
        fx=session.fx.nodes,
    )
    if session.window is not None and session.window.forgotten:
        meta["steps"] = _earlier_steps(session)
    return {**found.snapshot, "memtrace": dict(meta)}


def _earlier_steps(session: Session) -> Steps:
    """The times of steady iterations whose marks are forgotten."""
    from memtrace.snapshot.format import Steps

    assert session.window is not None
    kept = list(session.window.steps)
    cuda = session.device == "cuda"
    return Steps(
        mark=session.marks.gap,
        trains=[int(step.trains) for step in kept],
        wall_ns=[step.wall_ns for step in kept],
        gpu_ns=[session.gpu.between(step.begin, step.end) if cuda else -1 for step in kept],
    )


def _add_gpu_times(session: Session, iterations: list[Iteration]) -> None:
    if session.device == "cuda":
        for iteration in iterations:
            iteration["gpu_ns"] = -1
        for iteration in iterations:
            begin, end = map(session.marks.number, (iteration["begin"], iteration["end"]))
            iteration["gpu_ns"] = session.gpu.between(begin, end)


def _profile(session: Session, iterations: list[Any]) -> Profile | None:
    kept = session.profile
    index = next((i["index"] for i in iterations if i["profiled"]), None)
    if kept.result is None or index is None:
        if iterations:
            session.notes.add(
                "no iteration was profiled: "
                + (kept.error or "there was none that compiled nothing after another such one")
            )
        return None
    iteration, entries = iterations[index], session.marks.entries
    begin = entries[iteration["begin"]].time_ns
    last = iteration["end"]
    end = session.arrivals.get(session.marks.number(last), entries[last].time_ns)
    try:
        return read_profile(kept.result, index, begin, end, MARK_PREFIX)
    except Exception as error:
        kept.error = f"{type(error).__name__}: {error}"
        session.notes.failure("reading the profile", error)
        return None


def _facts(
    session: Session, found: Collected, ending: Ending, profile: Profile | None
) -> dict[str, Any]:
    options = session.options
    facts: dict[str, Any] = about.environment_facts()
    facts |= {"device": session.device, "gpu": ""}
    if session.history is not None and session.history.started:
        try:
            facts |= about.cuda_facts()
        except Exception as error:
            session.notes.failure("reading the GPU's facts", error)
    if found.copied_per_second:
        facts["copy_bytes_per_second"] = found.copied_per_second
    compilers = session.thunder_hooks.compilers + session.dynamo_hooks.compilers
    if not compilers and session.marks.entries:
        compilers = ["eager"]
    facts |= {
        "allocator_conf": about.allocator_conf(),
        "allocator_backend": facts.get("allocator_backend", ""),
        "stacks": options.stacks,
        "max_events": options.max_events,
        "window": options.window or "",
        "check_driver": options.check_driver,
        "command": session.command,
        "module": session.module,
        "git_commit": about.git_commit(session.folder),
        "started": session.started,
        "compilers": compilers,
        "inputs": session.inputs,
        "exit": {"kind": ending.kind, "code": ending.code, "message": ending.message[:2000]},
        "profiler_error": "" if profile is not None else session.profile.error,
        "notes": session.notes.texts,
        **rank_facts(find_rank()),
    }
    return facts


def _sources(session: Session, snapshot: dict[str, Any], profile: Profile | None) -> dict[str, str]:
    """Texts of generated files: all of Thunder's and FX's, Inductor's where they are named.

    That is by a stack, or by a line that the profiled iteration ran.
    """
    from memtrace.snapshot.format import LINE_PREFIX
    from memtrace.snapshot.generated import is_output_file

    sources = {**session.thunder_hooks.sources, **session.fx.sources}
    named: dict[int, Any] = {}
    for trace in snapshot["device_traces"]:
        for entry in trace:
            for frame in entry.get("frames", ()):
                named[id(frame)] = frame
    filenames = {str(f.get("filename", "")) for f in named.values()}
    for name in set(profile["ops"]["name"]) if profile is not None else ():
        if name.startswith(LINE_PREFIX):
            filenames.add(name.removeprefix(LINE_PREFIX).rpartition(":")[0])
    for filename in filenames:
        if filename in sources:
            continue
        if filename.startswith(("thunder.", "<eval_with_key>")):
            sources[filename] = source_of(filename)
        elif is_output_file(filename):
            try:
                with open(filename, encoding="utf-8", errors="replace") as stream:
                    sources[filename] = stream.read()
            except OSError:
                session.notes.add(f"the generated file {filename} is gone")
    return {name: text for name, text in sorted(sources.items()) if text}
