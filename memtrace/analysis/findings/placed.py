"""Thunder programs laid over a recording: which lifetime holds which value, when a statement runs.

A statement that allocates or frees is seen in the stacks of its events. One that does neither lies
somewhere between its neighbours' events, and nothing that memory consists of tells where: the
moment just before the next event of a later statement stands for all of that stretch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from memtrace.analysis.findings.scene import Scene
from memtrace.program import Lifetime, Program, find_lifetimes, is_shape_only, read_programs, writes
from memtrace.program.aliases import written
from memtrace.snapshot.columns import Frame
from memtrace.symbols.thunder import is_trace_file

_Event = tuple[int, int]  # an event and the statement it happened in


class Placed:
    """One run of a program's passes in the window.

    ``lifetimes`` is {root of a storage: row number of the replay}, ``roots`` the other way.
    """

    def __init__(
        self,
        scene: Scene,
        program: Program,
        events: Sequence[_Event],
        made: Iterable[tuple[int, int, int]],
    ) -> None:
        self.scene = scene
        self.program = program
        self._statements = [statement for _, statement in events]
        self._events = [event for event, _ in events]
        self.lifetimes: dict[str, int] = {}
        for root, lifetime in self._match(made):
            self.lifetimes.setdefault(root, lifetime)
        self.roots = {lifetime: root for root, lifetime in self.lifetimes.items()}
        self._same = dict(_share(program, self.lifetimes))
        names: dict[str, list[str]] = defaultdict(list)
        for name in program.values:
            names[self.root(name)].append(name)
        self._names = dict(names)

    @cached_property
    def by_text(self) -> dict[str, Lifetime]:
        """The lives of all storages by the program's text."""
        return find_lifetimes(self.program)

    def moment(self, statement: int) -> int:
        """Just before the first event of a statement, or of the first one after it that has any."""
        at = bisect_left(self._statements, statement)
        return self._events[at] if at < len(self._events) else self._events[-1] + 1

    def after(self, statement: int) -> int:
        """When a statement is done: after its last event, or, where it has none, just before the
        next event of its pass. What comes after the last event of a pass is not the pass's."""
        at = bisect_right(self._statements, statement)
        own = at > 0 and self._statements[at - 1] == statement
        following = at < len(self._events) and self.phase(self._statements[at])
        if not own and following == self.phase(statement):
            return self._events[at]
        return self._events[at - 1] + 1 if at > 0 else self.moment(statement)

    def root(self, name: str) -> str:
        """The name of the memory that a value has: by the text, and where a fusion returned what it
        was given instead of a copy, by what was allocated."""
        root = self.program.values[name].root
        seen = {root}
        while (same := self._same.get(root)) is not None:
            root = self.program.values[same].root
            if root in seen:
                break
            seen.add(root)
        return root

    def names(self, root: str) -> list[str]:
        """All names of a memory."""
        return self._names.get(root, [])

    def lifetime(self, name: str) -> int | None:
        """The lifetime that holds a value, None where it is not known."""
        return self.lifetimes.get(self.root(name))

    def is_saved(self, root: str) -> bool:
        """Whether the forward leaves a memory to the backward."""
        return any(self.program.values[name].saved for name in self.names(root))

    def is_returned(self, root: str) -> bool:
        """Whether the caller gets a memory."""
        return any(self.program.values[name].returned for name in self.names(root))

    def uses(self, root: str) -> list[int]:
        """The statements that read a memory, under any of its names; views of it read nothing."""
        values = self.program.values
        found = set()
        for name in self.names(root):
            for use in values[name].uses:
                outputs = self.program.statements[use].outputs
                if not outputs or any(self.root(o) != root for o in outputs if o in values):
                    found.add(use)
        return sorted(found)

    def phase(self, statement: int) -> str:
        return self.program.statements[statement].phase

    def idle(self, root: str) -> tuple[int, int, int] | None:
        """From when to when nothing reads a saved memory: the moment after its last use in the
        forward, that before its first in the backward, and the statement of that; None where there
        is no such time."""
        uses = self.uses(root)
        backward = [use for use in uses if self.phase(use) == "backward"]
        maker = self.program.values[root].maker
        if not backward or maker is None:
            return None
        last = self.after(max((use for use in uses if use < backward[0]), default=maker))
        again = self.moment(backward[0])
        return (last, again, backward[0]) if last < again else None

    def last_name(self, root: str) -> str:
        """The last saved name of a memory: of the values that it has in the end."""
        saved = [name for name in self.names(root) if self.program.values[name].saved]
        return saved[-1]

    def is_there(self, name: str, moment: int) -> bool:
        """Whether the backward has a value of the forward at a moment, unchanged."""
        value = self.program.values.get(name)
        if value is None or self.root(name) in self.overwritten:
            return False
        if value.kind == "argument":
            return True
        lifetime = self.lifetime(name)
        saved = self.is_saved(self.root(name))
        return saved and lifetime is not None and int(self.scene.end[lifetime]) >= moment

    @cached_property
    def overwritten(self) -> frozenset[str]:
        """The memories that a statement writes into, beside what it makes."""
        program = self.program
        found = (writes(program, statement) for statement in program.statements)
        return frozenset(self.root(name) for names in found for name in names)

    def holder(self, root: str) -> str:
        """Who held a memory last, by the text; '' where that is not known."""
        life = self.by_text.get(root)
        return life.holders[-1] if life is not None and life.holders else ""

    def place(self, statement: int) -> str:
        """'thunder.backward_fn_24:301'."""
        one = self.program.statements[statement]
        return f"{one.filename}:{one.line}"

    def line(self, statement: int) -> str:
        """'thunder.backward_fn_24:301  t5 = …'."""
        one = self.program.statements[statement]
        return f"{one.filename}:{one.line}  {one.text}"

    def _match(self, made: Iterable[tuple[int, int, int]]) -> Iterable[tuple[str, int]]:
        """(root, lifetime) from (lifetime, statement that made it, statement that freed it or -1).

        Of several outputs of one size, the one that the text frees where the memory was freed.
        """
        program = self.program
        for lifetime, maker, freed in made:
            statement = program.statements[maker]
            size = int(self.scene.requested[lifetime])
            names = [
                name
                for name in statement.outputs
                if name in program.values
                and program.values[name].root == name
                and program.values[name].bytes == size
            ]
            if len(names) > 1:
                fitting = [n for n in names if self._text_frees(n) == freed and freed >= 0]
                names = fitting if len(fitting) == 1 else []
            if names and freed == maker and self._text_frees(names[0]) != maker:
                continue  # freed before the statement was done: none of what it returns
            if names and names[0] not in self.lifetimes:
                yield names[0], lifetime

    def _text_frees(self, name: str) -> int | None:
        life = self.by_text.get(name)
        return life.freed if life is not None else None


