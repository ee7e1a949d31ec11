"""Iterations, their passes, and in these what generated code ran: a track of nested slices."""

from __future__ import annotations

import numpy as np

from memtrace.analysis.tracks.lanes import arrange
from memtrace.analysis.tracks.model import ABSENT, Facts, Slices
from memtrace.analysis.tracks.scope import Scope
from memtrace.snapshot.columns import Action, Int32, Int64
from memtrace.symbols.running import Statement, find_runs

SEEN = "from its first to its last allocator event"


def lay_passes(scope: Scope) -> Slices | None:
    """The track of iterations, passes and symbols; None where there are none of these."""
    spans: list[tuple[int, int]] = []
    labels: list[str] = []
    details: list[Facts] = []
    for window in scope.windows:
        spans.append(scope.span(window.begin, window.end, window.begin_ns, window.end_ns))
        labels.append(window.name)
        states = {"profiled": window.profiled, "compiling": window.compiled}
        states["broke off"] = not window.whole
        details.append({"state": ", ".join(s for s, is_so in states.items() if is_so) or "steady"})
        for one in window.phases:
            spans.append(scope.span(one.begin, one.end, one.begin_ns, one.end_ns))
            labels.append(one.name)
            details.append({"iteration": window.name})
    statements, statement, begin, end, numbers = _symbols(scope)
    if not spans and not statements:
        return None
    times = np.array(spans, dtype=np.int64).reshape(-1, 2)
    row = np.concatenate((np.arange(len(spans)), len(spans) + statement)).astype(np.int32)
    absent = np.full(len(spans), ABSENT)
    return arrange(
        "iterations",
        np.concatenate((times[:, 0], begin)),
        np.concatenate((times[:, 1], end)),
        (labels + [one.name for one in statements], row),
        (details + [_describe(one) for one in statements], row),
        {key: np.concatenate((absent, column)) for key, column in numbers.items()},
        nested=True,
        about=f"Iterations and passes as the recorder saw them. A symbol is seen {SEEN}.",
    )


def _symbols(
    scope: Scope,
) -> tuple[list[Statement], Int32, Int64, Int64, dict[str, Int64]]:
    """What ran when: statements, and for each run its row there, begin, end and numbers.

    This is the one place that knows how the times of symbols were come by.
    """
    recording, run = scope.subject.recording, scope.subject.replay
    runs = find_runs(recording, run, scope.windows)
    inside = (runs.first >= scope.begin) & (runs.last < scope.end)
    first, last = runs.first[inside], runs.last[inside]
    allocated = np.zeros(run.n_events + 1, np.int64)
    if len(first):
        events = recording.events[run.device]
        allocated[1:] = np.cumsum(np.where(events.action == Action.ALLOC, events.size, 0))
    numbers = {
        "events": last - first + 1,
        "first_event": first,
        "allocated_bytes": allocated[last + 1] - allocated[first],
    }
    begin, end = scope.times[first], scope.times[last]
    return runs.statements, runs.statement[inside], begin, end, numbers


def _describe(one: Statement) -> Facts:
    found = {
        "symbol": one.symbol.text,
        "line": one.where,
        "text": one.text,
        "pass": one.symbol.phase or "",
        "seen": SEEN,
    }
    return {key: value for key, value in found.items() if value}
