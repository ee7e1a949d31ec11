"""A long run's recording, kept to what is asked for: ``memtrace record --window last:3``.

While it runs, what lies in memory stays bounded. The first iterations stay (what compiles and the
profiled one, which tell the names) and so do the last ones; of those between only what they
allocated that is still alive, with its stack, and how long their steps took. At the end the capture
is cut as ``memtrace trim`` cuts one, but up to the end of the recording.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from memtrace.capture.iterations import Step, judge
from memtrace.capture.marks import MarkLog
from memtrace.errors import MemtraceError

if TYPE_CHECKING:
    from memtrace.snapshot.format import Iteration

_FIRST = 8  # iterations at the beginning that stay
_UNPROFILED = 64  # after so many the profiler has had its chances
# Besides those asked for: the one in progress, one that breaks off, one for what it left behind.
_MORE = 3
_STEPS = 10_000  # whose times are kept


def count_of(window: str) -> int:
    """How many iterations 'last:3' (or 'last') asks for. MemtraceError for anything else."""
    found = re.fullmatch(r"last(?::([1-9]\d{0,3}))?", window.strip(), flags=re.IGNORECASE)
    if found is None:
        raise MemtraceError(
            f"window {window!r}: while recording only the last iterations can be kept; give "
            "last:3, or record all and use memtrace trim"
        )
    return int(found[1] or 1)


@dataclass(slots=True)
class KeptWindow:
    """The iterations begun so far, and which of them are forgotten: ``forgotten`` in number.

    ``head`` is the mark at which the last of the first iterations begins. Its own end is forgotten.
    """

    count: int
    marks: MarkLog
    forgotten: int = 0
    head: int = -1
    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=_STEPS))
    _begins: list[int] = field(default_factory=list)
    _start: int = -1

    @property
    def stay(self) -> int:
        """How many iterations at the end stay while it runs."""
        return self.count + _MORE

    def began(self, mark: int) -> None:
        """An iteration begins at a mark."""
        self._begins.append(mark)

    def restart(self) -> None:
        """What passed for iterations so far were none."""
        if self.head < 0:
            self._begins.clear()

    def forget(self, profiled: int | None, arrivals: dict[int, int]) -> tuple[int, int] | None:
        """Forget what is neither at the beginning nor among the last: marks first to last.

        ``profiled`` is the mark at which the profiled iteration began, None where there was none
        yet. Returns all marks that are forgotten by now, the last not included; None as before.
        """
        begins = self._begins
        if self.head < 0:
            if profiled is None and len(begins) < _UNPROFILED:
                return None
            # One after the profiled one as well, and its marks are all there.
            first = max([_FIRST, *(k + 2 for k, mark in enumerate(begins) if mark == profiled)])
            if len(begins) <= first:
                return None
            self.head, self._start = begins[first - 1 : first + 1]
            self._begins = begins = begins[first:]
            self._keep_step(self.head, self._start, arrivals)
        last = len(begins) - self.stay
        if last <= 0:
            return None
        for begin, end in pairwise(begins[: last + 1]):
            self._keep_step(begin, end, arrivals)
        self.forgotten += last
        self._begins = begins[last:]
        return self.marks.forget(self._begins[0], self._start)

    def _keep_step(self, begin: int, end: int, arrivals: dict[int, int]) -> None:
        """How long the iteration from one mark to another took, if it was a steady one."""
        entries = self.marks.entries
        first, last = self.marks.position(begin), self.marks.position(end)
        step = judge(entries, first, last)
        if step is not None:
            wall = arrivals.get(end, entries[last].time_ns) - entries[first].time_ns
            self.steps.append(step._replace(begin=begin, end=end, wall_ns=max(0, wall)))

    def number(self, iterations: list[Iteration]) -> list[Iteration]:
        """Iterations of the marks that are left, with their true numbers."""
        if not self.forgotten:
            return iterations
        gap = self.marks.gap
        kept = [i for i in iterations if not (i["begin"] < gap <= i["end"])]
        for iteration in kept:
            iteration["index"] += self.forgotten * (iteration["begin"] >= gap)
        return kept


def cut(capture: dict[str, Any], count: int, name: str) -> dict[str, Any]:
    """The capture of the last whole iterations and of what follows them.

    As it is where there are none.
    """
    from memtrace.analysis.peak import open_subject
    from memtrace.analysis.trim import trim
    from memtrace.snapshot.reader import take
    from memtrace.snapshot.torch_form import to_snapshot

    if not any(i["whole"] for i in capture["memtrace"]["iterations"]):
        return capture
    return to_snapshot(trim(open_subject(take(capture, name), f"last:{count}"), to_end=True))
