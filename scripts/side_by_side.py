"""Runs commands side by side: recordings that each take a process of their own."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
TRIES = 2  # nvFuser fails now and then while it compiles


def run_all(commands: Mapping[str, list[str]], logs: Path, at_once: int) -> list[str]:
    """Runs every command from the repository's root, ``at_once`` at a time, in order.

    What fails is tried once more. The output of each goes to NAME.log in ``logs``. Returns the
    names of those that failed twice.
    """
    left = list(commands)
    began = time.perf_counter()
    for _ in range(TRIES):
        waiting, left = left, []
        running: dict[str, subprocess.Popen[bytes]] = {}
        while waiting or running:
            while waiting and len(running) < at_once:
                name = waiting.pop(0)
                with (logs / f"{name}.log").open("wb") as log:
                    running[name] = subprocess.Popen(
                        commands[name], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
                    )
            time.sleep(0.2)
            for name, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[name]
                took = time.perf_counter() - began
                print(f"{name}: exit {process.returncode} at {took:.0f} s", flush=True)
                if process.returncode:
                    left.append(name)
    return left
