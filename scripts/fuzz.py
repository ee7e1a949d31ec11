"""Fuzzes every command that reads a file, for as long as asked, and keeps what it finds.

    python scripts/fuzz.py --seconds 3600 --folder /tmp/fuzz
    python scripts/fuzz.py --folder /tmp/fuzz --replay    # what was found, once more
    python scripts/fuzz.py --folder /tmp/fuzz --table --seconds 20    # each class of faults

Guided by coverage where atheris is installed (pip install atheris), else by chance alone. Mutations
and what must hold are in tests/hostile. Each kind of failure is kept once, in found/.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import os
import random
import re
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

try:
    import atheris
except ImportError:
    atheris = None

_MEMORY = 6 << 30  # of the process: what asks for more fails and is found
_MINIMISING = 30  # seconds
_HANG = 120  # seconds for one file, then the process ends, and the traceback says where


def instrument() -> None:
    """Loads the commands so that coverage is seen."""
    if atheris is None:
        return
    with atheris.instrument_imports(include=["memtrace"]):
        import memtrace.analysis
        import memtrace.analysis.findings
        import memtrace.analysis.history
        import memtrace.analysis.overview
        import memtrace.analysis.predicted
        import memtrace.analysis.tracks
        import memtrace.analysis.trim
        import memtrace.cli
        import memtrace.program
        import memtrace.render.chrome
        import memtrace.render.explain
        import memtrace.render.explain_json
        import memtrace.render.json
        import memtrace.render.kineto
        import memtrace.render.page
        import memtrace.render.perfetto
        import memtrace.render.predictions
        import memtrace.render.text
        import memtrace.symbols  # noqa: F401


class Fuzzer:
    """One run: counts, and keeps the first file of each kind of failure."""

    def __init__(self, folder: Path, seed: int) -> None:
        from tests.hostile.commands import Bench
        from tests.hostile.seeds import small_seeds

        self.folder = folder
        self.found = folder / "found"
        self.found.mkdir(parents=True, exist_ok=True)
        work = folder / "work"
        work.mkdir(exist_ok=True)
        seeds = small_seeds()
        # What was read, for more to be made of it: most of what coverage keeps is refused.
        self.readable = list(seeds.values()) * 50
        self.bench = Bench(work, seeds["planted/extra_cast-nvfuser"])
        self.bench.warm_up()
        self.chance = random.Random(seed)
        self.kinds: dict[str, int] = {}
        self.files = 0
        self.begin = time.time()

    def one(self, data: bytes) -> None:
        """Checks one file with some of the commands."""
        if not data:
            return
        faulthandler.dump_traceback_later(_HANG, exit=True)
        before = self.bench.read
        wrongs = self.bench.check(data, most=2)
        if self.bench.read > before:
            self.readable[self.chance.randrange(len(self.readable))] = data
        self.files += 1
        for wrong in wrongs:
            kind = kind_of(wrong)
            if kind not in self.kinds:
                name = hashlib.sha256(kind.encode()).hexdigest()[:12]
                if not (self.found / f"{name}.pkl").exists():
                    (self.found / f"{name}.pkl").write_bytes(self.minimise(data, kind))
                    (self.found / f"{name}.txt").write_text(wrong + "\n", errors="replace")
                    print(f"found {name}: {ascii(wrong)[:300]}", flush=True)
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
        faulthandler.cancel_dump_traceback_later()
        if self.files % 200 == 0:
            self.report()

    def minimise(self, data: bytes, kind: str) -> bytes:
        """A smaller file with the same failure, if one is found in half a minute."""
        from tests.hostile.minimise import minimise

        def fails(candidate: bytes) -> bool:
            return kind in map(kind_of, self.bench.check(candidate))

        return minimise(data, fails, _MINIMISING) if fails(data) else data

    def report(self) -> None:
        """Adds up what this run did, in a file of its own."""
        figures = {
            "seconds": round(time.time() - self.begin),
            "files": self.files,
            "read": self.bench.read,
            "executions": self.bench.executions,
            "kinds": self.kinds,
            "slowest": self.bench.slowest,
        }
        name = f"run-{int(self.begin)}-{os.getpid()}.json"
        (self.folder / name).write_text(json.dumps(figures, indent=1))


def kind_of(wrong: str) -> str:
    """Equal for wrongs of one kind in one place."""
    place = re.search(r"\((\w+\.py:\d+)\)|File \"([^\"]*)\", line (\d+)", wrong)
    if place:
        return wrong.split(":")[0] + " " + place[0]
    words = wrong.rsplit(" [", 1)
    return words[0].split(":")[0] + " " + words[-1].split()[0]


def fuzz(fuzzer: Fuzzer, seconds: int, seed: int) -> None:
    """Until the time is over."""
    from tests.hostile.mutators import mutate
    from tests.hostile.seeds import cut_seeds, small_seeds

    seeds = {**small_seeds(), **cut_seeds()}
    if atheris is None:
        chance = random.Random(seed)
        pool = list(seeds.values())
        while time.time() - fuzzer.begin < seconds:
            fuzzer.one(mutate(chance.choice(pool), chance))
        fuzzer.report()
        return
    corpus = fuzzer.folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for name, data in seeds.items():
        (corpus / name.replace("/", "-")).write_bytes(data)

    def mutated(data: bytes, size: int, number: int) -> bytes:
        chance = random.Random(number)
        changed = mutate(chance.choice((data, chance.choice(fuzzer.readable))), chance)
        return changed if len(changed) <= size else data

    options = [f"-max_total_time={seconds}", f"-seed={seed}", "-max_len=400000", "-timeout=100000",
               "-rss_limit_mb=0", "-len_control=0", "-print_final_stats=1", "-verbosity=1",
               f"-artifact_prefix={fuzzer.folder}/"]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(corpus)], fuzzer.one, custom_mutator=mutated)
    atheris.Fuzz()


def replay(fuzzer: Fuzzer) -> None:
    """Says of each file that was found what is wrong with it now."""
    for path in sorted(fuzzer.found.glob("*.pkl")):
        wrongs = fuzzer.bench.check(path.read_bytes())
        print(f"{path.stem}: {ascii(wrongs[0])[:300] if wrongs else 'mended'}", flush=True)


def print_table(fuzzer: Fuzzer, seconds: int) -> None:
    """Each class of faults, as many of its files as fit into the time, spread over all of them."""
    from tests.hostile.classes import CLASSES

    print("| class of fault | files | refused | read | wrong | slowest command | most memory |")
    print("|---|---|---|---|---|---|---|")
    bench = fuzzer.bench
    for name, make in CLASSES.items():
        files = list(make())
        random.Random(0).shuffle(files)
        bench.read = bench.refused = bench.most_memory = 0
        bench.slowest = (0.0, "")
        wrongs: list[str] = []
        end = time.time() + seconds
        for file in files:
            if time.time() > end:
                break
            wrongs += bench.check(file(), most=2)
        tried = bench.read + bench.refused
        print(
            f"| {name} | {tried} of {len(files)} | {bench.refused} | {bench.read} | {len(wrongs)} "
            f"| {bench.slowest[0]:.2f} s | {bench.most_memory >> 20} MiB |",
            flush=True,
        )
        for wrong in dict.fromkeys(wrongs):
            print(f"    {ascii(wrong)[:300]}", flush=True)
    print("Aim: none wrong, 5 s and 10 s a megabyte at most, 600 MiB and 40 bytes a byte at most.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0, help="0: another one every time")
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--table", action="store_true")
    chosen = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    faulthandler.enable()
    if not (chosen.replay or chosen.table):
        instrument()
    fuzzer = Fuzzer(chosen.folder, chosen.seed)
    if chosen.replay:
        replay(fuzzer)
    elif chosen.table:
        print_table(fuzzer, chosen.seconds)
    else:
        fuzz(fuzzer, chosen.seconds, chosen.seed or random.SystemRandom().randrange(1, 1 << 31))


if __name__ == "__main__":
    main()
