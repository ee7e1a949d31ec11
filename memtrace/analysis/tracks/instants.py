"""What happened at one moment: allocations, frees, segments, out of memory, snapshots, peaks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from memtrace.analysis.peak import name_live
from memtrace.analysis.tracks.lanes import arrange
from memtrace.analysis.tracks.lifetimes import Names
from memtrace.analysis.tracks.model import ABSENT, Slices, Value
from memtrace.analysis.tracks.scope import Scope
from memtrace.snapshot.columns import Action, Int32, Int64
from memtrace.timeline import Window, live, peak, position_in

FOLDER = "events"
_ROWS_NAMED = 12  # rows of the peak that are listed

# What is shown of the other events, by track.
_SEGMENTS = (
    Action.SEGMENT_ALLOC,
    Action.SEGMENT_FREE,
    Action.SEGMENT_MAP,
    Action.SEGMENT_UNMAP,
)


def mark_events(scope: Scope, names: Names) -> list[Slices]:
    """Every event, one track for each kind; what is allocated or freed is named."""
    run = scope.subject.replay
    if run.device >= len(scope.subject.recording.events):
        return []
    events = scope.subject.recording.events[run.device]
    rows = run.lifetimes
    late = rows.completed > rows.freed + 1  # waited for another stream
    found = []
    for name, event, chosen in (
        ("allocations", rows.born, np.flatnonzero(rows.born >= 0)),
        ("frees", rows.freed, np.flatnonzero(rows.freed >= 0)),
        ("frees completed later", rows.completed, np.flatnonzero(late)),
    ):
        at = event[chosen]
        inside = (at >= scope.begin) & (at < scope.end)
        chosen, at = chosen[inside], at[inside]
        numbers = {"bytes": rows.requested[chosen], "event": at}
        found.append(_mark(scope, name, at, names.labels, names.label[chosen], numbers))
    for name, actions in (
        ("segments", _SEGMENTS),
        ("out of memory", (Action.OOM,)),
        ("snapshots", (Action.SNAPSHOT,)),
        ("other events", (Action.OTHER,)),
    ):
        at = scope.begin + np.flatnonzero(np.isin(events.action[scope.begin : scope.end], actions))
        labels = [action.name.lower() for action in Action]
        if name == "out of memory":
            free = events.device_free[at]
            numbers = {
                "asked_bytes": events.size[at],
                "free_bytes": np.where(free < 0, ABSENT, free),
                "event": at,
            }
        elif name == "segments":
            numbers = {"bytes": events.size[at], "event": at}
        else:
            numbers = {"event": at}
        found.append(_mark(scope, name, at, labels, events.action[at].astype(np.int32), numbers))
    return [one for one in found if len(one)]


def mark_peaks(scope: Scope) -> Slices | None:
    """The peak as a slice as long as it lasts, with what it consists of.

    In a whole recording also that of each iteration. None where nothing was recorded.
    """
    run = scope.subject.replay
    if not len(run.lifetimes):
        return None
    total = run.total(scope.accounting)
    windows = list(scope.windows) or [scope.subject.window]
    everything = Window("the recording", "all", scope.begin, scope.end, False)
    most = peak(run, everything if scope.whole else scope.subject.window, scope.accounting)
    seen: dict[int, tuple[str, dict[str, Value]]] = {}
    for window in windows:
        event = peak(run, window, scope.accounting).event
        position = position_in(window, event)
        about: dict[str, Value] = {"position": position} if position else {}
        seen.setdefault(event, (window.name, about))
    name, about = seen.get(most.event, (everything.name, {}))
    rows = name_live(
        run, scope.attribution, live(run, most.event, scope.accounting), scope.accounting
    )
    about["consists_of"] = tuple(
        f"{row.sides[0].bytes:,} bytes: {row.symbol.text}" for row in rows[:_ROWS_NAMED]
    )
    seen[most.event] = (f"{name}, the greatest" if len(windows) > 1 else name, about)
    moments = np.array(sorted(seen), np.int64)
    # A total holds until the event that changes it; times[k] is that at which moment k begins.
    times = np.concatenate(([scope.start], scope.times, [scope.stop]))
    changes = np.append(np.flatnonzero(np.diff(total)) + 1, len(times) - 1)
    ends = changes[np.searchsorted(changes, moments, side="right")]
    begin = scope.clip(times[moments])
    found = [seen[moment] for moment in moments.tolist()]
    labels = [
        f"peak of {name}: {amount:,} bytes"
        for (name, _), amount in zip(found, total[moments].tolist(), strict=True)
    ]
    row_of = np.arange(len(moments), dtype=np.int32)
    return arrange(
        "peak",
        begin,
        np.maximum(scope.clip(times[ends]), begin),
        (labels, row_of),
        ([facts for _, facts in found], row_of),
        {"bytes": total[moments], "moment": moments},
        about=f"Where {scope.accounting} bytes are greatest, for as long as they are.",
    )


def _mark(
    scope: Scope,
    name: str,
    events: Int64,
    labels: list[str],
    label: Int32,
    numbers: Mapping[str, Int64],
) -> Slices:
    order = np.argsort(events, kind="stable")
    nothing = np.zeros(len(events), np.int32)
    return Slices(
        name=name,
        begin=scope.times[events[order]],
        end=None,
        lane=nothing,
        labels=labels,
        label=label[order],
        details=({},),
        detail=nothing,
        numbers={key: column[order] for key, column in numbers.items()},
        folder=FOLDER,
    )
