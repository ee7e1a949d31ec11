"""Records the captures in samples/ on a GPU: the samples under every compiler, side by side.

    python scripts/record_samples.py OUT_FOLDER [--layers 4] [--small]

samples/qwen2.py with eager attention and sdpa, each under the report's two executor lists and plain
torch.compile, and once more each with --check-driver; samples/train.py's two models under Thunder,
torch.compile and nothing. nvFuser fails now and then while compiling, so a run that fails is tried
once more. Every run is a process of its own; they share the GPU, which changes their times but not
their memory. ``--small`` does the same on a CPU.
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
AT_ONCE = 9

Run = tuple[str, list[str], list[str]]  # name, options of memtrace record, script and its options


def plan(layers: int, small: bool) -> list[Run]:
    """Every run, those that take longest to compile first."""
    lists = {"torchcompile": LISTS["torchcompile"], "thunder": "sdpa"} if small else LISTS
    runs: list[Run] = []
    size = [] if small else ["--report", "--layers", str(layers)]
    for attention in ("eager", "sdpa"):
        sample = ["samples/qwen2.py", *size, "--attention", attention, "--executors"]
        for name, executors in lists.items():
            runs.append((f"qwen2-L{layers}-{attention}-{name}", [], [*sample, executors]))
        checked = "nvfuser" if attention == "eager" and not small else "torchcompile"
        name = f"qwen2-L{layers}-{attention}-{checked}-checked"
        runs.append((name, ["--check-driver"], [*sample, lists[checked]]))
    for model in ("gpt2", "vit"):
        sample = ["samples/train.py", model, *([] if small else ["--large"]), "--executors"]
        for name, executors in {**lists, "eager": "none"}.items():
            if (model, name) == ("gpt2", "nvfuser"):
                continue  # fails: Inductor asserts a stride that nvFuser does not keep
            runs.append((f"{model}-{name}", ["--check-driver"], [*sample, executors]))
    return sorted(runs, key=lambda run: "nvfuser" not in run[0])


def start(name: str, record: list[str], sample: list[str], out: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "memtrace", "record", "--force", "-o", str(out / f"{name}.pkl.gz"),
        *record, *sample,
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
    began = time.perf_counter()
    for _ in range(TRIES):
        waiting, left = left, []
        running: dict[str, tuple[Run, subprocess.Popen[bytes]]] = {}
        while waiting or running:
            while waiting and len(running) < (2 if options.small else AT_ONCE):
                run = waiting.pop(0)
                running[run[0]] = run, start(*run, out)
            time.sleep(0.5)
            for name, (run, process) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[name]
                took = time.perf_counter() - began
                print(f"{name}: exit {process.returncode} at {took:.0f} s", flush=True)
                if process.returncode:
                    left.append(run)
    if left:
        sys.exit(f"failed twice: {', '.join(run[0] for run in left)}")


if __name__ == "__main__":
    main()
