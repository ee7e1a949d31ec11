"""Records the captures in samples/ on a GPU: the samples under every compiler, side by side.

    python scripts/record_samples.py OUT_FOLDER [--layers 4] [--small] [--only NAMES] [--alone]

samples/qwen2.py with eager attention and sdpa, each under the report's two executor lists and plain
torch.compile, and once more each with --check-driver; samples/train.py's two models under Thunder,
torch.compile and nothing. nvFuser fails now and then while compiling, so a run that fails is tried
once more. Every run is a process of its own; side by side they share the GPU, which changes their
times but not their memory: ``--alone`` runs one after the other. ``--only`` takes the runs whose
names begin so, separated by commas. ``--small`` does the same on a CPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from side_by_side import run_all

LISTS = {
    "torchcompile": "sdpa,torchcompile",
    "nvfuser": "sdpa,torchcompile_cat,nvfuser",
    "inductor": "inductor",
}
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


def command(name: str, record: list[str], sample: list[str], out: Path) -> list[str]:
    """What records one run."""
    return [
        sys.executable, "-m", "memtrace", "record", "--force", "-o", str(out / f"{name}.pkl.gz"),
        *record, *sample,
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out.resolve()
    runs = plan(options.layers, options.small)
    wanted = tuple(options.only.split(","))
    commands = {run[0]: command(*run, out) for run in runs if run[0].startswith(wanted)}
    left = run_all(commands, out, 1 if options.alone else 2 if options.small else AT_ONCE)
    if left:
        sys.exit(f"failed twice: {', '.join(left)}")


if __name__ == "__main__":
    main()
