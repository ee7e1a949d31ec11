"""Where the peaks are: a moment that is seen from afar, and how long each lasts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memtrace.analysis.peak import name_live
from memtrace.analysis.tracks.lanes import arrange
from memtrace.analysis.tracks.model import Slices, Value
from memtrace.analysis.tracks.scope import Scope
from memtrace.snapshot.columns import Int64
from memtrace.timeline import Window, live, peak, position_in

_ROWS_NAMED = 12  # rows of the greatest peak that are listed

_Peak = tuple[str, dict[str, Value]]  # whose peak it is, and what is known of it


def mark_peaks(scope: Scope) -> list[Slices]:
    """The peaks as moments, and as slices as long as the total stays there.

    That of the stretch says what it consists of; in a whole recording each iteration has one too.
    Nothing where nothing was recorded.
    """
    run = scope.subject.replay
    if not len(run.lifetimes):
        return []
    found = _find_peaks(scope)
    total = run.total(scope.accounting)
    moments = np.array(sorted(found), np.int64)
    begin, end = _stay(scope, total, moments)
    sizes = total[moments].tolist()
    peaks = [found[moment] for moment in moments.tolist()]
    row = np.arange(len(moments), dtype=np.int32)
    lasting = arrange(
        "at the peak",
        begin,
        end,
        ([f"peak of {p[0]}: {size:,} bytes" for p, size in zip(peaks, sizes, strict=True)], row),
        ([facts for _, facts in peaks], row),
        {"bytes": total[moments], "moment": moments},
        about=f"Where {scope.accounting} bytes are greatest, for as long as they are.",
    )
    marked = replace(lasting, name="peak", end=None)
    return [marked, lasting]


def _find_peaks(scope: Scope) -> dict[int, _Peak]:
    """The peaks by moment; the first one of a name stands for others at that moment."""
    run, accounting = scope.subject.replay, scope.accounting
    whole = Window("the recording", "all", scope.begin, scope.end, False)
    stretch = whole if scope.whole else scope.subject.window
    found: dict[int, _Peak] = {}
    for window in scope.windows:
        moment = peak(run, window, accounting).event
        found.setdefault(moment, (window.name, {"position": position_in(window, moment)}))
    greatest = peak(run, stretch, accounting).event
    name, facts = found.get(greatest, (stretch.name, {}))
    rows = name_live(run, scope.attribution, live(run, greatest, accounting), accounting)
    facts["consists_of"] = tuple(
        f"{row.sides[0].bytes:,} bytes: {row.symbol.text}" for row in rows[:_ROWS_NAMED]
    )
    found[greatest] = (f"{name}, the greatest" if len(found) > 1 else name, facts)
    return found


def _stay(scope: Scope, total: Int64, moments: Int64) -> tuple[Int64, Int64]:
    """From when to when the total stays as it is at some moments."""
    # Moment k begins with event k - 1, and times[k] is when.
    times = np.concatenate(([scope.start], scope.times, [scope.stop]))
    changes = np.append(np.flatnonzero(np.diff(total)) + 1, len(times) - 1)
    ends = changes[np.searchsorted(changes, moments, side="right")]
    begin = scope.clip(times[moments])
    return begin, np.maximum(scope.clip(times[ends]), begin)
