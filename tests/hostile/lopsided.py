"""Files with a megabyte or two in one part: what is not linear in it takes minutes or GBs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.hostile.mutators import pickle_of
from tests.snapshot.build import capture, event, segment

GENERATED = (
    "thunder.computation_3", "thunder.to_be_compiled_1", "<eval_with_key>.12",
    "/tmp/torchinductor_x/ab/cabcdefghijklmnopqrstuvwxy.py",
)  # fmt: skip


def frames_of(name: str) -> list[dict[str, Any]]:
    """A stack of one frame."""
    return [{"filename": name, "line": 1, "name": name}]


def grow(make: Callable[[Any], None]) -> bytes:
    """A capture with very much in one part."""
    whole = copy.deepcopy(capture())
    make(whole)
    return pickle_of(whole)


_MANY = 20_000


def _grow_owners(whole: Any) -> None:
    one = whole["memtrace"]["owners"][0]
    whole["memtrace"]["owners"] = [
        one | {"name": f"fc.{k}", "address": 512 * k, "mark": k % 2} for k in range(_MANY)
    ]


def _grow_marks(whole: Any) -> None:
    marks = whole["memtrace"]["marks"]
    kinds = ["call", "backward", "optimizer", "compile", "step"]
    marks["kind"] = [kinds[k % 5] for k in range(_MANY)]
    marks["edge"] = ["begin"] * (_MANY // 2) + ["end"] * (_MANY // 2)
    marks["name"] = [""] * _MANY
    marks["time_ns"] = list(range(_MANY))
    marks["event"] = [[k % 6] for k in range(_MANY)]
    marks["stats"] = [[[k] * 6] for k in range(_MANY)]


def _grow_iterations(whole: Any) -> None:
    _grow_marks(whole)
    one = whole["memtrace"]["iterations"][0]
    whole["memtrace"]["iterations"] = [
        one | {"index": k, "begin": 0, "end": _MANY - 1, "profiled": k == 0} for k in range(2000)
    ]
    _grow_lifetimes(whole)


def _grow_lifetimes(whole: Any) -> None:
    whole["device_traces"][0] = [
        event("alloc", addr=0x7F0000000000 + 512 * k, frames=[_line(k % 200), _line(k)])
        for k in range(_MANY)
    ]


def _line(number: int, filename: str = "/home/me/train.py") -> dict[str, Any]:
    return {"filename": filename, "line": number, "name": "main"}


def _grow_segments(whole: Any) -> None:
    """Each with a block in use that has another size than the history says."""
    _grow_lifetimes(whole)
    whole["segments"] = [
        segment(address=0x7F0000000000 + 512 * k, total=512, blocks=[_block(k, 256)])
        for k in range(_MANY)
    ]
    whole["device_traces"][0] += [
        event("segment_free", addr=0x700000000000 + 512 * k) for k in range(_MANY)
    ]


def _block(k: int, size: int) -> dict[str, Any]:
    return {"address": 0x7F0000000000 + 512 * k, "size": size, "requested_size": 1,
            "state": "active_allocated", "frames": []}  # fmt: skip


def _grow_start(whole: Any) -> None:
    whole["memtrace"]["devices"][0]["start_segments"] = [
        segment(address=512 * k, total=512, blocks=[]) for k in range(_MANY)
    ]
    whole["device_traces"][0] = [
        event(("segment_map", "segment_unmap")[k % 2], addr=512 * ((k * 7919) % _MANY))
        for k in range(_MANY)
    ]


def _grow_frees(whole: Any) -> None:
    """Two events at each address, none of which has a beginning."""
    kinds = ("free_completed", "free_requested")
    whole["device_traces"][0] = [event(kinds[k % 2], addr=512 * (k // 7)) for k in range(2 * _MANY)]


def _grow_operators(whole: Any) -> None:
    """Each within the one before, and a memory event and a kernel in the innermost ones."""
    profile = whole["memtrace"]["profile"]
    n = _MANY
    profile["ops"] = {
        "name": [f"aten::op{k}" if k % 2 else "MmBackward0" for k in range(n)],
        "kind": ["cpu_op"] * (n // 2) + ["cuda_runtime"] * (n // 2),
        "thread": [1] * n,
        "start_ns": [1500 + k for k in range(n)],
        "duration_ns": [4 * n - 2 * k for k in range(n)],
        "sequence": list(range(n)),
        "forward_thread": [1] * n,
        "correlation": list(range(n)),
        "shapes": [""] * n,
    }
    profile["kernels"] = {
        "name": ["k<" * 20 + str(k) for k in range(n)],
        "kind": ["kernel"] * n,
        "device": [0] * n,
        "stream": [k % 9 for k in range(n)],
        "start_ns": [1500 + k for k in range(n)],
        "duration_ns": [2 * n - k for k in range(n)],
        "correlation": list(range(n))[::-1],
        "bytes": [-1] * n,
    }
    profile["memory"] = {
        "addr": [0x7F0000000000 + 512 * k for k in range(n)],
        "bytes": [512] * n,
        "device": [0] * n,
        "thread": [1] * n,
        "time_ns": [1500 + k for k in range(n)],
        "op": [min(n // 2 + k, n - 1) if k % 3 else n // 2 - 1 - k % 100 for k in range(n)],
    }
    _grow_lifetimes(whole)
    for one in whole["device_traces"][0]:
        one["frames"] = []
    whole["memtrace"]["marks"]["event"] = [[0], [n]]


def _grow_ranges(whole: Any) -> None:
    """Lines of generated code, each within the one before."""
    _grow_operators(whole)
    ops = whole["memtrace"]["profile"]["ops"]
    ops["name"] = [f"memtrace line thunder.computation_3:{k}" for k in range(_MANY)]


def _grow_graphs(whole: Any) -> None:
    """Many FX graphs, and a kernel's comment that names nodes of all of them."""
    meta = whole["memtrace"]
    node = meta["fx"]["<eval_with_key>.12"][0]
    meta["fx"] = {f"<eval_with_key>.{k}": [node | {"node": f"n{k}"}] for k in range(_MANY // 4)}
    listed = ", ".join(f"n{k}" for k in range(300))
    lines = ["# AOT ID: ['0_forward']"]
    for k in range(1000):
        lines.append(f"buf{k} = empty_strided_cuda((4, ), (1, ), torch.float32)")
        lines.append(f"# Source Nodes: [{listed}]")
        lines.append(f"triton_{k}.run(buf{k}, 4)")
    meta["sources"] = {GENERATED[3]: "\n".join(lines)}
    whole["device_traces"][0] = [
        event("alloc", addr=512 * k, frames=[_line(2 + 3 * k, GENERATED[3])]) for k in range(1000)
    ]


def _grow_thunder(whole: Any) -> None:
    """One program with very many symbols, all of which read one tensor."""
    meta = whole["memtrace"]
    trace = meta["thunder"][0]["traces"][0]
    one = trace["symbols"][0]
    trace["symbols"] = [
        one | {"line": k, "args": ["t0", f"t{k}"], "outputs": [_tensor(f"t{k + 1}")]}
        for k in range(3000)
    ]
    text = "\n".join(f"t{k + 1} = reshape(t{k}, t0)" for k in range(3000))
    meta["sources"] = {trace["filename"]: text}
    whole["device_traces"][0] = [
        event("alloc", addr=512 * k, size=24, frames=[_line(k, trace["filename"])])
        for k in range(3000)
    ]


def _tensor(name: str) -> dict[str, Any]:
    return {"name": name, "shape": [2, 3], "dtype": "float32", "device": "cuda:0"}


def _grow_modules(whole: Any) -> None:
    module = whole["memtrace"]["thunder"][0]
    whole["memtrace"]["thunder"] = [module | {"name": f"Model#{k}"} for k in range(3000)]


def _grow_compilations(whole: Any) -> None:
    one = whole["memtrace"]["compilations"][0]
    whole["memtrace"]["compilations"] = [one | {"reason": str(k)} for k in range(_MANY)]
    whole["memtrace"]["facts"]["notes"] = [f"note {k}" for k in range(_MANY)]


def _grow_annotations(whole: Any) -> None:
    whole["memtrace"]["iterations"] = []
    whole["memtrace"]["profile"] = None
    whole["external_annotations"] = [
        {"name": f"ProfilerStep#{k // 2}", "stage": ("START", "END")[k % 2], "time_us": k}
        for k in range(_MANY)
    ]


def _share_source(whole: Any) -> None:
    """One text of a megabyte under very many names."""
    text = "# AOT ID: ['0_forward']\n" + "t1 = f(t0)\n" * 90_000
    whole["memtrace"]["sources"] = {f"thunder.computation_{k}": text for k in range(_MANY)}
    whole["device_traces"][0] = [
        event("alloc", addr=512 * k, frames=frames_of(f"thunder.computation_{k}"))
        for k in range(500)
    ]


def _share_name(whole: Any) -> None:
    """One name of a megabyte at very many lines."""
    name = "/x/" + "n" * 1_000_000
    whole["device_traces"][0] = [
        event("alloc", addr=512 * k, frames=[{"filename": name, "line": k, "name": name}])
        for k in range(_MANY)
    ]


def _share_tensor(whole: Any) -> None:
    trace = whole["memtrace"]["thunder"][0]["traces"][0]
    name = "t" * 1_000_000
    trace["symbols"][0]["outputs"] = [_tensor(name) for _ in range(_MANY)]
    whole["memtrace"]["marks"]["name"] = [name, name]
    whole["memtrace"]["profile"]["kernels"]["name"] = [name]


LOPSIDED: list[Callable[[Any], None]] = [
    _grow_owners, _grow_marks, _grow_iterations, _grow_lifetimes, _grow_segments, _grow_start,
    _grow_frees, _grow_operators, _grow_ranges, _grow_graphs, _grow_thunder, _grow_modules,
    _grow_compilations, _grow_annotations, _share_source, _share_name, _share_tensor,
]  # fmt: skip
