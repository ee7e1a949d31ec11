"""The peak that a transform should leave, from the recording without it.

What ``memtrace.transforms`` did (which tensors, how, from what) becomes changed lifetimes of the
baseline's peak iteration, and what-if gives the new maximum. Nothing of the other recording's
memory is used.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from memtrace.analysis.peak import Subject
from memtrace.analysis.whatif import Change, Edit, Extension, NewPeak, Skyline, base_of
from memtrace.snapshot.generated import is_generated
from memtrace.symbols import attribute
from memtrace.symbols.running import find_runs
from memtrace.symbols.sources import VIEWS, operation_name
from memtrace.timeline import peak


class Program:
    """The Thunder program that holds most at the peak of a recording, in its peak iteration."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._attribution = attribute(subject.recording, subject.replay)
        self._sources = self._attribution.sources
        self.module = self._heaviest()
        regions = {f: self._sources.region(f) for f in self._sources.filenames}
        self._files = {
            r.phase: f
            for f, r in regions.items()
            if r is not None and r.module == self.module and not r.symbol
        }
        self._events = self._place_lines()
        self.lifetimes = self._name_lifetimes()

    def _inside(self) -> list[int]:
        window, rows = self.subject.window, self.subject.replay.lifetimes
        return np.flatnonzero((rows.born >= window.begin) & (rows.born < window.end)).tolist()

    def _heaviest(self) -> str:
        sizes: dict[str, int] = defaultdict(int)
        for k in self._inside():
            symbol = self._attribution.of(k).symbol
            if symbol.compiler == "thunder":
                sizes[symbol.module] += int(self.subject.replay.lifetimes.requested[k])
        return max(sizes, key=lambda name: sizes[name])

    def _place_lines(self) -> dict[str, tuple[list[int], list[int]]]:
        """For each pass the lines that have events, in order, and the first event of each."""
        window = self.subject.window
        runs = find_runs(self.subject.recording, self.subject.replay, (window,))
        first: dict[str, dict[int, int]] = defaultdict(dict)
        files = {file: phase for phase, file in self._files.items()}
        for row, event in zip(runs.statement.tolist(), runs.first.tolist(), strict=True):
            file, _, line = runs.statements[row].where.rpartition(":")
            phase = files.get(self._sources.full_name(file))
            if phase is not None and window.begin <= event < window.end:
                first[phase].setdefault(int(line), event)
        placed = {}
        for phase, lines in first.items():
            order = sorted(lines)
            placed[phase] = (order, [lines[line] for line in order])
        return placed

    def before(self, phase: str, line: int) -> int:
        """The moment at which a line begins."""
        lines, events = self._events[phase]
        at = bisect_left(lines, line)
        return events[at] if at < len(events) else self.subject.window.end

    def after(self, phase: str, line: int) -> int:
        """The moment at which a line has ended."""
        lines, events = self._events[phase]
        at = bisect_right(lines, line)
        return events[at] if at < len(events) else self._end_of(phase)

    def _end_of(self, phase: str) -> int:
        ends = [p.end for p in self.subject.window.phases if p.name == phase]
        return max(ends, default=self.subject.window.end)

    def readers(self, name: str, phase: str) -> list[int]:
        """The lines of a pass that read a tensor or a view of it; views alone do not count."""
        file = self._files.get(phase)
        if file is None:
            return []
        found = []
        names = self._views(name)
        for line, statement in sorted(self._sources.source(file).statements.items()):
            reads = statement.callee and names & set(statement.arguments)
            if reads and operation_name(statement.callee) not in VIEWS:
                found.append(line)
        return found

    def _views(self, name: str) -> set[str]:
        names = {name}
        for phase in ("forward", "backward"):
            source = self._sources.source(self._files.get(phase, ""))
            for _, statement in sorted(source.statements.items()):
                if operation_name(statement.callee) in VIEWS and names & set(statement.arguments):
                    names.update(statement.outputs)
        return names

    def root(self, name: str) -> str:
        """The tensor that a view lies in; the name itself of what is no view."""
        for phase in ("backward", "forward"):
            maker = self._sources.source(self._files.get(phase, "")).makers.get(name)
            if maker and operation_name(maker.callee) in VIEWS and maker.arguments:
                return self.root(maker.arguments[0])
        return name

    def _name_lifetimes(self) -> dict[str, int]:
        """The lifetime of each tensor in the window. Of several of one size that a statement makes
        it is the free that tells which is which: ``del`` has the name, or that of a view. What a
        fusion makes in between can have the size of its result, but lives shorter."""
        rows = self.subject.replay.lifetimes
        named: dict[str, int] = {}
        unsure: list[tuple[int, list[str]]] = []
        for k in sorted(self._inside(), key=lambda k: int(rows.born[k] - rows.freed[k])):
            naming = self._attribution.of(k)
            if naming.symbol.module != self.module:
                continue
            fitting = list(dict.fromkeys(t.name for t in naming.fitting(int(rows.requested[k]))))
            deleted = self._deleted(k)
            told = [name for name in fitting if self._views(name) & deleted] if deleted else []
            if len(fitting) == 1 or len(told) == 1:
                named.setdefault((told or fitting)[0], k)
            elif fitting:
                unsure.append((k, told or fitting))
        for k, names in unsure:
            for name in names:
                if name not in named:
                    named[name] = k
                    break
        return named

    def _deleted(self, k: int) -> set[str]:
        frames = self._attribution.stacks.python(int(self.subject.replay.lifetimes.free_stack[k]))
        frame = next((f for f in frames if is_generated(f.filename)), None)
        statement = self._sources.statement(frame.filename, frame.line) if frame else None
        return set(statement.deletes) if statement else set()

    def shares(self, view: str, base: str) -> bool:
        """Whether a statement makes a tensor and a view of it, and allocates once."""
        makers = self._sources.source(self._files.get(self.pass_of(view), "")).makers
        same = makers.get(view) is not None and makers.get(view) is makers.get(base)
        return same and base not in self.lifetimes

    def pass_of(self, name: str) -> str:
        """The pass that makes a tensor."""
        there = self._sources.source(self._files.get("forward", "")).makers
        return "forward" if name in there else "backward"


