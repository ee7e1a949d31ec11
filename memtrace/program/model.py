"""A Thunder program: its statements in order, its values, and which of them are one memory.

Forward and backward of one program share their names, so that a value saved in the forward pass is
the same value where the backward reads it. Everything here is what the text of the program says;
what was measured is not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from memtrace.program.regions import Region
from memtrace.symbols.statements import Tensor

# "unpack": names for what a collection holds. "gap": a part that the text leaves out.
StatementKind = Literal["call", "delete", "unpack", "clear", "return", "gap"]
# "argument": the caller gives and holds it. "saved": the forward left it to the backward, but the
# text does not hold that forward. "cotangent": autograd gives it to the backward, which
# alone holds it. "made": by a statement. "unknown": read, but nothing in the text makes it.
ValueKind = Literal["argument", "saved", "cotangent", "made", "unknown"]
COLLECTION_OF_SAVED = "saved_for_backward"
COTANGENTS = "cotangents"


@dataclass(frozen=True, slots=True)
class Operation:
    """What a fusion does inside: 't1286 = prims.transpose(t651, (0, 1, 3, 2))'."""

    name: str  # 'prims.transpose'
    text: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a program. Names are those of values and of collections.

    ``index`` is its place among the statements of all passes, ``line`` the line of its first
    character in the text that it was read from. ``deletes`` are the names that it gives up after
    it has run.
    """

    index: int
    phase: str  # "forward", "backward", '' where the text does not say
    filename: str
    line: int
    kind: StatementKind
    name: str  # 'nvFusion0', 'torch.matmul', '' where nothing is called
    text: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    inside: tuple[Operation, ...] = ()
    origin: str = ""  # '<eval_with_key>.12:82'


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the program. ``tensor`` is None where the text does not give shape and dtype.

    ``maker``, ``uses`` and ``deleted`` are indices of statements, uses in order; what unpacks,
    deletes or returns a value does not use it. ``root`` is the value whose memory it is: its own
    name, or that of the value that it is a view of in the end.
    """

    name: str
    tensor: Tensor | None
    device: str
    kind: ValueKind
    maker: int | None
    uses: tuple[int, ...]
    deleted: tuple[int, ...]
    returned: bool  # to the caller: an output of the forward, or a gradient
    saved: bool  # for the backward
    root: str
    stored: int | None = None  # bytes of its memory, where these are not ``bytes``

    @property
    def bytes(self) -> int | None:
        """Of its elements laid densely; None where the text does not say."""
        return self.tensor.bytes if self.tensor is not None and self.tensor.bytes >= 0 else None


@dataclass(frozen=True, slots=True)
class Storage:
    """One memory and all names that it has. ``root`` is the first of them."""

    root: str
    names: tuple[str, ...]
    bytes: int | None
    device: str
    kind: ValueKind


@dataclass(frozen=True)
class Program:
    """The passes of one program, forward before backward, as one sequence of statements.

    ``notes`` are what could not be read or had to be assumed, for people. By a statement's index,
    ``regions`` are Inductor's output files, where they are known, and ``needs`` the bytes that it
    is known to take beside its results while it runs.
    ``by_dynamo`` says that Dynamo made the graph: Thunder then runs the backward in a way that
    holds the cotangents until it returns (``thunderfx_disable_split_autograd``).
    ``outputs_held`` says whether the caller is taken to hold the outputs through the backward,
    which no trace tells: not where one of them is the loss (``model(…).loss.backward()``), or where
    other programs of the same model take them on.
    """

    name: str
    statements: tuple[Statement, ...]
    values: Mapping[str, Value]
    notes: tuple[str, ...] = ()
    regions: Mapping[int, Region] = field(default_factory=dict)
    needs: Mapping[int, int] = field(default_factory=dict)
    by_dynamo: bool = False
    outputs_held: bool = True

    @cached_property
    def storages(self) -> dict[str, Storage]:
        """By the name of the root."""
        names: dict[str, list[str]] = {}
        for value in self.values.values():
            names.setdefault(value.root, []).append(value.name)
        found = {}
        for root, members in names.items():
            base = self.values[root]
            ordered = (root, *(name for name in members if name != root))
            size = base.bytes if base.stored is None else base.stored
            found[root] = Storage(root, ordered, size, base.device, base.kind)
        return found

    @cached_property
    def device(self) -> str:
        """Where most of its bytes lie: 'cuda:0'; '' where no value says it."""
        weights: dict[str, int] = {}
        for value in self.values.values():
            if value.device and value.device != "meta":
                weights[value.device] = weights.get(value.device, 0) + (value.bytes or 0)
        return max(weights, key=weights.__getitem__, default="")

    @property
    def phases(self) -> tuple[str, ...]:
        """In order of their statements."""
        return tuple(dict.fromkeys(statement.phase for statement in self.statements))

    def storage(self, name: str) -> Storage:
        """The memory that a value has."""
        return self.storages[self.values[name].root]

    def aliases(self, name: str) -> tuple[str, ...]:
        """All names of the memory of a value, the value itself among them."""
        return self.storage(name).names

    def maker(self, name: str) -> Statement | None:
        """The statement that makes a value; None for what is given to the program."""
        maker = self.values[name].maker
        return None if maker is None else self.statements[maker]

    def users(self, name: str) -> tuple[Statement, ...]:
        """The statements that read a value by this name, in both passes."""
        return tuple(self.statements[k] for k in self.values[name].uses)
