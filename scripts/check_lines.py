"""Which lines of generated code launch the GPU's work, and is the program the same without ranges?

    python scripts/check_lines.py --report --layers 2              # three compilers at once
    python scripts/check_lines.py --layers 2 --executors inductor  # one of them

Records samples/qwen2.py's model from before it is compiled, and once more in the same process
without ranges for lines. Prints how many kernels, copies and memsets are launched within a line
(launch and kernel belong together by the profiler's correlation), their share of the GPU's busy
time, what lies outside, and whether both profiled iterations ran the same kernels and allocations.
Exit code 1 if they did not.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import memtrace
from memtrace.capture.lines import GeneratedLines
from memtrace.snapshot import read
from memtrace.snapshot.format import LINE_PREFIX

sys.path.insert(0, str(Path(__file__).parent.parent / "samples"))
import qwen2

COMPILERS = ("sdpa,torchcompile", "sdpa,torchcompile_cat,nvfuser", "inductor")
STEPS = 6
Columns = Mapping[str, list[Any]]


def record(path: Path, options: Any, step: Any = None) -> tuple[Mapping[str, Any], Any]:
    """The ``memtrace`` key of a recording of STEPS steps, and the step, compiled if it was None."""
    size = qwen2.REPORT if options.report else qwen2.SMALL
    with memtrace.record(path, device=options.device.partition(":")[0]):
        if step is None:
            model = qwen2.compile_model(qwen2.build_model(options, size), options.executors)
            shape = (1, options.tokens or size["tokens"])
            ids = torch.randint(0, size["vocab_size"], shape, device=options.device)

            def step() -> None:
                model(input_ids=ids, labels=ids).loss.backward()

        for _ in range(STEPS):
            step()
    meta = read(str(path)).meta
    assert meta is not None
    if meta["profile"] is None:
        raise SystemExit(f"{options.executors}: nothing was profiled: {meta['facts']['notes']}")
    return meta, step


def lines_around(ops: Columns) -> list[str]:
    """For each row of ProfileOps the innermost line that it begins in on its thread, '' none."""
    found = []
    open_lines: dict[int, list[tuple[int, str]]] = defaultdict(list)  # end, name
    for name, thread, start, duration in zip(
        ops["name"], ops["thread"], ops["start_ns"], ops["duration_ns"], strict=True
    ):
        stack = open_lines[thread]
        while stack and stack[-1][0] < start:
            stack.pop()
        if name.startswith(LINE_PREFIX):
            stack.append((start + duration, name.removeprefix(LINE_PREFIX)))
        found.append(stack[-1][1] if stack else "")
    return found


def print_coverage(meta: Mapping[str, Any]) -> None:
    ops, kernels = meta["profile"]["ops"], meta["profile"]["kernels"]
    around = lines_around(ops)
    launch = {c: k for k, c in enumerate(ops["correlation"]) if c >= 0}
    inside = busy = covered = 0
    outside: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for name, correlation, duration in zip(
        kernels["name"], kernels["correlation"], kernels["duration_ns"], strict=True
    ):
        row = launch.get(correlation, -1)
        line = around[row] if row >= 0 else ""
        busy += duration
        if line:
            inside += 1
            covered += duration
            files[line.rpartition(":")[0]] += duration
        else:
            outside[f"{'' if row >= 0 else '(no launch) '}{name[:90]}"] += duration
    lines = sum(name.startswith(LINE_PREFIX) for name in ops["name"])
    total = len(kernels["name"])
    print(f"  {lines} ranges; {inside} of {total} kernels, copies and memsets within a line")
    if busy:
        print(f"  {covered / busy:.1%} of {busy / 1e6:.2f} ms busy (durations summed)")
    for name, duration in files.most_common():
        print(f"    {duration / 1e6:9.3f} ms  in {name}")
    for name, duration in outside.most_common(8):
        print(f"    {duration / 1e6:9.3f} ms  outside: {name}")


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What the profiled iterations of two recordings did not have in common."""
    found = []
    for what, first, second in (
        ("kernels", a["profile"]["kernels"]["name"], b["profile"]["kernels"]["name"]),
        ("operators", operators(a["profile"]["ops"]), operators(b["profile"]["ops"])),
        ("memory events", a["profile"]["memory"]["bytes"], b["profile"]["memory"]["bytes"]),
    ):
        print(f"  {what}: {len(first)} with ranges, {len(second)} without")
        if first != second:
            more, less = Counter(first) - Counter(second), Counter(second) - Counter(first)
            found.append(f"{what} differ: {dict(more)} / {dict(less)} or their order")
    return found


def operators(ops: Columns) -> list[str]:
    return [n for n, kind in zip(ops["name"], ops["kind"], strict=True) if kind == "cpu_op"]


def check(options: Any) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        with_lines, step = record(Path(folder) / "a.pkl", options)
        GeneratedLines.start = lambda self: None  # type: ignore[method-assign]
        without, _ = record(Path(folder) / "b.pkl", options, step)
    print(f"{options.executors}  ({options.layers or ''} layers, {options.device})")
    print_coverage(with_lines)
    for text in (found := differences(with_lines, without)):
        print(f"  {text}")
    for key in ("wall_ns", "gpu_ns"):
        found_ns = [i.get(key, -1) for i in with_lines["iterations"]]
        times = [f"{ns / 1e6:.2f}" if ns >= 0 else "?" for ns in found_ns]
        print(f"  {key[:-3]} ms of the iterations: {', '.join(times)}")
    for row in with_lines.get("compilations", []):
        reason = row["reason"].partition("\n")[0]
        print(f"  {row['kind']}: {row['name']} {row['where']} {reason}"[:150])
    print(f"  notes: {with_lines['facts']['notes']}", flush=True)
    return not found


def main() -> None:
    if "--executors" in sys.argv:
        sys.exit(0 if check(qwen2.parse_arguments()) else 1)
    qwen2.parse_arguments()  # --help, and mistakes
    children = [
        subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--executors", compilers])
        for compilers in COMPILERS
    ]
    sys.exit(max(child.wait() for child in children))


if __name__ == "__main__":
    main()
