"""Which changes to make together: all that help, or the fewest that reach a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memtrace.analysis.whatif.skyline import NewPeak, Skyline

_MOST_STEPS = 5000  # of the search for the fewest; above it, the list may not be the shortest


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes made together, as numbers of the skyline's, and the peak that is left.

    ``shortest`` says that no shorter list reaches the target; True without a target.
    """

    chosen: tuple[int, ...]
    peak: NewPeak
    shortest: bool = True


def score(saved: int, moved: int) -> float:
    """Bytes saved for the work they need: ``saved`` where nothing moves, half of it where as many
    bytes have to be read and written again as are saved, and so on."""
    return saved * saved / (saved + moved) if saved > 0 else float(saved)


def combine(skyline: Skyline) -> Plan:
    """Every change that helps and that those before it allow, the best first.

    The peak is not above that of any of them alone. Those without which it is the same are left
    out.
    """
    count = len(skyline.changes)
    saved = [skyline.tops.max() - skyline.peak([k]).bytes for k in range(count)]
    order = sorted(range(count), key=lambda k: (-saved[k], skyline.changes[k].moved, k))
    chosen: list[int] = []
    best = skyline.peak().bytes
    for number in order:
        if any(skyline.changes[number].excludes(skyline.changes[k]) for k in chosen):
            continue
        peak = skyline.peak([*chosen, number]).bytes
        if peak <= best:
            chosen.append(number)
            best = peak
    for number in chosen[::-1]:
        rest = [k for k in chosen if k != number]
        if skyline.peak(rest).bytes <= best:
            chosen = rest
    return Plan(tuple(chosen), skyline.peak(chosen))


def reach(skyline: Skyline, target: int) -> Plan | None:
    """The fewest changes that bring the peak to ``target`` bytes or below.

    None where all that can be made together does not. Whatever list does, has a change that brings
    down the stretch that is highest: so lists are tried by their length, each one longer by one of
    those, and given up where the largest reductions there cannot do.
    """
    if int(skyline.tops.max()) <= target:
        return Plan((), skyline.peak())
    everything = combine(skyline)
    search = _Search(skyline, target)
    limit = len(skyline.changes)
    if everything.peak.bytes <= target:
        limit = len(everything.chosen) - 1
    for length in range(1, limit + 1):
        found = search.extend((), length)
        if found is not None:
            return Plan(found, skyline.peak(found), search.steps <= _MOST_STEPS)
        if search.steps > _MOST_STEPS:
            break
    if everything.peak.bytes > target:
        return None
    kept = _thin_out(skyline, everything.chosen, target)
    return Plan(kept, skyline.peak(kept), search.steps <= _MOST_STEPS)


class _Search:
    """Lists of changes, tried in order of their length; a set is looked at once for a length."""

    def __init__(self, skyline: Skyline, target: int) -> None:
        self._skyline = skyline
        self._target = target
        self._seen: set[tuple[frozenset[int], int]] = set()
        changes = skyline.changes
        self._excludes = [[one.excludes(other) for other in changes] for one in changes]
        self.steps = 0

    def extend(self, chosen: tuple[int, ...], left: int) -> tuple[int, ...] | None:
        """``chosen`` with up to ``left`` more, None where no such list reaches the target."""
        level = self._skyline.level(chosen)
        top = int(level.argmax())
        if level[top] <= self._target:
            return chosen
        key = (frozenset(chosen), left)
        if left == 0 or key in self._seen or self.steps > _MOST_STEPS:
            return None
        self._seen.add(key)
        self.steps += 1
        column = self._skyline.deltas[:, top]
        useful = [int(k) for k in np.argsort(column, kind="stable") if column[k] < 0]
        useful = [k for k in useful if not any(self._excludes[k][c] or k == c for c in chosen)]
        if level[top] + int(column[useful[:left]].sum()) > self._target:
            return None
        for number in useful:
            if (found := self.extend((*chosen, number), left - 1)) is not None:
                return found
        return None


def _thin_out(skyline: Skyline, chosen: Sequence[int], target: int) -> tuple[int, ...]:
    """Without those that the target is reached without, the least first."""
    kept = list(chosen)
    for number in chosen[::-1]:
        rest = [k for k in kept if k != number]
        if skyline.peak(rest).bytes <= target:
            kept = rest
    return tuple(kept)
