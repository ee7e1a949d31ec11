"""Records real scripts in processes of their own, as the command line would."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_DRIVER = """
import sys
from pathlib import Path
from memtrace.capture import record_script
from memtrace.errors import MemtraceError
try:
    done = record_script({target!r}, sys.argv[2:], output=Path(sys.argv[1]), **{options!r})
except MemtraceError as error:
    print("memtrace:", error, file=sys.stderr)
    sys.exit(1)
if done.error:
    print("memtrace:", done.error, file=sys.stderr)
sys.exit(done.exit_code)
"""


@dataclass
class Recorded:
    """How a recorded script ended and what was recorded."""

    code: int
    out: str
    err: str
    capture: dict[str, Any]

    @property
    def meta(self) -> dict[str, Any]:
        found: dict[str, Any] = self.capture["memtrace"]
        return found

    @property
    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.capture["device_traces"][0]
        return found

    def kinds(self) -> list[str]:
        """The phases in order: 'call', 'backward', …"""
        marks = self.meta["marks"]
        return [
            k
            for k, edge in zip(marks["kind"], marks["edge"], strict=True)
            if edge == "begin" and k != "compile"
        ]

    def live(self, mark: int) -> int:
        """Bytes that are allocated at a mark."""
        total = 0
        for event in self.events[: self.meta["marks"]["event"][mark][0]]:
            if event["action"] == "alloc":
                total += event["size"]
            elif event["action"] == "free_completed":
                total -= event["size"]
        return total


def environment() -> dict[str, str]:
    """With memtrace importable, without a GPU: these tests are about the CPU path."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "CUDA_VISIBLE_DEVICES": "",
        "TOKENIZERS_PARALLELISM": "false",
    }


def start(
    folder: Path, script: str, *args: str, target: str | None = None, **options: Any
) -> subprocess.Popen[str]:
    """Start recording ``script`` to ``folder``/out.pkl."""
    path = folder / "script.py"
    path.write_text(script)
    driver = folder / "driver.py"
    driver.write_text(_DRIVER.format(target=target or str(path), options=options))
    return subprocess.Popen(
        [sys.executable, str(driver), str(folder / "out.pkl"), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(),
    )


def record(folder: Path, script: str, *args: str, **options: Any) -> Recorded:
    """Record ``script`` and read the capture, {} if there is none."""
    return wait(folder, start(folder, script, *args, **options))


def wait(folder: Path, process: subprocess.Popen[str]) -> Recorded:
    out, err = process.communicate(timeout=300)
    path = folder / "out.pkl"
    capture = pickle.loads(path.read_bytes()) if path.exists() else {}
    return Recorded(process.returncode, out, err, capture)
