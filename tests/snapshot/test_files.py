"""Files are written whole or not at all, and faults of the file system are one line."""

from __future__ import annotations

import enum
import errno
import gzip
import os
import pickle
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from memtrace.errors import MemtraceError
from memtrace.snapshot import read, write_atomically, write_capture
from memtrace.snapshot.leftovers import make_temporary
from memtrace.snapshot.plain import simplify
from tests.snapshot.build import FRAMES, capture, event, meta, save, snapshot
from tests.snapshot.test_reader import fault


def write_fault(path: Path, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(MemtraceError) as caught:
        write_capture(path, capture(), *args, **kwargs)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", ["a.pkl", "a.pkl.gz", "a.pkl.zst", "a.PKL.GZ"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_capture(path, capture())
    assert read(path).meta == meta()
    assert os.listdir(tmp_path) == [name]
    magic = {".pkl": b"\x80\x04", ".gz": b"\x1f\x8b", ".zst": b"\x28\xb5"}
    assert path.read_bytes()[:2] == magic[path.suffix.lower()]


def test_plain_pickle_reads_it(tmp_path: Path) -> None:
    write_capture(tmp_path / "a.pkl", capture())
    with open(tmp_path / "a.pkl", "rb") as stream:
        assert pickle.load(stream) == capture()


@pytest.mark.parametrize("name", ["a.gz", "a.zst"])
def test_bytes_depend_on_the_capture_alone(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_capture(tmp_path / name, capture())
    monkeypatch.setattr(time, "time", lambda: 1e9)
    write_capture(tmp_path / f"other-{name}", capture())
    assert (tmp_path / name).read_bytes() == (tmp_path / f"other-{name}").read_bytes()


def test_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    path.write_text("precious")
    assert "--force" in write_fault(path)
    with pytest.raises(MemtraceError, match="--force"):
        write_atomically(path, lambda stream: pytest.fail("wrote before looking"))
    assert path.read_text() == "precious"
    write_capture(path, capture(), force=True)
    assert read(path).meta == meta()


def test_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"

    def writer(stream: BinaryIO) -> None:
        path.write_text("precious")
        stream.write(b"mine")

    with pytest.raises(MemtraceError, match="--force"):
        write_atomically(path, writer)
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["a.pkl"]


def test_no_half_file_under_the_name(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"

    def writer(stream: BinaryIO) -> None:
        stream.write(b"x" * 100_000)
        stream.flush()
        assert not path.exists()

    write_atomically(path, writer)
    assert path.stat().st_size == 100_000


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError, RuntimeError])
@pytest.mark.parametrize("force", [True, False])
def test_nothing_is_left_after_a_failure(
    tmp_path: Path, error: type[BaseException], force: bool
) -> None:
    if force:
        (tmp_path / "a.pkl").write_text("old")

    def writer(stream: BinaryIO) -> None:
        stream.write(b"x")
        raise error

    with pytest.raises(error):
        write_atomically(tmp_path / "a.pkl", writer, force)
    assert os.listdir(tmp_path) == (["a.pkl"] if force else [])
    if force:
        assert (tmp_path / "a.pkl").read_text() == "old"


def test_full_disk(tmp_path: Path) -> None:
    def writer(stream: BinaryIO) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(MemtraceError, match=r"No space left on device.*; free some space"):
        write_atomically(tmp_path / "a.pkl", writer)
    assert os.listdir(tmp_path) == []


def test_failing_fsync_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "fsync", fail)
    assert "I/O error" in write_fault(tmp_path / "a.pkl")
    assert os.listdir(tmp_path) == []


def test_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise PermissionError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", refuse)
    write_capture(tmp_path / "a.pkl", capture())
    assert "--force" in write_fault(tmp_path / "a.pkl")
    assert os.listdir(tmp_path) == ["a.pkl"]


def test_symbolic_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link.pkl").symlink_to(tmp_path / "real.pkl")
    write_capture(tmp_path / "link.pkl", capture())
    assert (tmp_path / "link.pkl").is_symlink()
    assert read(tmp_path / "real.pkl").meta == meta()


