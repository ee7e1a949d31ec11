"""Files on disk: opened by what they hold, written whole or not at all."""

from __future__ import annotations

import errno
import gzip
import os
import pickle
import stat
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from memtrace.errors import MemtraceError
from memtrace.snapshot.leftovers import make_temporary, remove_leftovers
from memtrace.snapshot.plain import PlainPickler, simplify
from memtrace.snapshot.walk import READS

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
# Snapshots compress 10 to 50 times, with stacks of a hundred frames perhaps 100 times. Whoever
# trusts a file beyond that can decompress it: plain files have no limit.
_MOST_RATIO = 200
_ALWAYS_FINE = 64 << 20
_CHUNK = 1 << 20
_STEP = 1 << 12

# What a file is that is neither compressed nor a pickle, by its first bytes.
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive, such as a checkpoint that torch.save wrote"),
    (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "a checkpoint that torch.save wrote"),
    (b"\x93NUMPY", "a numpy array"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3", "an SQLite database"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The pickle in a file, decompressed if its first bytes say gzip or zstd.

    Raises MemtraceError where it cannot be read, is cut off, is a bomb or plainly something else.
    """
    name = os.fspath(path)
    try:
        # Unbuffered, since a buffer would add a copy of all of it.
        with open(name, "rb", buffering=0) as stream:
            head = stream.read(4) or b""
            stream.seek(0)
            if head.startswith(_GZIP):
                raw = _gunzip(cast(BinaryIO, stream), name)
            elif head == _ZSTD:
                raw = _unzstd(cast(BinaryIO, stream), name)
            else:
                raw = stream.readall()
    except OSError as error:
        raise _unreadable(name, error) from None
    except ValueError as error:  # a NUL in the name
        raise MemtraceError(f"{name!r}: {error}; give the path of a capture") from None
    except MemoryError:
        raise MemtraceError(
            f"{name}: too large for this machine's memory; use one with more"
        ) from None
    if not raw:
        raise MemtraceError(f"{name}: empty; record it again")
    if what := _foreign(raw):
        raise MemtraceError(f"{name}: looks like {what}; {READS}")
    return raw


def write_atomically(
    path: str | os.PathLike[str], writer: Callable[[BinaryIO], None], force: bool = False
) -> None:
    """Let ``writer`` write a file that appears under its name only when it is whole and on disk.

    An existing file is kept unless ``force``. Whatever goes wrong, KeyboardInterrupt included, the
    temporary file is removed (one that was killed leaves it to the next one for the same name); a
    fault of the file system becomes a MemtraceError.
    """
    # Through a symbolic link to what it names, as open() would write.
    name = os.path.realpath(path)
    _check_target(name, os.fspath(path), force)
    remove_leftovers(name)
    try:
        handle, temporary = make_temporary(name)
        try:
            with open(handle, "wb") as stream:
                writer(cast(BinaryIO, stream))
                stream.flush()
                os.fsync(stream.fileno())
            _publish(temporary, name, force)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        _sync_folder(os.path.dirname(name))
    except FileExistsError:
        raise _exists(os.fspath(path)) from None
    except OSError as error:
        raise _unwritable(os.fspath(path), error) from error


def write_capture(path: str | os.PathLike[str], obj: dict[str, Any], force: bool = False) -> None:
    """Write a capture: pickle protocol 4, gzip for ``.gz``, zstd for ``.zst``.

    The bytes depend on ``obj`` alone, not on the time. What is not plain data (a numpy integer, a
    torch.Size) is made so rather than lose a recording over it.
    """

    def write(stream: BinaryIO) -> None:
        compress(stream, os.fspath(path), lambda target: PlainPickler(target).dump(obj))

    try:
        write_atomically(path, write, force)
    except pickle.PicklingError:
        obj = simplify(obj)
        write_atomically(path, write, force)


def compress(stream: BinaryIO, name: str, dump: Callable[[BinaryIO], None], level: int = 6) -> None:
    """Let ``dump`` write into ``stream``, compressed as the ending of ``name`` says.

    ``level`` is gzip's. The bytes do not depend on the time.
    """
    suffix = Path(name).suffix.lower()
    if suffix == ".gz":
        with gzip.GzipFile("", "wb", compresslevel=level, fileobj=stream, mtime=0) as target:
            dump(cast(BinaryIO, target))
    elif suffix == ".zst":
        with zstandard.ZstdCompressor(level=9).stream_writer(stream, closefd=False) as writer:
            dump(cast(BinaryIO, writer))
    else:
        dump(stream)


def _publish(temporary: str, name: str, force: bool) -> None:
    """Give the finished file its name."""
    if not force:
        # A link, unlike a rename, fails if someone else wrote the name meanwhile.
        try:
            os.link(temporary, name)
            return
        except FileExistsError:
            raise
        except OSError:  # no hard links on this file system
            if os.path.lexists(name):
                raise FileExistsError(errno.EEXIST, "exists", name) from None
    os.replace(temporary, name)


def _sync_folder(folder: str) -> None:
    # The rename itself must reach the disk. Not every file system lets a folder be synced.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_target(path: str | os.PathLike[str], force: bool = False) -> None:
    """MemtraceError if nothing may be written there: before the work whose result it would be."""
    _check_target(os.path.realpath(path), os.fspath(path), force)


def _check_target(name: str, given: str, force: bool) -> None:
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return  # absent, or open() will say what is wrong
    if stat.S_ISDIR(mode):
        raise MemtraceError(f"{given}: is a directory; give the name of a file in it")
    if not stat.S_ISREG(mode):
        raise MemtraceError(f"{given}: is not a regular file; give another name")
    if not force:
        raise _exists(given)


def _gunzip(stream: BinaryIO, name: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=stream, mode="rb") as source:
            return _take(source.read, name, _limit(stream))
    except EOFError:
        raise MemtraceError(f"{name}: truncated gzip; record or copy it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise MemtraceError(f"{name}: damaged gzip ({error}); record or copy it again") from None


def _unzstd(stream: BinaryIO, name: str) -> bytes:
    limit = _limit(stream)
    pieces: list[bytes] = []
    total = 0
    # Not stream_reader, which takes a frame that is cut off for a complete one. Small steps,
    # because each gives all that it expands to.
    frame = zstandard.ZstdDecompressor().decompressobj()
    rest = stream.read(_STEP)
    try:
        while rest:
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            pieces.append(frame.decompress(rest))
            total += len(pieces[-1])
            if total > limit:
                raise _too_large(name, limit)
            rest = frame.unused_data or stream.read(_STEP)
    except zstandard.ZstdError as error:
        raise MemtraceError(f"{name}: damaged zstd ({error}); record or copy it again") from None
    if not frame.eof:
        raise MemtraceError(f"{name}: truncated zstd; record or copy it again")
    return b"".join(pieces)


def _take(read: Callable[[int], bytes], name: str, limit: int) -> bytes:
    pieces: list[bytes] = []
    total = 0
    while piece := read(_CHUNK):
        pieces.append(piece)
        total += len(piece)
        if total > limit:
            raise _too_large(name, limit)
    return b"".join(pieces)


def _limit(stream: BinaryIO) -> int:
    return max(_ALWAYS_FINE, _MOST_RATIO * os.fstat(stream.fileno()).st_size)


def _too_large(name: str, limit: int) -> MemtraceError:
    return MemtraceError(
        f"{name}: expands to more than {limit >> 20} MiB, {_MOST_RATIO} times its size, as no "
        "snapshot does; decompress it first if you trust it"
    )


def _foreign(raw: bytes) -> str:
    """What the bytes seem to be if they are no pickle of ours, else ''."""
    for magic, what in _FOREIGN:
        if raw.startswith(magic):
            return what
    if raw.startswith(b"\x80"):
        return ""
    start = raw[:65536].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"{", b"[")):
        return "a profiler trace (JSON)" if b'"traceEvents"' in raw[: 1 << 20] else "JSON"
    if start.startswith(b"<"):
        return "an HTML or XML page"
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer (run 'git lfs pull')"
    # With these, text pickles (protocols 0 and 1) begin.
    if raw[:1] not in b"(]})cIJKLMNSTUVXP" and raw[:200].isascii() and b"\0" not in raw[:200]:
        return "a text file"
    return ""


def _exists(name: str) -> MemtraceError:
    return MemtraceError(f"{name}: exists already; use --force to replace it, or give another name")


def _unreadable(name: str, error: OSError) -> MemtraceError:
    if isinstance(error, FileNotFoundError):
        return MemtraceError(f"{name}: no such file; check the path")
    if isinstance(error, IsADirectoryError):
        return MemtraceError(f"{name}: is a directory; give a file in it")
    if isinstance(error, PermissionError):
        return MemtraceError(f"{name}: no permission to read it; change its mode or its owner")
    return MemtraceError(f"{name}: cannot be read ({error.strerror or error}); check the path")


def _unwritable(name: str, error: OSError) -> MemtraceError:
    advice = {
        errno.ENOSPC: "free some space or write elsewhere",
        errno.EFBIG: "raise the limit to a file's size",
        errno.EDQUOT: "free some space or write elsewhere",
        errno.ENOENT: "make the folder first",
        errno.ENOTDIR: "give a folder that is one",
        errno.ENAMETOOLONG: "give a shorter name",
    }.get(error.errno or 0, "write to a folder that you may write to")
    return MemtraceError(f"{name}: cannot be written ({error.strerror or error}); {advice}")
