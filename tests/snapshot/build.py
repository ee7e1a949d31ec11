"""Snapshots built by hand, small enough to know the answers."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

FRAMES = [
    {"filename": "thunder.computation_3", "line": 12, "name": "computation"},
    {"filename": "train.py", "line": 40, "name": "main"},
]


def event(action: str, addr: int = 0x7F0000000000, size: int = 512, **more: Any) -> dict[str, Any]:
    base = {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 5, "frames": []}
    return {**base, **more}


def block(address: int, size: int, state: str = "inactive", **more: Any) -> dict[str, Any]:
    base = {"address": address, "size": size, "requested_size": size - 12, "state": state}
    return {**base, "frames": [], **more}


def segment(address: int = 0x7F0000000000, total: int = 2 << 20, **more: Any) -> dict[str, Any]:
    return {
        "device": 0,
        "address": address,
        "total_size": total,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [block(address, 512, "active_allocated"), block(address + 512, total - 512)],
        **more,
    }


def snapshot(**more: Any) -> dict[str, Any]:
    trace = [
        event("segment_alloc", size=2 << 20, time_us=1),
        event("alloc", size=500, time_us=2, frames=FRAMES),
        event("free_requested", size=500, time_us=3, frames=FRAMES[1:]),
        event("free_completed", size=500, time_us=3, frames=FRAMES[1:]),
        event("oom", size=1 << 40, time_us=4, device_free=77),
    ]
    del trace[-1]["addr"]
    return {
        "segments": [segment()],
        "device_traces": [trace],
        "allocator_settings": {"max_split_size": -1, "expandable_segments": False},
        "external_annotations": [],
        **more,
    }


def tensor(name: str) -> dict[str, Any]:
    return {"name": name, "shape": [2, 3], "dtype": "float32", "device": "cuda:0"}


def meta(**more: Any) -> dict[str, Any]:
    """A capture's key with something in every part."""
    operation = {"text": "t2 = prims.exp(t1)", "name": "prims.exp", "origin": "", "args": ["t1"]}
    operation["outputs"] = [tensor("t2")]
    symbol = {
        "name": "nvFusion0",
        "line": 3,
        "origin": "",
        "args": ["t1"],
        "outputs": [tensor("t2")],
    }
    symbol["inside"] = [operation]
    trace = {"phase": "forward", "filename": "thunder.computation_3", "symbols": [symbol]}
    trace |= {"inputs": [tensor("t1")], "outputs": [tensor("t2")]}
    module = {"name": "Model", "kind": "module", "executors": ["sdpa"], "traces": [trace]}
    peak = {"device": 0, "begin": 0, "end": 5, "allocated": 512, "requested": 500}
    return copy.deepcopy(
        {
            "format": 1,
            "label": "a",
            "facts": {
                "torch": "2.11.0",
                "command": ["train.py"],
                "compilers": ["eager"],
                "inputs": [tensor("x")],
                "exit": {"kind": "ok", "code": 0, "message": ""},
                "started": 1.5,
                "notes": [],
            },
            "devices": [
                {
                    "index": 0,
                    "name": "H200",
                    "total_bytes": 1 << 37,
                    "outside_bytes": -1,
                    "start_events": 0,
                    "dropped_events": 0,
                    "start_segments": [],
                    "peaks": [peak | {"reserved": 2 << 20, "why": "run"}],
                }
            ],
            "marks": {
                "kind": ["start", "end"],
                "edge": ["", ""],
                "name": ["", ""],
                "time_ns": [1000, 5000],
                "event": [[0], [5]],
                "stats": [[[0, 0, 0, 0, 0, 0]], []],
            },
            "iterations": [
                {
                    "index": 0,
                    "begin": 0,
                    "end": 1,
                    "compiled": False,
                    "profiled": True,
                    "whole": True,
                    "wall_ns": 4000,
                    "gpu_ns": 3000,
                }
            ],
            "profile": {
                "iteration": 0,
                "ops": {
                    "name": ["aten::exp"],
                    "kind": ["cpu_op"],
                    "thread": [1],
                    "start_ns": [1500],
                    "duration_ns": [10],
                    "sequence": [-1],
                    "forward_thread": [-1],
                    "correlation": [7],
                    "shapes": ["[[2, 3]]"],
                },
                "kernels": {
                    "name": ["exp_kernel"],
                    "kind": ["kernel"],
                    "device": [0],
                    "stream": [7],
                    "start_ns": [1600],
                    "duration_ns": [5],
                    "correlation": [7],
                    "bytes": [-1],
                },
                "memory": {
                    "addr": [0x7F0000000000],
                    "bytes": [512],
                    "device": [0],
                    "thread": [1],
                    "time_ns": [1501],
                    "op": [0],
                },
            },
            "owners": [
                {
                    "mark": 1,
                    "kind": "parameter",
                    "name": "fc.weight",
                    "device": 0,
                    "address": 0x7F0000000000,
                    "bytes": 500,
                    "shape": [125],
                    "strides": [1],
                    "dtype": "float32",
                }
            ],
            "compilations": [
                {
                    "kind": "recompile",
                    "name": "forward",
                    "where": "model.py:3",
                    "reason": "size mismatch",
                    "mark": 0,
                    "duration_ns": -1,
                }
            ],
            "sources": {"thunder.computation_3": "def computation(t1): ..."},
            "thunder": [module | {"fx_filename": "<eval_with_key>.12"}],
            "fx": {
                "<eval_with_key>.12": [
                    {
                        "line": 5,
                        "node": "exp",
                        "module": "model.act",
                        "module_class": "Exp",
                        "source": "model.py:3",
                        "target": "torch.exp",
                    }
                ]
            },
            **more,
        }
    )


def capture(**more: Any) -> dict[str, Any]:
    return snapshot(memtrace=meta(**more))


def save(folder: Path, obj: Any, protocol: int = 4) -> Path:
    path = folder / "a.pkl"
    path.write_bytes(pickle.dumps(obj, protocol=protocol))
    return path
