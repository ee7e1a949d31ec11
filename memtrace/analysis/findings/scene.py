"""What all detectors look at: one recording's window, its peak, and every lifetime's name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from memtrace.analysis.findings.finding import Finding, Kind, Sure
from memtrace.analysis.peak import Subject
from memtrace.analysis.rows import layer_pattern
from memtrace.analysis.whatif import Edit
from memtrace.snapshot.columns import Int64
from memtrace.symbols import Attribution, Naming
from memtrace.symbols.categories import CATEGORIES, WORKSPACES
from memtrace.symbols.owners import members_of
from memtrace.symbols.statements import Tensor
from memtrace.symbols.table import is_library, short_path
from memtrace.timeline import Accounting, Rules, Window, peak, sizes
from memtrace.timeline.replay import is_cpu
from memtrace.timeline.rules import MIN_BLOCK

# What takes less than this share of what the program holds at its peak does not close a gap that
# anybody looks for. Workspaces of cuBLAS, of a fixed size however small the program is, apart.
WORTH = 0.01
_SHAPES = 2  # that are named; more would not be read


class Scene:
    """A subject named and cut to its window.

    ``born`` and ``end`` are columns of all lifetimes, as in the accounting: one counts at moment k
    if born < k ≤ end. ``size`` are its bytes, ``at_peak`` whether it counts at the peak.
    """

    def __init__(self, subject: Subject, attribution: Attribution, accounting: Accounting) -> None:
        self.subject = subject
        self.run = subject.replay
        self.window: Window = subject.window
        self.attribution = attribution
        self.accounting = accounting
        self.peak = peak(self.run, self.window, accounting)
        lifetimes = self.run.lifetimes
        self.born = lifetimes.born
        self.end = lifetimes.freed if accounting == "allocated" else lifetimes.completed
        self.requested = lifetimes.requested
        self.size = sizes(self.run, accounting)
        self.at_peak: npt.NDArray[np.bool_] = (self.born < self.peak.event) & (
            self.end >= self.peak.event
        )

    @cached_property
    def held(self) -> Int64:
        """The lifetimes that count at the peak."""
        return np.flatnonzero(self.at_peak)

    @cached_property
    def floor(self) -> int:
        """The bytes from which on a cause is worth a person's time."""
        categories = np.array(self.attribution.categories.of(self.held.tolist(), self.peak.event))
        fixed = int(self.size[self.held][categories == WORKSPACES].sum()) if len(self.held) else 0
        return max(int((self.peak.total - fixed) * WORTH), 1)

    @cached_property
    def inside(self) -> range:
        """The lifetimes born in ``stretch``."""
        begin, end = members_of(self.born, [self.stretch])[0]
        return range(begin, end)

    @cached_property
    def earlier(self) -> Int64:
        """The lifetimes born before ``stretch`` and alive when it begins."""
        before = slice(0, self.inside.start)
        return np.flatnonzero(self.end[before] > self.stretch.begin)

    @cached_property
    def stretch(self) -> Window:
        """The iteration that is looked at: of a longer window, the one that the peak lies in."""
        if self.window.kind == "iteration":
            return self.window
        around = (w for w in self.iterations if w.begin < self.peak.event <= w.end)
        return next(around, self.window)

    @cached_property
    def iterations(self) -> list[Window]:
        """The iterations of the recording, in order."""
        return [w for w in self.attribution.windows if w.kind == "iteration"]

    def naming(self, lifetime: int) -> Naming:
        """What made a lifetime."""
        return self.attribution.of(lifetime)

    def tensors(self, lifetime: int) -> tuple[Tensor, ...]:
        """What a lifetime may hold: one tensor, or an honest set."""
        return self.naming(lifetime).fitting(int(self.requested[lifetime]))

    def layer(self, lifetime: int) -> str:
        """The layer of a lifetime, '' where it is not known."""
        return self.naming(lifetime).layer_of(int(self.requested[lifetime]))

    def categories(self, lifetimes: Sequence[int]) -> list[str]:
        """The part that each plays at the peak."""
        numbers = self.attribution.categories.numbers(
            np.array(lifetimes, dtype=np.int64), self.peak.event
        )
        return [CATEGORIES[number] for number in numbers.tolist()]

    def category(self, lifetime: int) -> str:
        return self.categories([lifetime])[0]

    def kind_of(self, lifetime: int) -> tuple[str, ...]:
        """What lifetimes of repeated layers have in common."""
        naming = self.naming(lifetime)
        symbol = naming.symbol
        tensors = " | ".join(dict.fromkeys(t.text for t in self.tensors(lifetime)))
        return (
            str(symbol.compiler),
            symbol.module,
            str(symbol.phase),
            symbol.name.rstrip("0123456789"),
            symbol.operation.rstrip("0123456789"),
            symbol.line,
            layer_pattern(self.layer(lifetime)),
            tensors or str(int(self.requested[lifetime])),
        )

    def bytes_of(self, lifetimes: Iterable[int]) -> int:
        """What some lifetimes hold at the peak: requested bytes, as rows have them."""
        held = [k for k in set(lifetimes) if self.at_peak[k]]
        return int(self.requested[held].sum())

    def beside(self, lifetime: int, source: int) -> Edit:
        """The life of a tensor without the time for which another one holds the same values: while
        that one is there, it is not needed. At the moment that one is made of it, it is."""
        born, end = int(self.born[lifetime]), int(self.end[lifetime])
        pieces = (
            (born, min(end, int(self.born[source]) + 1)),
            (max(born, int(self.end[source])), end),
        )
        return Edit(lifetime, tuple(piece for piece in pieces if piece[0] < piece[1]))

    def narrowed(self, lifetime: int, requested: int) -> Edit:
        """The same life with a request of so many bytes, in a block rounded as the allocator
        does; what a large block is not split for is not known and left out."""
        size = requested
        if self.accounting == "allocated" and not is_cpu(self.subject.recording):
            size = Rules.from_settings(self.subject.recording.settings).round(requested)
        whole = (int(self.born[lifetime]), int(self.end[lifetime]))
        return Edit(lifetime, (whole,), min(size, int(self.size[lifetime])))

    def grows(self, begin: int, end: int) -> bool:
        """Whether anything is allocated by the events from ``begin`` on and before ``end``."""
        first, last = np.searchsorted(self.born, (begin, end))
        return bool(last > first)

    def overlap(self, one: int, other: int) -> bool:
        """Whether two live side by side at the peak, or while anything else is allocated."""
        if self.at_peak[one] and self.at_peak[other]:
            return True
        begin = max(int(self.born[one]), int(self.born[other])) + 1
        return self.grows(begin, min(int(self.end[one]), int(self.end[other])))

    def narrowest(self, lifetimes: Int64) -> Int64:
        """The blocks of some lifetimes if every one were split: requests rounded up to 512."""
        return np.maximum(-(-self.requested[lifetimes] // MIN_BLOCK), 1) * MIN_BLOCK

    def describe(self, lifetimes: Sequence[int]) -> str:
        """'4 × bfloat16[1, 28, 4096, 4096] of model.layers.*.self_attn': alike ones in words.

        Where their shapes are not known, what makes them.
        """
        texts = list(dict.fromkeys(t.text for k in lifetimes for t in self.tensors(k)))
        if not texts:
            symbol = self.naming(lifetimes[0]).symbol
            texts = [f"{symbol.name} ({symbol.line})" if symbol.line else symbol.name]
        what = " | ".join(texts) if len(texts) <= _SHAPES else f"tensors of {len(texts)} shapes"
        many = f"{len(lifetimes)} × " if len(lifetimes) > 1 else ""
        layers = list(dict.fromkeys(layer_pattern(self.layer(k)) for k in lifetimes))
        place = f" of {layers[0]}" if len(layers) == 1 and layers[0].strip("*.") else ""
        return f"{many}{what}{place}"

    def where(self, lifetime: int) -> str:
        """The line that made a lifetime: of generated code with its text, else of the model."""
        naming = self.naming(lifetime)
        short, _, number = naming.where.rpartition(":")
        sources = self.attribution.sources
        if number.isdecimal():
            statement = sources.statement(sources.full_name(short), int(number))
            if statement is not None:
                return f"{naming.where}  {statement.text}"
        return naming.symbol.line or naming.where

    def free_line(self, lifetime: int) -> str:
        """The line that frees a lifetime, '' where no Python did it."""
        frames = self.attribution.stacks.python(int(self.run.lifetimes.free_stack[lifetime]))
        # Under a default device, every function of torch is called through a wrapper.
        frames = [f for f in frames if not is_library(f.filename)] or frames
        if not frames:
            return ""
        statement = self.attribution.sources.statement(frames[0].filename, frames[0].line)
        text = f"  {statement.text}" if statement is not None and statement.text else ""
        return f"{short_path(frames[0].filename)}:{frames[0].line}{text}"

    def found(
        self,
        kind: Kind,
        title: str,
        lifetimes: Sequence[int],
        *,
        evidence: Sequence[str],
        try_: str,
        sure: Sure,
        bytes_: int | None = None,
        beside: Sequence[int] = (),
    ) -> Finding:
        """A finding about some lifetimes, ``beside`` being others that its lines should show.

        ``bytes_`` where it is not all that they hold.
        """
        shown = [*lifetimes, *beside]
        names = dict.fromkeys(self.naming(k).symbol.text for k in shown)
        lines = dict.fromkeys(line for k in shown if (line := self.where(k)))
        layers = dict.fromkeys(layer for k in lifetimes if (layer := self.layer(k)))
        return Finding(
            kind=kind,
            title=title,
            bytes=self.bytes_of(lifetimes) if bytes_ is None else bytes_,
            symbols=tuple(names),
            lines=tuple(lines),
            layers=tuple(layers),
            evidence=tuple(evidence),
            try_=try_,
            sure=sure,
            lifetimes=tuple(k for k in lifetimes if self.at_peak[k]),
        )