def change_of(program: Program, done: Iterable[Mapping[str, Any]]) -> Change:
    """What a transform did as a change of lifetimes. ``done`` are Done's fields."""
    edits: dict[int, Edit] = {}
    extensions: list[Extension] = []
    rows = program.subject.replay.lifetimes
    for one in done:
        name, way = one["tensor"], one["way"]
        lifetime = program.lifetimes.get(name)
        if lifetime is None:
            continue  # it was a view before
        born, freed = int(rows.born[lifetime]), int(rows.freed[lifetime])
        if way == "a view" and program.shares(name, one["sources"][0]):
            continue  # the fusion gave out one buffer for both
        alive: list[tuple[int, int]] = []
        until = freed
        if way == "moved":
            reads = program.readers(name, program.pass_of(name))
            until = program.before(program.pass_of(name), reads[0])
            alive = [(until - 1, freed)]
        elif way in ("made again", "made by its readers"):
            reads = program.readers(name, "forward")
            if reads:
                alive.append((born, program.after("forward", reads[-1])))
            again = program.readers(name, "backward")
            if way == "made again" and again:
                until = program.before("backward", again[0])
                alive.append((until - 1, freed))
        edits[lifetime] = Edit(lifetime, tuple(alive))
        for passing in one.get("between", ()):
            extra = program.lifetimes.get(passing)
            if extra is not None and extra not in edits:
                own = (int(rows.born[extra]), int(rows.freed[extra]))
                edits[extra] = Edit(extra, (own, (until - 1, until)))
        for source in one["sources"]:
            held = program.lifetimes.get(program.root(source))
            if held is not None and int(rows.freed[held]) < until:
                extensions.append(Extension(held, until))
    return Change("gone", "", tuple(edits.values()), tuple(extensions))


def predict(subject: Subject, done: Sequence[Mapping[str, Any]]) -> tuple[int, NewPeak]:
    """(the peak as recorded, the peak with the change), bytes of the better accounting."""
    accounting = subject.replay.accounting
    change = change_of(Program(subject), done)
    skyline = Skyline(base_of(subject.replay, subject.window, accounting), [change])
    return peak(subject.replay, subject.window, accounting).total, skyline.peak([0])
