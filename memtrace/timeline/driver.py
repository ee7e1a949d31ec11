"""The replay against the driver: what torch's own counters said, and what the events give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from memtrace.snapshot.columns import Int64, Recording
from memtrace.snapshot.format import STAT_FIELDS
from memtrace.timeline.moments import Moments
from memtrace.timeline.replay import Replay, device_meta

_NAMES = ("allocated", "requested", "reserved")
_FIELDS = [tuple(field.split("_bytes.")) for field in STAT_FIELDS]


class Check(NamedTuple):
    """One figure twice, in bytes: the driver's and the replayed one (None where unknown).

    It holds over the moments ``begin`` to ``end`` (event numbers), -1 where those are unknown.
    """

    what: str
    driver: int
    replayed: int | None
    begin: int
    end: int

    @property
    def agrees(self) -> bool | None:
        """Whether both are equal to the byte; None where there is nothing to compare."""
        return None if self.replayed is None else self.driver == self.replayed


def reconcile(recording: Recording, replay: Replay) -> list[Check]:
    """Every figure of the driver in the capture, next to the replayed one.

    The driver's peaks over its stretches (Device.peaks), and at every mark that has them its
    current totals and its peaks since the last reset. Empty for plain snapshots, which carry no
    figures of the driver.
    """
    moments = Moments(recording, replay)
    device = device_meta(recording, replay.device) or {}
    from_nothing = device.get("start_events") == 0 and replay.dropped <= 0
    placed = [moments.at_mark(mark) for mark in moments.marks()]
    peaks = {name: _PeakSince(_total(replay, name), from_nothing, placed) for name in _NAMES}
    checks = []
    for entry in device.get("peaks") or []:
        begin, end = moments.at_event(entry["begin"]), moments.at_event(entry["end"])
        for name in _NAMES:
            what = f"{name} peak ({entry['why']})"
            checks.append(_compare(what, int(entry[name]), _total(replay, name), begin, end))
    for mark, moment in enumerate(placed):
        kind = moments.kind(mark)
        for stretch in peaks.values():
            stretch.extend(mark, kind == "peak_reset")
        stats = moments.stats(mark)
        if not stats:
            continue
        where = f"mark {mark} ({f'{kind} {moments.edge(mark)}'.rstrip()})"
        at = -1 if moment is None else moment
        for (name, which), value in zip(_FIELDS, stats, strict=False):
            if which == "current":
                checks.append(Check(f"{name} at {where}", value, peaks[name].now(mark), at, at))
            elif kind != "peak_reset":
                checks.append(peaks[name].check(f"{name} peak at {where}", value))
    return checks


class _PeakSince:
    """The replayed peak since the driver's statistics were last reset, mark by mark.

    ``placed`` are the moments of all marks, None for those that have no place.
    """

    def __init__(
        self, total: Int64 | None, from_nothing: bool, placed: Sequence[int | None]
    ) -> None:
        self._placed = placed
        self._now = None if total is None else _at(total, placed)
        self._between = None if total is None else _peaks_between(total, placed)
        # Known from the first event on where that is the first of all: no reset came before.
        self._begin: int | None = 0 if from_nothing else None
        self._end: int | None = self._begin
        self._peak = -1

    def extend(self, mark: int, reset: bool) -> None:
        """Go on to a mark; from a reset, or after a mark that has no place, begin anew."""
        moment = self._placed[mark]
        if reset or moment is None or self._end is None or moment < self._end:
            self._begin = self._end = moment if reset else None
            self._peak = -1
            return
        if self._between is not None:
            peak = self._between[mark]
            known = peak >= 0 and (self._peak >= 0 or self._end == self._begin)
            self._peak = max(self._peak, peak) if known else -1
            if not known:
                self._begin = None
        self._end = moment

    def now(self, mark: int) -> int | None:
        """The replayed total at a mark, None where it is unknown."""
        known = -1 if self._now is None else self._now[mark]
        return known if known >= 0 else None

    def check(self, what: str, driver: int) -> Check:
        known = self._begin is not None and self._end is not None and self._peak >= 0
        if not known or self._begin is None or self._end is None:
            return Check(what, driver, None, -1, -1)
        return Check(what, driver, self._peak, self._begin, self._end)


def _at(total: Int64, placed: Sequence[int | None]) -> list[int]:
    """The total at each mark, -1 where the mark has no place or the total is unknown."""
    moments = np.array([-1 if moment is None else moment for moment in placed], dtype=np.int64)
    found: list[int] = np.where(moments >= 0, total[moments], -1).tolist()
    return found


def _peaks_between(total: Int64, placed: Sequence[int | None]) -> list[int]:
    """The greatest total from the mark before (the beginning) to each mark, both included.

    -1 where one of the totals is unknown, or where the marks have no place or are out of order.
    """
    ends = np.array([-1 if moment is None else moment for moment in placed], dtype=np.int64)
    begins = np.concatenate(([0], ends[:-1]))
    peaks = np.full(len(ends), -1, dtype=np.int64)
    good = np.flatnonzero((begins >= 0) & (begins <= ends) & (ends < len(total)))
    if len(good):
        # Every second of the stretches that reduceat makes is one from begin to end; what lies
        # behind the last total is never the greatest nor the least of one.
        bounds = np.stack((begins[good], ends[good] + 1), axis=1).reshape(-1)
        padded = np.append(total, total[-1])
        known = np.minimum.reduceat(padded, bounds)[::2] >= 0
        peaks[good] = np.where(known, np.maximum.reduceat(padded, bounds)[::2], -1)
    return peaks.tolist()


def _compare(
    what: str, driver: int, total: Int64 | None, begin: int | None, end: int | None
) -> Check:
    """The driver's figure against the greatest total between two moments, where both are known."""
    replayed = None
    if total is not None and begin is not None and end is not None and begin <= end:
        stretch = total[begin : end + 1]
        if _all_known(stretch):
            replayed = int(stretch.max())
    return Check(what, driver, replayed, -1 if begin is None else begin, -1 if end is None else end)


def driver_peak(checks: list[Check], name: str, begin: int, end: int) -> int | None:
    """The driver's own peak of ``name`` over just the moments from ``begin`` to ``end``.

    One stretch that it measured, or several that follow one another; None where it measured none
    such.
    """
    longest: dict[int, Check] = {}
    peaks = f"{name} peak"
    for check in checks:
        if check.what.startswith(peaks) and check.begin >= 0 and check.end <= end:
            known = longest.get(check.begin)
            if known is None or check.end > known.end:
                longest[check.begin] = check
    peak, moment = -1, begin
    while moment in longest:
        check = longest[moment]
        peak = max(peak, check.driver)
        if check.end == end:
            return peak
        if check.end == moment:
            return None
        moment = check.end
    return None


def reconciled(checks: list[Check], part: Mapping[str, Any] | None = None) -> bool | None:
    """Whether all figures that can be compared agree; None where none can.

    ``part`` is what ``part_of`` gives: of a part of a recording, as far as the whole's agree, too.
    """
    results = {check.agrees for check in checks} - {None}
    if part is not None:
        results = (results & {False}) | {part["reconciled"]} - {None}
    return False not in results if results else None


def _all_known(totals: Int64) -> bool:
    """Whether no moment is one that ``settle`` marks as unknown (-1)."""
    return bool((totals >= 0).all())


def _total(replay: Replay, name: str) -> Int64 | None:
    totals = {
        "allocated": replay.allocated,
        "requested": replay.requested,
        "reserved": replay.reserved,
    }
    return totals[name]
