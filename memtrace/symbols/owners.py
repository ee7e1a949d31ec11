"""Which lifetimes hold what the program itself has a name for: parameters, gradients, state."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from memtrace.snapshot.columns import Recording
from memtrace.symbols.statements import Tensor
from memtrace.symbols.table import NOT_NAMED, Naming, Symbol
from memtrace.timeline import Replay
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


def name_owned(row: dict[str, Any], naming: Naming) -> Naming:
    """``naming`` with the tensor its owner names; its symbol, too, where nothing else tells it."""
    path = row["name"].partition(":")[0].rpartition(".")[0]
    tensor = Tensor(row["name"], tuple(row["shape"]), row["dtype"], path)
    if naming is not NOT_NAMED:
        return replace(naming, tensors=(tensor,), layer=path or naming.layer)
    symbols = {
        "gradient": Symbol("eager", "", "backward", "AccumulateGrad"),
        "optimizer": Symbol("eager", "", "optimizer", "optimizer state"),
    }
    symbol = symbols.get(row["kind"], Symbol("eager", "", None, row["kind"]))
    return Naming(symbol, "", (tensor,), path)
