"""Events read in bulk, against the reader that looks at every object."""

from __future__ import annotations

import dataclasses
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memtrace.errors import MemtraceError
from memtrace.snapshot import Recording, reader
from memtrace.snapshot.events import read_events
from memtrace.snapshot.files import read_bytes
from memtrace.snapshot.traces import load_in_bulk
from memtrace.snapshot.unpickle import load_plain
from memtrace.snapshot.validate import Fault
from memtrace.snapshot.walk import Unsuited
from tests.snapshot.build import meta, segment, snapshot

ROOT = Path(__file__).parent.parent.parent
SHIPPED = sorted(ROOT.glob("samples/*.pkl.gz")) + sorted(ROOT.glob("tests/data/*/*.pkl.gz"))
WHAT = ("segments", "start_segments", "stacks", "settings", "annotations", "meta")


def fast(raw: bytes) -> Recording | None:
    try:
        snapshot, traces = load_in_bulk(raw, "x")
        return reader._recording(snapshot, "x", traces.read)
    except (Unsuited, Fault, MemtraceError):
        return None


def slow(raw: bytes) -> Recording | None:
    try:
        return reader._recording(load_plain(raw, "x"), "x", read_events)
    except (Fault, MemtraceError):
        return None


def assert_same(one: Recording, other: Recording | None) -> None:
    assert other is not None
    for mine, theirs in zip(one.events, other.events, strict=True):
        for field in dataclasses.fields(mine):
            a, b = getattr(mine, field.name), getattr(theirs, field.name)
            assert a.dtype == b.dtype, field.name
            assert np.array_equal(a, b), field.name
    for name in WHAT:
        assert getattr(one, name) == getattr(other, name), name


def history(count: int = 60, **more: Any) -> list[dict[str, Any]]:
    """Events as torch writes them: keys in one order, a list of frames for both halves of a free,
    frames and actions by reference from the second time on."""
    frames = [{"name": f"f{k}", "filename": "train.py", "line": k} for k in range(7)]
    events: list[dict[str, Any]] = []
    actions = ["alloc", "free_requested", "free_completed", "segment_alloc"]
    stack: list[Any] = []
    for k in range(count):
        if k % 3 != 2:
            stack = frames[k % 7 :: 1 + k % 2] if k % 5 else []
        events.append(
            {
                "action": actions[k % 3],
                "addr": 0x7F0000000000 + 512 * (k // 3),
                "size": [8, 400, 1 << 20, 3 << 32][k // 3 % 4],
                "stream": 0,
                "time_us": 1_700_000_000_000_000 + k,
                "compile_context": "".join(list("N/A")),
                "user_metadata": "",
                **more,
                "frames": stack,
            }
        )
    return events


def pickled(**more: Any) -> bytes:
    return pickle.dumps(snapshot(**{"memtrace": meta(), **more}), 4)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_captures(path: Path) -> None:
    raw = read_bytes(path)
    if path.name.startswith("async"):  # its allocator has no history
        assert fast(raw) is None
        return
    found = fast(raw)
    assert found is not None
    assert_same(found, slow(raw))


@pytest.mark.parametrize("more", [{}, {"pool_id": (0, 0)}, {"x": None}, {"x": True}])
def test_most_events_need_no_object(more: dict[str, Any]) -> None:
    raw = pickled(device_traces=[history(**more)])
    whole, traces = load_in_bulk(raw, "x")
    assert sum(type(event) is dict for event in whole["device_traces"][0]) < 20
    assert_same(reader._recording(whole, "x", traces.read), slow(raw))


def test_several_devices_and_odd_events() -> None:
    odd = history(9)
    odd[4]["size"] = 1 << 55
    odd[5]["time_us"] = -1
    del odd[6]["stream"]
    odd[7]["frames"] = None
    traces = [history(30), [], [*history(20), *odd, *history(20)], history(9)[:1]]
    raw = pickled(device_traces=traces)
    found = fast(raw)
    assert found is not None
    assert_same(found, slow(raw))


def test_lists_that_others_made() -> None:
    """Frames shared with a block, with an event long ago, and by an odd event with a usual one."""
    events = history(60)
    block = segment()
    block["blocks"][0]["frames"] = events[30]["frames"]
    events[40]["stream"] = events[50]["stream"] = 1 << 63  # no usual form
    events[40]["frames"] = events[39]["frames"]
    raw = pickled(device_traces=[events], segments=[block])
    found = fast(raw)
    assert found is not None
    assert_same(found, slow(raw))
    events[50]["frames"] = events[42]["frames"]  # further back than one list is remembered
    raw = pickled(device_traces=[events], segments=[block])
    assert fast(raw) is None
    assert slow(raw) is not None


def test_the_same_event_twice() -> None:
    events = history(30)
    raw = pickled(device_traces=[[*events, events[20], events[21]]])
    assert (found := fast(raw)) is None or assert_same(found, slow(raw)) is None
    assert slow(raw) is not None


def test_events_within_a_string() -> None:
    raw = pickle.dumps(history(20), 4)
    text = raw[raw.index(b"}\x94(") : raw.rindex(b"u") + 1].decode("latin1")
    key = meta()
    key["facts"]["notes"] = [text, *(text[k:] for k in range(1, 40))]
    whole = pickled(device_traces=[history()], other=text, memtrace=key)
    found = fast(whole)
    assert found is not None
    assert_same(found, slow(whole))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3])
