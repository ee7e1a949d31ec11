"""Records small programs under every kind of CUDA allocator, for tests/data/allocators.

    python scripts/record_allocators.py OUT_FOLDER

Needs a GPU and a minute. Each program runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent

# A side stream with record_stream, an optimizer, and a cache that is emptied on the way.
TRAIN = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
side = torch.cuda.Stream()
for k in range(8):
    x = torch.randn(512, 1024, device="cuda")
    with torch.cuda.stream(side):
        y = x * 2
        x.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad()
    (model(y) - x).square().mean().backward()
    optimizer.step()
    y.record_stream(torch.cuda.current_stream())
    if k == 4:
        torch.cuda.empty_cache()
torch.cuda.synchronize()
"""
GRAPHS = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
compiled = torch.compile(model, mode="reduce-overhead")
for _ in range(8):
    model.zero_grad()
    torch.compiler.cudagraph_mark_step_begin()
    compiled(torch.randn(512, 1024, device="cuda")).square().mean().backward()
"""
OUT_OF_MEMORY = """
import torch

torch.cuda.set_per_process_memory_fraction(0.01)
model = torch.nn.Linear(1024, 1024).cuda()
for _ in range(3):
    model(torch.randn(64, 1024, device="cuda")).relu().sum().backward()
kept = []
while True:
    kept.append(torch.empty(128 << 20, dtype=torch.uint8, device="cuda"))
"""
LATE = """
import sys
import torch
import memtrace

model = torch.nn.Linear(1000, 1000).cuda()
x = torch.randn(300, 1000, device="cuda")
model(x).sum().backward()
with memtrace.record(sys.argv[1], force=True, check_driver=True):
    for _ in range(4):
        model(x).relu().sum().backward()
"""

# name: program, allocator settings, options of memtrace record (None: the program records itself)
RUNS: dict[str, tuple[str, str, list[str] | None]] = {
    "native": (TRAIN, "", []),
    "checked": (TRAIN, "", ["--check-driver"]),
    "cpp-stacks": (TRAIN, "", ["--stacks", "all"]),
    "expandable": (TRAIN, "expandable_segments:True", []),
    "max-split": (TRAIN, "max_split_size_mb:32", []),
    "async": (TRAIN, "backend:cudaMallocAsync", []),
    "graphs": (GRAPHS, "", ["--check-driver"]),
    "oom": (OUT_OF_MEMORY, "", []),
    "late": (LATE, "", None),
}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, (program, settings, options) in RUNS.items():
            script = Path(folder) / f"{name.replace('-', '_')}.py"
            script.write_text(program)
            path = str(out / f"{name}.pkl.gz")
            command = [str(script), path]
            if options is not None:
                command = ["-m", "memtrace", "record", "--force", "-o", path, *options, str(script)]
            environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings}
            done = subprocess.run(
                [sys.executable, *command], cwd=ROOT, env=environment, check=False
            )
            print(f"{name}: exit {done.returncode}", flush=True)


if __name__ == "__main__":
    main()
