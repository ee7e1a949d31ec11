"""What memtrace's commands cost, against a bare ``pickle.load`` of the same files and its peers.

    python scripts/bench.py                          10^4, 10^5 and 10^6 events, five runs of each
    python scripts/bench.py --events 10000000 --runs 3
    python scripts/bench.py --peers PYTHON           and facebookresearch/mosaic, by a Python that
                                                     has it

The recordings are two shipped captures of the same model under two executors, made longer by
scripts/enlarge.py, and the first one, up to 10^6 events, with a stack for each allocation. Every
figure is of a whole process, from its start to its end; the commands take turns, so that a machine
that drifts does not look like a cost. The floor is what any tool in Python pays: ``pickle.load``
with garbage collection off, of one file, or of two one after the other.

Printed are the least, median and greatest time, the least processor time (user and system, which
other work on the machine disturbs less) and the greatest memory; ratios are of medians, of the
least processor times and of the greatest memories. The aims hold from a million events on: below,
starting Python and importing what the commands need is most of the time.

Mosaic's setup.py does not build (its folders are elsewhere than it says). Make a virtual
environment with what it asks for (altair click mcp omegaconf pandas tabulate), write the folder
of its checkout into a .pth file in there, and give that Python. torch's own ``_memory_viz`` is
measured where this Python has torch.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measuring import Aim, Command, measure, print_figures, print_growth

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    ROOT / "samples/qwen2-L4-eager-torchcompile.pkl.gz",
    ROOT / "samples/qwen2-L4-eager-nvfuser.pkl.gz",
)
LOAD = """
import gc, pickle, sys
gc.disable()
for path in sys.argv[1:]:
    with open(path, "rb") as stream:
        pickle.load(stream)
"""
EMPTY_APP = """
import typer
app = typer.Typer()
@app.command()
def main() -> None: ...
app(["--help"])
"""
MEMTRACE = [sys.executable, "-m", "memtrace"]
AIMS_FROM = 10**6  # events
STACKS_UP_TO = 1_100_000  # events

START = (
    Command("an empty typer app --help", [sys.executable, "-c", EMPTY_APP]),
    Command(
        "memtrace --help", [*MEMTRACE, "--help"], (Aim("an empty typer app --help", 1.3),)
    ),
)  # fmt: skip


def list_commands(a: str, b: str, stacks: str | None, out: str) -> Iterator[Command]:
    """What is measured on the recordings A and B; ``out`` is a folder for what is written."""

    def load(*files: str) -> list[str]:
        return [sys.executable, "-c", LOAD, *files]

    page = Aim("mosaic profile A", 0.1)
    yield Command("load A", load(a))
    yield Command("load A, B", load(a, b))
    yield Command(
        "memtrace peak A",
        [*MEMTRACE, "peak", a],
        (Aim("load A", 1.5, 1.3), Aim("mosaic peak A", 0.5)),
    )
    yield Command(
        "memtrace diff A B",
        [*MEMTRACE, "diff", a, b],
        (Aim("load A, B", 1.5), Aim("mosaic diff A B")),
    )
    write = ["--force", "-o", f"{out}/page.html"]
    yield Command("memtrace report A", [*MEMTRACE, "report", a, *write], (Aim("load A"), page))
    yield Command("memtrace report A B", [*MEMTRACE, "report", a, b, *write], (Aim("load A, B"),))
    trace = ["--force", "--perfetto", f"{out}/trace.pftrace"]
    yield Command(
        "memtrace export A --perfetto", [*MEMTRACE, "export", a, *trace], (Aim("load A"),)
    )
    if stacks is not None:
        yield Command("load, a stack each", load(stacks))
        yield Command(
            "memtrace peak, a stack each", [*MEMTRACE, "peak", stacks], (Aim("load, a stack each"),)
        )


def list_peers(a: str, b: str, out: str, mosaic: str | None) -> Iterator[Command]:
    """Others' tools on the same recordings, as far as they are there."""
    if mosaic is not None:
        run = [mosaic, "-m"]
        command = "mosaic.cmd.get_memory_{}".format
        files = ["--snapshot_base", a, "--snapshot_diff", b]
        page = ["--out-path", f"{out}/mosaic.html", "--profile", "categories"]
        yield Command("mosaic peak A", [*run, command("usage_peak"), "--snapshot", a])
        yield Command("mosaic diff A B", [*run, command("usage_diff"), *files])
        yield Command("mosaic profile A", [*run, command("profile"), "--snapshot", a, *page])
    if importlib.util.find_spec("torch"):
        run = [sys.executable, "-m", "torch.cuda._memory_viz"]
        for plot in ("trace_plot", "segment_plot"):
            yield Command(f"_memory_viz {plot} A", [*run, plot, a, "-o", f"{out}/{plot}.html"])


def make(folder: Path, events: int) -> tuple[list[str], str | None, int]:
    """Two recordings of ``events`` events or a little more, one of many stacks, and A's events.

    Each in a process of its own: a child begins with its parent's memory figure.
    """
    script = str(ROOT / "scripts/enlarge.py")

    def enlarge(source: Path, name: str, *options: str) -> tuple[str, int]:
        path = str(folder / f"{name}-{events}.pkl")
        argv = [sys.executable, script, str(source), str(events), path, *options]
        said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        return path, int(said.split()[-2].replace(",", ""))

    a, count = enlarge(SOURCES[0], "A")
    b, _ = enlarge(SOURCES[1], "B")
    stacks = enlarge(SOURCES[0], "S", "--stacks")[0] if count <= STACKS_UP_TO else None
    return [a, b], stacks, count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peers", metavar="PYTHON", help="a Python that can import mosaic")
    options = parser.parse_args()
    if options.peers is None:
        print("mosaic is not measured: --peers was not given")
    if not importlib.util.find_spec("torch"):
        print("torch's _memory_viz is not measured: this Python has no torch")
    print_figures(START, measure(START, options.runs))
    sizes, all_figures = [], []
    for events in options.events:
        with tempfile.TemporaryDirectory() as folder:
            files, stacks, count = make(Path(folder), events)
            size = sum(os.path.getsize(file) for file in files) / 1e6
            print(f"{count:,} events in A; A and B together {size:,.0f} MB")
            commands = [
                *list_commands(*files, stacks, folder),
                *list_peers(*files, folder, options.peers),
            ]
            sizes.append(count)
            all_figures.append(measure(commands, options.runs))
            print_figures(commands, all_figures[-1], aims=count >= AIMS_FROM)
    print_growth(sizes, all_figures)


if __name__ == "__main__":
    main()