def test_mode_is_the_umask_s(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_capture(tmp_path / "a.pkl", capture())
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.pkl").stat().st_mode) == 0o640


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    assert "make the folder" in write_fault(tmp_path / "none" / "a.pkl")
    assert "directory" in write_fault(tmp_path, force=True)
    (tmp_path / "file").write_text("")
    assert "Not a directory" in write_fault(tmp_path / "file" / "a.pkl")
    assert "shorter" in write_fault(tmp_path / ("a" * 300))
    os.mkfifo(tmp_path / "pipe")
    assert "regular" in write_fault(tmp_path / "pipe", force=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission(tmp_path: Path) -> None:
    path = save(tmp_path, snapshot())
    path.chmod(0)
    assert "permission" in fault(path)
    tmp_path.chmod(0o500)
    try:
        assert "Permission denied" in write_fault(tmp_path / "b.pkl")
    finally:
        tmp_path.chmod(0o700)


def test_permission_error_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, snapshot())

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(MemtraceError, match="no permission to read it; change its mode"):
        read(path)


def test_places_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file" in fault(tmp_path / "none.pkl")
    assert "directory" in fault(tmp_path)
    (tmp_path / "empty.pkl").write_bytes(b"")
    assert "empty" in fault(tmp_path / "empty.pkl")
    (tmp_path / "file").write_text("")
    assert "Not a directory" in fault(tmp_path / "file" / "a.pkl")
    with pytest.raises(MemtraceError, match="null"):
        read("a\0b")


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    pass


def test_stray_objects_do_not_lose_a_recording(tmp_path: Path) -> None:
    whole = capture()
    whole["memtrace"]["iterations"][0]["wall_ns"] = np.int64(4000)
    whole["memtrace"]["facts"] |= {
        "x": np.float32(0.5),
        "level": Level.HIGH,
        "path": Path("/tmp/x"),
        "array": np.arange(3),
    }
    whole["memtrace"]["label"] = Name("b")
    write_capture(tmp_path / "a.pkl", whole)
    found = read(tmp_path / "a.pkl").meta
    assert found is not None
    assert found["iterations"][0]["wall_ns"] == 4000
    assert found["label"] == "b"
    assert {k: found["facts"][k] for k in ("x", "level", "path", "array")} == {
        "x": 0.5,
        "level": 3,
        "path": "/tmp/x",
        "array": [0, 1, 2],
    }
    assert type(whole["memtrace"]["label"]) is Name  # the caller's own stays as it was


def test_simplify_keeps_what_is_shared(tmp_path: Path) -> None:
    trace = [event("alloc", size=np.int64(3), frames=FRAMES) for _ in range(10)]
    plain = simplify(snapshot(device_traces=[trace]))["device_traces"][0]
    assert all(one["frames"] is plain[0]["frames"] for one in plain)
    assert [type(one["size"]) for one in plain] == [int] * 10
    loop: list[Any] = []
    loop.append(loop)
    copy = simplify(loop)
    assert copy[0] is copy
    assert copy is not loop


def test_gz_carries_no_name(tmp_path: Path) -> None:
    write_capture(tmp_path / "secret.gz", capture())
    assert b"secret" not in (tmp_path / "secret.gz").read_bytes()
    assert pickle.loads(gzip.decompress((tmp_path / "secret.gz").read_bytes())) == capture()


def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path: Path) -> None:
    target = tmp_path / "a.pkl"
    left = tmp_path / ".a.pkl.0123abcd.tmp"
    others = [tmp_path / ".b.pkl.0123abcd.tmp", tmp_path / ".a.pkl.mine.tmp"]
    for path in (left, *others):
        path.write_bytes(b"half")
    handle, busy = make_temporary(str(target))  # of a writer that still writes
    write_capture(target, {"a": 1})
    assert not left.exists()
    assert all(path.exists() for path in (target, Path(busy), *others))
    os.close(handle)
    write_capture(target, {"a": 2}, force=True)
    assert not Path(busy).exists()


def test_a_capture_never_takes_the_place_of_stdout(tmp_path: Path) -> None:
    code = f"""
import os
os.close(1)
from memtrace.snapshot.files import write_atomically
def write(stream):
    stream.write(b"x")
    os.write(2, b"%d" % stream.fileno())
write_atomically({str(tmp_path / "a")!r}, write)
try: os.write(1, b"stray")
except OSError: pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert int(done.stderr) > 2
    assert (tmp_path / "a").read_bytes() == b"x"
