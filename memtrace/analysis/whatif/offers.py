"""What each change saves by itself, all together, and which are enough for a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memtrace.analysis.whatif.change import Change
from memtrace.analysis.whatif.search import Plan, combine, reach, score
from memtrace.analysis.whatif.skyline import NewPeak, Skyline, base_of
from memtrace.timeline import Accounting, Replay, Window, position_in


@dataclass(frozen=True, slots=True)
class Offer:
    """One change made alone: the bytes that the peak is lower by, the new peak and where it lies.

    ``saved`` is 0 for one that helps only together with others.
    """

    change: Change
    saved: int
    peak: NewPeak
    position: str

    @property
    def worth(self) -> float:
        """Bytes saved for the work they need, see ``score``."""
        return score(self.saved, self.change.moved)


@dataclass(frozen=True, slots=True)
class Together:
    """Several changes made at once; ``offers`` are their numbers in the report."""

    offers: tuple[int, ...]
    peak: NewPeak
    position: str
    shortest: bool


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What the peak of a window, ``window`` by name, could be.

    ``offers`` are sorted by what they are worth. ``target`` is in bytes; ``reached`` is the
    shortest list that brings the peak down to it, None where no target was given or none does.
    """

    window: str
    peak: NewPeak
    offers: tuple[Offer, ...]
    together: Together
    target: int | None = None
    reached: Together | None = None


def report_whatif(
    run: Replay,
    window: Window,
    accounting: Accounting,
    changes: Sequence[Change],
    target: int | None = None,
) -> WhatIf:
    """Makes every change alone, then all that go together. Those that help in no way are left
    out."""
    skyline = Skyline(base_of(run, window, accounting), changes)
    today = skyline.peak()
    peaks = [skyline.peak([k]) for k in range(len(changes))]
    everything = combine(skyline)
    plan = reach(skyline, target) if target is not None else None
    useful = {k for k, peak in enumerate(peaks) if peak.bytes < today.bytes}
    useful |= {*everything.chosen, *(plan.chosen if plan is not None else ())}
    order = sorted(
        useful, key=lambda k: (-score(today.bytes - peaks[k].bytes, changes[k].moved), k)
    )
    places = {number: place for place, number in enumerate(order)}

    def together(plan: Plan) -> Together:
        numbers = tuple(sorted(places[k] for k in plan.chosen))
        return Together(numbers, plan.peak, position_in(window, plan.peak.event), plan.shortest)

    return WhatIf(
        window=window.name,
        peak=today,
        offers=tuple(
            Offer(
                changes[k],
                max(today.bytes - peaks[k].bytes, 0),
                peaks[k],
                position_in(window, peaks[k].event),
            )
            for k in order
        ),
        together=together(everything),
        target=target,
        reached=together(plan) if plan is not None else None,
    )
