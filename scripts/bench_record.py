"""What recording costs, each figure against the bare run in the same process.

    python scripts/bench_record.py --report --layers 4 --executors sdpa,torchcompile

Blocks of steps without and with recording alternate (bare, recorded, bare, …), so that a machine
that drifts does not look like a cost. Within a recorded block one step runs under the profiler; it
is reported apart, and in every other block it goes without ranges for lines of generated code, so
that their cost shows. Prints one line of JSON and a table; a step ends with the device idle.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import memtrace
from memtrace.capture.lines import GeneratedLines
from memtrace.snapshot import read
from memtrace.snapshot.format import LINE_PREFIX

sys.path.insert(0, str(Path(__file__).parent.parent / "samples"))
import qwen2

BLOCKS, STEPS = 6, 12


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def time_steps(step: Callable[[], None]) -> list[float]:
    """Milliseconds of STEPS steps, each until the device is idle."""
    times = []
    for _ in range(STEPS):
        synchronize()
        began = time.perf_counter()
        step()
        synchronize()
        times.append((time.perf_counter() - began) * 1e3)
    return times


def profiled_iteration(path: Path) -> tuple[float, int]:
    """Milliseconds of the profiled iteration without what surrounds it; its ranges for lines."""
    meta = read(str(path)).meta
    assert meta is not None
    assert meta["profile"] is not None
    iteration = meta["iterations"][meta["profile"]["iteration"]]
    names = meta["profile"]["ops"]["name"]
    return iteration["wall_ns"] / 1e6, sum(name.startswith(LINE_PREFIX) for name in names)


def main() -> None:
    options = qwen2.parse_arguments()
    size = qwen2.REPORT if options.report else qwen2.SMALL
    compiled = qwen2.compile_model(qwen2.build_model(options, size), options.executors)
    tokens = options.tokens or size["tokens"]
    ids = torch.randint(0, size["vocab_size"], (1, tokens), device=options.device)

    def step() -> None:
        compiled(input_ids=ids, labels=ids).loss.backward()

    for _ in range(options.warmups):
        step()
    bare: list[float] = []
    recorded: list[float] = []
    profiled: list[float] = []
    alone: dict[bool, list[float]] = {True: [], False: []}  # with and without lines
    lines = 0
    begin_lines = GeneratedLines.start
    writes: list[float] = []
    file_bytes = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.pkl"
        for block in range(BLOCKS):
            with_lines = block % 2 == 0
            GeneratedLines.start = (  # type: ignore[method-assign]
                begin_lines if with_lines else lambda self: None
            )
            bare += time_steps(step)
            recording = memtrace.record(str(path), force=True)
            recording.__enter__()
            times = time_steps(step)
            began = time.perf_counter()
            recording.__exit__(None, None, None)
            writes.append(time.perf_counter() - began)
            file_bytes = path.stat().st_size
            wall, count = profiled_iteration(path)
            alone[with_lines].append(wall)
            lines = max(lines, count)
            slowest = max(range(STEPS), key=times.__getitem__)
            profiled.append(times.pop(slowest))
            recorded += times[2:]  # what the first steps pay once is no cost of each step
    base = statistics.median(bare)
    rows = {
        "step_bare_ms": base,
        "step_history_ms": statistics.median(recorded),
        "history_cost_percent": (statistics.median(recorded) / base - 1) * 100,
        "step_profiled_ms": statistics.median(profiled),
        "profiled_alone_ms": statistics.median(alone[True]),
        "without_lines_ms": statistics.median(alone[False]),
        "lines": lines,
        "write_s": statistics.median(writes),
        "file_MB": file_bytes / 1e6,
        "bare_spread_percent": (max(bare) - min(bare)) / base * 100,
    }
    print(json.dumps({"executors": options.executors, "attention": options.attention, **rows}))
    for name, value in rows.items():
        print(f"{name:>22} {value:10.2f}")


if __name__ == "__main__":
    main()
