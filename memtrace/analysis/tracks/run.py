"""One recording as a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from memtrace import __version__
from memtrace.analysis.groups import Groups, group_lifetimes
from memtrace.analysis.peak import Subject, label_of, list_warnings
from memtrace.analysis.tracks.counters import Counted, count_groups, count_totals
from memtrace.analysis.tracks.instants import mark_events
from memtrace.analysis.tracks.lifetimes import lay_lifetimes, name_lifetimes
from memtrace.analysis.tracks.model import Counter, Facts, Process, Slices, Trace, Value
from memtrace.analysis.tracks.passes import lay_passes
from memtrace.analysis.tracks.peaks import mark_peaks
from memtrace.analysis.tracks.profile import lay_profile
from memtrace.analysis.tracks.scope import Scope, open_scope
from memtrace.symbols import attribute
from memtrace.timeline import reconcile, reconciled

# Symbols with a counter of their own; the rest is summed.
MOST_SYMBOLS = 32
UNTIMED = "the recording has no times: its clock counts events, a microsecond each"


def describe_run(subject: Subject) -> Trace:
    """The subject's window as a trace: whatever is known of it, at the moment it happened."""
    attribution = attribute(subject.recording, subject.replay)
    scope = open_scope(subject, attribution, subject.replay.accounting)
    tracks, notes = lay_tracks(scope)
    # The profiler's first operator can precede the first mark.
    origin = min([scope.start, *(int(t.begin.min()) for t in tracks if isinstance(t, Slices))])
    origin -= origin % 1000  # whole microseconds stay whole
    start_ns = None if scope.clock.start_ns is None else scope.clock.start_ns + origin
    facts, notes = describe_facts(scope, notes)
    shown = [tell(facts), *(move(track, -origin) for track in tracks)]
    return Trace([Process(f"memtrace {facts['label']}", shown)], start_ns, facts, tuple(notes))


def lay_tracks(scope: Scope) -> tuple[list[Counter | Slices], list[str]]:
    """All tracks of a scope, in its clock's time, and what a reader must be told of them."""
    categories = group_lifetimes(scope.subject.replay, scope.attribution, "category")
    symbols = group_lifetimes(scope.subject.replay, scope.attribution, "symbol")
    name_of = name_lifetimes(scope)
    profile, notes = lay_profile(scope)
    by_category = count(scope, "by category", categories)
    rank = {counter.name: k for k, counter in enumerate(by_category)}  # the weightiest first
    lifetimes = lay_lifetimes(scope, name_of, categories)
    tracks = (
        *mark_peaks(scope),
        *count_all(scope),
        lay_passes(scope),
        *by_category,
        *count(scope, "by symbol", symbols, MOST_SYMBOLS),
        *profile,
        *sorted(lifetimes, key=lambda track: rank.get(track.name, len(rank))),
        *mark_events(scope, name_of),
    )
    if scope.clock.start_ns is None and scope.subject.replay.n_events:
        notes = [UNTIMED, *notes]
    return [track for track in tracks if track is not None], notes


def count_all(scope: Scope) -> list[Counter]:
    """Counters of the totals that are known: allocated, requested, reserved."""
    return _place(scope, count_totals(scope.subject.replay, scope.begin, scope.end))


def count(scope: Scope, folder: str, groups: Groups, most: int | None = None) -> list[Counter]:
    """Counters of groups, ``most`` of them and the rest in one, that sum to the total."""
    names = [symbol.text for symbol in groups.symbols]
    counted = count_groups(
        scope.subject.replay, scope.accounting, names, groups.rows, scope.begin, scope.end, most
    )
    about = f"Requested bytes of what counts as {scope.accounting}; all of them sum to the total."
    return _place(scope, counted, folder, about)


def _place(
    scope: Scope, counted: Sequence[Counted], folder: str = "", about: str = ""
) -> list[Counter]:
    """Counters with times: moment k + 1 begins with event k."""
    times = np.concatenate(([scope.start], scope.times))
    return [
        Counter(name, scope.clip(times[moments]), value, folder, "bytes", about)
        for name, moments, value in counted
    ]


def describe_facts(scope: Scope, notes: Sequence[str]) -> tuple[dict[str, Value], list[str]]:
    """What the trace is of, and what is incomplete in it, ``notes`` and the recording's own."""
    subject = scope.subject
    recording = subject.recording
    checks = reconcile(recording, subject.replay)
    notes = [*notes, *list_warnings(subject, checks)]
    agrees = {True: "yes", False: "no", None: "no figures of the driver"}[reconciled(checks)]
    facts: dict[str, Value] = {
        "label": _written(label_of(recording)),
        "path": _written(recording.path),
        "window": subject.window.name,
        "device": subject.replay.device,
        "accounting": scope.accounting,
        "complete": "yes" if subject.replay.complete else "no",
        "replay equals the driver": agrees,
        "notes": tuple(notes),
        "written by": f"memtrace {__version__}",
    }
    return facts, notes


def _written(name: str) -> str:
    """A file's name as text that can be written: names can hold bytes that are none."""
    return name.encode(errors="backslashreplace").decode()


def tell(facts: Facts) -> Slices:
    """The facts as a track with one moment at the start, for who looks at the picture."""
    zero = np.zeros(1, np.int64)
    row = np.zeros(1, np.int32)
    return Slices("about", zero, None, row, ["about this trace"], row, [facts], row)


def move(track: Counter | Slices, offset: int) -> Counter | Slices:
    """The same track, ``offset`` nanoseconds later."""
    if isinstance(track, Counter):
        return replace(track, time=track.time + offset)
    end = None if track.end is None else track.end + offset
    return replace(track, begin=track.begin + offset, end=end)
