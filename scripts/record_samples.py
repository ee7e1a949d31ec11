"""Records the captures in samples/ on a GPU: the sample under every compiler, side by side.

    python scripts/record_samples.py OUT_FOLDER [--layers 4] [--small]

Six plain runs (eager attention and sdpa, each with the report's two executor lists and with plain
torch.compile) and, of each attention, one with --check-driver. nvFuser fails now and then while
compiling, so a run that fails is tried once more. Every run is a process of its own; they share
the GPU, which changes their times but not their memory. ``--small`` does the same on a CPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
LISTS = {
    "torchcompile": "sdpa,torchcompile",
    "nvfuser": "sdpa,torchcompile_cat,nvfuser",
    "inductor": "inductor",
}
TRIES = 2


def plan(layers: int, small: bool) -> list[tuple[str, list[str], list[str]]]:
    """(name, options of memtrace record, options of the sample) for every run."""
    size = [] if small else ["--report", "--layers", str(layers)]
    lists = {"torchcompile": LISTS["torchcompile"], "thunder": "sdpa"} if small else LISTS
    runs = []
    for attention in ("eager", "sdpa"):
        for name, executors in lists.items():
            sample = [*size, "--attention", attention, "--executors", executors, "--runs", "3"]
            runs.append((f"qwen2-L{layers}-{attention}-{name}", [], sample))
        checked = "nvfuser" if attention == "eager" and not small else "torchcompile"
        sample = [*size, "--attention", attention, "--executors", lists[checked], "--runs", "0"]
        runs.append((f"qwen2-L{layers}-{attention}-{checked}-checked", ["--check-driver"], sample))
    return runs


def start(name: str, record: list[str], sample: list[str], out: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "memtrace", "record", "--force", "-o", str(out / f"{name}.pkl.gz"),
        *record, "samples/qwen2.py", *sample,
    ]  # fmt: skip
    log = (out / f"{name}.log").open("wb")
    return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out.resolve()
    left = plan(options.layers, options.small)
    for _ in range(TRIES):
        began = time.perf_counter()
        running = {run[0]: (run, start(*run, out)) for run in left}
        left = []
        while running:
            time.sleep(0.5)
            for name, (run, process) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[name]
                took = time.perf_counter() - began
                print(f"{name}: exit {process.returncode} after {took:.0f} s", flush=True)
                if process.returncode:
                    left.append(run)
        if not left:
            return
    sys.exit(f"failed twice: {', '.join(run[0] for run in left)}")


if __name__ == "__main__":
    main()
