"""The classes of faults: for each, files that have it, from small ones built by hand."""

from __future__ import annotations

import copy
import gzip
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import zstandard

from tests.hostile.mutators import OPCODES, pickle_of
from tests.hostile.values import FLOATS, INTEGERS, LINES, NAMES, deep, exploding, looped
from tests.snapshot.build import FRAMES, capture, event, segment, snapshot

Files = Iterator[bytes]
_OTHER_TYPES = (None, True, 3, 1.5, "x", b"x", [], [None], {}, {"x": 1}, (), (1, 2), {1})
_STRETCH = 200_000  # characters of a name or line that is pumped up


def places(whole: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in nested lists and dicts."""
    if where:
        yield where
    if isinstance(whole, dict | list):
        for key, value in whole.items() if isinstance(whole, dict) else enumerate(whole):
            yield from places(value, (*where, key))


def at(whole: Any, where: tuple[Any, ...]) -> Any:
    """What stands at a place."""
    for key in where:
        whole = whole[key]
    return whole


def put(where: tuple[Any, ...], value: Any) -> bytes:
    """The file of the capture with another value at a place."""
    whole = copy.deepcopy(capture())
    at(whole, where[:-1])[where[-1]] = value
    return pickle_of(whole)


def _put_everywhere(kinds: tuple[type, ...], values: Callable[[Any], Any]) -> Files:
    whole = capture()
    for where in places(whole):
        here = at(whole, where)
        if type(here) in kinds:
            for value in values(here):
                yield put(where, value)


def prefixes() -> Files:
    """The first bytes of a file, as it is and compressed."""
    raw = pickle_of(capture())
    for data in (raw, gzip.compress(raw, mtime=0), zstandard.compress(raw)):
        yield from (data[:end] for end in range(len(data)))


def bit_flips() -> Files:
    """Each bit of a file turned over."""
    raw = pickle_of(snapshot())
    for place in range(len(raw)):
        for bit in range(8):
            yield raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :]


def opcodes() -> Files:
    """Each opcode, with great lengths and memo numbers among them, at every few bytes."""
    raw = pickle_of(snapshot())
    for place in range(0, len(raw), 3):
        for opcode in OPCODES:
            yield raw[:place] + opcode + raw[place:]


def other_types() -> Files:
    """A value of another type at every place."""
    kinds = (dict, list, tuple, str, int, bool, float, type(None))
    yield from _put_everywhere(
        kinds, lambda here: (v for v in _OTHER_TYPES if type(v) is not type(here))
    )


def missing_keys() -> Files:
    """Every key and item taken out."""
    for where in places(capture()):
        whole = copy.deepcopy(capture())
        del at(whole, where[:-1])[where[-1]]
        yield pickle_of(whole)


def integers() -> Files:
    """Integers beyond 64 bits, negative and great ones at every place of one."""
    yield from _put_everywhere((int,), lambda here: INTEGERS)


def floats() -> Files:
    """NaN and infinity at every place of a number."""
    yield from _put_everywhere((float, int), lambda here: FLOATS)


def names() -> Files:
    """Terminal escapes, direction marks, markup and breakers of formats at every place of text."""
    yield from _put_everywhere((str,), lambda here: NAMES)
    for name in NAMES:
        yield pickle_of(snapshot(device_traces=[[event("alloc", frames=_frames(name))]]))


def long_names() -> Files:
    """A name of a million characters at every place of text."""
    for character in ("x", "1", "a.", "é"):
        long = character * (1_000_000 // len(character))
        yield from _put_everywhere((str,), lambda here, long=long: [long])  # type: ignore[misc]


def _frames(name: str) -> list[dict[str, Any]]:
    return [{"filename": name, "line": 1, "name": name}]


def cycles() -> Files:
    """A list or dict within itself at every place, and a place that is what it lies in."""
    yield from _put_everywhere(
        (dict, list, str, int), lambda here: (looped(list), looped(dict))
    )
    for where in places(capture()):
        for height in range(len(where)):
            whole = copy.deepcopy(capture())
            at(whole, where[:-1])[where[-1]] = at(whole, where[:height])
            yield pickle_of(whole)


def sharing() -> Files:
    """What would be 2^40 items if written out, or 2,000 levels deep, at every place."""
    yield from _put_everywhere((dict, list, str), lambda here: (exploding(), deep(300)))
    one = [event("alloc", addr=512 * k) for k in range(100)]
    yield pickle_of(snapshot(device_traces=[one] * 100))
    yield pickle_of(snapshot(segments=[segment()] * 100))
    yield b"\x80\x04" + b"(" * 100_000 + b"t" * 100_000 + b"."
    yield b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b"."
    yield b"\x80\x04})" + b"\x85" * 100_000 + b"Ns."


def histories() -> Files:
    """Addresses twice or never, sizes that sum beyond 64 bits, time that goes back."""
    base = 0x7F0000000000
    actions = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
               "segment_map", "segment_unmap", "snapshot", "oom", "free", "new")  # fmt: skip
    for size in (0, 1, 512, 1 << 40, 1 << 56, 1 << 62, (1 << 63) - 1):
        for addr in (0, 1, base, (1 << 64) - 512, (1 << 64) - 1):
            for order in (actions, actions[::-1], ("alloc",) * 5, ("free_completed",) * 5):
                yield _history([(a, addr, size, 5 - k) for k, a in enumerate(order)])
        yield _history([("alloc", base + 512 * k, size, k) for k in range(9)])
        yield _history([("segment_alloc", base + 512 * k, size, k) for k in range(9)])
    for times in ((5, 4, 3), (-1, 5, -1), (0, (1 << 63) - 1, 0), (1 << 62, 1, 1 << 62)):
        yield _history([("alloc", base + 512 * k, 512, time) for k, time in enumerate(times)])
        whole = capture()
        whole["memtrace"]["marks"]["time_ns"] = list(times[:2])
        yield pickle_of(whole)


def _history(rows: list[tuple[str, int, int, int]]) -> bytes:
    trace = [
        event(action, addr=addr, size=size, time_us=time, frames=FRAMES)
        for action, addr, size, time in rows
    ]
    return pickle_of(capture() | {"device_traces": [trace]})


def devices() -> Files:
    """Ten thousand devices, the last one there can be, and ones that only some parts know of."""
    for count in (2, 128, 129, 10_000):
        yield pickle_of(snapshot(device_traces=[[event("alloc")] for _ in range(count)]))
        yield pickle_of(snapshot(device_traces=[[] for _ in range(count)]))
        yield pickle_of(snapshot(segments=[segment(device=k) for k in range(count)]))
        whole = capture()
        one = whole["memtrace"]["devices"][0]
        whole["memtrace"]["devices"] = [one | {"index": k, "peaks": []} for k in range(count)]
        yield pickle_of(whole)
        whole = capture()
        whole["memtrace"]["marks"]["event"] = [[0] * count, [5] * count]
        yield pickle_of(whole)
        for table, column in (("kernels", "device"), ("memory", "device")):
            whole = capture()
            whole["memtrace"]["profile"][table][column] = [count]
            yield pickle_of(whole)


def bombs() -> Files:
    """A few bytes that ask for gigabytes, in the pickle or by compression; what follows the end."""
    for program in (
        b"K\x00r\xff\xff\xff\x7f.", b"K\x00r\x00\x00\x00\x04.", b"K\x00p2147483647\n.",
        b"\x8d" + b"\xff" * 8 + b"N.", b"\x8e\xff\xff\xff\xff\x00\x00\x00\x00N.",
        b"\x96\xff\xff\xff\xff\x00\x00\x00\x00N.", b"X\xff\xff\xff\xffabc.", b"\x8b\xff\xff\xff\x7f.",
        b"\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.", b"(" + b"}" * 10_000 + b"l.",
    ):  # fmt: skip
        yield b"\x80\x04" + program
        yield b"\x80\x05" + program
    for fill in (b"N", b"}", b"]", b"(", b"\x94", b"N0", b"h\x00", bytes(1)):
        body = b"\x80\x04K\x00\x94" + fill * ((65 << 20) // len(fill)) + b"."
        yield gzip.compress(body, 9, mtime=0)
        yield zstandard.compress(body)
    raw = pickle_of(capture())
    for rest in (b"\x00", raw, b"\x1f\x8b", b"\xff" * 1000):
        yield raw + rest
        yield gzip.compress(raw, mtime=0) + rest
        yield zstandard.compress(raw) + rest


def tables() -> Files:
    """What the recorder's tables say of one another: lengths, rows, loops, marks there are not."""
    for change in _TABLES:
        whole = copy.deepcopy(capture())
        change(whole["memtrace"])
        yield pickle_of(whole)


def _unequal(meta: Any, *path: str) -> None:
    table = at(meta, path)
    column = next(iter(table.values()))
    column += column


def _loop_operators(meta: Any) -> None:
    ops = meta["profile"]["ops"]
    for key, column in ops.items():
        ops[key] = column * 50
    ops["start_ns"] = [1500] * 50
    ops["correlation"] = list(range(50))
    ops["sequence"] = [3] * 50
    ops["forward_thread"] = [1] * 50
    ops["name"] = ["autograd::engine::evaluate_function: MmBackward0", "MmBackward0"] * 25


def _loop_views(meta: Any) -> None:
    symbol = meta["thunder"][0]["traces"][0]["symbols"][0]
    symbol["inside"] = []
    symbol |= {"name": "reshape", "args": ["t2"]}


def _loop_nodes(meta: Any) -> None:
    node = meta["fx"]["<eval_with_key>.12"][0]
    meta["fx"]["<eval_with_key>.12"] *= 3
    node["source"] = "<eval_with_key>.12:5"
    node["module"] = "model." * 1000


def _loop_buffers(meta: Any) -> None:
    text = "buf0 = empty_strided_cuda((4, ), (1, ), torch.float32)\n"
    text += "buf1 = buf0; del buf0\nbuf0 = buf1; del buf1\n" * 3
    meta["sources"]["/tmp/torchinductor_x/ab/cab.py"] = text


_TABLES: list[Callable[[Any], Any]] = [
    lambda meta: _unequal(meta, "marks"),
    lambda meta: _unequal(meta, "profile", "ops"),
    lambda meta: _unequal(meta, "profile", "kernels"),
    lambda meta: _unequal(meta, "profile", "memory"),
    lambda meta: meta["iterations"][0].update(begin=7, end=9),
    lambda meta: meta["iterations"][0].update(begin=1, end=0),
    lambda meta: meta["iterations"].extend(meta["iterations"] * 999),
    lambda meta: meta["profile"].update(iteration=1 << 40),
    lambda meta: meta["owners"][0].update(mark=1 << 40),
    lambda meta: meta["compilations"][0].update(mark=-1),
    lambda meta: meta["profile"]["memory"].update(op=[1 << 40]),
    lambda meta: meta["profile"]["kernels"].update(duration_ns=[(1 << 63) - 1]),
    lambda meta: meta["profile"]["kernels"].update(duration_ns=[-(1 << 63)]),
    lambda meta: meta["profile"]["kernels"].update(start_ns=[-(1 << 63)], duration_ns=[1 << 62]),
    lambda meta: meta["thunder"][0]["traces"].append(meta["thunder"][0]["traces"][0]),
    lambda meta: meta["thunder"][0]["traces"][0].update(phase="region:nvFusion0"),
    lambda meta: meta["thunder"][0]["traces"][0]["outputs"][0].update(shape=[1 << 62] * 100),
    lambda meta: meta["thunder"][0]["traces"][0]["outputs"][0].update(shape=[-1, -1]),
    lambda meta: meta["owners"][0].update(shape=[1 << 62] * 10_000, strides=[]),
    lambda meta: meta["facts"]["inputs"][0].update(shape=[7] * 10_000),
    _loop_operators, _loop_views, _loop_nodes, _loop_buffers,
]  # fmt: skip


def sources() -> Files:
    """Lines of generated code that are cut off, slow to search or full of endless numbers."""
    allocs = [
        event("alloc", addr=0x7F0000000000 + 512 * k, frames=_frames(name) + FRAMES)
        for k, name in enumerate(_FILES)
    ]
    for line in (*LINES, *_pumped()):
        text = f"{line}\n# AOT ID: ['0_forward']\n{line}\ndef f(): pass\n{line}"
        whole = capture(sources=dict.fromkeys(_FILES, f"# AOT ID: ['0_forward']\n{text}"))
        whole["device_traces"][0] += allocs
        yield pickle_of(whole)


_FILES = (
    "thunder.computation_3", "thunder.to_be_compiled_1", "<eval_with_key>.12",
    "/tmp/torchinductor_x/ab/cabcdefghijklmnopqrstuvwxy.py",
)  # fmt: skip


def _pumped() -> Iterator[str]:
    """One thing over and over, and then what does not fit."""
    for piece in (
        " ", "a", "1", ",", ", ", "a, ", "a ,", "(", "[", "]", ".", "a.", ":", "x:1:", "#", "# ",
        "'", "'''", ";", "; del ", "; del a", "del a", "=", "= ", "a=", "a: b", "# a:", '# a: "',
        '# a: "b c[', "Source Nodes: [", "reinterpret_tensor(", "reinterpret_tensor(a, (",
        "empty_strided((", "torch.float32", "dtype=torch.", "torch.ops.", "1, ", "return (", "\t",
        "a\n", "\n", "\r", "\x0c", "é", "_1", "_parameters_", "self_modules_",
    ):  # fmt: skip
        stretch = piece * (_STRETCH // len(piece))
        for front, back in (("", ""), ("a", "!"), ("a = ", "("), ("# ", "\x00"), ("l_", "_")):
            yield f"{front}{stretch}{back}"


CLASSES: dict[str, Callable[[], Files]] = {
    "every prefix": prefixes,
    "bit flips": bit_flips,
    "opcodes put in": opcodes,
    "other types at every place": other_types,
    "keys and items missing": missing_keys,
    "cycles": cycles,
    "shared 2^40 times, deep": sharing,
    "integers of any size": integers,
    "NaN and infinity": floats,
    "addresses, sizes, times": histories,
    "devices": devices,
    "bombs and what follows": bombs,
    "hostile names": names,
    "names of 10^6 characters": long_names,
    "tables at odds": tables,
    "hostile sources": sources,
}


def lopsided() -> Files:
    """A megabyte or two in one part of the file: what is not linear in it takes minutes."""
    for make in _LOPSIDED:
        whole = copy.deepcopy(capture())
        make(whole)
        yield pickle_of(whole)


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


def _line(number: int) -> dict[str, Any]:
    return {"filename": "/home/me/train.py", "line": number, "name": "main"}


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
    whole["device_traces"][0] = [
        event(kinds[k % 2], addr=512 * (k // 7)) for k in range(2 * _MANY)
    ]


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
    meta["sources"] = {_FILES[3]: "\n".join(lines)}
    whole["device_traces"][0] = [
        event("alloc", addr=512 * k, frames=[{"filename": _FILES[3], "line": 2 + 3 * k, "name": "call"}])
        for k in range(1000)
    ]  # fmt: skip


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
        event("alloc", addr=512 * k, size=24, frames=[{"filename": trace["filename"], "line": k, "name": "f"}])
        for k in range(3000)
    ]  # fmt: skip


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
        event("alloc", addr=512 * k, frames=_frames(f"thunder.computation_{k}")) for k in range(500)
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


_LOPSIDED: list[Callable[[Any], None]] = [
    _grow_owners, _grow_marks, _grow_iterations, _grow_lifetimes, _grow_segments, _grow_start,
    _grow_frees, _grow_operators, _grow_ranges, _grow_graphs, _grow_thunder, _grow_modules,
    _grow_compilations, _grow_annotations, _share_source, _share_name, _share_tensor,
]  # fmt: skip
CLASSES["lopsided, a megabyte or two"] = lopsided
