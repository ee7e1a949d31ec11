"""What read() makes of snapshots whose answer is known."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from memtrace.errors import MemtraceError
from memtrace.snapshot import Action, Frame, Recording, read
from tests.snapshot.build import FRAMES, block, capture, event, meta, save, segment, snapshot

PLAIN = Path(__file__).parent.parent / "data" / "plain"
RECORDED = {
    "qwen2-L4-eagerattn-nvfuser": (1878, 27, 140, 110),
    "qwen2-L4-eagerattn-torchcompile": (1218, 22, 140, 110),
    "qwen2-L4-sdpa-nvfuser": (1866, 23, 134, 109),
    "qwen2-L4-sdpa-torchcompile": (1152, 28, 143, 109),
    "qwen2-L8-eager": (7002, 44, 249, 205),
    "qwen2-L8-inductor": (1896, 50, 260, 205),
}


def attempt(path: Path) -> Recording | str:
    """What read() returns, or the one line that it raises, checked for its form."""
    try:
        return read(path)
    except MemtraceError as error:
        text = str(error)
    assert text.startswith(f"{path}: ")
    assert "; " in text
    assert text.isprintable()
    text.encode()
    return text


def fault(path: Path) -> str:
    """The line that read() raises."""
    text = attempt(path)
    assert isinstance(text, str)
    return text


def test_columns(tmp_path: Path) -> None:
    recording = read(save(tmp_path, snapshot()))
    (events,) = recording.events
    assert events.action.tolist() == [
        Action.SEGMENT_ALLOC,
        Action.ALLOC,
        Action.FREE_REQUESTED,
        Action.FREE_COMPLETED,
        Action.OOM,
    ]
    assert events.addr.tolist() == [0x7F0000000000] * 4 + [0]
    assert events.size.tolist() == [2 << 20, 500, 500, 500, 1 << 40]
    assert events.time_us.tolist() == [1, 2, 3, 3, 4]
    assert events.device_free.tolist() == [-1, -1, -1, -1, 77]
    assert [c.dtype for c in (events.action, events.addr, events.size, events.stream)] == [
        np.uint8,
        np.uint64,
        np.int64,
        np.uint64,
    ]
    assert events.stack.dtype == np.int32
    stacks = recording.stacks
    assert stacks.at(events.stack[0]) == []
    assert stacks.at(events.stack[1]) == [
        Frame("thunder.computation_3", 12, "computation"),
        Frame("train.py", 40, "main"),
    ]
    assert stacks.at(events.stack[2]) == [Frame("train.py", 40, "main")]
    assert stacks.stacks[0] == ()
    assert recording.settings == {"max_split_size": -1, "expandable_segments": False}
    assert recording.meta is None
    assert recording.start_segments is None
    (found,) = recording.segments
    assert (found.address, found.total_size, found.kind, found.pool) == (
        0x7F0000000000,
        2 << 20,
        "small",
        (0, 0),
    )
    assert [(b.size, b.requested, b.allocated) for b in found.blocks] == [
        (512, 500, True),
        ((2 << 20) - 512, (2 << 20) - 524, False),
    ]


def test_equal_stacks_have_one_number(tmp_path: Path) -> None:
    same = [dict(FRAMES[0]), dict(FRAMES[1])]
    half = [dict(FRAMES[0]), FRAMES[1]]
    trace = [event("alloc", frames=f) for f in (FRAMES, list(FRAMES), same, half, FRAMES[:1], [])]
    recording = read(save(tmp_path, snapshot(device_traces=[trace])))
    assert recording.events[0].stack.tolist() == [1, 1, 1, 1, 2, 0]
    assert len(recording.stacks.frames) == 2


def test_a_stack_is_the_same_in_blocks_and_events(tmp_path: Path) -> None:
    one = segment(blocks=[block(0x7F0000000000, 2 << 20, frames=[dict(f) for f in FRAMES])])
    recording = read(save(tmp_path, snapshot(segments=[one])))
    assert recording.segments[0].blocks[0].stack == recording.events[0].stack[1]


def test_stacks_beyond_one_chunk(tmp_path: Path) -> None:
    frames = [{"filename": "f", "line": k, "name": "g"} for k in range(97)]
    trace = [event("alloc", frames=[frames[k % 97], frames[k % 89]]) for k in range(10_000)]
    recording = read(save(tmp_path, snapshot(device_traces=[trace])))
    for k in (0, 1, 4095, 4096, 9_999):
        stack = recording.stacks.at(recording.events[0].stack[k])
        assert [frame.line for frame in stack] == [k % 97, k % 89]
    assert len(set(recording.stacks.stacks)) == len(recording.stacks.stacks)


@pytest.mark.parametrize("name", RECORDED)
def test_real_recordings(name: str) -> None:
    path = PLAIN / f"{name}.snapshot.pkl.gz"
    recording = read(path)
    raw = pickle.loads(gzip.decompress(path.read_bytes()))
    events, segments, blocks, allocated = RECORDED[name]
    columns = recording.events[0]
    assert len(columns) == events
    assert len(recording.segments) == segments
    assert sum(len(s.blocks) for s in recording.segments) == blocks
    assert sum(b.allocated for s in recording.segments for b in s.blocks) == allocated
    # Every value against the file, by the slow and obvious way.
    for k, one in enumerate(raw["device_traces"][0]):
        assert Action(columns.action[k]).name.lower() == one["action"]
        assert columns.addr[k] == one["addr"]
        assert columns.size[k] == one["size"]
        assert columns.time_us[k] == one["time_us"]
        stack = [Frame(f["filename"], f["line"], f["name"]) for f in one["frames"]]
        assert recording.stacks.at(columns.stack[k]) == stack
    # The file's own sums: what segments say of their blocks.
    for ours, theirs in zip(recording.segments, raw["segments"], strict=True):
        assert sum(b.size for b in ours.blocks) == ours.total_size
        assert sum(b.size for b in ours.blocks if b.allocated) == theirs["allocated_size"]
    facts = json.loads(gzip.decompress((PLAIN / f"{name}.facts.json.gz").read_bytes()))
    assert facts


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_every_pickle_protocol(tmp_path: Path, protocol: int) -> None:
    trace = [event("alloc", addr=k << 20, frames=[dict(FRAMES[0])]) for k in range(1, 3000)]
    recording = read(save(tmp_path, snapshot(device_traces=[trace]), protocol))
    assert recording.events[0].addr.tolist() == [k << 20 for k in range(1, 3000)]


def test_pure_python_pickles(tmp_path: Path) -> None:
    # Protocol 2 and BINPUT, LONG_BINPUT: what old torch on old Python wrote.
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle._dumps(snapshot(), protocol=2))  # type: ignore[attr-defined]
    assert len(read(path).events[0]) == 5


@pytest.mark.parametrize("suffix", [".pkl", ".gz", ".zst", ".pickle", ""])
@pytest.mark.parametrize("form", ["plain", "gzip", "zstd", "zstd without a size", "two members"])
def test_content_decides_not_the_name(tmp_path: Path, suffix: str, form: str) -> None:
    raw = pickle.dumps(snapshot())
    compressor = zstandard.ZstdCompressor().compressobj()
    data = {
        "plain": raw,
        "gzip": gzip.compress(raw),
        "zstd": zstandard.compress(raw),
        "zstd without a size": compressor.compress(raw) + compressor.flush(),
        "two members": gzip.compress(raw[:100]) + gzip.compress(raw[100:]),
    }[form]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(data)
    assert len(read(path).events[0]) == 5


class TestOlderForms:
    def test_bare_list_of_segments(self, tmp_path: Path) -> None:
        one = {"address": 4096, "total_size": 4096, "segment_type": "large"}
        one["blocks"] = [{"size": 1024, "state": "active_allocated"}, {"size": 3072, "state": "x"}]
        recording = read(save(tmp_path, [one]))
        (found,) = recording.segments
        assert [b.address for b in found.blocks] == [4096, 5120]
        assert [b.requested for b in found.blocks] == [0, 0]
        assert (found.device, found.stream, found.pool, found.expandable) == (0, 0, (0, 0), False)
        assert [len(e) for e in recording.events] == [0]
        assert read(save(tmp_path, [])).segments == ()

    def test_history(self, tmp_path: Path) -> None:
        newest = {"addr": 4096, "real_size": 1000, "frames": FRAMES}
        older = {"addr": 4096, "real_size": 7, "frames": FRAMES[1:]}
        blocks = [
            {"size": 1024, "state": "active_allocated", "history": [newest, older]},
            {"size": 1024, "state": "inactive", "history": []},
            {"size": 1024, "state": "inactive", "history": [{"real_size": 3}]},
            {"size": 1024, "state": "active_pending_free"},
        ]
        one = {"address": 4096, "total_size": 4096, "blocks": blocks}
        recording = read(save(tmp_path, {"segments": [one]}))
        found = recording.segments[0].blocks
        assert [b.requested for b in found] == [1000, 0, 3, 0]
        assert [len(recording.stacks.at(b.stack)) for b in found] == [2, 0, 0, 0]
        assert [b.active for b in found] == [True, False, False, True]
        assert recording.segments[0].kind == "small"

    @pytest.mark.parametrize("traces", [None, []])
    def test_no_history(self, tmp_path: Path, traces: Any) -> None:
        whole = snapshot(device_traces=traces, segments=[segment(device=2)])
        recording = read(save(tmp_path, whole))
        assert [len(e) for e in recording.events] == [0, 0, 0]
        del whole["device_traces"], whole["allocator_settings"], whole["external_annotations"]
        recording = read(save(tmp_path, whole))
        assert (recording.settings, recording.annotations) == ({}, [])

    @pytest.mark.parametrize(("total", "kind"), [(2 << 20, "small"), (20 << 20, "large")])
    def test_pool_by_size(self, tmp_path: Path, total: int, kind: str) -> None:
        one = segment(total=total)
        del one["segment_type"]
        assert read(save(tmp_path, [one])).segments[0].kind == kind

    def test_one_empty_list_for_idle_devices(self, tmp_path: Path) -> None:
        recording = read(save(tmp_path, snapshot(device_traces=[[]] * 8)))
        assert [len(e) for e in recording.events] == [0] * 8

    def test_free_is_two_events(self, tmp_path: Path) -> None:
        trace = [event("alloc", 1, 10), event("free", 1, 10), event("alloc", 2, 20)]
        trace += [event("free", 2, 20, frames=FRAMES)]
        for old in trace:
            del old["time_us"]
        recording = read(save(tmp_path, snapshot(device_traces=[trace])))
        events = recording.events[0]
        assert [Action(a).name for a in events.action] == [
            "ALLOC",
            "FREE_REQUESTED",
            "FREE_COMPLETED",
            "ALLOC",
            "FREE_REQUESTED",
            "FREE_COMPLETED",
        ]
        assert events.addr.tolist() == [1, 1, 1, 2, 2, 2]
        assert events.stack.tolist() == [0, 0, 0, 0, 1, 1]
        assert events.time_us.tolist() == [-1] * 6

    def test_frames_none_or_missing(self, tmp_path: Path) -> None:
        trace = [event("alloc", frames=None), event("alloc"), event("alloc", frames=FRAMES)]
        del trace[1]["frames"]
        recording = read(save(tmp_path, snapshot(device_traces=[trace])))
        assert recording.events[0].stack.tolist() == [0, 0, 1]


class TestNewerForms:
    def test_unknown_keys_and_actions(self, tmp_path: Path) -> None:
        trace = [
            event("alloc", user_metadata={"step": 3}, pool_id=(0, 0), compile_context="0/0"),
            event("workspace_snapshot", whatever=[{}]),
            {"action": "teleport"},
        ]
        whole = snapshot(device_traces=[trace], future={"x": (1, 2)})
        recording = read(save(tmp_path, whole))
        assert recording.events[0].action.tolist() == [Action.ALLOC, Action.OTHER, Action.OTHER]

    def test_many_pools(self, tmp_path: Path) -> None:
        # As many tuples as events is not the nesting that the unpickler refuses.
        trace = [event("alloc", pool_id=(0, k % 7)) for k in range(60_000)]
        raw = pickle._dumps(snapshot(device_traces=[trace]), protocol=4)  # type: ignore[attr-defined]
        assert raw.count(b"\x86") > 50_000
        (tmp_path / "a.pkl").write_bytes(raw)
        assert len(read(tmp_path / "a.pkl").events[0]) == 60_000


class TestCapture:
    def test_meta_is_carried(self, tmp_path: Path) -> None:
        recording = read(save(tmp_path, capture()))
        assert recording.meta == meta()
        assert recording.start_segments == ()

    def start(self, tmp_path: Path, **device: Any) -> Recording:
        devices = [meta()["devices"][0] | device]
        return read(save(tmp_path, capture(devices=devices)))

    def test_start_segments(self, tmp_path: Path) -> None:
        recording = self.start(tmp_path, start_events=9, start_segments=[segment()])
        assert recording.start_segments == recording.segments
        assert self.start(tmp_path, start_events=9).start_segments is None
        assert read(save(tmp_path, capture(devices=[]))).start_segments is None

    def test_marks_of_devices_left_out(self, tmp_path: Path) -> None:
        whole = snapshot(segments=[segment(device=1)], memtrace=meta())
        recording = read(save(tmp_path, whole))
        assert recording.meta is not None
        assert recording.meta["marks"]["event"] == [[0, -1], [5, -1]]
        assert len(recording.events) == 2

    def test_newer_format(self, tmp_path: Path) -> None:
        text = fault(save(tmp_path, snapshot(memtrace={"format": 7})))
        assert "format 7" in text
        assert "up to 1" in text
        assert "upgrade" in text

    def test_unknown_keys_are_carried(self, tmp_path: Path) -> None:
        assert read(save(tmp_path, capture(later=[1]))).meta == meta(later=[1])
