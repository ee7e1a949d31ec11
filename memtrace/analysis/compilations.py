"""What compilers did in a run: compilations, recompilations, graph breaks and splits.

They explain gaps in time and memory: a graph break gives a part back to Python, a split to another
compiler, a recompilation leaves a second copy of the code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from memtrace.snapshot.columns import Recording
from memtrace.symbols.table import short_path

# In a guard's text: values of the program's and addresses, unlike sizes and versions.
_CHANGING = re.compile(r"0x[0-9a-f]+|(?<!\d)-?\d++\.\d++(?:e[-+]?\d+)?|\b\d{9,}\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Compilation:
    """One kind of event at one place for one reason, ``count`` times in the run.

    ``kind``: "compile", "recompile", "graph break", "split". ``duration_ns``: of all of them
    together, as far as measured. ``iterations``: in which they happened, -1 outside of any.
    """

    kind: str
    name: str
    where: str
    reason: str
    count: int
    duration_ns: int
    iterations: tuple[int, ...]

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What is the same from run to run: where the script lies is not, nor what it computes."""
        reason = _CHANGING.sub("…", self.reason)
        return (self.kind, self.name, short_path(self.where), reason)


def list_compilations(recording: Recording) -> tuple[Compilation, ...]:
    """In the order in which each first happened; () where the capture has none, or is plain."""
    meta = recording.meta or {}
    found: dict[tuple[str, ...], Compilation] = {}
    for event in meta.get("compilations") or ():
        one = Compilation(
            event["kind"],
            event["name"],
            event["where"],
            event["reason"],
            1,
            max(event["duration_ns"], 0),
            (_iteration(event["mark"], meta["iterations"]),),
        )
        known = found.get(one.identity)
        found[one.identity] = one if known is None else _add(known, one)
    return tuple(found.values())


def _add(one: Compilation, other: Compilation) -> Compilation:
    return replace(
        one,
        count=one.count + other.count,
        duration_ns=one.duration_ns + other.duration_ns,
        iterations=tuple(dict.fromkeys((*one.iterations, *other.iterations))),
    )


def _iteration(mark: int, iterations: Sequence[dict[str, Any]]) -> int:
    """The iteration that a mark lies in, -1 for none."""
    inside = (step["index"] for step in iterations if step["begin"] <= mark < step["end"])
    return next(inside, -1)


def without(
    compilations: Sequence[Compilation], others: Sequence[Compilation]
) -> tuple[Compilation, ...]:
    """Those that the other run has not, or less often."""
    counts = {one.identity: one.count for one in others}
    return tuple(one for one in compilations if one.count > counts.get(one.identity, 0))
