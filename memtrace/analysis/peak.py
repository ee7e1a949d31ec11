"""What the peak of one recording consists of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from memtrace.analysis.compilations import Compilation, list_compilations
from memtrace.analysis.groups import Dimension, group_lifetimes, key_of
from memtrace.analysis.oom import (
    Oom,
    describe_oom,
    device_of_oom,
    ended_by_oom,
    oom_events,
)
from memtrace.analysis.rows import Row, Side, sort_rows
from memtrace.analysis.steps import Steps, measure_steps
from memtrace.analysis.timed import GpuTime, add_times, measure_gpu, time_groups
from memtrace.distinct import number_rows
from memtrace.errors import MemtraceError
from memtrace.snapshot.columns import Int64, Recording
from memtrace.symbols import BLOCK_SLACK, Attribution, Naming, Symbol, attribute
from memtrace.timeline import (
    Accounting,
    Check,
    Peak,
    Replay,
    Window,
    choose_window,
    driver_peak,
    find_windows,
    live,
    peak,
    position_in,
    reconcile,
    reconciled,
    replay,
    settle,
    sizes,
)
from memtrace.timeline.replay import part_of

SLACK = Symbol(None, "", None, BLOCK_SLACK)
_Name = TypeVar("_Name")
_WHERE_LIMIT = 4  # places named for a row; the rest would not be read
_MESSAGE_LIMIT = 200  # characters of an error's message
_NAMES_LIMIT = 8  # … and tensors


@dataclass(frozen=True, slots=True)
class PeakReport:
    """One recording's peak, in integer bytes. The rows' bytes sum to ``peak_bytes``.

    ``peak_requested_bytes`` and ``peak_allocated_bytes`` are the maxima of either accounting in
    the window (None where blocks are unknown); ``driver_peak_bytes`` is the driver's own figure
    where it measured just this window, or where its greatest peak falls into it.
    ``reconciled`` says whether replay and driver agree over the whole recording, None where the
    file has no figure of the driver. ``position`` is where in the iteration the peak falls.
    ``other_moment`` says that another moment than the peak was asked for: ``peak_bytes``, ``event``
    and ``position`` are of that.
    ``gpu`` is the time of the profiled iteration, None where no kernel was seen in one; the rows'
    times sum to its ``busy_ns``, where rows of this kind have times (``gpu.by_row``).
    ``oom`` is the last time that the device's memory ran out, None where it never did;
    ``earlier_ooms`` are the events of those before, with the bytes asked for.
    """

    path: str
    label: str
    device: int
    facts: Mapping[str, Any]
    accounting: Accounting
    peak_bytes: int
    peak_requested_bytes: int
    peak_allocated_bytes: int | None
    driver_peak_bytes: int | None
    window: str
    event: int
    position: str
    complete: bool
    reconciled: bool | None
    warnings: tuple[str, ...]
    rows: tuple[Row, ...]
    steps: Steps
    compilations: tuple[Compilation, ...]
    other_moment: bool = False
    gpu: GpuTime | None = None
    oom: Oom | None = None
    earlier_ooms: tuple[tuple[int, int], ...] = ()
    present: frozenset[Symbol] = frozenset()  # what any moment of the window has, as rows name it


@dataclass(frozen=True, slots=True)
class Subject:
    """A recording replayed, with the window that is asked about."""

    recording: Recording
    replay: Replay
    window: Window

    @property
    def empty(self) -> bool:
        """Whether no allocation was recorded at all."""
        return len(self.replay.lifetimes) == 0

    @property
    def has_profile(self) -> bool:
        """Whether operators are known from a profiled iteration."""
        return bool(self.recording.meta and self.recording.meta.get("profile"))


def open_subject(recording: Recording, window: str | None = None) -> Subject:
    """Replays the device with the greatest peak and chooses the window.

    Without a word on it, the whole recording where the script ran out of memory: what is asked
    then is what filled it, on the device that it was. MemtraceError where the window is not there.
    """
    replays = [replay(recording, device) for device in range(max(len(recording.events), 1))]
    busiest = max(replays, key=lambda one: int(one.requested.max()))
    full = device_of_oom(recording)
    if full is not None and ended_by_oom(recording):
        busiest = replays[full]
    part = (recording.meta or {}).get("part")
    if part is not None and 0 <= part["device"] < len(replays):
        busiest = replays[part["device"]]
    if window is None and _ended(recording) == "oom":
        window = "all"
    chosen = choose_window(find_windows(recording, busiest), window)
    return Subject(recording, settle(busiest, chosen.begin), chosen)


def _ended(recording: Recording) -> str:
    """How the recorded script ended, '' for a plain snapshot."""
    facts = (recording.meta or {}).get("facts") or {}
    return str((facts.get("exit") or {}).get("kind", ""))


def _ooms_of(subject: Subject) -> list[int]:
    """The events within the window at which memory ran out."""
    window = subject.window
    events = oom_events(subject.recording, subject.replay.device)
    return [e for e in events if window.kind == "all" or window.begin <= e <= window.end]


def usual_moment(subject: Subject) -> str | None:
    """The moment to look at where nobody names one: "oom" if the script ended by it, else None."""
    ended = subject.window.kind == "all" and ended_by_oom(subject.recording)
    return "oom" if ended and oom_events(subject.recording, subject.replay.device) else None


def report_peak(
    subject: Subject,
    *,
    accounting: Accounting | None = None,
    operators: bool = True,
    by: Dimension = "symbol",
    at: str | None = None,
    attribution: Attribution | None = None,
) -> PeakReport:
    """Names every byte alive at the window's peak, or at another moment.

    ``accounting`` asks for one (the better one there is by default); ``operators`` is passed on
    to ``attribute``, unless its ``attribution`` is there already; ``at`` is "forward-end",
    "backward-start" or an event's number.
    """
    recording, run, window = subject.recording, subject.replay, subject.window
    accounting = accounting or run.accounting
    top = peak(run, window, accounting)
    if at is not None:
        event = _moment(subject, at)
        top = Peak(event, int(run.total(accounting)[event]))
    attribution = attribution or attribute(recording, run, operators=operators)
    rows, present, gpu = _name_moment(subject, attribution, accounting, by, top.event)
    meta = recording.meta or {}
    checks = reconcile(recording, run)
    ooms = _ooms_of(subject)
    oom = describe_oom(recording, run, attribution, ooms[-1]) if ooms else None
    return PeakReport(
        path=recording.path,
        label=label_of(recording),
        device=run.device,
        facts=meta.get("facts") or {},
        accounting=accounting,
        peak_bytes=top.total,
        peak_requested_bytes=peak(run, window, "requested").total,
        peak_allocated_bytes=(
            None if run.allocated is None else peak(run, window, "allocated").total
        ),
        driver_peak_bytes=driver_peak(checks, accounting, window.begin, window.end),
        window=window.name,
        event=top.event,
        position=position_in(window, top.event) + (", when memory ran out" if at == "oom" else ""),
        complete=run.complete,
        reconciled=reconciled(checks, part_of(recording, run.device)),
        warnings=tuple(list_warnings(subject, checks)),
        rows=tuple(rows),
        gpu=gpu,
        compilations=list_compilations(recording),
        steps=measure_steps(recording),
        other_moment=at is not None,
        oom=oom,
        earlier_ooms=tuple((k, int(recording.events[run.device].size[k])) for k in ooms[:-1]),
        present=present,
    )


def regroup(
    report: PeakReport, subject: Subject, attribution: Attribution, by: Dimension
) -> PeakReport:
    """The same peak with other rows: ``report`` by another dimension."""
    rows, present, gpu = _name_moment(subject, attribution, report.accounting, by, report.event)
    return replace(report, rows=tuple(rows), present=present, gpu=gpu)


def _name_moment(
    subject: Subject,
    attribution: Attribution,
    accounting: Accounting,
    by: Dimension,
    event: int,
) -> tuple[list[Row], frozenset[Symbol], GpuTime | None]:
    """What is alive at an event, with the time it took; what the window has at any; all time."""
    recording, run = subject.recording, subject.replay
    rows = name_live(run, attribution, live(run, event, accounting), accounting, by, event)
    present = _present(run, attribution, subject.window, by)
    gpu = measure_gpu(recording, by)
    if gpu is not None and gpu.by_row:
        times = time_groups(recording, run, by, attribution)
        rows = add_times(rows, times)
        present |= times.keys()
    return rows, present, gpu


def _present(
    run: Replay, attribution: Attribution, window: Window, by: Dimension
) -> frozenset[Symbol]:
    """What rows would name at one moment of the window or another."""
    lifetimes = run.lifetimes
    rows = np.flatnonzero((lifetimes.born < window.end) & (lifetimes.freed > window.begin))
    groups = group_lifetimes(run, attribution, by)
    return frozenset(groups.symbols[row] for (row,) in number_rows(groups.rows[rows])[0])


def name_live(
    run: Replay,
    attribution: Attribution,
    rows: Int64,
    accounting: Accounting,
    by: Dimension = "symbol",
    at: int | None = None,
) -> list[Row]:
    """The live set ``rows`` (lifetime numbers) as one row a symbol, the weightiest first.

    A symbol's bytes are what was requested; what the blocks hold beyond that is the row
    ``<block slack>``, so that the sum is that of the accounting. ``by`` groups by another of the
    lifetimes' sides instead; every row has all of them. ``at`` is the event they are alive at.
    """
    requested = run.lifetimes.requested[rows]
    groups: dict[Symbol, _Group] = defaultdict(_Group)
    categories = attribution.categories.of(rows.tolist(), at)
    columns = zip(attribution.rows[rows].tolist(), requested.tolist(), categories, strict=True)
    for naming_row, size, category in columns:
        naming = attribution.namings[naming_row]
        groups[key_of(naming, size, category, by)].add(naming, size, category)
    named = [Row(symbol, (group.side(),)) for symbol, group in groups.items()]
    slack = int((sizes(run, accounting)[rows] - requested).sum())
    if slack:
        padded = int(np.count_nonzero(sizes(run, accounting)[rows] != requested))
        named.append(Row(SLACK, (Side(slack, padded),)))
    return sort_rows(named)


class _Group:
    """What is summed for one row of a peak."""

    def __init__(self) -> None:
        self.bytes = self.count = 0
        self.where: dict[str, int] = defaultdict(int)
        self.tensors: dict[str, int] = defaultdict(int)
        self.shapes: dict[str, int] = defaultdict(int)  # bytes of each
        self.names: dict[str, int] = defaultdict(int)
        self.layers: dict[str, int] = defaultdict(int)
        self.categories: dict[str, int] = defaultdict(int)
        self.symbols: dict[Symbol, int] = defaultdict(int)
        self.lines: dict[str, int] = defaultdict(int)

    def add(self, naming: Naming, size: int, category: str) -> None:
        self.bytes += size
        self.count += 1
        if naming.where:
            self.where[naming.where] += size
        if fitting := naming.fitting(size):
            shape = " | ".join(dict.fromkeys(tensor.text for tensor in fitting))
            self.tensors[shape] += 1
            self.shapes[shape] += size
            self.names[" | ".join(dict.fromkeys(tensor.name for tensor in fitting))] += size
        self.layers[naming.layer_of(size)] += size
        self.categories[category] += size
        self.symbols[naming.symbol] += size
        if line := naming.line_of(size):
            self.lines[line] += size

    def side(self) -> Side:
        return Side(
            self.bytes,
            self.count,
            tuple(text for text, _ in _most(self.where)[:_WHERE_LIMIT]),
            tuple((shape, self.tensors[shape]) for shape, _ in _most(self.shapes)),
            tuple(text for text, _ in _most(self.names)[:_NAMES_LIMIT]),
            _most(self.layers),
            _most(self.categories),
            tuple(symbol for symbol, _ in _most(self.symbols)[:_NAMES_LIMIT]),
            tuple(line for line, _ in _most(self.lines)[:_WHERE_LIMIT]),
        )


def _most(amounts: Mapping[_Name, int]) -> tuple[tuple[_Name, int], ...]:
    return tuple(sorted(amounts.items(), key=lambda item: -item[1]))


def _moment(subject: Subject, at: str) -> int:
    """The event that ``--at`` asks for. MemtraceError where the window has no such moment."""
    path, window, last = subject.recording.path, subject.window, subject.replay.n_events
    found = {"forward-end": window.forward_end, "backward-start": window.backward_begin}
    if at == "oom":
        ooms = oom_events(subject.recording, subject.replay.device)
        if not ooms:
            raise MemtraceError(f"{path}: memory never ran out in it; leave --at oom out")
        return ooms[-1]
    if at in found:
        event = found[at]
        if event is None:
            raise MemtraceError(
                f"{path}: {window.name} has no {at}: no backward pass was seen in it"
            )
        return event
    if not at.isdecimal() or int(at) > last:
        raise MemtraceError(
            f"{path}: {at!r} is no moment; give forward-end, backward-start, oom or an event "
            f"(≤ {last})"
        )
    return int(at)


def list_warnings(subject: Subject, checks: list[Check]) -> list[str]:
    """What a reader must know before the table."""
    meta = subject.recording.meta
    warnings = list(subject.replay.warnings)
    part = part_of(subject.recording, subject.replay.device)
    if differing := say_differences(checks, part):
        warnings.append(differing)
    if not subject.window.whole:
        warnings.append(f"{subject.window.name} broke off before its end")
    if subject.window.compiled:
        warnings.append(f"something was compiled in {subject.window.name}: not a steady iteration")
    if _ended(subject.recording) == "oom" and not _ooms_of(subject):
        message = str(((meta or {}).get("facts") or {})["exit"].get("message", ""))
        warnings.append(f"the script ended for lack of memory: {message[:_MESSAGE_LIMIT]}")
    if meta:
        warnings.extend(str(note) for note in meta["facts"].get("notes") or [])
    others = [d for d, events in enumerate(subject.recording.events) if len(events)]
    if len(others) > 1:
        names = ", ".join(map(str, others))
        warnings.append(
            f"devices {names} have a history: the figures are of device {subject.replay.device}, "
            "which has the greatest peak"
        )
    return warnings


def say_differences(checks: list[Check], part: Mapping[str, Any] | None) -> str:
    """What replay and driver differ in, '' where in nothing; of a part, what the whole's did."""
    if part is not None and part["differing"]:
        return str(part["differing"])
    wrong = [check for check in checks if check.agrees is False]
    if not wrong:
        return ""
    worst = max(wrong, key=lambda check: abs(check.driver - (check.replayed or 0)))
    return (
        f"{len(wrong)} of the driver's {len(checks)} figures differ from the replay, most: "
        f"{worst.what}, driver {worst.driver:,} bytes, replayed {worst.replayed:,} bytes"
    )


def label_of(recording: Recording) -> str:
    """What a person calls the recording: its label, else its file's name without endings."""
    return str((recording.meta or {}).get("label") or _stem(recording.path))


def _stem(path: str) -> str:
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    for ending in (".gz", ".zst", ".pkl", ".pickle", ".snapshot"):
        name = name.removesuffix(ending)
    return name or path
