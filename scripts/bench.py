"""What reading and comparing recordings costs, against a bare ``pickle.load`` of the same files.

    python scripts/bench.py                          10^4, 10^5 and 10^6 events, five runs of each
    python scripts/bench.py --events 10000000 --runs 3

The recordings are two shipped captures of the same model under two executors, made longer by
scripts/enlarge.py. Every figure is of a whole process, from its start to its end; the commands take
turns, so that a machine that drifts does not look like a cost. The floor is what any tool in Python
pays: ``pickle.load`` with garbage collection off, of one file, or of two one after the other.
Compiled modules are cached, as those of an installed package are.

Printed are the least, median and greatest time, the least processor time (user and system, which
other work on the machine disturbs less) and the greatest memory; ratios are of medians, of the
least processor times and of the greatest memories. The aims hold from a million events on: below,
starting Python and importing what the commands need is most of the time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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

Files = Sequence[str]


@dataclass(frozen=True)
class Command:
    """A process to be measured on the recordings A and B, and what it is held against.

    The aims are multiples of the floor's time and memory, None where there is none.
    """

    name: str
    argv: Callable[[Files], list[str]]
    floor: str | None = None
    time_aim: float | None = None
    memory_aim: float | None = None


# Whatever else is to be measured (another command, another tool) is a line here.
COMMANDS = (
    Command("load A", lambda files: [sys.executable, "-c", LOAD, files[0]]),
    Command("load A, B", lambda files: [sys.executable, "-c", LOAD, *files]),
    Command("memtrace peak A", lambda files: [*MEMTRACE, "peak", files[0]], "load A", 1.5, 1.3),
    Command("memtrace diff A B", lambda files: [*MEMTRACE, "diff", *files], "load A, B", 1.5),
)
START = (
    Command("an empty typer app --help", lambda _: [sys.executable, "-c", EMPTY_APP]),
    Command("memtrace --help", lambda _: [*MEMTRACE, "--help"], "an empty typer app --help", 1.3),
)


@dataclass
class Figures:
    """One figure a run: seconds from start to end, seconds of processor time, MB at most."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def run(self, argv: list[str], environment: Mapping[str, str]) -> None:
        """Runs a process. CalledProcessError with its words if it fails."""
        with tempfile.TemporaryFile() as words:
            began = time.perf_counter()
            # Not subprocess: wait4 alone tells what this very child has used.
            pid = os.posix_spawn(
                argv[0],
                argv,
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, words.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, words.fileno(), 2),
                ],
            )
            _, status, usage = os.wait4(pid, 0)
            self.wall.append(time.perf_counter() - began)
            if status:
                words.seek(0)
                raise subprocess.CalledProcessError(status, argv, words.read()[-2000:])
        self.cpu.append(usage.ru_utime + usage.ru_stime)
        self.memory.append(usage.ru_maxrss / 1e3)


def measure(commands: Sequence[Command], files: Files, runs: int) -> dict[str, Figures]:
    """The figures of all commands, which take turns; one turn before is not counted."""
    figures = {command.name: Figures() for command in commands}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for command in commands:
            Figures().run(command.argv(files), environment)
        for _ in range(runs):
            for command in commands:
                figures[command.name].run(command.argv(files), environment)
    return figures


def print_figures(
    commands: Sequence[Command], figures: dict[str, Figures], aims: bool = True
) -> None:
    for command in commands:
        own = figures[command.name]
        low, middle, high = min(own.wall), statistics.median(own.wall), max(own.wall)
        line = (
            f"  {command.name:26} {low:7.2f} {middle:7.2f} {high:7.2f} s"
            f"  {min(own.cpu):7.2f} s  {max(own.memory):8,.0f} MB"
        )
        if command.floor is not None:
            floor = figures[command.floor]
            ratio = middle / statistics.median(floor.wall)
            line += f"  time × {ratio:.2f}{_aim(ratio, command.time_aim if aims else None)}"
            line += f", processor × {min(own.cpu) / min(floor.cpu):.2f}"
            ratio = max(own.memory) / max(floor.memory)
            line += f", memory × {ratio:.2f}{_aim(ratio, command.memory_aim if aims else None)}"
        print(line, flush=True)


def _aim(ratio: float, aim: float | None) -> str:
    if aim is None:
        return ""
    return f" (aim {aim}: {'met' if ratio <= aim else 'MISSED'})"


def print_growth(sizes: list[int], all_figures: list[dict[str, Figures]]) -> None:
    """Microseconds an event, from size to size: they must not grow."""
    print("microseconds of processor time an event, by number of events in A")
    print(" " * 28 + "".join(f"{size:>14,}" for size in sizes))
    for command in COMMANDS:
        cpu = [min(figures[command.name].cpu) for figures in all_figures]
        each = "".join(f"{t / n * 1e6:>14.2f}" for t, n in zip(cpu, sizes, strict=True))
        print(f"  {command.name:26}{each}")


def make(folder: Path, events: int) -> tuple[list[str], int]:
    """Two recordings of ``events`` events or a little more, and how many A has.

    Each in a process of its own: a child begins with its parent's memory figure.
    """
    files, counts = [], []
    for letter, source in zip("AB", SOURCES, strict=True):
        path = folder / f"{letter}-{events}.pkl"
        script = str(ROOT / "scripts/enlarge.py")
        argv = [sys.executable, script, str(source), str(events), str(path)]
        said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        counts.append(int(said.split()[-2].replace(",", "")))
        files.append(str(path))
    return files, counts[0]


def main() -> None:
    parser = argparse.ArgumentParser(description="What reading and comparing recordings costs.")
    parser.add_argument("--events", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(f"{'':28} {'least':>7} {'median':>7} {'most':>7}    processor   memory")
    print_figures(START, measure(START, (), options.runs))
    sizes, all_figures = [], []
    for events in options.events:
        with tempfile.TemporaryDirectory() as folder:
            files, count = make(Path(folder), events)
            size = sum(os.path.getsize(file) for file in files) / 1e6
            print(f"{count:,} events in A; A and B together {size:,.0f} MB")
            sizes.append(count)
            all_figures.append(measure(COMMANDS, files, options.runs))
            print_figures(COMMANDS, all_figures[-1], aims=count >= AIMS_FROM)
    print_growth(sizes, all_figures)


if __name__ == "__main__":
    main()
