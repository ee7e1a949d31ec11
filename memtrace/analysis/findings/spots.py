"""One cause in one place, and the same cause in all layers as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from memtrace.analysis.findings.cause import Cause
from memtrace.analysis.findings.finding import Kind, Sure
from memtrace.analysis.findings.scene import Scene
from memtrace.analysis.whatif import Change, Edit, Extension, Way


@dataclass(frozen=True, slots=True)
class Spot:
    """A lifetime that a cause takes, and what would become of it without.

    ``beside`` are lifetimes that show it, such as the other copy. ``edit`` is None where no change
    undoes it; ``extensions``, ``needs`` and ``moved`` are as in a Change. ``excess`` is how many of
    the lifetime's bytes the cause takes, None: all. ``key`` is equal for what is one cause, None:
    for what is alike in all layers.
    """

    kind: Kind
    lifetime: int
    evidence: tuple[str, ...] = ()
    beside: tuple[int, ...] = ()
    edit: Edit | None = None
    extensions: tuple[Extension, ...] = ()
    needs: tuple[int, ...] = ()
    moved: int = 0
    excess: int | None = None
    key: Hashable = None


@dataclass(frozen=True, slots=True)
class Wording:
    """What is said of a kind: ``title`` and ``change`` with ``{what}`` for the tensors."""

    title: str
    try_: str
    way: Way
    change: str
    sure: Sure


Told = tuple[Spot, Wording]
# What is made of nothing can be done without, wherever it is read.
CONSTANT = Wording(
    "{what} saved for the backward, though made of nothing but constants",
    "do without it or make it again: a causal mask is is_causal=True, and a broadcast one needs no "
    "copy for each head",
    "gone",
    "do without {what}",
    "certain",
)


def gather(scene: Scene, told: Iterable[Told]) -> list[Cause]:
    """Spots of one kind in all layers as one cause.

    Of several causes that a lifetime's bytes at the peak may have, the first in the order of kinds
    gets them. A cause that is too small to matter at any moment is left out. One that holds nothing
    at the peak stays, with no bytes: what it changes may matter once the peak is lower.
    """
    order = get_args(Kind)
    groups: dict[Hashable, list[Spot]] = defaultdict(list)
    wordings: dict[Hashable, Wording] = {}
    claimed: set[int] = set()
    for spot, wording in sorted(told, key=lambda one: order.index(one[0].kind)):
        if scene.at_peak[spot.lifetime] and _taken(scene, spot) > 0:
            if spot.lifetime in claimed:
                continue
            claimed.add(spot.lifetime)
        key = (spot.kind, wording.title, spot.key or scene.kind_of(spot.lifetime))
        groups[key].append(spot)
        wordings[key] = wording
    return [
        _tell(scene, group, wordings[key])
        for key, group in groups.items()
        if sum(_weight(scene, spot) for spot in group) >= scene.floor
    ]


def _weight(scene: Scene, spot: Spot) -> int:
    """What it may matter by, now or once the peak is lower."""
    return _taken(scene, spot) or (int(scene.requested[spot.lifetime]) if spot.edit else 0)


def _taken(scene: Scene, spot: Spot) -> int:
    """The bytes at the peak that are there because of it: none where the change leaves them."""
    event = scene.peak.event
    edit = spot.edit
    if edit is not None and edit.bytes is None and any(b < event <= e for b, e in edit.alive):
        return 0
    return int(scene.requested[spot.lifetime]) if spot.excess is None else spot.excess


def _tell(scene: Scene, group: Sequence[Spot], wording: Wording) -> Cause:
    held = [spot for spot in group if scene.at_peak[spot.lifetime] and _taken(scene, spot) > 0]
    shown = held or group
    what = scene.describe([spot.lifetime for spot in shown])
    finding = scene.found(
        group[0].kind,
        wording.title.format(what=what),
        [spot.lifetime for spot in held],
        evidence=shown[0].evidence,
        try_=wording.try_,
        sure=wording.sure,
        bytes_=sum(_taken(scene, spot) for spot in held),
        beside=shown[0].beside,
    )
    changed = [spot for spot in group if spot.edit is not None]
    if not changed:
        return Cause(finding)
    touched = {spot.lifetime for spot in changed}
    everything = scene.describe([spot.lifetime for spot in changed])
    change = Change(
        wording.way,
        wording.change.format(what=everything),
        tuple(spot.edit for spot in changed if spot.edit is not None),
        _longest(one for spot in changed for one in spot.extensions),
        frozenset(k for spot in changed for k in spot.needs) - touched,
        sum(spot.moved for spot in changed),
    )
    return Cause(finding, (change,))


def _longest(extensions: Iterable[Extension]) -> tuple[Extension, ...]:
    """One for each lifetime."""
    until: dict[int, int] = {}
    for one in extensions:
        until[one.lifetime] = max(until.get(one.lifetime, one.until), one.until)
    return tuple(Extension(lifetime, moment) for lifetime, moment in until.items())
