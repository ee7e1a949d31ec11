"""Lists filled from a pickle's memo, read together, against one opcode after another."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memtrace.snapshot import bodies as module
from memtrace.snapshot.bodies import Bodies, read_bodies

NUMBERS = st.one_of(
    st.integers(0, 255), st.integers(0, (1 << 32) - 1), st.sampled_from([ord("j"), ord("h")])
)
LISTS = st.lists(st.lists(st.tuples(NUMBERS, st.booleans()), max_size=20), max_size=12)


def body(gets: list[tuple[int, bool]]) -> bytes:
    """BINGET for what fits into a byte, unless the long form is asked for."""
    return b"".join(
        b"h" + bytes([number]) if number < 256 and not long else b"j" + number.to_bytes(4, "little")
        for number, long in gets
    )


def lists(bodies: Bodies) -> list[list[int]]:
    return [part.tolist() for part in np.split(bodies.numbers, bodies.ends[:-1])][: len(bodies)]


@given(LISTS)
def test_numbers_are_those_of_the_opcodes(some: list[list[tuple[int, bool]]]) -> None:
    wanted = [[number for number, _ in one] for one in some]
    found = read_bodies([body(one) for one in some])
    assert lists(found) == wanted
    assert found.counts.tolist() == list(map(len, wanted))
    assert found.greatest().tolist() == [max(one, default=-1) for one in wanted]
    backwards = np.arange(len(wanted))[::-1]
    assert lists(found.take(backwards)) == wanted[::-1]


def test_long_lists_and_several_chunks(monkeypatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 3)
    monkeypatch.setattr(module, "_LONGEST", 40)
    wanted = [list(range(250, 250 + 5 * k)) for k in range(8)]
    found = read_bodies([body([(n, False) for n in one]) for one in wanted])
    assert lists(found) == wanted
