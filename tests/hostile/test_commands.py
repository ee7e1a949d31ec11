"""A short, always equal piece of what scripts/fuzz.py does for as long as one likes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.classes import CLASSES
from tests.hostile.commands import Bench
from tests.hostile.minimise import minimise
from tests.hostile.mutators import load, mutate, pickle_of
from tests.hostile.results import Outcome, check_outcome, check_written
from tests.hostile.seeds import small_seeds
from tests.snapshot.build import capture

_FILES = 5  # of each class
_MUTATIONS = 60


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("hostile"), small_seeds()["planted/extra_cast-nvfuser"])
    made.warm_up()
    yield made
    made.close()


def test_good_files_pass(bench: Bench) -> None:
    for name in ("built", "plain", "planted/cloned_view-inductor-planted"):
        assert bench.check(small_seeds()[name]) == []


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_of_faults(bench: Bench, name: str) -> None:
    files = list(CLASSES[name]())
    for file in random.Random(7).sample(files, min(_FILES, len(files) // 5)):
        assert bench.check(file(), most=2) == []


def test_mutations(bench: Bench) -> None:
    chance = random.Random(7)
    seeds = list(small_seeds().values())
    before = bench.read
    for _ in range(_MUTATIONS):
        assert bench.check(mutate(chance.choice(seeds), chance), most=1) == []
    assert bench.read > before + 10  # what is refused at once tests little


@pytest.mark.parametrize(
    ("outcome", "wrong"),
    [
        (Outcome(0, "fine\n", "", 0), ""),
        (Outcome(1, "", "memtrace: /x/a.pkl: empty\n", 0), ""),
        (Outcome(1, "", "memtrace: empty\n", 0), "no file named"),
        (Outcome(1, "rows\n", "memtrace: /x/a.pkl: empty\n", 0), "output beside a fault"),
        (Outcome(1, "", "memtrace: /x/a.pkl: empty\nmore\n", 0), "not one line"),
        (Outcome(2, "", "usage\n", 0), "code 2"),
        (Outcome(0, "\x1b[31m", "", 0), "control characters"),
        (Outcome(0, "\u202e", "", 0), "control characters"),
        (Outcome(1, "", "memtrace: internal error, /x/a.pkl\n", 0), "internal"),
        (Outcome(0, "", "RuntimeWarning: overflow\n", 0), "stray on stderr"),
        (Outcome(0, "", "", 0, "Traceback\nValueError: x"), "escaped"),
    ],
)
def test_the_checks_notice(outcome: Outcome, wrong: str) -> None:
    found = check_outcome(outcome, "/x/a.pkl")
    assert found == [] if not wrong else found[0].startswith(wrong)


def test_what_fails_is_made_smaller() -> None:
    whole = capture()
    whole["memtrace"]["owners"] *= 30
    whole["memtrace"]["owners"].append("culprit")
    smallest = load(minimise(pickle_of(whole), lambda data: b"culprit" in data, 20))
    assert smallest == {"memtrace": {"owners": ["culprit"]}}
    assert minimise(b"\xff" * 50 + b"!" + b"\xff" * 70, lambda data: b"!" in data, 20) == b"!"


def test_written_files_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": NaN}')
    assert check_written(path, [])
    path.write_text('{"a": 1}')
    assert check_written(path, []) == []
    path = tmp_path / "a.html"
    path.write_text("<script>\x1b</script>")
    assert any("control" in wrong for wrong in check_written(path, []))
    path = tmp_path / "a.pftrace"
    path.write_bytes(b"\xff\xff")
    assert check_written(path, [])
