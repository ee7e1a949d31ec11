"""Free blocks at any moment, against the allocator model that knows them."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from memtrace.timeline import Unused, replay, unused_blocks
from tests.timeline.allocator_model import Model
from tests.timeline.test_model import MODELS, STEPS, run, written


def free_in(model: Model) -> list[Unused]:
    return [
        Unused(piece.address, piece.size, arena.small, arena.stream, arena.pool != (0, 0))
        for arena in model.arenas
        for piece in arena.pieces
        if piece.state == "free"
    ]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MODELS, STEPS, STEPS)
def test_free_blocks_are_the_models(
    model: Model, steps: list[tuple[Any, ...]], later: list[tuple[Any, ...]]
) -> None:
    moment, _ = run(model, steps, len(steps))
    then = sorted(free_in(model))
    model.note("oom", 0, 1 << 40, 0)
    at_end = written(model, 0, ())
    found = unused_blocks(at_end, replay(at_end), moment)
    assert found is not None
    assert sorted(found) == then
    # The same, when the script went on: by replay.
    run(model, later, len(later))
    whole = written(model, 0, ())
    played = replay(whole)
    found = unused_blocks(whole, played, moment)
    assert found is not None
    assert [b[:2] for b in found] == [b[:2] for b in then]
    assert played.reserved is not None
    assert played.allocated is not None
    waiting = sum(
        int(size)
        for size, born, freed, completed in zip(
            played.lifetimes.block, played.lifetimes.born, played.lifetimes.freed,
            played.lifetimes.completed, strict=True,
        )
        if born < moment and freed < moment <= completed
    )  # fmt: skip
    held = int(played.allocated[moment]) + waiting + sum(block.size for block in found)
    assert held == played.reserved[moment]
    if not model.expandable:
        # A pool is private as far as its segments are still there; a segment's size tells its kind.
        assert [b[2:4] for b in found] == [b[2:4] for b in then]
