"""Prints the replayed figures of recordings next to the driver's; exit code 1 if one disagrees.

Usage: python scripts/reconcile.py [--all] [RECORDING …]

Default: samples/*.pkl* and tests/data/plain/*.pkl*. The driver's figures are those in a capture
(its peaks and, with --all printed one by one, its totals at every mark), or the
``max_memory_allocated`` of a NAME.facts.json.gz beside a plain snapshot NAME.snapshot.pkl.gz.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path

from memtrace.errors import MemtraceError
from memtrace.snapshot.columns import Recording
from memtrace.snapshot.reader import read
from memtrace.timeline import Check, Replay, cross_check_profile, reconcile, replay

ROOT = Path(__file__).resolve().parent.parent
DEFAULTS = ("samples/*.pkl*", "tests/data/plain/*.pkl*")
Row = tuple[str, str, int | None, int | None]


def check_recording(path: Path, every: bool) -> list[Row]:
    """(recording, what, driver's figure, replayed figure) for every device with a history."""
    recording = read(path)
    rows: list[Row] = []
    for device in range(len(recording.events)):
        if not len(recording.events[device]):
            continue
        run = replay(recording, device)
        name = path.name if len(recording.events) == 1 else f"{path.name} cuda:{device}"
        checks = reconcile(recording, run)
        rows += [(name, c.what, c.driver, c.replayed) for c in _shorten(checks, every)]
        if device == 0:
            rows += [(name, *row) for row in _facts(path, run)]
        if run.end_mismatches is not None:
            rows.append((name, "blocks unlike the segments at the end", 0, run.end_mismatches))
        rows += [(name, *row) for row in _profile(recording, run)]
        rows += [(name, warning, None, None) for warning in run.warnings]
    return rows


def _shorten(checks: list[Check], every: bool) -> list[Check]:
    """Peaks as they are; of the figures at marks only those that disagree, and one that sums up."""
    if every:
        return checks
    peaks = [c for c in checks if " at mark " not in c.what]
    marks = [c for c in checks if " at mark " in c.what and c.agrees is not None]
    wrong = [c for c in marks if not c.agrees]
    if marks:
        agreed = len(marks) - len(wrong)
        peaks.append(Check("totals and peaks at marks that agree", len(marks), agreed, -1, -1))
    return [*peaks, *wrong]


def _facts(path: Path, run: Replay) -> list[tuple[str, int, int | None]]:
    stem, found, _ = path.name.partition(".snapshot.")
    facts = path.parent / f"{stem}.facts.json.gz"
    if not found or not facts.exists():
        return []
    driver = json.loads(gzip.decompress(facts.read_bytes())).get("max_memory_allocated")
    if driver is None:
        return []
    replayed = None if run.allocated is None else int(run.allocated.max())
    return [("allocated peak (facts)", int(driver), replayed)]


def _profile(recording: Recording, run: Replay) -> list[tuple[str, int, int | None]]:
    check = cross_check_profile(recording, run)
    if check is None:
        return []
    same = check.compared - check.disagreements
    return [("block sizes as the profiler's", check.compared, same)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--all", action="store_true", help="print every total at every mark")
    options = parser.parse_args()
    paths = options.recordings or sorted(p for d in DEFAULTS for p in ROOT.glob(d))
    if not paths:
        print("reconcile: no recordings found; name some", file=sys.stderr)
        return 1
    rows: list[Row] = []
    failed = False
    for path in paths:
        try:
            rows += check_recording(path, options.all)
        except MemtraceError as error:
            print(f"reconcile: {error}", file=sys.stderr)
            failed = True
    wide = max((len(r[0]) for r in rows), default=0)
    what = max((len(r[1]) for r in rows if r[2] is not None), default=0)
    print(f"{'recording':{wide}}  {'figure':{what}}  {'driver':>18}  {'replayed':>18}")
    for name, label, driver, replayed in rows:
        if driver is None:
            print(f"{name:{wide}}  note: {label}")
            continue
        shown = "unknown" if replayed is None else f"{replayed:,}"
        word = "" if replayed is None else "ok" if replayed == driver else "DIFFERS"
        failed = failed or word == "DIFFERS"
        print(f"{name:{wide}}  {label:{what}}  {driver:>18,}  {shown:>18}  {word}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
