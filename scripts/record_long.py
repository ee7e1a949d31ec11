"""What recording a long run takes: memory of the process, and the capture, by its iterations.

    python scripts/record_long.py [--device cuda] [--turns 500 2000] [--max-events 100000]

Each run is a process of its own: the whole recording, then ``--window last:3``. A row says the
process's greatest resident memory, the capture's size and its events, and the median of the steps.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import sys
import torch
device = sys.argv[1]
if device == "cpu":
    from memtrace.capture import cpu
    cpu._GROWTH = 20 << 20  # a small program: empty the profiler as often as a large one would
torch.manual_seed(0)
layers = [torch.nn.Linear(256, 256) for _ in range(2)]
model = torch.nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[2])):
    optimizer.zero_grad()
    model(torch.randn(64, 256, device=device)).square().mean().backward()
    optimizer.step()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--turns", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--max-events", type=int, default=1_000_000)
    parser.add_argument("--window", default="last:3")
    wanted = parser.parse_args()
    print(f"{'iterations':>10}  {'kept':>8}  {'process':>8}  {'capture':>9}  {'events':>9}  step")
    for turns in wanted.turns:
        for window in (None, wanted.window):
            with tempfile.TemporaryDirectory() as folder:
                measure(Path(folder), wanted.device, turns, window, wanted.max_events)


def measure(folder: Path, device: str, turns: int, window: str | None, most: int) -> None:
    """Records one run and prints its row."""
    (folder / "program.py").write_text(PROGRAM)
    path = folder / "run.pkl"
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(path)]
    command += ["--device", device, "--max-events", str(most)]
    command += ["--window", window] if window else []
    command += [str(folder / "program.py"), device, str(turns)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if told.returncode:
        sys.exit(told.stderr)
    resident = int(told.stdout.split()[-1]) * 1024
    from memtrace.analysis import open_subject
    from memtrace.analysis.steps import measure_steps
    from memtrace.snapshot import read

    subject = open_subject(read(path))
    wall = measure_steps(subject.recording).wall
    step = f"{wall.median_ns / 1e6:.1f} ms of {wall.count}" if wall else "?"
    print(
        f"{turns:>10}  {window or 'all':>8}  {resident / 1e6:>5.0f} MB  "
        f"{path.stat().st_size / 1e6:>6.2f} MB  {subject.replay.n_events:>9,}  {step}",
        flush=True,
    )


def child() -> None:
    """``memtrace record`` in this process, and its greatest resident memory in KiB on stdout."""
    sys.argv[1:2] = ["record", "-o"]
    from memtrace.cli import app

    try:
        app()
    except SystemExit as end:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        sys.exit(end.code)


if __name__ == "__main__":
    child() if sys.argv[1:2] == ["--child"] else main()
