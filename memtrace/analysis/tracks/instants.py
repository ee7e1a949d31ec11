"""What happened at one moment: allocations, frees, segments, out of memory, snapshots."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from memtrace.analysis.tracks.lifetimes import Names
from memtrace.analysis.tracks.model import ABSENT, Slices
from memtrace.analysis.tracks.scope import Scope
from memtrace.snapshot.columns import Action, Int32, Int64

FOLDER = "events"

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
