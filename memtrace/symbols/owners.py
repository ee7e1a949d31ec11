"""Which lifetimes hold what the program itself has a name for: parameters, gradients, state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from memtrace.distinct import number_rows
from memtrace.snapshot.columns import Int32, Int64, Recording, UInt64
from memtrace.symbols.alignment import Aligner
from memtrace.symbols.statements import Tensor
from memtrace.symbols.table import NOT_NAMED, Naming, Symbol
from memtrace.timeline import Replay, Window
from memtrace.timeline.moments import Moments

_HOST = -1


Rows = list[dict[str, Any]]


def find_owned(recording: Recording, replay: Replay) -> tuple[Rows, Int32]:
    """The rows of the capture's ``owners`` for the replayed device, and each lifetime's among them.

    The numbers have shape (lifetimes,), -1 where no row speaks of it. A lifetime is what a row
    speaks of if it was alive at the row's mark and holds its address. One that several rows speak
    of keeps the first kind of: gradient, optimizer, parameter, buffer.
    """
    rows = (recording.meta or {}).get("owners") or []
    cpu = bool(rows) and (recording.meta or {})["facts"].get("device") == "cpu"
    device = _HOST if cpu else replay.device
    moments = Moments(recording, replay)
    lifetimes = replay.lifetimes
    order = ("gradient", "optimizer", "parameter", "buffer")
    ranked = sorted(
        (row for row in rows if row["device"] == device and row["kind"] in order),
        key=lambda row: order.index(row["kind"]),
    )
    at_address = _find_addresses(lifetimes.address, {row["address"] for row in ranked})
    found = np.full(len(lifetimes), -1, dtype=np.int32)
    for number, row in enumerate(ranked):
        moment = moments.at_mark(row["mark"])
        held = at_address.get(row["address"])
        if moment is None or held is None:
            continue
        alive = (lifetimes.born[held] < moment) & (lifetimes.freed[held] >= moment)
        held = held[alive]
        found[held[found[held] < 0]] = number
    return ranked, found


def _find_addresses(addresses: UInt64, wanted: set[int]) -> dict[int, Int64]:
    """{address: the lifetimes that hold it}, for those wanted that are there."""
    ordered = np.array(sorted(wanted), dtype=np.uint64)
    if not len(ordered):
        return {}
    place = np.minimum(np.searchsorted(ordered, addresses), len(ordered) - 1)
    hits = np.flatnonzero(ordered[place] == addresses)
    hits = hits[np.argsort(place[hits], kind="stable")]
    bounds = np.flatnonzero(np.diff(place[hits])) + 1
    groups = np.split(hits, bounds) if len(hits) else []
    return {int(addresses[group[0]]): group for group in groups}


def carry_owned(
    rows: Rows,
    owned: Int32,
    replay: Replay,
    windows: list[Window],
    namings: list[Naming],
    named: Int32,
) -> Int32:
    """``owned``, and the same gradients in the other iterations.

    ``named`` are the lifetimes' rows in ``namings``. Gradients are read after one backward pass;
    where each iteration makes them anew, those of the others are what the same symbols made in the
    same order.
    """
    kinds = np.array([row["kind"] == "gradient" for row in rows] + [False])
    gradient = kinds[owned]  # -1, no owner, is the last
    members = members_of(replay.lifetimes.born, windows)
    counts = [int(np.count_nonzero(gradient[begin:end])) for begin, end in members]
    if not any(counts):
        return owned
    symbols: dict[Symbol, int] = {}
    symbol = np.array([symbols.setdefault(n.symbol, len(symbols)) for n in namings])
    _, alike = number_rows(symbol[named], replay.lifetimes.requested)
    known = counts.index(max(counts))
    begin, end = members[known]
    aligner = Aligner(alike[begin:end])
    sources = np.where(gradient[begin:end], owned[begin:end], -1)
    carried = owned.copy()
    for k, (begin, end) in enumerate(members):
        if k == known:
            continue
        mine, theirs = aligner.pairs(alike[begin:end])
        free = carried[begin:end]  # a view
        chosen = (sources[mine] >= 0) & (free[theirs] < 0)
        free[theirs[chosen]] = sources[mine[chosen]]
    return carried


def members_of(born: Int64, windows: Sequence[Window]) -> list[tuple[int, int]]:
    """The lifetimes born in each window, as the first and the one past the last.

    ``born`` of all lifetimes is in order.
    """
    begins = np.searchsorted(born, [w.begin for w in windows]).tolist()
    ends = np.searchsorted(born, [w.end for w in windows]).tolist()
    return list(zip(begins, ends, strict=True))


def name_owned(row: dict[str, Any], naming: Naming) -> Naming:
    """``naming`` with the tensor its owner names; its symbol, too, where nothing else tells it."""
    name = row["name"]
    path = name.partition(":")[0].rpartition(".")[0]
    if row["kind"] == "gradient" and ":" not in name:
        name += ".grad"
    strides = tuple(row["strides"]) if row.get("strides") else None
    tensor = Tensor(name, tuple(row["shape"]), row["dtype"], path, strides=strides, own=True)
    if naming is not NOT_NAMED:
        return replace(naming, tensors=(tensor,), layer=path or naming.layer)
    symbols = {
        "gradient": Symbol("eager", "", "backward", "AccumulateGrad"),
        "optimizer": Symbol("eager", "", "optimizer", "optimizer state"),
    }
    symbol = symbols.get(row["kind"], Symbol("eager", "", None, row["kind"]))
    return Naming(symbol, "", (tensor,), path)
