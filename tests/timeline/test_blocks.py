"""Histories of a few events whose block sizes can be told by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memtrace.snapshot.columns import Recording
from memtrace.timeline import Rules, live, replay, settle
from tests.builders import KIB, MIB, capture_meta, events, recording, segment

A = 1 << 40
B = 1 << 41
C = 1 << 42


def block_sizes(source: Recording, device: int = 0) -> list[int]:
    return replay(source, device).lifetimes.block.tolist()


def test_small_pool_splits_to_the_rounded_size() -> None:
    source = recording(
        events(
            ("segment_alloc", A, 2 * MIB),
            ("alloc", A, 8),
            ("alloc", A + 512, 513),
            ("alloc", A + 1536, MIB),
        ),
        segments=[
            segment(
                A,
                [
                    ("used", 512, 8),
                    ("used", 1024, 513),
                    ("used", MIB),
                    ("free", MIB - 1536),
                ],
                kind="small",
            )
        ],
        start=[],
    )
    got = replay(source)
    assert got.lifetimes.block.tolist() == [512, 1024, MIB]
    assert got.allocated is not None
    assert got.allocated.tolist() == [0, 0, 512, 1536, 1536 + MIB]
    assert got.requested.tolist() == [0, 0, 8, 521, 521 + MIB]
    assert got.reserved is not None
    assert got.reserved.tolist() == [0] + [2 * MIB] * 4
    assert (got.complete, got.warnings, got.end_mismatches) == (True, (), 0)


@pytest.mark.parametrize(
    ("room", "size", "block"),
    [
        (20 * MIB, 19 * MIB, 20 * MIB),  # what would remain is 1 MiB: not split
        (20 * MIB, 19 * MIB - 512, 19 * MIB - 512),  # more than 1 MiB: split
        (20 * MIB, MIB + 1, MIB + 512),
        (12 * MIB, 11 * MIB + 7, 12 * MIB),
    ],
)
def test_large_pool_keeps_up_to_one_mib_of_slack(room: int, size: int, block: int) -> None:
    assert block_sizes(
        recording(events(("segment_alloc", A, room), ("alloc", A, size)), start=[])
    ) == [block]


def test_freed_neighbours_merge_but_not_across_segments() -> None:
    source = recording(
        events(
            ("segment_alloc", A, 20 * MIB),
            ("segment_alloc", A + 20 * MIB, 20 * MIB),
            ("alloc", A, 4 * MIB),
            ("alloc", A + 4 * MIB, 4 * MIB),
            ("free", A, 4 * MIB),
            ("free", A + 4 * MIB, 4 * MIB),
            ("alloc", A, 19 * MIB + 512 * KIB),
        ),
        segments=[
            segment(A, [("used", 20 * MIB, 19 * MIB + 512 * KIB)]),
            segment(A + 20 * MIB, [("free", 20 * MIB)]),
        ],
        start=[],
    )
    got = replay(source)
    assert got.lifetimes.block.tolist() == [4 * MIB, 4 * MIB, 20 * MIB]
    assert got.end_mismatches == 0


def test_a_pending_block_does_not_merge_until_completed() -> None:
    """record_stream: allocated falls at the request, requested bytes at the completion."""
    source = recording(
        events(
            ("segment_alloc", A, 20 * MIB),
            ("alloc", A, 4 * MIB),
            ("alloc", A + 4 * MIB, 4 * MIB),
            ("free_requested", A, 4 * MIB),
            ("free", A + 4 * MIB, 4 * MIB),
            ("alloc", A + 4 * MIB, 15 * MIB + 512 * KIB),
            ("free_completed", A, 4 * MIB),
        ),
        start=[],
    )
    got = replay(source)
    assert got.lifetimes.block.tolist() == [4 * MIB, 4 * MIB, 16 * MIB]
    assert got.allocated is not None
    assert (got.allocated // MIB).tolist() == [0, 0, 4, 8, 4, 0, 0, 16, 16]
    assert (got.requested * 2 // MIB).tolist() == [0, 0, 8, 16, 16, 16, 8, 39, 31]


def test_a_block_that_waits_at_the_end_and_one_at_the_start() -> None:
    start = [segment(A, [("pending", 4 * MIB), ("used", 4 * MIB), ("free", 12 * MIB)])]
    end = [segment(A, [("free", 4 * MIB), ("pending", 4 * MIB), ("free", 12 * MIB)])]
    happened = events(
        ("free_requested", A + 4 * MIB, 4 * MIB),
        ("free_completed", A, 4 * MIB),
    )
    for given in (start, None):
        got = replay(recording(happened, segments=end, start=given))
        rows = got.lifetimes
        assert rows.born.tolist() == [-1, -1]
        assert rows.freed.tolist() == [-1, 0]
        assert rows.completed.tolist() == [1, 2]
        assert (got.requested // MIB).tolist() == [8, 8, 4]
        assert got.end_mismatches == 0
        if given is None:
            # The second begins where the first's request ends: no room for slack.
            assert rows.block.tolist() == [4 * MIB, 4 * MIB]


def test_expandable_segment_maps_and_unmaps() -> None:
    page = 20 * MIB
    source = recording(
        events(
            ("segment_map", A, page),
            ("alloc", A, 15 * MIB),
            ("segment_map", A + page, page),
            ("alloc", A + 15 * MIB, 24 * MIB),
            ("free", A + 15 * MIB, 24 * MIB),
            ("segment_unmap", A + page, page),
            ("alloc", A + 15 * MIB, 5 * MIB - 512),
        ),
        segments=[
            segment(
                A, [("used", 15 * MIB), ("used", 5 * MIB - 512), ("free", 512)], expandable=True
            )
        ],
        start=[],
        settings={"expandable_segments": True},
    )
    for given in (
        source,
        recording(*source.events, segments=source.segments, settings=source.settings),
    ):
        got = replay(given)
        assert got.lifetimes.block.tolist() == [15 * MIB, 24 * MIB, 5 * MIB - 512]
        assert got.reserved is not None
        assert (got.reserved // page).tolist() == [0, 1, 1, 2, 2, 2, 2, 1, 1]
        assert got.end_mismatches == 0


def test_unmapping_leaves_the_rest_of_a_free_block() -> None:
    source = recording(
        events(
            ("free", A, 30 * MIB),
            ("segment_unmap", A + 20 * MIB, 20 * MIB),
            ("alloc", A, 20 * MIB - 512),
            ("alloc", A + 40 * MIB, 512 * KIB + MIB),
        ),
        start=[segment(A, [("used", 30 * MIB), ("free", 30 * MIB)], expandable=True)],
        segments=[
            segment(A, [("used", 20 * MIB - 512), ("free", 512)], expandable=True),
            segment(
                A + 40 * MIB,
                [("used", 1536 * KIB), ("free", 20 * MIB - 1536 * KIB)],
                expandable=True,
            ),
        ],
        settings={"expandable_segments": True},
    )
    got = replay(source)
    assert got.warnings == ()
    assert got.lifetimes.block.tolist() == [30 * MIB, 20 * MIB - 512, 1536 * KIB]


def test_max_split_size_leaves_oversize_blocks_whole() -> None:
    happened = events(("segment_alloc", A, 40 * MIB), ("alloc", A, 32 * MIB), ("free", A, 32 * MIB))
    settings = {"max_split_size": 30 * MIB}
    assert block_sizes(recording(happened, start=[], settings=settings)) == [40 * MIB]
    assert block_sizes(recording(happened, start=[])) == [32 * MIB]


@pytest.mark.parametrize(
    ("size", "divisions", "rounded"),
    [
        (1200, 4, 1536),  # not above 512 * divisions: plain rounding
        (5 * MIB, 4, 5 * MIB),
        (5 * MIB + 1, 4, 6 * MIB),
        (7 * MIB + 1, 4, 8 * MIB),
        (8 * MIB, 4, 8 * MIB),
        (5 * MIB, 1, 5 * MIB),
        (5 * MIB, 0, 5 * MIB),
        (5 * MIB, 8, 5 * MIB),
        (5 * MIB + 1, 8, 5 * MIB + 512 * KIB),
    ],
)
def test_roundup_power2_divisions(size: int, divisions: int, rounded: int) -> None:
    rules = Rules.from_settings(
        {"roundup_power2_divisions": {str(1 << k): divisions for k in range(16)}}
    )
    assert rules.round(size) == rounded


def test_roundup_divisions_differ_by_size() -> None:
    rules = Rules.from_settings({"roundup_power2_divisions": {"1": 2, "4": 4, "32768": 8}})
    assert rules.round(MIB + 512 * KIB + 1) == 2 * MIB
    assert rules.round(2 * MIB + 1) == 2 * MIB + 512  # no divisions for 2 to 4 MiB
    assert rules.round(5 * MIB + 1) == 6 * MIB
    assert rules.round(700 * KIB + 1) == 768 * KIB  # below 1 MiB the first setting holds
    assert rules.round((1 << 37) + 1) == (1 << 37) + (1 << 34)  # above 32 GiB the last


def test_private_pools_have_segments_of_their_own() -> None:
    pool = (0, 1)
    source = recording(
        events(
            ("segment_alloc", A, 2 * MIB),
            ("alloc", A, 100),
            ("segment_alloc", B, 2 * MIB),
            ("alloc", B, 100),
            ("free", B, 100),
        ),
        segments=[
            segment(A, [("used", 512, 100), ("free", 2 * MIB - 512)], kind="small"),
            segment(B, [("free", 2 * MIB)], kind="small", pool=pool),
        ],
    )
    got = replay(source)
    assert got.complete
    assert got.end_mismatches == 0
    assert got.lifetimes.block.tolist() == [512, 512]


def test_a_restored_pool_is_split_at_exact_sizes() -> None:
    """setSegmentStateToCheckpoint splits where should_split would not."""
    source = recording(
        events(
            ("segment_alloc", A, 20 * MIB),
            ("alloc", A, 19 * MIB + 512 * KIB),
            ("alloc", A + 19 * MIB + 512 * KIB, 512 * KIB),
        ),
        segments=[segment(A, [("used", 19 * MIB + 512 * KIB), ("used", 512 * KIB)])],
        start=[],
    )
    got = replay(source)
    assert got.lifetimes.block.tolist() == [19 * MIB + 512 * KIB, 512 * KIB]
    assert got.end_mismatches == 0


def test_a_pool_that_never_splits() -> None:
    source = recording(
        events(
            ("segment_alloc", A, 20 * MIB),
            ("segment_alloc", B, 20 * MIB),
            ("alloc", A, 4 * MIB),
            ("alloc", B, 4 * MIB),
            ("segment_alloc", C, 20 * MIB),
            ("alloc", C, 5 * MIB),
            ("free", C, 5 * MIB),
        ),
        segments=[
            segment(A, [("used", 20 * MIB, 4 * MIB)], pool=(1, 0)),
            segment(B, [("used", 4 * MIB), ("free", 16 * MIB)]),
            segment(C, [("free", 20 * MIB)], pool=(1, 0)),
        ],
        start=[],
    )
    got = replay(source)
    assert got.lifetimes.block.tolist() == [20 * MIB, 4 * MIB, 20 * MIB]
    assert got.end_mismatches == 0
    assert got.complete


def test_what_no_rule_explains_is_unknown_not_wrong() -> None:
    source = recording(
        events(
            ("segment_alloc", A, 20 * MIB),
            ("segment_alloc", B, 20 * MIB),
            ("alloc", A, 4 * MIB),
            ("alloc", B, 4 * MIB),
        ),
        segments=[
            segment(A, [("used", 10 * MIB, 4 * MIB), ("free", 10 * MIB)], pool=(1, 0)),
            segment(B, [("used", 4 * MIB), ("free", 16 * MIB)]),
        ],
        start=[],
    )
    got = replay(source)
    assert got.lifetimes.block.tolist() == [-1, 4 * MIB]
    assert got.allocated is None
    assert got.end_mismatches
    assert not got.complete
    assert any("unknown" in w for w in got.warnings)


def test_expandable_segments_switched_off_when_all_was_done() -> None:
    source = recording(
        events(("segment_map", B, 20 * MIB), ("alloc", B, 19 * MIB + 512)),
        segments=[segment(B, [("used", 19 * MIB + 512), ("free", MIB - 512)], expandable=True)],
        start=[],
    )
    assert replay(source).end_mismatches == 0


@pytest.mark.parametrize("at_the_end", [True, False])
def test_expandable_segments_switched_on_the_way(at_the_end: bool) -> None:
    """Each alloc is split by the rule of the kind of segment that it lies in."""
    slack = 512 * KIB
    fixed = [("segment_alloc", A, 20 * MIB), ("alloc", A, 20 * MIB - slack)]
    mapped = [("segment_map", B, 20 * MIB), ("alloc", B, 20 * MIB - slack)]
    source = recording(
        events(*([*fixed, *mapped] if at_the_end else [*mapped, *fixed])),
        segments=[
            segment(A, [("used", 20 * MIB, 20 * MIB - slack)]),
            segment(B, [("used", 20 * MIB - slack), ("free", slack)], expandable=True),
        ],
        settings={"expandable_segments": at_the_end},
        start=[],
    )
    got = replay(source)
    sizes = dict(zip(got.lifetimes.address.tolist(), got.lifetimes.block.tolist(), strict=True))
    assert sizes == {A: 20 * MIB, B: 20 * MIB - slack}
    assert got.end_mismatches == 0
    assert got.complete


def test_frees_of_what_was_never_seen_allocated() -> None:
    """In the small pool the size follows from the request, in the large pool it may not."""
    small = segment(A, [("used", 512, 8), ("free", 2 * MIB - 512)], kind="small")
    source = recording(
        events(("free", A + 512, 1000), ("free", B, 4 * MIB)),
        segments=[small, segment(B, [("free", 20 * MIB)])],
    )
    got = replay(source)
    rows = got.lifetimes
    assert rows.address.tolist() == [A, A + 512, B]
    assert rows.block.tolist() == [512, 1024, -1]
    assert rows.born.tolist() == [-1, -1, -1]
    assert got.requested.tolist() == [8 + 1000 + 4 * MIB] * 2 + [8 + 4 * MIB] * 2 + [8]
    assert got.allocated is None
    assert got.accounting == "requested"
    assert not got.complete
    with pytest.raises(ValueError, match="not known"):
        got.total("allocated")
    late = settle(got, 3)
    assert late.allocated is not None
    assert late.allocated.tolist() == [-1, -1, -1, 512, 512]
    assert settle(got, 2) is got


def test_an_alloc_behind_shows_the_size_of_an_unseen_block() -> None:
    source = recording(
        events(
            ("alloc", A + 5 * MIB, 2 * MIB),
            ("free", A, 4 * MIB),
            ("free", A + 5 * MIB, 2 * MIB),
        ),
        segments=[segment(A, [("free", 20 * MIB)])],
    )
    got = replay(source)
    assert got.lifetimes.block.tolist() == [5 * MIB, 2 * MIB]
    assert got.complete


def test_no_room_for_slack_settles_an_unseen_block() -> None:
    source = recording(
        events(("free", A, 4 * MIB)),
        segments=[segment(A, [("free", 4 * MIB), ("used", 16 * MIB)])],
    )
    got = replay(source)
    assert dict(zip(got.lifetimes.address.tolist(), got.lifetimes.block.tolist(), strict=True)) == {
        A: 4 * MIB,
        A + 4 * MIB: 16 * MIB,
    }


def test_wrapped_ring_is_said_and_starts_from_the_end() -> None:
    happened = events(("free", A, 100), ("alloc", A, 200))
    end = [segment(A, [("used", 512, 200), ("free", 2 * MIB - 512)], kind="small")]
    got = replay(recording(happened, segments=end, start=[], meta=capture_meta(dropped=7)))
    assert got.dropped == 7
    assert not got.complete
    assert "7 events are lost" in got.warnings[0]
    assert got.allocated is not None
    assert got.allocated.tolist() == [512, 0, 0, 512]


def test_a_round_number_of_events_perhaps_wrapped() -> None:
    happened = events(*[("free", A + 512 * k, 100) for k in range(500)])
    end = [segment(A, [("free", 2 * MIB)], kind="small")]
    got = replay(recording(happened, segments=end))
    assert not got.complete
    assert any("perhaps" in w for w in got.warnings)
    assert got.allocated is not None


def test_two_devices_are_kept_apart() -> None:
    first = events(("segment_alloc", A, 2 * MIB), ("alloc", A, 8))
    second = events(("alloc", A, 4 * MIB))
    source = recording(
        first,
        second,
        segments=[
            segment(A, [("used", 512, 8), ("free", 2 * MIB - 512)], kind="small"),
            segment(A, [("used", 4 * MIB), ("free", 16 * MIB)], device=1),
        ],
    )
    assert block_sizes(source, 0) == [512]
    assert block_sizes(source, 1) == [4 * MIB]
    assert replay(source, 1).reserved is not None
    assert replay(source, 2).n_events == 0


def test_broken_histories_are_said() -> None:
    source = recording(
        events(
            ("segment_alloc", A, 2 * MIB),
            ("alloc", A, 100),
            ("alloc", A, 200),
            ("free", A, 200),
            ("free", A, 200),
        ),
        start=[],
    )
    got = replay(source)
    rows = got.lifetimes
    assert rows.completed.tolist() == [2, 4]
    assert not got.complete
    assert any("still in use" in w for w in got.warnings)
    assert any("already free" in w for w in got.warnings)
    assert got.requested.tolist() == [0, 0, 100, 200, 200, 0, 0, 0]


def test_frees_with_one_event_only() -> None:
    for word in ("free_requested", "free_completed"):
        source = recording(
            events(
                ("segment_alloc", A, 2 * MIB),
                ("alloc", A, 100),
                (word, A, 100),
                ("alloc", A, 200),
                (word, A, 200),
            ),
            segments=[segment(A, [("free", 2 * MIB)], kind="small")],
            start=[],
        )
        got = replay(source)
        assert got.requested.tolist() == [0, 0, 100, 0, 200, 0]
        assert got.allocated is not None
        assert got.allocated.tolist() == [0, 0, 512, 0, 512, 0]
        assert got.end_mismatches == 0


def test_without_segments_blocks_are_unknown() -> None:
    """cudaMallocAsync, or a file with the traces alone."""
    got = replay(recording(events(("alloc", A, 100), ("free", A, 100))))
    assert got.allocated is None
    assert got.reserved is None
    assert got.requested.tolist() == [0, 100, 100, 0]
    assert not got.complete


def test_cpu_blocks_are_the_requests() -> None:
    got = replay(
        recording(events(("alloc", A, 100), ("free", A, 100)), meta=capture_meta(device="cpu"))
    )
    assert got.allocated is not None
    assert got.allocated.tolist() == [0, 100, 0, 0]
    assert got.reserved is None
    assert got.complete


def test_stacks_of_birth_and_death() -> None:
    source: Any = recording(
        events(("alloc", A + 512, 8, 0, 3), ("free", A, 8, 0, 4), ("free", A + 512, 8, 0, 5)),
        start=[segment(A, [("used", 512, 8, 7), ("free", 2 * MIB - 512)], kind="small")],
        segments=[segment(A, [("free", 2 * MIB)], kind="small")],
    )
    rows = replay(source).lifetimes
    assert rows.stack.tolist() == [7, 3]
    assert rows.free_stack.tolist() == [4, 5]


def test_live_sums_to_the_total_at_every_moment() -> None:
    source = recording(
        events(
            ("segment_alloc", A, 20 * MIB),
            ("alloc", A, 3 * MIB),
            ("alloc", A + 3 * MIB, 16 * MIB + 1),
            ("free_requested", A, 3 * MIB),
            ("free_completed", A, 3 * MIB),
        ),
        start=[],
    )
    got = replay(source)
    rows = got.lifetimes
    assert got.allocated is not None
    for k in range(got.n_events + 1):
        assert rows.block[live(got, k, "allocated")].sum() == got.allocated[k]
        assert rows.requested[live(got, k, "requested")].sum() == got.requested[k]
    assert np.argmax(got.allocated) == 3


def test_start_segments_that_do_not_fit_are_given_up() -> None:
    """Something was allocated between reading the segments and the first event."""
    source = recording(
        events(("free", A + 512, 1000)),
        start=[segment(A, [("used", 512, 8), ("free", 2 * MIB - 512)], kind="small")],
        segments=[segment(A, [("used", 512, 8), ("free", 2 * MIB - 512)], kind="small")],
    )
    got = replay(source)
    assert got.lifetimes.block.tolist() == [512, 1024]
    assert not got.complete
    assert "rebuilt" in got.warnings[0]


def test_blocks_of_older_torch_without_requested_sizes() -> None:
    source = recording(
        events(("alloc", A + 512, 8)),
        segments=[
            segment(A, [("used", 512, 0), ("used", 512, 8), ("free", 2 * MIB - 1024)], kind="small")
        ],
    )
    got = replay(source)
    assert got.allocated is not None
    assert got.allocated.tolist() == [512, 1024]
    assert not got.complete
    assert "too low" in got.warnings[0]