def test_older_protocols_are_read_the_other_way(protocol: int) -> None:
    assert fast(pickle.dumps(snapshot(device_traces=[history()]), protocol)) is None


# What a crafted file may do right behind an event: drop it, double it, wrap it, name it, …
MISCHIEF = [
    b"0", b"2", b"20", b"N0", b"1(", b"\x85", b"\x86", b"\x87", b"l", b"t", b"a", b"e", b"s", b"u",
    b"N", b"K\x05", b"(", b"]", b"q\x05", b"r\x05\x00\x00\x00", b"C\x00", b"C\x04\x00\x00\x00\x00",
    b"h\x05", b"\x94", b"\x80\x04", b"\x95" + bytes(8), b"\x95" + b"\xff" * 8, b"]\x940",
]  # fmt: skip


def crafted(raw: bytes) -> Iterator[bytes]:
    """``raw`` with mischief behind events and before them, and with references bent."""
    places = [k for k in range(len(raw)) if raw.startswith(b"u}\x94(", k)]
    for place in (*places[::40], places[-1]):
        for what in MISCHIEF:
            yield raw[: place + 1] + what + raw[place + 1 :]
    for opcode in (b"h", b"j"):
        for place in [k for k in range(places[0], places[-1]) if raw.startswith(opcode, k)][::25]:
            for step in (1, 3, 100):
                low = (raw[place + 1] + step) % 256
                yield raw[: place + 1] + bytes([low]) + raw[place + 2 :]


def test_crafted_files_are_read_the_same_way_or_left() -> None:
    raw = pickled(device_traces=[history(80), history(30)])
    read = 0
    for changed in crafted(raw):
        if (found := fast(changed)) is not None:
            assert_same(found, slow(changed))
            read += 1
    assert read  # some of it does no harm


def test_damage_is_found_as_without() -> None:
    raw = read_bytes(ROOT / "tests/data/allocators/late.pkl.gz")
    begin = raw.index(b"\x8c\x06action\x94")
    end = raw.index(b"\x8c\x12allocator_settings\x94")
    chance = random.Random(5)
    read = 0
    for _ in range(300):
        changed = bytearray(raw)
        place = chance.randrange(begin, end)
        changed[place] = chance.choice((changed[place] ^ 1 << chance.randrange(8), *b"}]()aeu0.hj"))
        if (found := fast(bytes(changed))) is not None:
            assert_same(found, slow(bytes(changed)))
            read += 1
    assert read
