"""Which lifetimes hold what the program itself has a name for: parameters, gradients, state."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from memtrace.snapshot.columns import Recording
from memtrace.symbols.alignment import align
from memtrace.symbols.statements import Tensor
from memtrace.symbols.table import NOT_NAMED, Naming, Symbol
from memtrace.timeline import Replay, Window
from memtrace.timeline.moments import Moments

_HOST = -1


def find_owned(recording: Recording, replay: Replay) -> dict[int, dict[str, Any]]:
    """{lifetime: its row in the capture's ``owners``} for the replayed device.

    A lifetime is what a row speaks of if it was alive at the row's mark and holds its address. One
    that several rows speak of keeps the first kind of: gradient, optimizer, parameter, buffer.
    """
    rows = (recording.meta or {}).get("owners") or []
    cpu = bool(rows) and (recording.meta or {})["facts"].get("device") == "cpu"
    device = _HOST if cpu else replay.device
    moments = Moments(recording, replay)
    lifetimes = replay.lifetimes
    at_address: dict[int, list[int]] = defaultdict(list)
    for k, address in enumerate(lifetimes.address.tolist()):
        at_address[address].append(k)
    found: dict[int, dict[str, Any]] = {}
    order = ("gradient", "optimizer", "parameter", "buffer")
    ranked = sorted(
        (row for row in rows if row["device"] == device and row["kind"] in order),
        key=lambda row: order.index(row["kind"]),
    )
    for row in ranked:
        moment = moments.at_mark(row["mark"])
        if moment is None:
            continue
        for k in at_address.get(row["address"], ()):
            if lifetimes.born[k] < moment <= lifetimes.freed[k]:
                found.setdefault(k, row)
    return found


def carry_owned(
    owned: dict[int, dict[str, Any]], replay: Replay, windows: list[Window], named: list[Naming]
) -> dict[int, dict[str, Any]]:
    """``owned``, and the same gradients in the other iterations.

    Gradients are read after one backward pass; where each iteration makes them anew, those of the
    others are what the same symbols made in the same order.
    """
    born = replay.lifetimes.born
    sizes = replay.lifetimes.requested.tolist()
    members = [np.flatnonzero((born >= w.begin) & (born < w.end)).tolist() for w in windows]
    gradients = {k for k, row in owned.items() if row["kind"] == "gradient"}
    known = max(members, key=lambda rows: sum(k in gradients for k in rows), default=[])
    if not gradients.intersection(known):
        return owned
    carried = dict(owned)
    model = [(named[k].symbol, sizes[k]) for k in known]
    for rows in members:
        if rows is known:
            continue
        for a, b in align(model, [(named[k].symbol, sizes[k]) for k in rows]):
            if known[a] in gradients:
                carried.setdefault(rows[b], owned[known[a]])
    return carried


def name_owned(row: dict[str, Any], naming: Naming) -> Naming:
    """``naming`` with the tensor its owner names; its symbol, too, where nothing else tells it."""
    path = row["name"].partition(":")[0].rpartition(".")[0]
    strides = tuple(row["strides"]) if row.get("strides") else None
    tensor = Tensor(row["name"], tuple(row["shape"]), row["dtype"], path, strides=strides)
    if naming is not NOT_NAMED:
        return replace(naming, tensors=(tensor,), layer=path or naming.layer)
    symbols = {
        "gradient": Symbol("eager", "", "backward", "AccumulateGrad"),
        "optimizer": Symbol("eager", "", "optimizer", "optimizer state"),
    }
    symbol = symbols.get(row["kind"], Symbol("eager", "", None, row["kind"]))
    return Naming(symbol, "", (tensor,), path)
