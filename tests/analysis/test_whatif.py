"""Peaks with changes made: against a replay of the edited lifetimes, moment by moment."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memtrace.analysis.whatif import (
    Base,
    Change,
    Edit,
    Extension,
    Skyline,
    combine,
    reach,
    score,
)


@dataclass(frozen=True)
class Life:
    born: int
    end: int
    size: int


def base(lives: list[Life], moments: int, begin: int = 0) -> Base:
    total = [sum(one.size for one in lives if one.born < k <= one.end) for k in range(moments)]
    columns = zip(*((one.born, one.end, one.size) for one in lives), strict=True)
    born, end, size = (np.array(column, dtype=np.int64) for column in columns)
    return Base(np.array(total[begin:], dtype=np.int64), begin, born, end, size)


def replayed(
    lives: list[Life], changes: list[Change], moments: int, begin: int
) -> tuple[int, list[int]]:
    """The peak of the edited lifetimes, and the moments that have it: the slow, plain way."""
    pieces: dict[int, list[Life]] = {k: [one] for k, one in enumerate(lives)}
    for change in changes:
        for edit in change.edits:
            size = lives[edit.lifetime].size if edit.bytes is None else edit.bytes
            pieces[edit.lifetime] = [Life(born, end, size) for born, end in edit.alive]
    for change in changes:
        for one in change.extensions:
            held = pieces[one.lifetime]
            last = held[-1]
            held[-1] = Life(last.born, max(last.end, one.until), last.size)
    flat = [piece for held in pieces.values() for piece in held]
    totals = [
        sum(one.size for one in flat if one.born < k <= one.end) for k in range(begin, moments)
    ]
    peak = max(totals)
    return peak, [begin + k for k, total in enumerate(totals) if total == peak]


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Life], list[Change], int, int]:
    """Lifetimes and changes that shorten, cut, shrink, remove and lengthen some of them."""
    moments = draw(st.integers(2, 24))
    begin = draw(st.integers(0, moments - 1))
    whole = st.tuples(st.integers(-1, moments), st.integers(-1, moments)).map(sorted)
    lives = [
        Life(*life, size)
        for life, size in draw(st.lists(st.tuples(whole, st.integers(0, 99)), min_size=1))
    ]
    changes = []
    for _ in range(draw(st.integers(0, 6))):
        edits = []
        for k in draw(st.sets(st.integers(0, len(lives) - 1), min_size=1, max_size=3)):
            within = st.integers(lives[k].born, max(lives[k].born, lives[k].end))
            cuts = sorted(draw(st.lists(within, max_size=4)))
            alive = tuple(zip(cuts[::2], cuts[1::2], strict=False))
            edits.append(Edit(k, alive, draw(st.none() | st.integers(0, lives[k].size))))
        touched = {edit.lifetime for edit in edits}
        rest = [k for k in range(len(lives)) if k not in touched]
        extensions = []
        if rest and draw(st.booleans()):
            k = draw(st.sampled_from(rest))
            extensions.append(Extension(k, draw(st.integers(lives[k].end, moments + 1))))
        changes.append(Change("gone", "", tuple(edits), tuple(extensions)))
    return lives, changes, moments, begin


def compatible(changes: list[Change]) -> list[int]:
    chosen: list[int] = []
    for k, change in enumerate(changes):
        if not any(change.excludes(changes[c]) for c in chosen):
            chosen.append(k)
    return chosen


@given(programs())
def test_peak_is_that_of_the_edited_lifetimes(
    program: tuple[list[Life], list[Change], int, int],
) -> None:
    lives, changes, moments, begin = program
    skyline = Skyline(base(lives, moments, begin), changes)
    for chosen in ([], *([k] for k in range(len(changes))), compatible(changes)):
        found = skyline.peak(chosen)
        peak, where = replayed(lives, [changes[k] for k in chosen], moments, begin)
        assert found.bytes == peak
        assert found.event == where[0]


@given(programs())
def test_no_more_is_saved_than_what_changes_held(
    program: tuple[list[Life], list[Change], int, int],
) -> None:
    lives, changes, moments, begin = program
    skyline = Skyline(base(lives, moments, begin), changes)
    for k, change in enumerate(changes):
        saved = skyline.peak().bytes - skyline.peak([k]).bytes
        assert saved <= sum(lives[one].size for one in change.touched)


@given(programs())
def test_all_together_are_no_worse_than_each(
    program: tuple[list[Life], list[Change], int, int],
) -> None:
    lives, changes, moments, begin = program
    skyline = Skyline(base(lives, moments, begin), changes)
    plan = combine(skyline)
    assert all(plan.peak.bytes <= skyline.peak([k]).bytes for k in range(len(changes)))
    assert plan.peak.bytes <= skyline.peak().bytes
    assert not any(changes[a].excludes(changes[b]) for a, b in combinations(plan.chosen, 2))


@given(programs(), st.integers(0, 400))
def test_the_list_that_reaches_a_target_is_the_shortest(
    program: tuple[list[Life], list[Change], int, int], target: int
) -> None:
    lives, changes, moments, begin = program
    skyline = Skyline(base(lives, moments, begin), changes)
    lengths = [
        len(chosen)
        for n in range(len(changes) + 1)
        for chosen in combinations(range(len(changes)), n)
        if not any(changes[a].excludes(changes[b]) for a, b in combinations(chosen, 2))
        and replayed(lives, [changes[k] for k in chosen], moments, begin)[0] <= target
    ]
    plan = reach(skyline, target)
    assert (plan is None) == (not lengths)
    if plan is not None:
        assert plan.peak.bytes <= target
        assert plan.shortest
        assert len(plan.chosen) == min(lengths)


def test_the_peak_moves_elsewhere() -> None:
    """Two hills: what lowers the first alone leaves the second, which both changes lower."""
    lives = [Life(0, 2, 100), Life(4, 6, 90), Life(0, 6, 10)]
    changes = [Change("gone", "first", (Edit(0),)), Change("gone", "second", (Edit(1),))]
    skyline = Skyline(base(lives, 8), changes)
    assert skyline.peak() == (1, 110)
    assert skyline.peak([0]) == (5, 100)
    assert skyline.peak([1]) == (1, 110)
    assert skyline.peak([0, 1]) == (1, 10)
    plan = reach(skyline, 50)
    assert plan is not None
    assert set(plan.chosen) == {0, 1}


def test_a_change_does_not_take_what_another_relies_on() -> None:
    recomputed = Change("recomputed", "", (Edit(0, ((0, 2), (5, 6))),), needs=frozenset({1}))
    gone = Change("gone", "", (Edit(1),))
    assert recomputed.excludes(gone)
    assert gone.excludes(recomputed)


def test_extensions_of_one_lifetime_count_once() -> None:
    lives = [Life(0, 4, 50), Life(0, 4, 60), Life(0, 1, 7)]
    changes = [
        Change("made at its first use", "", (Edit(k, ((3, 4),)),), (Extension(2, 3),))
        for k in range(2)
    ]
    skyline = Skyline(base(lives, 6), changes)
    assert skyline.level([0, 1]).max() == 110  # at the consumer both are there
    assert skyline.peak([0, 1]) == (4, 110)


def test_work_counts_against_what_it_saves() -> None:
    assert score(100, 0) == 100
    assert score(100, 100) == 50
    assert score(100, 300) < score(30, 0)
    assert score(0, 5) == 0
