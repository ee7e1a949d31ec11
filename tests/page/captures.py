"""Captures for the page: real ones, an empty one, one whose names mean harm."""

from __future__ import annotations

import pickle
from pathlib import Path

from memtrace.snapshot import write_capture
from memtrace.snapshot.files import read_bytes
from memtrace.snapshot.unpickle import load_plain

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"
ALLOCATORS = ROOT / "tests" / "data" / "allocators"
PLAIN = ROOT / "tests" / "data" / "plain"
TORCHCOMPILE = SAMPLES / "qwen2-L4-eager-torchcompile.pkl.gz"
NVFUSER = SAMPLES / "qwen2-L4-eager-nvfuser.pkl.gz"

HOSTILE = (
    "</script><img src=x onerror=document.title='owned'>",
    "<img src=x onerror=document.title='owned'>",
    "\u202egnp.exe\u2066 \u200f\x1b[31m\x00",
    "long_" + "n" * 10_000,
    "&lt;b&gt; ' \" ` \u2028 \u2029",
    "عربي עברית",
)


def hostile_capture(folder: Path) -> Path:
    """A small real capture whose functions, files, label, notes and sources are HOSTILE."""
    source = ALLOCATORS / "native.pkl.gz"
    snapshot = load_plain(read_bytes(source), str(source))
    names = iter(HOSTILE * 1000)
    seen: set[int] = set()
    for event in snapshot["device_traces"][0]:
        for frame in event.get("frames", ()):
            if id(frame) not in seen:
                seen.add(id(frame))
                frame["name"] = next(names)
                frame["filename"] = f"/home/{next(names)}.py"
    meta = snapshot["memtrace"]
    meta["label"] = HOSTILE[0] + HOSTILE[2] + HOSTILE[3]
    meta["facts"]["notes"] = list(HOSTILE)
    first = next(e for e in snapshot["device_traces"][0] if e["action"] == "alloc" and e["frames"])
    source_name = "thunder.</script>_1"
    first["frames"][0] = {"filename": source_name, "line": 1, "name": "computation"}
    meta["sources"][source_name] = "\n".join(HOSTILE)
    path = folder / "hostile.pkl"
    write_capture(path, snapshot)
    return path


def empty_snapshot(folder: Path) -> Path:
    """A plain snapshot in which nothing was recorded."""
    path = folder / "empty.pkl"
    content = {"segments": [], "device_traces": [[]], "allocator_settings": {}}
    path.write_bytes(pickle.dumps(content, protocol=4))
    return path
