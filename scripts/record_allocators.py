"""Records small programs under every kind of CUDA allocator, for tests/data/allocators.

    python scripts/record_allocators.py OUT_FOLDER [NAME …]
    python scripts/record_allocators.py --check FOLDER [NAME …]

Needs a GPU and two minutes; with ``--check`` it only looks at what a folder has already, which
needs neither GPU nor torch. Each program (allocator_programs.py) runs in a process of its own, a
few at a time. Then a table: the driver's greatest peaks and the replayed ones, where both are
known, how many of the driver's figures the replay meets, and how many blocks differ at the end.
The exit code is 1 where a program failed or a figure differs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from memtrace.analysis import open_subject, report_peak  # noqa: E402
from memtrace.errors import MemtraceError  # noqa: E402
from memtrace.snapshot import read  # noqa: E402
from memtrace.timeline import Check, reconcile  # noqa: E402

_AT_ONCE = 4
_LONGEST = 200  # seconds a program may take
_FIGURES = ("allocated", "requested", "reserved")


class Kind(NamedTuple):
    """``options`` are those of memtrace record, None where the program records itself; ``code`` is
    the exit code that it ends with."""

    program: str
    settings: str = ""
    options: tuple[str, ...] | None = ("--check-driver",)
    code: int = 0


KINDS = {
    "native": Kind("train", options=()),
    "checked": Kind("train"),
    "cpp-stacks": Kind("train", options=("--stacks", "all")),
    "expandable": Kind("train", "expandable_segments:True", ()),
    "max-split": Kind("train", "max_split_size_mb:32", ()),
    "async": Kind("train", "backend:cudaMallocAsync", ()),
    "graphs": Kind("reduce_overhead"),
    "oom": Kind("fill", options=(), code=1),
    "late": Kind("late", options=None),
    "roundup": Kind("odd_sizes", "roundup_power2_divisions:4"),
    "roundup-by-size": Kind("odd_sizes", "roundup_power2_divisions:[1:8,4:2,>:4]"),
    "odd-max-split": Kind("odd_sizes", "max_split_size_mb:24"),
    "odd-expandable": Kind("odd_sizes", "expandable_segments:True"),
    "large-segments": Kind("odd_sizes", "large_segment_size_mb:64"),
    "streams": Kind("streams"),
    "streams-expandable": Kind("streams", "expandable_segments:True"),
    "empty-cache": Kind("empty_cache"),
    "empty-cache-expandable": Kind("empty_cache", "expandable_segments:True"),
    "collected": Kind("collect", "garbage_collection_threshold:0.6"),
    "pools": Kind("memory_pools"),
    "pools-expandable": Kind("memory_pools", "expandable_segments:True"),
    "pools-never-split": Kind("whole_pools"),
    "graphs-expandable": Kind("reduce_overhead", "expandable_segments:True"),
    "own-graphs": Kind("own_graphs"),
    "threads": Kind("threads"),
    "switched": Kind("switch"),
    # Two on one GPU at a time.
    "beside-1": Kind("train"),
    "beside-2": Kind("odd_sizes"),
}


def record(folder: Path, name: str) -> str:
    """Runs one program; what went wrong, else ''."""
    kind = KINDS[name]
    path = folder / f"{name}.pkl.gz"
    path.unlink(missing_ok=True)
    program = [str(ROOT / "scripts/allocator_programs.py"), kind.program]
    if kind.options is None:
        argv = [sys.executable, *program, str(path)]
    else:
        argv = [sys.executable, "-m", "memtrace", "record", "-o", str(path), *kind.options]
        argv += program
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": kind.settings}
    environment["PYTHONPATH"] = str(ROOT)
    try:
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_LONGEST
        )
    except subprocess.TimeoutExpired:
        return f"was not done after {_LONGEST} s"
    if done.returncode == kind.code and path.exists():
        return ""
    return f"exit code {done.returncode}\n{done.stderr[-1500:]}"


def check(path: Path) -> tuple[str, bool]:
    """A line of the table, and whether nothing in it differs. Raises MemtraceError."""
    subject = open_subject(read(str(path)), "all")
    checks = reconcile(subject.recording, subject.replay)
    report = report_peak(subject)
    known = [one for one in checks if one.agrees is not None]
    met = sum(one.agrees is True for one in known)
    wrong = subject.replay.end_mismatches or 0
    columns = "".join(f"{_compare(checks, figure):>30}" for figure in _FIGURES)
    counts = f"{met:>5} of {len(known):<4}{len(checks) - len(known):>8}{wrong:>8}"
    size = f"{path.stat().st_size / 1e3:>7.1f} kB"
    line = f"{path.name.removesuffix('.pkl.gz'):24}{columns}{counts}{size}"
    notes = [f"    {text}" for text in report.warnings]
    differing = [one for one in known if not one.agrees][:3]
    notes += [f"    {c.what}: driver {c.driver:,}, replayed {c.replayed:,}" for c in differing]
    return "\n".join([line, *notes]), met == len(known) and not wrong


def _compare(checks: list[Check], figure: str) -> str:
    """The driver's greatest peak that the replay can speak of, and whether it says the same."""
    both = [
        (one.driver, one.replayed)
        for one in checks
        if one.what.startswith(f"{figure} peak (") and one.replayed is not None
    ]
    if not both:
        return "unknown"
    driver, replayed = max(a for a, _ in both), max(b for _, b in both)
    return f"{driver:,} =" if driver == replayed else f"{driver:,} ≠ {replayed:,}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(KINDS))
    parser.add_argument("--check", action="store_true", help="only look at what is there")
    options = parser.parse_args()
    if unknown := set(options.names) - set(KINDS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are: {', '.join(KINDS)}")
    names = options.names or list(KINDS)
    good = True
    if not options.check:
        options.folder.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            faults = list(pool.map(lambda name: record(options.folder.resolve(), name), names))
        for name, fault in zip(names, faults, strict=True):
            if fault:
                print(f"{name}: {fault}", flush=True)
                good = False
        print(f"recorded in {time.perf_counter() - began:.0f} s")
    head = "".join(f"{f'{figure} peak':>30}" for figure in _FIGURES)
    print(f"{'kind':24}{head}{'figures met':>13}{'unknown':>9}{'blocks':>8}{'file':>9}")
    for name in names:
        path = options.folder / f"{name}.pkl.gz"
        try:
            line, fine = check(path)
        except MemtraceError as error:
            line, fine = f"{name:24}{error}", False
        print(line, flush=True)
        good = good and fine
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
