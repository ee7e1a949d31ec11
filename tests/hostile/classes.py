"""The classes of faults: for each, files that have it, from small ones built by hand."""

from __future__ import annotations

import copy
import gzip
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import zstandard

from tests.hostile.lopsided import GENERATED, LOPSIDED, frames_of, grow
from tests.hostile.mutators import OPCODES, pickle_of
from tests.hostile.seeds import trace_text
from tests.hostile.values import FLOATS, INTEGERS, LINES, NAMES, deep, exploding, looped
from tests.snapshot.build import FRAMES, capture, event, segment, snapshot

File = Callable[[], bytes]  # made when it is its turn
Files = Iterator[File]
_OTHER_TYPES = (None, True, 3, 1.5, "x", b"x", [], [None], {}, {"x": 1}, (), (1, 2), {1})
_STRETCH = 200_000  # characters of a name or line that is pumped up


def ready(make: Callable[[], Iterator[bytes]]) -> Callable[[], Files]:
    """Of files that are made at no cost."""
    return lambda: (partial(bytes, data) for data in make())


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
                yield partial(put, where, value)


@ready
def prefixes() -> Iterator[bytes]:
    """The first bytes of a file, as it is and compressed."""
    raw = pickle_of(capture())
    for data in (raw, gzip.compress(raw, mtime=0), zstandard.compress(raw)):
        yield from (data[:end] for end in range(len(data)))


@ready
def bit_flips() -> Iterator[bytes]:
    """Each bit of a file turned over."""
    raw = pickle_of(snapshot())
    for place in range(len(raw)):
        for bit in range(8):
            yield raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :]


@ready
def opcodes() -> Iterator[bytes]:
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
        yield partial(_without, where)


def _without(where: tuple[Any, ...]) -> bytes:
    whole = copy.deepcopy(capture())
    del at(whole, where[:-1])[where[-1]]
    return pickle_of(whole)


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
        trace = [event("alloc", frames=frames_of(name))]
        yield partial(pickle_of, snapshot(device_traces=[trace]))


def long_names() -> Files:
    """A name of a million characters at every place of text."""
    for character in ("x", "1", "a.", "é"):
        long = character * (1_000_000 // len(character))
        yield from _put_everywhere((str,), lambda here, long=long: [long])  # type: ignore[misc]


def cycles() -> Files:
    """A list or dict within itself at every place, and a place that is what it lies in."""
    yield from _put_everywhere((dict, list, str, int), lambda here: (looped(list), looped(dict)))
    for where in places(capture()):
        for height in range(len(where)):
            yield partial(_enclosed, where, height)


def _enclosed(where: tuple[Any, ...], height: int) -> bytes:
    whole = copy.deepcopy(capture())
    at(whole, where[:-1])[where[-1]] = at(whole, where[:height])
    return pickle_of(whole)


def sharing() -> Files:
    """What would be 2^40 items if written out, or 2,000 levels deep, at every place."""
    yield from _put_everywhere((dict, list, str), lambda here: (exploding(), deep(300)))
    one = [event("alloc", addr=512 * k) for k in range(100)]
    yield partial(pickle_of, snapshot(device_traces=[one] * 100))
    yield partial(pickle_of, snapshot(segments=[segment()] * 100))
    for program in (b"(" * 100_000 + b"t" * 100_000, b"]" * 100_000 + b"a" * 99_999,
                    b"})" + b"\x85" * 100_000 + b"Ns"):  # fmt: skip
        yield partial(bytes, b"\x80\x04" + program + b".")


@ready
def histories() -> Iterator[bytes]:
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


@ready
def devices() -> Iterator[bytes]:
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
        b"\x96\xff\xff\xff\xff\x00\x00\x00\x00N.", b"X\xff\xff\xff\xffabc.",
        b"\x8b\xff\xff\xff\x7f.",
        b"\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.", b"(" + b"}" * 10_000 + b"l.",
    ):  # fmt: skip
        yield partial(bytes, b"\x80\x04" + program)
        yield partial(bytes, b"\x80\x05" + program)
    for fill in (b"N", b"}", b"]", b"(", b"\x94", b"N0", b"h\x00", bytes(1)):
        for compress in (partial(gzip.compress, compresslevel=1), zstandard.compress):
            yield partial(_inflated, fill, compress)
    raw = pickle_of(capture())
    for rest in (b"\x00", raw, b"\x1f\x8b", b"\xff" * 1000):
        for data in (raw, gzip.compress(raw, mtime=0), zstandard.compress(raw)):
            yield partial(bytes, data + rest)


def _inflated(fill: bytes, compress: Callable[[bytes], bytes]) -> bytes:
    return compress(b"\x80\x04K\x00\x94" + fill * ((65 << 20) // len(fill)) + b".")


@ready
def tables() -> Iterator[bytes]:
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


@ready
def sources() -> Iterator[bytes]:
    """Lines of generated code that are cut off, slow to search or full of endless numbers."""
    allocs = [
        event("alloc", addr=0x7F0000000000 + 512 * k, frames=frames_of(name) + FRAMES)
        for k, name in enumerate(GENERATED)
    ]
    for line in (*LINES, *_pumped()):
        text = f"{line}\n# AOT ID: ['0_forward']\n{line}\ndef f(): pass\n{line}"
        whole = capture(sources=dict.fromkeys(GENERATED, f"# AOT ID: ['0_forward']\n{text}"))
        whole["device_traces"][0] += allocs
        yield pickle_of(whole)


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


@ready
def texts() -> Iterator[bytes]:
    """Traces as text: every beginning, slow and endless lines, and each line very often."""
    whole = trace_text()
    yield from (whole[:end] for end in range(0, len(whole), 50))
    yield from (whole.decode().encode(code) for code in ("utf-16", "utf-8-sig", "utf-32"))
    lines = whole.decode().split("\n")
    for line in (*LINES, *_pumped()):
        middle = len(lines) // 2
        text = "\n".join([*lines[:middle], line, *lines[middle:]])
        yield text.encode("utf-8", "replace")
    for line in dict.fromkeys(lines):
        yield "\n".join([*lines, *[line] * 2000, *lines]).encode()


def lopsided() -> Files:
    """A megabyte or two in one part of the file."""
    return (partial(grow, make) for make in LOPSIDED)


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
    "traces as text": texts,
    "lopsided, a megabyte or two": lopsided,
}
