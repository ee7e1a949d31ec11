"""The replay against the driver: what torch's own counters said, and what the events give."""

from __future__ import annotations

from typing import NamedTuple

from memtrace.snapshot.columns import Int64, Recording
from memtrace.snapshot.format import STAT_FIELDS
from memtrace.timeline.moments import Moments
from memtrace.timeline.replay import Replay, device_meta

_NAMES = ("allocated", "requested", "reserved")


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

    The driver's peaks over its stretches (Device.peaks), and its current totals at every mark
    that has them. Empty for plain snapshots, which carry no figures of the driver.
    """
    moments = Moments(recording, replay)
    checks = []
    for entry in (device_meta(recording, replay.device) or {}).get("peaks") or []:
        begin, end = moments.at_event(entry["begin"]), moments.at_event(entry["end"])
        for name in _NAMES:
            total = _total(replay, name)
            replayed = None
            if total is not None and begin is not None and end is not None and begin <= end:
                stretch = total[begin : end + 1]
                replayed = int(stretch.max()) if _all_known(stretch) else None
            checks.append(
                Check(
                    f"{name} peak ({entry['why']})",
                    int(entry[name]),
                    replayed,
                    -1 if begin is None else begin,
                    -1 if end is None else end,
                )
            )
    for mark in moments.marks():
        stats = moments.stats(mark)
        moment = moments.at_mark(mark)
        for field, value in zip(STAT_FIELDS, stats, strict=False):
            counter, _, which = field.partition(".")
            name = counter.removesuffix("_bytes")
            # The peaks among the statistics reach back to the last reset: Device.peaks has them.
            if which != "current":
                continue
            total = _total(replay, name)
            replayed = None
            if total is not None and moment is not None and _all_known(total[moment:][:1]):
                replayed = int(total[moment])
            at = -1 if moment is None else moment
            label = " ".join(x for x in (moments.kind(mark), moments.edge(mark)) if x)
            checks.append(Check(f"{name} at mark {mark} ({label})", value, replayed, at, at))
    return checks


def reconciled(checks: list[Check]) -> bool | None:
    """Whether all figures that can be compared agree; None where none can."""
    results = [c.agrees for c in checks if c.agrees is not None]
    return all(results) if results else None


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
