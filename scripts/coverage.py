"""How much of each capture's peak has a tensor, a layer and a category, in percent of its bytes.

    python scripts/coverage.py [CAPTURE ...]     (default: the shipped samples)

A layer counts where one module, or a set of them, is named; a category where there is evidence for
one ("other" is none). Bytes that blocks hold beyond the requests, and workspaces, which are no
tensors and of no layer, are left out; the last column says how much the workspaces are.
"""

from __future__ import annotations

import sys
from pathlib import Path

from memtrace.analysis import open_subject
from memtrace.snapshot import read
from memtrace.symbols import attribute
from memtrace.symbols.categories import OTHER, WORKSPACES
from memtrace.timeline import live, peak

SAMPLES = Path(__file__).parent.parent / "samples"


def measure(path: Path) -> tuple[float, float, float, float]:
    """Shares with a tensor, a layer, a category; workspaces' share of the peak's requests."""
    subject = open_subject(read(str(path)))
    run = subject.replay
    attribution = attribute(subject.recording, run)
    rows = live(run, peak(run, subject.window, run.accounting).event, run.accounting)
    total = tensors = layers = categories = workspaces = 0
    for k, category in zip(rows.tolist(), attribution.categories.of(rows.tolist()), strict=True):
        size = int(run.lifetimes.requested[k])
        naming = attribution.of(k)
        if category == WORKSPACES:
            workspaces += size
            continue
        total += size
        tensors += size * bool(naming.fitting(size))
        layers += size * bool(naming.layer_of(size))
        categories += size * (category != OTHER)
    whole = max(total, 1)
    return tensors / whole, layers / whole, categories / whole, workspaces / (whole + workspaces)


def main() -> None:
    paths = [Path(argument) for argument in sys.argv[1:]] or sorted(SAMPLES.glob("*.pkl.gz"))
    print(f"{'capture':<42} {'tensor':>8} {'layer':>8} {'category':>8} {'workspace':>9}")
    for path in paths:
        shares = measure(path)
        print(f"{path.name:<42} " + " ".join(f"{share:>8.2%}" for share in shares))


if __name__ == "__main__":
    main()
