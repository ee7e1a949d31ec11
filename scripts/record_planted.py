"""Records the planted causes of tests/planted/programs.py on a GPU, compiled and not.

    python scripts/record_planted.py OUT_FOLDER [--only NAME,NAME]

Each program runs with and without its cause, under torch.compile, Thunder with nvFuser, and without
a compiler: OUT_FOLDER/NAME-COMPILER[-planted].pkl.gz. On a CPU nvFuser gives way to torchcompile.
The captures in tests/data/planted were made so.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from side_by_side import run_all

PROGRAM = "tests/planted/programs.py"
NAMES = (
    "kept_f32", "checkpoint_off", "late_free", "kept_output", "kept_losses", "cloned_view",
    "stored_twice", "mask", "upcast_logits", "bigger_vocabulary", "longer_batch", "more_state",
    "amsgrad", "f32_gradients", "extra_cast",
)  # fmt: skip
# Thunder does not compile what saves tensors by hand.
SKIPPED = {("stored_twice", "nvfuser"), ("stored_twice", "thunder")}


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out.resolve()
    thunder = "nvfuser" if torch.cuda.is_available() else "thunder"
    commands = {}
    for compiler in (thunder, "inductor", ""):
        for name in options.only.split(",") if options.only else NAMES:
            if (name, compiler) in SKIPPED:
                continue
            for planted in ("", "-planted"):
                run = f"{name}-{compiler or 'eager'}{planted}"
                commands[run] = [
                    sys.executable, "-m", "memtrace", "record", "--force",
                    "-o", str(out / f"{run}.pkl.gz"), PROGRAM, name,
                    *(["--planted"] if planted else []),
                    *(["--compile", compiler] if compiler else []),
                ]  # fmt: skip
    if left := run_all(commands, out, os.cpu_count() or 1):
        sys.exit(f"failed twice: {', '.join(left)}")


if __name__ == "__main__":
    main()
