"""From when to when each memory of a program is there, and who holds it, by the program's text.

What counts is how Python counts: a name holds until ``del`` or the function's return, a collection
until it is cleared, the caller what it gave (parameters, inputs) and what it got (outputs, see
``Program.outputs_held``), and between the passes what is saved for the backward.
"""

from __future__ import annotations

from dataclasses import dataclass

from memtrace.program.model import COTANGENTS, Program, Statement

CALLER = "the caller"
OUTPUT = "the caller, as an output"
GRADIENT = "the caller, as a gradient"
SAVED = "saved for backward"
GIVEN = "autograd, as a cotangent"
OPEN = "a name that the text does not delete"


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Of one storage. It is there within the statement ``born`` (-1: before the first) and gone
    once ``freed`` has run (None: there to the end). ``holders`` held it last."""

    root: str
    bytes: int | None
    kind: str
    born: int
    freed: int | None
    holders: tuple[str, ...]


def find_lifetimes(program: Program) -> dict[str, Lifetime]:
    """By the root of the storage."""
    return _Names(program).run()


class _Names:
    """Who holds what, statement by statement."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._roots = {name: value.root for name, value in program.values.items()}
        self._held: dict[str, dict[str, None]] = {}
        self._last: dict[str, tuple[str, ...]] = {}
        self._born: dict[str, int] = {}
        self._freed: dict[str, int] = {}
        self._unpacked: dict[str, list[str]] = {}

    def run(self) -> dict[str, Lifetime]:
        values = self._program.values.values()
        for value in values:
            if value.kind == "argument":
                self._hold(value.name, CALLER, -1)
            elif value.kind in ("saved", "unknown"):
                self._hold(value.name, SAVED if value.kind == "saved" else value.name, -1)
        phase = None
        for statement in self._program.statements:
            if statement.phase != phase and statement.phase == "backward":
                for value in values:
                    if value.kind == "cotangent":
                        self._hold(value.name, GIVEN, statement.index)
                    if not self._program.outputs_held:
                        self._drop(value.name, OUTPUT, statement.index - 1)
            phase = statement.phase
            self._step(statement)
        return {
            root: Lifetime(
                root,
                storage.bytes,
                storage.kind,
                self._born.get(root, -1),
                self._freed.get(root),
                tuple(self._held.get(root, ())) or self._last.get(root, ()),
            )
            for root, storage in self._program.storages.items()
        }

    def _step(self, statement: Statement) -> None:
        k = statement.index
        if statement.kind in ("call", "unpack"):
            if statement.kind == "unpack":
                self._unpacked.setdefault(statement.inputs[0], []).extend(statement.outputs)
            for name in statement.outputs:
                self._hold(name, name, k)
        if statement.kind == "clear":
            collection = statement.inputs[0]
            holder = GIVEN if collection == COTANGENTS else SAVED
            if holder == SAVED or not self._program.by_dynamo:
                for name in self._unpacked.get(collection, ()):
                    self._drop(name, holder, k)
        for name in statement.deletes:
            self._drop(name, name, k)
        if statement.kind == "return":
            self._return(statement)

    def _return(self, statement: Statement) -> None:
        """Names end here; what is returned or saved has another holder from now on."""
        backward = statement.phase == "backward"
        outputs = set(statement.inputs) if backward else set()
        for value in self._program.values.values():
            if value.name in outputs:
                self._hold(value.name, GRADIENT, statement.index)
            elif not backward and value.name in statement.inputs and value.kind != "argument":
                if value.returned:
                    self._hold(value.name, OUTPUT, statement.index)
                if value.saved:
                    self._hold(value.name, SAVED, statement.index)
        for name in self._roots:
            self._drop(name, name, statement.index)
            if backward:  # autograd lets go of what it gave when the backward returns
                self._drop(name, SAVED, statement.index)
                self._drop(name, GIVEN, statement.index)

    def _hold(self, name: str, holder: str, index: int) -> None:
        if (root := self._roots.get(name)) is None:
            return
        self._born.setdefault(root, index)
        self._held.setdefault(root, {})[holder] = None

    def _drop(self, name: str, holder: str, index: int) -> None:
        if (root := self._roots.get(name)) is None:
            return
        held = self._held.get(root, {})
        if holder not in held:
            return
        before = tuple(held)
        del held[holder]
        if not held:
            self._freed[root] = index
            self._last[root] = before
