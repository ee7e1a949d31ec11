"""A change of a program, as what becomes of lifetimes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Way = Literal[
    "freed at its last use",
    "made at its first use",
    "recomputed",
    "narrower",
    "gone",
]


@dataclass(frozen=True, slots=True)
class Edit:
    """What becomes of one lifetime, a row number of the replay.

    ``alive`` are the stretches that it then lives, each (born, end): it counts at moment k if
    born < k ≤ end, as in ``timeline.live``. They lie within its life as recorded, and do not
    overlap. ``bytes`` is what it takes then, None: as much as before.
    """

    lifetime: int
    alive: tuple[tuple[int, int], ...] = ()
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Extension:
    """A lifetime that has to last until the moment ``until``, because what reads it runs later."""

    lifetime: int
    until: int


@dataclass(frozen=True, slots=True)
class Change:
    """One change that a person can make, for all layers alike.

    ``edits`` shrink lifetimes, ``extensions`` make others last longer for it. ``needs`` are
    lifetimes that have to stay as they are for the change to hold: what a recomputed tensor is
    made from, what a view lies in. ``moved`` is the work: bytes that the GPU reads and writes more
    in an iteration. ``finding`` is the place of its cause in a list of findings, -1 none.
    """

    way: Way
    title: str
    edits: tuple[Edit, ...]
    extensions: tuple[Extension, ...] = ()
    needs: frozenset[int] = frozenset()
    moved: int = 0
    finding: int = -1

    @property
    def touched(self) -> frozenset[int]:
        """The lifetimes that it shrinks."""
        return frozenset(edit.lifetime for edit in self.edits)

    @property
    def relied_on(self) -> frozenset[int]:
        """The lifetimes that no other change may shrink."""
        return self.needs | {one.lifetime for one in self.extensions}

    def excludes(self, other: Change) -> bool:
        """Whether the two cannot both be made: they change the same lifetime, or one shrinks what
        the other relies on."""
        return bool(
            self.touched & (other.touched | other.relied_on) or other.touched & self.relied_on
        )
