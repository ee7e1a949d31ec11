"""What fuzzing begins with: small real captures, and one built by hand with all parts in it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from memtrace.snapshot.files import read_bytes
from memtrace.snapshot.unpickle import load_plain
from tests.snapshot.build import capture, snapshot

ROOT = Path(__file__).parent.parent.parent
SMALL = (
    "allocators/async", "allocators/late", "allocators/oom", "allocators/expandable",
    "planted/extra_cast-eager-planted", "planted/extra_cast-nvfuser", "planted/late_free-eager",
    "planted/cloned_view-inductor-planted", "planted/bigger_vocabulary-nvfuser",
)  # fmt: skip
LARGE = ("qwen2-L4-eager-nvfuser", "qwen2-L4-sdpa-torchcompile", "gpt2-inductor", "vit-eager")
_EVENTS, _OPS, _LINES = 60, 60, 60


def small_seeds() -> dict[str, bytes]:
    """Pickles of up to 100 KB that are read in milliseconds, by name."""
    found = {"built": pickle.dumps(capture(), 4), "plain": pickle.dumps(snapshot(), 4)}
    for name in SMALL:
        found[name] = read_bytes(ROOT / f"tests/data/{name}.pkl.gz")
    return found | {"text": trace_text()}


def trace_text() -> bytes:
    """Thunder traces as text, which ``explain`` and ``predict`` read."""
    raw = read_bytes(ROOT / "tests/data/planted/extra_cast-nvfuser.pkl.gz")
    sources = load_plain(raw, "")["memtrace"]["sources"]
    texts = (text for name, text in sources.items() if name.startswith("thunder."))
    return "\n\n".join(texts).encode("ascii", "replace")


def cut_seeds() -> dict[str, bytes]:
    """The samples with little left in them, but something of every part."""
    found = {}
    for name in LARGE:
        whole = load_plain(read_bytes(ROOT / f"samples/{name}.pkl.gz"), name)
        found[name] = pickle.dumps(cut_short(whole), 4)
    return found


def cut_short(whole: dict[str, Any]) -> dict[str, Any]:
    """A capture's last events, first operators and kernels, and the sources that they name."""
    events = whole["device_traces"][0]
    dropped = len(events) - _EVENTS
    whole["device_traces"] = [events[-_EVENTS:]]
    meta = whole["memtrace"]
    marks = meta["marks"]
    marks["event"] = [[max(event - dropped, 0) for event in row] for row in marks["event"]]
    for device in meta["devices"]:
        device["start_segments"] = []
        device["peaks"] = []
        device["start_events"] = dropped
    profile = meta["profile"]
    for table in ("ops", "kernels", "memory"):
        profile[table] = {key: column[:_OPS] for key, column in profile[table].items()}
    profile["memory"]["op"] = [op if op < _OPS else -1 for op in profile["memory"]["op"]]
    files = {f["filename"] for event in whole["device_traces"][0] for f in event["frames"] or ()}
    meta["sources"] = {
        k: "\n".join(text.split("\n")[:_LINES]) for k, text in meta["sources"].items() if k in files
    }
    for module in meta["thunder"]:
        for trace in module["traces"]:
            trace["symbols"] = trace["symbols"][:20]
    meta["owners"] = meta["owners"][:20]
    meta["fx"] = {key: nodes[:40] for key, nodes in meta["fx"].items()}
    return whole
