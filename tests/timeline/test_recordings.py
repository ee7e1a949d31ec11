"""The recordings from an H200: the driver's peak is the oracle, to the byte."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memtrace.snapshot.columns import Events, Recording
from memtrace.snapshot.reader import read
from memtrace.timeline import choose_window, find_windows, live, peak, replay

PLAIN = Path(__file__).parent.parent / "data" / "plain"
NAMES = [
    "qwen2-L4-eagerattn-nvfuser",
    "qwen2-L4-eagerattn-torchcompile",
    "qwen2-L4-sdpa-nvfuser",
    "qwen2-L4-sdpa-torchcompile",
    "qwen2-L8-eager",
    "qwen2-L8-inductor",
]


def load(name: str) -> tuple[Recording, dict[str, Any]]:
    facts = json.loads(gzip.decompress((PLAIN / f"{name}.facts.json.gz").read_bytes()))
    return read(PLAIN / f"{name}.snapshot.pkl.gz"), facts


@pytest.mark.parametrize("name", NAMES)
def test_replayed_peak_is_the_driver_s(name: str) -> None:
    recording, facts = load(name)
    got = replay(recording)
    assert got.end_mismatches == 0
    assert got.complete
    top = peak(got, choose_window(find_windows(recording, got)), "allocated")
    assert top.total == facts["max_memory_allocated"]
    rows = live(got, top.event, "allocated")
    assert got.lifetimes.block[rows].sum() == top.total


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.21, 0.5, 0.83])
def test_a_history_that_starts_in_the_middle(name: str, share: float) -> None:
    """Cutting off its front, as a wrapped ring does, changes no total that is still known."""
    recording, _ = load(name)
    whole = replay(recording)
    first = int(whole.n_events * share)
    events = recording.events[0]
    tail = Events(**{f.name: getattr(events, f.name)[first:] for f in dataclasses.fields(Events)})
    got = replay(dataclasses.replace(recording, events=(tail,)))
    assert got.end_mismatches == 0
    np.testing.assert_array_equal(got.requested, whole.requested[first:])
    here = got.lifetimes.born >= 0
    np.testing.assert_array_equal(
        got.lifetimes.block[here], whole.lifetimes.block[whole.lifetimes.born >= first]
    )
    if got.allocated is not None:
        assert whole.allocated is not None
        np.testing.assert_array_equal(got.allocated, whole.allocated[first:])
