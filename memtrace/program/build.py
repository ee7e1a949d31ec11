"""Statements put together to a program: what is a value, who makes it, what it aliases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from memtrace.program.memory import Memory
from memtrace.program.model import (
    COLLECTION_OF_SAVED,
    COTANGENTS,
    Program,
    Statement,
    Value,
    ValueKind,
)
from memtrace.program.regions import Region
from memtrace.symbols.statements import Tensor

_COLLECTION = re.compile(rf"^(?:C\d+|{COLLECTION_OF_SAVED}|{COTANGENTS}|args|kwargs)$")


@dataclass
class Draft:
    """What a reader found, before values are told from other names.

    ``given`` are the names in the passes' signatures, ``whole`` the passes that are there from
    signature to return, ``returned`` and ``saved`` what they return. ``regions`` are Inductor's
    output files, ``by_dynamo`` says that Dynamo made the graph, ``is_part``
    that other programs run the rest of the model, ``fusion_views`` that outputs of fusions which
    are views have no memory of their own.
    """

    name: str
    statements: list[Statement] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)  # name → phase
    whole: set[str] = field(default_factory=set)
    returned: set[str] = field(default_factory=set)
    saved: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    regions: tuple[Region, ...] = ()
    by_dynamo: bool = False
    is_part: bool = False
    fusion_views: bool = True


def build_program(draft: Draft) -> Program:
    """The program of a draft. Names that are no tensors are left out of its statements."""
    kinds = _kinds(draft)
    memory = Memory(draft.tensors, kinds, draft.regions, draft.fusion_views)
    for drafted in draft.statements:
        if drafted.kind == "call":
            memory.add(replace(drafted, inputs=tuple(n for n in drafted.inputs if n in kinds)))
    statements = tuple(_only_values(s, kinds) for s in draft.statements)
    makers: dict[str, int] = {}
    uses: dict[str, list[int]] = {}
    deleted: dict[str, list[int]] = {}
    for statement in statements:
        if statement.kind == "call":
            for name in statement.outputs:
                if name not in statement.inputs:
                    makers.setdefault(name, statement.index)
            for name in statement.inputs:
                uses.setdefault(name, []).append(statement.index)
        for name in statement.deletes:
            deleted.setdefault(name, []).append(statement.index)
    values = {
        name: Value(
            name,
            draft.tensors.get(name),
            draft.devices.get(name, ""),
            kind,
            makers.get(name),
            tuple(uses.get(name, ())),
            tuple(deleted.get(name, ())),
            name in draft.returned,
            name in draft.saved,
            memory.roots[name],
            memory.sizes.get(name),
        )
        for name, kind in kinds.items()
    }
    by_dynamo = draft.by_dynamo or any(s.origin.startswith("<eval_with_key>") for s in statements)
    notes = tuple(dict.fromkeys(draft.notes))
    held = not (draft.is_part or _returns_loss(draft, kinds))
    return Program(
        draft.name, statements, values, notes, memory.regions, memory.needs, by_dynamo, held
    )


def _returns_loss(draft: Draft, kinds: Mapping[str, ValueKind]) -> bool:
    """Whether one of the outputs, or of their cotangents, is a single number."""
    given = (name for name, kind in kinds.items() if kind == "cotangent")
    names = (*draft.returned, *given)
    tensors = (draft.tensors[name] for name in names if name in draft.tensors)
    return any(tensor.shape == () and "float" in tensor.dtype for tensor in tensors)


def _kinds(draft: Draft) -> dict[str, ValueKind]:
    """What each value is, in order of appearance; collections and other names are left out."""
    kinds: dict[str, ValueKind] = {
        name: "argument" for name in draft.given if _is_value(name, draft)
    }
    for statement in draft.statements:
        if statement.kind == "unpack":
            unpacked: ValueKind = "cotangent" if COTANGENTS in statement.inputs else "saved"
            for name in statement.outputs:
                if _is_value(name, draft):
                    kinds.setdefault(name, unpacked)
            continue
        names: Iterable[str] = (*statement.inputs, *statement.deletes)
        for name in names:
            known = name in draft.tensors or statement.phase not in draft.whole
            if known and _is_value(name, draft):
                kinds.setdefault(name, "unknown")
        for name in statement.outputs:
            if _is_value(name, draft):
                kinds.setdefault(name, "made")
    return kinds


def _is_value(name: str, draft: Draft) -> bool:
    return name in draft.tensors or not (name.startswith("_") or _COLLECTION.match(name))


def _only_values(statement: Statement, kinds: Mapping[str, ValueKind]) -> Statement:
    if statement.kind in ("unpack", "clear"):
        return statement
    inputs, outputs = (
        tuple(name for name in names if name in kinds)
        for names in (statement.inputs, statement.outputs)
    )
    return replace(statement, inputs=inputs, outputs=outputs)