def _share(program: Program, lifetimes: Mapping[str, int]) -> Iterable[tuple[str, str]]:
    """(output of a fusion that nothing was allocated for, what it is the memory of instead).

    nvFuser returns an input, or another output, where a result is only that one under another
    shape; and what a fusion copies into an input is that input.
    """
    for statement in program.statements:
        makers = {name: part for part in statement.inside for name in part.outputs}
        ends = {*statement.inputs, *statement.outputs}
        for output in statement.outputs:
            if output not in program.values or program.values[output].root in lifetimes:
                continue
            name = output
            for _ in statement.inside:
                made = makers.get(name)
                if made is None or not made.inputs:
                    break
                into = written(made.name, made.inputs)
                if into is None and not is_shape_only(made.name):
                    break
                name = into if into is not None else made.inputs[0]
                if name in ends and name in program.values:
                    yield program.values[output].root, name
                    break


def place_programs(scene: Scene) -> list[Placed]:
    """Every run of every program whose passes pair up in the window: as many forwards as backwards,
    or no backward at all."""
    programs = read_programs(scene.subject.recording.meta)
    if not programs:
        return []
    lines = _Lines(scene, programs)
    placed = []
    for number, program in enumerate(programs):
        runs = lines.runs(number)
        counts = {phase: len(found) for phase, found in runs.items() if phase in program.phases}
        if not counts or len(set(counts.values())) != 1:
            continue
        for turn in range(next(iter(counts.values()))):
            events = [one for phase in counts for one in runs[phase][turn]]
            made = lines.made(number, [runs[phase][turn] for phase in counts])
            placed.append(Placed(scene, program, sorted(events), made))
    return placed


class _Lines:
    """The events of the window by the statement of a program that they happened in."""

    def __init__(self, scene: Scene, programs: Sequence[Program]) -> None:
        self._lines: dict[str, tuple[int, list[int], list[int]]] = {}
        for number, program in enumerate(programs):
            found: dict[str, list[tuple[int, int]]] = defaultdict(list)
            for statement in program.statements:
                found[statement.filename].append((statement.line, statement.index))
            for filename, pairs in found.items():
                pairs.sort()
                self._lines[filename] = (number, [p[0] for p in pairs], [p[1] for p in pairs])
        self._known: dict[int, tuple[int, int] | None] = {}
        self._stacks = scene.attribution.stacks
        self._phases = [[s.phase for s in program.statements] for program in programs]
        lifetimes, window = scene.run.lifetimes, scene.stretch
        self._events: dict[int, list[_Event]] = defaultdict(list)
        self._made: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self._born = scene.born
        for k in scene.inside:
            born = self._place(int(lifetimes.stack[k]))
            freed = self._place(int(lifetimes.free_stack[k]))
            if born is not None:
                self._events[born[0]].append((int(scene.born[k]), born[1]))
                same = freed is not None and freed[0] == born[0]
                self._made[born[0]].append((k, born[1], freed[1] if same and freed else -1))
            end = int(scene.end[k])
            if freed is not None and end < window.end:
                self._events[freed[0]].append((end, freed[1]))
        for events in self._events.values():
            events.sort()

    def runs(self, program: int) -> dict[str, list[list[_Event]]]:
        """{pass: the events of each of its runs}: a run ends where statements begin again."""
        found: dict[str, list[list[_Event]]] = defaultdict(list)
        for event, statement in self._events.get(program, ()):
            runs = found[self._phases[program][statement]]
            if not runs or runs[-1][-1][1] > statement:
                runs.append([])
            runs[-1].append((event, statement))
        return found

    def made(self, program: int, runs: Sequence[Sequence[_Event]]) -> list[tuple[int, int, int]]:
        """What the given runs made: (lifetime, statement that made it, that freed it or -1)."""
        events = {event for run in runs for event, _ in run}
        return [one for one in self._made[program] if int(self._born[one[0]]) in events]

    def _place(self, stack: int) -> tuple[int, int] | None:
        """The program and statement of a stack's innermost line of a trace."""
        if stack not in self._known:
            frames = self._stacks.python(stack)
            traced = next((f for f in frames if is_trace_file(f.filename)), None)
            self._known[stack] = self._statement(traced) if traced is not None else None
        return self._known[stack]

    def _statement(self, frame: Frame) -> tuple[int, int] | None:
        known = self._lines.get(frame.filename)
        if known is None:
            return None
        number, lines, statements = known
        at = bisect_right(lines, frame.line) - 1
        return (number, statements[at]) if at >= 0 else None
