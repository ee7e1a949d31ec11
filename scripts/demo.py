"""The main job on the spot: records the sample under two executor lists and prints the difference.

    python scripts/demo.py [FOLDER]

On a GPU the report's two lists, where nvFuser is installed; else Thunder with and without its
torchcompile executor. The captures stay in FOLDER (``captures`` by default).
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).parent.parent / "samples" / "qwen2.py"


def choose_executors() -> tuple[str, str]:
    import torch

    if torch.cuda.is_available() and importlib.util.find_spec("nvfuser_direct"):
        return "sdpa,torchcompile", "sdpa,torchcompile_cat,nvfuser"
    return "sdpa,torchcompile", "sdpa"


def run_memtrace(*arguments: str) -> None:
    print("$ memtrace", *arguments, flush=True)
    done = subprocess.run([sys.executable, "-m", "memtrace", *arguments], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "captures")
    folder.mkdir(parents=True, exist_ok=True)
    baseline, candidate = str(folder / "a.pkl"), str(folder / "b.pkl")
    for path, executors in zip((baseline, candidate), choose_executors(), strict=True):
        run_memtrace(
            "record", "--force", "-o", path, str(SAMPLE), "--executors", executors, "--runs", "2"
        )
    run_memtrace("diff", baseline, candidate)


if __name__ == "__main__":
    main()
