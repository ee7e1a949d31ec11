"""Whole processes measured side by side, and held against one another."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Aim:
    """What a command is held against: another one's name, and the greatest multiples of its time
    and memory, None where there is no aim."""

    of: str
    time: float | None = None
    memory: float | None = None


@dataclass(frozen=True)
class Command:
    """A process to be measured."""

    name: str
    argv: list[str]
    aims: tuple[Aim, ...] = ()


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


def measure(commands: Sequence[Command], runs: int) -> dict[str, Figures]:
    """The figures of all commands, which take turns; one turn before is not counted.

    Compiled modules are cached, as those of an installed package are.
    """
    figures = {command.name: Figures() for command in commands}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for turn in range(runs + 1):
            for command in commands:
                counted = figures[command.name] if turn else Figures()
                try:
                    counted.run(command.argv, environment)
                except subprocess.CalledProcessError as error:
                    words = error.output.decode(errors="replace")
                    raise SystemExit(f"{command.name} failed: {words}") from None
    return figures


def print_figures(
    commands: Sequence[Command], figures: Mapping[str, Figures], aims: bool = True
) -> None:
    """A line a command, and below it one for each that it is held against, if that was measured."""
    print(f"  {'':32} {'least':>7} {'median':>7} {'most':>7}    processor      memory")
    for command in commands:
        own = figures[command.name]
        low, middle, high = min(own.wall), statistics.median(own.wall), max(own.wall)
        print(
            f"  {command.name:32} {low:7.2f} {middle:7.2f} {high:7.2f} s"
            f"  {min(own.cpu):8.2f} s  {max(own.memory):8,.0f} MB"
        )
        for aim in command.aims:
            if aim.of not in figures:
                continue
            floor = figures[aim.of]
            times = middle / statistics.median(floor.wall)
            memory = max(own.memory) / max(floor.memory)
            print(
                f"      {aim.of}: time × {times:.2f}{_aim(times, aim.time if aims else None)}, "
                f"processor × {min(own.cpu) / min(floor.cpu):.2f}, "
                f"memory × {memory:.2f}{_aim(memory, aim.memory if aims else None)}",
                flush=True,
            )


def _aim(ratio: float, aim: float | None) -> str:
    if aim is None:
        return ""
    return f" (aim {aim}: {'met' if ratio <= aim else 'MISSED'})"


def print_growth(sizes: Sequence[int], all_figures: Sequence[Mapping[str, Figures]]) -> None:
    """Microseconds of processor time an event, from size to size: they must not grow."""
    print("microseconds of processor time an event, by number of events in A")
    print(" " * 34 + "".join(f"{size:>14,}" for size in sizes))
    for name in all_figures[0]:
        each = ""
        for size, figures in zip(sizes, all_figures, strict=True):
            cpu = min(figures[name].cpu) / size * 1e6 if name in figures else None
            each += f"{'·' if cpu is None else f'{cpu:.2f}':>14}"
        print(f"  {name:32}{each}")
