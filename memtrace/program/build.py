"""Statements put together to a program: what is a value, who makes it, what it aliases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memtrace.program.aliases import Layout, alias_of, written
from memtrace.program.model import (
    COLLECTION_OF_SAVED,
    COTANGENTS,
    Program,
    Statement,
    Value,
    ValueKind,
)
from memtrace.program.strides import Strides, dense
from memtrace.symbols.statements import Tensor

_COLLECTION = re.compile(rf"^(?:C\d+|{COLLECTION_OF_SAVED}|{COTANGENTS}|args|kwargs)$")


@dataclass
class Draft:
    """What a reader found, before values are told from other names.

    ``given`` are the names in the passes' signatures, ``whole`` the passes that are there from
    signature to return, ``returned`` and ``saved`` what they return.
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


def build_program(draft: Draft) -> Program:
    """The program of a draft. Names that are no tensors are left out of its statements."""
    kinds = _kinds(draft)
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
    roots = _find_roots(statements, kinds, draft.tensors)
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
            roots[name],
        )
        for name, kind in kinds.items()
    }
    return Program(draft.name, statements, values, tuple(dict.fromkeys(draft.notes)))


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
    inputs = tuple(name for name in statement.inputs if name in kinds)
    return Statement(
        statement.index, statement.phase, statement.filename, statement.line, statement.kind,
        statement.name, statement.text, inputs, statement.outputs, statement.deletes,
        statement.inside, statement.origin,
    )  # fmt: skip


def _find_roots(
    statements: Sequence[Statement],
    kinds: Mapping[str, ValueKind],
    tensors: Mapping[str, Tensor],
) -> dict[str, str]:
    """For each value the value whose memory it is."""
    roots = {name: name for name in kinds}
    layouts: dict[str, Strides | None] = {}

    def layout(name: str) -> Layout | None:
        tensor = tensors.get(name)
        if tensor is None:
            return None
        return Layout(tensor.shape, tensor.dtype, layouts.get(name, dense(tensor.shape)))

    for statement in statements:
        if statement.kind != "call":
            continue
        base = written(statement.name, statement.inputs) or next(iter(statement.inputs), None)
        for name in statement.outputs:
            if name not in kinds or name in statement.inputs:
                continue  # what a statement returns of its own inputs is these
            given = layout(base) if base is not None else None
            shared, layouts[name] = alias_of(
                statement.name, statement.text, given, tensors.get(name)
            )
            if shared and base is not None and roots[name] == name:
                roots[name] = roots[base]
    return roots
