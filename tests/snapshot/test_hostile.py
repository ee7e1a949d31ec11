"""Files that are damaged, foreign or mean harm: one line each, no harm done."""

from __future__ import annotations

import copyreg
import gc
import gzip
import os
import pickle
import resource
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from memtrace.snapshot import read
from tests.snapshot.build import FRAMES, capture, event, save, segment, snapshot
from tests.snapshot.test_reader import attempt, fault

BOMB = b"\x80\x04K\x00r\xff\xff\xff\x7f."  # LONG_BINPUT: a memo of 2**31 entries


def written(folder: Path, data: bytes) -> Path:
    path = folder / "a.pkl"
    path.write_bytes(data)
    return path


class Shout:
    def __reduce__(self) -> Any:
        return os.system, ("touch shouted",)


class Stranger:
    pass


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int) -> None:
    monkeypatch.chdir(tmp_path)
    text = fault(save(tmp_path, snapshot(x=Shout()), protocol))
    assert "system" in text
    assert not (tmp_path / "shouted").exists()


@pytest.mark.parametrize(
    ("program", "word"),
    [
        (b"cos\nsystem\n.", "os.system"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "os.system"),
        (b"(S'ls'\nios\nsystem\n.", "os.system"),
        (b"P1\n.", "outside the file"),
        (b"\x80\x04K\x01Q.", "outside the file"),
        (b"\x80\x05\x97.", "objects"),
        (b"\x80\x05K\x01\x98.", "objects"),
        (b"\x80\x02\x82\xf0.", "objects"),
        (b"\x80\x02\x83\xf0\x00.", "objects"),
        (b"\x80\x02\x84\xf0\x00\x00\x00.", "objects"),
        (b"NNb.", "objects"),
        (b"N)R.", "objects"),
        (b"N)\x81.", "objects"),
        (b"N)}\x92.", "objects"),
        (b"(No.", "objects"),
    ],
)
def test_each_opcode_that_makes_objects(tmp_path: Path, program: bytes, word: str) -> None:
    assert word in fault(written(tmp_path, program))


def test_registered_extensions_are_not_looked_up(tmp_path: Path) -> None:
    copyreg.add_extension("os", "system", 240)
    try:
        pickle.loads(b"\x80\x02\x82\xf0.")  # now in the cache, which skips find_class
        assert "objects" in fault(written(tmp_path, b"\x80\x02\x82\xf0."))
    finally:
        copyreg.remove_extension("os", "system", 240)
        copyreg.clear_extension_cache()


