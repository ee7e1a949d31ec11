"""The replay of a history against the allocator model that wrote it."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtrace.snapshot.columns import Recording, Segment
from memtrace.timeline import live, replay, settle
from tests.builders import ACTIONS, MIB, events, recording, segment
from tests.timeline.allocator_model import Model

SIZES = st.one_of(
    st.integers(1, 2000),
    st.integers(1, MIB),
    st.integers(MIB - 600, MIB + 600),
    st.integers(MIB, 25 * MIB),
    st.sampled_from([512, MIB, 2 * MIB, 9 * MIB, 10 * MIB - 512, 10 * MIB, 19 * MIB, 40 * MIB]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("malloc"), SIZES, st.integers(0, 1), st.booleans()),
        st.tuples(st.just("malloc"), SIZES, st.just(0), st.just(False)),
        st.tuples(st.sampled_from(["free", "free", "wait", "complete"]), st.integers(0, 1000)),
        st.tuples(st.just("empty"), st.just(0)),
    ),
    max_size=60,
)
MODELS = st.builds(
    Model,
    expandable=st.booleans(),
    max_split_size=st.sampled_from([1 << 62, 21 * MIB, 30 * MIB]),
    divisions=st.sampled_from([0, 0, 1, 2, 4, 8]),
    touching=st.booleans(),
)


def run(model: Model, steps: list[tuple[Any, ...]], cut: int) -> tuple[int, tuple[Segment, ...]]:
    """Plays the steps; returns the number of events before step ``cut`` and the segments then."""
    used: list[int] = []
    pending: list[int] = []
    middle: tuple[int, tuple[Segment, ...]] | None = None
    for k, step in enumerate(steps):
        if k == cut:
            middle = len(model.events), model.segments()
        if step[0] == "malloc":
            used.append(model.malloc(step[1], step[2], (0, 1) if step[3] else (0, 0)))
        elif step[0] == "complete":
            if pending:
                model.complete(pending.pop(step[1] % len(pending)))
        elif step[0] == "empty":
            model.empty_cache()
        elif used:
            address = used.pop(step[1] % len(used))
            model.free(address, wait=step[0] == "wait")
            if step[0] == "wait":
                pending.append(address)
    return middle or (len(model.events), model.segments())


def written(model: Model, first: int, start: tuple[Segment, ...] | None) -> Recording:
    """The recording of the model's events from number ``first`` on."""
    limit = model.max_split_size
    return recording(
        events(*model.events[first:]),
        segments=model.segments(),
        start=start,
        settings={
            "max_split_size": -1 if limit == 1 << 62 else limit,
            "expandable_segments": model.expandable,
            "roundup_power2_divisions": {str(1 << k): model.divisions for k in range(16)},
        },
    )


def check(model: Model, first: int, start: tuple[Segment, ...] | None) -> bool:
    """Compares; returns whether the allocated totals are known."""
    got = replay(written(model, first, start))
    assert got.end_mismatches == 0
    np.testing.assert_array_equal(got.requested, model.requested[first:])
    assert got.reserved is not None
    np.testing.assert_array_equal(got.reserved, model.reserved[first:])
    rows = got.lifetimes
    here = rows.born >= 0
    truth = np.array(model.blocks, dtype=np.int64)[first:]
    np.testing.assert_array_equal(rows.block[here], truth[rows.born[here]])
    if got.allocated is not None:
        np.testing.assert_array_equal(got.allocated, model.allocated[first:])
    late = settle(got, got.allocated_from)
    if late.allocated is not None:
        known = slice(got.allocated_from, None)
        np.testing.assert_array_equal(late.allocated[known], model.allocated[first:][known])
    for k in {0, got.n_events // 2, got.n_events}:
        assert rows.requested[live(got, k, "requested")].sum() == got.requested[k]
        if got.allocated is not None:
            assert rows.block[live(got, k, "allocated")].sum() == got.allocated[k]
    assert got.complete == (got.allocated is not None)
    assert got.complete == (not got.warnings)
    return got.allocated is not None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MODELS, STEPS, st.integers(0, 60))
def test_replay_equals_the_model(model: Model, steps: list[tuple[Any, ...]], cut: int) -> None:
    first, middle = run(model, steps, cut)
    assert check(model, 0, ()), "from nothing, all is known"
    assert check(model, 0, None), "no block existed before: the end tells the start"
    assert check(model, first, middle), "the blocks at the start were given"
    check(model, first, None)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MODELS, STEPS, st.integers(0, 60))
def test_blocks_rebuilt_from_the_end_are_right_or_unknown(
    model: Model, steps: list[tuple[Any, ...]], cut: int
) -> None:
    first, middle = run(model, steps, cut)
    given_start = replay(written(model, first, middle)).lifetimes
    rebuilt = replay(written(model, first, None)).lifetimes
    there = {int(a): k for k, a in enumerate(given_start.address) if given_start.born[k] < 0}
    for k in np.flatnonzero(rebuilt.born < 0).tolist():
        twin = there.pop(int(rebuilt.address[k]))
        assert rebuilt.block[k] in (-1, given_start.block[twin])
        assert rebuilt.freed[k] == given_start.freed[twin]
        assert rebuilt.completed[k] == given_start.completed[twin]
    assert not there


ANY_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(sorted(ACTIONS)),
        st.integers(0, 6).map(lambda k: (1 << 40) + k * 512),
        st.sampled_from([0, 1, 512, 1024, 2 * MIB]),
        st.integers(0, 1),
    ),
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(ANY_EVENTS, st.booleans(), st.booleans())
def test_any_history_is_replayed_and_sums(
    rows: list[tuple[Any, ...]], end: bool, start: bool
) -> None:
    """Whatever a broken file holds: no exception, and the live set sums to the total."""
    some = segment(1 << 40, [("used", 512), ("pending", 1024), ("free", 2 * MIB)])
    source = recording(
        events(*rows), segments=[some] if end else [], start=[some] if start else None
    )
    got = replay(source)
    table = got.lifetimes
    assert (table.freed <= table.completed).all()
    for k in range(got.n_events + 1):
        assert table.requested[live(got, k, "requested")].sum() == got.requested[k]
        if got.allocated is not None:
            assert table.block[live(got, k, "allocated")].sum() == got.allocated[k]
