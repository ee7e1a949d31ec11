"""What the profiler saw: CPU operators, a track a thread, and GPU work, a track a stream.

Arrows lead from launches to what they launched, which bears the symbol that it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memtrace.analysis.tracks.lanes import arrange
from memtrace.analysis.tracks.model import ABSENT, CORRELATION, Facts, Slices
from memtrace.analysis.tracks.scope import Scope
from memtrace.snapshot.columns import Int32, Int64
from memtrace.snapshot.format import LAYER_PREFIX, LINE_PREFIX
from memtrace.symbols.kernels import name_kernels
from memtrace.symbols.sources import Sources
from memtrace.symbols.table import short_path
from memtrace.timeline.clock import FARTHEST_NS

CPU, GPU = "CPU", "GPU"


def lay_profile(scope: Scope) -> tuple[list[Slices], list[str]]:
    """The tracks, and what a reader must be told of them.

    They are shown whole if the stretch is the profiled iteration or the whole recording.
    """
    profile: Mapping[str, Any] | None = (scope.subject.recording.meta or {}).get("profile")
    if profile is None or not (scope.whole or scope.subject.window.profiled):
        return [], []
    if scope.clock.start_ns is None:
        return [], ["the profile is left out: the recording's events have no times to place it by"]
    ops, kernels = profile["ops"], profile["kernels"]
    sources = Sources(scope.subject.recording.meta)
    known = {name: _label(name, sources) for name in set(ops["name"])}
    ops = {**ops, "name": [known[name] for name in ops["name"]]}
    found: list[Slices] = []
    lost = 0
    for folder, table, keys, details in (
        (CPU, ops, [ops["thread"]], _of_operators(ops)),
        (GPU, kernels, [kernels["device"], kernels["stream"]], _of_kernels(kernels, scope)),
    ):
        begin = np.array(table["start_ns"], np.int64)
        length = np.array(table["duration_ns"], np.int64)
        # Compared with what the start may be, not subtracted: hostile numbers would overflow.
        low, high = (scope.clock.start_ns + edge for edge in scope.clock.edges)
        sound = (begin >= low) & (begin <= high) & (length >= 0) & (length <= FARTHEST_NS)
        lost += int((~sound).sum())
        owners = list(zip(*keys, strict=True))
        for owner in sorted(set(owners)):
            rows = np.array([k for k, one in enumerate(owners) if one == owner and sound[k]])
            if len(rows):
                since = begin[rows] - scope.clock.start_ns
                found.append(_lay(table, rows, since, since + length[rows], details, owner, folder))
    if lost:
        return found, [f"{lost} operators or kernels of the profile have impossible times"]
    return found, []


def _label(name: str, sources: Sources) -> str:
    """What the recorder's own ranges stand for: a line of generated code, the call of a module."""
    if name.startswith(LINE_PREFIX):
        place = name.removeprefix(LINE_PREFIX)
        filename, _, line = place.rpartition(":")
        statement = sources.statement(filename, int(line)) if line.isdecimal() else None
        where = f"{short_path(filename)}:{line}"
        return f"{statement.callee} ({where})" if statement and statement.callee else where
    return name.removeprefix(LAYER_PREFIX)


def _of_operators(ops: Mapping[str, Sequence[Any]]) -> list[tuple[tuple[str, str], ...]]:
    """What is told of each operator: names and values."""
    return [
        (("kind", kind), ("shapes", shapes))
        for kind, shapes in zip(ops["kind"], ops["shapes"], strict=True)
    ]


def _of_kernels(
    kernels: Mapping[str, Sequence[Any]], scope: Scope
) -> list[tuple[tuple[str, str], ...]]:
    """What is told of each kernel: its symbol, and the line of generated code that launched it."""
    subject = scope.subject
    names = name_kernels(subject.recording, subject.replay, attribution=scope.attribution)
    told: list[tuple[tuple[str, str], ...]] = []
    for kind, row in zip(kernels["kind"], names.rows.tolist(), strict=True):
        naming = names.namings[row]
        told.append(
            (
                ("kind", kind),
                ("symbol", naming.symbol.text),
                ("launched at", naming.where),
                ("layer", naming.layer),
            )
        )
    return told


def _lay(
    table: Mapping[str, Sequence[Any]],
    rows: Int64,
    begin: Int64,
    end: Int64,
    told: Sequence[tuple[tuple[str, str], ...]],
    owner: tuple[int, ...],
    folder: str,
) -> Slices:
    name = f"thread {owner[0]}" if folder == CPU else "GPU {} stream {}".format(*owner)
    labels = _intern([table["name"][k] for k in rows])
    values, detail = _intern([told[k] for k in rows])
    facts: list[Facts] = [{key: value for key, value in one if value} for one in values]
    numbers = {}
    for key in ("sequence", CORRELATION, "bytes"):
        if key in table:
            column = np.array([table[key][k] for k in rows], np.int64)
            numbers[key] = np.where(column < 0, ABSENT, column)
    return arrange(
        name,
        begin,
        end,
        labels,
        (facts, detail),
        numbers,
        nested=folder == CPU,
        folder=folder,
        arrows="from" if folder == CPU else "to",
    )


def _intern(values: Sequence[Any]) -> tuple[list[Any], Int32]:
    known: dict[Any, int] = {}
    rows = [known.setdefault(value, len(known)) for value in values]
    return list(known), np.array(rows, np.int32)