def peak_kib(path: Path) -> int:
    """The peak memory of a process that reads one file and gets a MemtraceError, in KiB.

    Not its ru_maxrss, which a fork and exec inherit from the process that runs the tests.
    """
    code = (
        "import sys, resource\n"
        "from memtrace.errors import MemtraceError\n"
        "from memtrace.snapshot import read\n"
        "resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))\n"
        "try:\n    read(sys.argv[1])\nexcept MemtraceError: pass\nelse: sys.exit('read it')\n"
        "status = open('/proc/self/status').read()\n"
        "print(status.partition('VmHWM:')[2].split()[0])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr or f"killed by signal {-run.returncode}"
    return int(run.stdout)


@pytest.mark.parametrize(
    "program",
    [
        BOMB,
        b"\x80\x04K\x00r\x00\x00\x00\x04.",  # 2**26 entries: 1 GB
        b"K\x00p67108864\n.",
        b"\x80\x04\x8d\xff\xff\xff\xff\x00\x00\x00\x00",  # BINUNICODE8 of 4 GB
        b"\x80\x04\x8e\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x80\x05\x96\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x80\x04X\xff\xff\xff\xffabc.",
        b"\x80\x04\x8b\xff\xff\xff\x7f\x01.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.",
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffN.",
    ],
)
def test_small_file_great_memory(tmp_path: Path, program: bytes) -> None:
    path = written(tmp_path, program)
    text = fault(path)
    assert "out of all proportion" in text or "truncated" in text or "overflow" in text
    assert peak_kib(path) < 200_000


def test_frames_cannot_hide_an_operand(tmp_path: Path) -> None:
    # Read frame by frame, the C unpickler drops the first half of an operand at a frame's end and
    # takes 4 bytes after it: memo number 0x304e0000, where the bytes in order say 1.
    path = written(tmp_path, b"\x80\x04\x95\x05" + bytes(7) + b"K\x00r\x01\x00" + b"\x00\x00N0.")
    assert "holds 0" in fault(path)
    assert peak_kib(path) < 200_000


def test_memo_numbers_within_the_file_are_fine(tmp_path: Path) -> None:
    # 70,000 list items and LONG_BINPUT up to 70,000, as protocol 2 writes them.
    body = b"".join(b"(lr" + k.to_bytes(4, "little") + b"a" for k in range(70_000))
    text = fault(written(tmp_path, b"\x80\x02]" + body + b"."))
    assert "holds" in text or "list" in text


def test_long_binput_at_the_bound() -> None:
    from memtrace.snapshot.walk import _harmless

    for size, fine, wrong in (
        (100, 0xFFFF, 0x10000),
        (0x2FFFF, 0x2FFFF, 0x30000),
        (0x2FFFFFF, 0x2FFFFFF, 0x3000000),
    ):
        pattern = _harmless(size)
        for operand, swallowed in ((fine, 5), (wrong, 0)):
            found = pattern.match(b"r" + operand.to_bytes(4, "little"))
            assert found is not None
            assert found.end() == swallowed, (size, operand)


def test_deep_tuple_does_not_crash(tmp_path: Path) -> None:
    # As a key its hash recurses in C: 300,000 levels overflow the stack.
    for tail in (b"Ns.", b"."):
        path = written(tmp_path, b"\x80\x04})" + b"\x85" * 1_000_000 + tail)
        assert "tuples" in fault(path)
        peak_kib(path)


@pytest.mark.parametrize("op", [b"]", b"}"])
def test_deep_lists(tmp_path: Path, op: bytes) -> None:
    close = b"a" if op == b"]" else b"s"
    key = b"" if op == b"]" else b"N"
    deep = (op + key) * 100_000 + op + close * 100_000
    fault(written(tmp_path, b"\x80\x04" + deep + b"."))
    whole = b"\x80\x04}(\x8c\x08segments]\x8c\x07memtrace}\x8c\x05facts" + deep + b"su."
    fault(written(tmp_path, whole))


def test_a_sea_of_empty_dicts(tmp_path: Path) -> None:
    path = written(tmp_path, b"\x80\x04(" + b"}" * 20_000_000 + b"l.")
    assert "containers" in fault(path)


def test_cycles(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)
    ring: dict[str, Any] = {}
    ring["x"] = ring
    for whole in (
        loop,
        ring,
        snapshot(segments=loop),
        snapshot(device_traces=loop),
        snapshot(device_traces=[loop]),
        snapshot(allocator_settings=ring),
        snapshot(external_annotations=loop),
        snapshot(memtrace=ring),
        capture(facts=ring),
        capture(thunder=loop),
        capture(facts={"notes": loop}),
    ):
        fault(save(tmp_path, whole))
    trace = [event("alloc", frames=loop)]
    fault(save(tmp_path, snapshot(device_traces=[trace])))
    # A stranger's key may be what it likes.
    read(save(tmp_path, snapshot(other=loop)))


def test_shared_references_that_explode(tmp_path: Path) -> None:
    laugh: Any = "ha"
    for _ in range(18):
        laugh = [laugh] * 30
    fault(save(tmp_path, capture(facts={"x": laugh})))
    fault(save(tmp_path, snapshot(allocator_settings={"x": laugh})))
    fault(save(tmp_path, snapshot(external_annotations=[{"x": laugh}])))
    trace = [event("alloc")] * 1000
    assert "same list" in fault(save(tmp_path, snapshot(device_traces=[trace] * 8)))
    one = segment()
    assert "same list" in fault(save(tmp_path, snapshot(segments=[one] * 8)))
    wide = capture()
    module = wide["memtrace"]["thunder"][0]
    module["traces"][0]["symbols"] *= 1000
    module["traces"] *= 1000
    wide["memtrace"]["thunder"] *= 1000
    assert "repeats" in fault(save(tmp_path, wide))


def test_depth_hidden_behind_shared_references(tmp_path: Path) -> None:
    # Walked once each, no list is more than two levels below one that is known.
    chain: list[Any] = []
    ladder = [chain := [chain] for _ in range(1000)]
    assert "too deep" in fault(save(tmp_path, capture(facts={"x": ladder})))


def test_one_stack_for_a_million_events_is_fine(tmp_path: Path) -> None:
    trace = [event("alloc", frames=FRAMES * 1000)] * 100_000
    assert len(read(save(tmp_path, snapshot(device_traces=[trace]))).stacks.stacks) == 2


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_decompression_bomb(tmp_path: Path, compress: Any) -> None:
    path = written(tmp_path, compress(b"\x80\x04" + b"N" * (100 << 20)))
    text = fault(path)
    assert "64 MiB" in text
    assert "decompress" in text
    assert peak_kib(path) < 400_000


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("wrap", ["plain", "gzip", "zstd"])
def test_truncation_anywhere(tmp_path: Path, protocol: int, wrap: str) -> None:
    raw = pickle.dumps(snapshot(), protocol)
    data = {"plain": raw, "gzip": gzip.compress(raw), "zstd": zstandard.compress(raw)}[wrap]
    path = written(tmp_path, data)
    read(path)
    for end in range(len(data)):
        path.write_bytes(data[:end])
        fault(path)


def test_checksum_cut_off(tmp_path: Path) -> None:
    # The pickle is whole, so only the frame can tell.
    raw = pickle.dumps(snapshot())
    data = zstandard.ZstdCompressor(write_checksum=True).compress(raw)
    assert "truncated zstd" in fault(written(tmp_path, data[:-2]))
    assert "truncated gzip" in fault(written(tmp_path, gzip.compress(raw)[:-2]))
    assert "damaged gzip" in fault(written(tmp_path, gzip.compress(raw)[:-8] + bytes(8)))


def test_every_byte_damaged(tmp_path: Path) -> None:
    raw = pickle.dumps(capture(), 4)
    path = tmp_path / "a.pkl"
    failed = 0
    for k in range(len(raw)):
        flip = (1, 0x80, 0xFF)[k % 3]
        path.write_bytes(raw[:k] + bytes([raw[k] ^ flip]) + raw[k + 1 :])
        failed += isinstance(attempt(path), str)
    assert failed > len(raw) // 3  # most damage is noticed


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b'{"traceEvents": []}', "profiler trace"),
        (b'\n {"schema": 1}', "JSON"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"\x93NUMPY\x01\x00", "numpy"),
        (b"\x7fELF", "program"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"hello world", "a text file"),
        (b"\xff\xfe\x00", "not a pickle"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "checkpoint"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0), "profiler trace"),
        (gzip.compress(b"", mtime=0), "empty"),
        (b"\x1f\x8b\x08garbage and more", "gzip"),
        (b"\x28\xb5\x2f\xfdgarbage and more", "zstd"),
        (pickle.dumps([1, 2, 3]), "list"),
        (pickle.dumps("text"), "holds 'text'"),
        (pickle.dumps({"a": 1, "b\n": 2}), "'a', 'b\\n'"),
        (pickle.dumps({"traceEvents": []}), "profiler trace"),
        (pickle.dumps(OrderedDict(weight=1)), "checkpoint"),
        (pickle.dumps({"w": np.zeros(3)}), "numpy"),
        (pickle.dumps(Stranger()), "Stranger"),
    ],
)
def test_foreign(tmp_path: Path, data: bytes, word: str) -> None:
    assert word in fault(written(tmp_path, data))


def test_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
    assert "torch.save" in fault(path)


def test_no_limit_of_the_process_is_touched(tmp_path: Path) -> None:
    before = {r: resource.getrlimit(r) for r in (resource.RLIMIT_AS, resource.RLIMIT_DATA)}
    recursion = sys.getrecursionlimit()
    fault(written(tmp_path, BOMB))
    read(save(tmp_path, snapshot()))
    assert before == {r: resource.getrlimit(r) for r in before}
    assert recursion == sys.getrecursionlimit()


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_as_before(tmp_path: Path, enabled: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        read(save(tmp_path, snapshot()))
        assert gc.isenabled() is enabled
        fault(written(tmp_path, BOMB))
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
