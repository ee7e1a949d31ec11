"""Packets from columns are what the package's own classes read, number by number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from memtrace.render.packets import fixed, inside, join, number, pad_varints, split

int64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(int64, min_size=1, max_size=20))
def test_numbers_come_back(values):
    column = np.array(values, np.int64)
    example = protos.TrackEvent(type=protos.TrackEvent.TYPE_COUNTER)
    pieces = [*fixed(example), *number(protos.TrackEvent, "counter_value", column)]
    for row, value in zip(split(join(pieces, len(values))), values, strict=True):
        event = protos.TrackEvent.FromString(row)
        assert event.counter_value == value
        assert event.type == protos.TrackEvent.TYPE_COUNTER


@given(st.lists(st.integers(0, 1 << 42), min_size=1, max_size=9), st.integers(0, 300))
def test_messages_within_messages_and_a_tail(values, length):
    column = np.array(values, np.int64)
    tails = [b"x" * ((length * k) % 301) for k in range(len(values))]
    notes = [protos.TrackEvent(name=tail.decode()).SerializeToString() for tail in tails]
    tail = np.array([len(note) for note in notes], np.int64)
    event = number(protos.TrackEvent, "track_uuid", column)
    packet = number(protos.TracePacket, "timestamp", column[::-1])
    packet += inside(protos.TracePacket, "track_event", event, tail)
    rows = split(join(inside(protos.Trace, "packet", packet, tail), len(values)))
    trace = protos.Trace.FromString(b"".join(map(bytes.__add__, rows, notes)))
    assert [packet.timestamp for packet in trace.packet] == values[::-1]
    assert [packet.track_event.track_uuid for packet in trace.packet] == values
    assert [packet.track_event.name for packet in trace.packet] == [t.decode() for t in tails]


@pytest.mark.parametrize(("most", "width"), [(0, 1), (127, 1), (128, 2), (-1, 10)])
def test_a_column_is_as_wide_as_its_widest_number(most, width):
    assert pad_varints(np.array([0, most], np.int64)).shape == (2, width)


def test_an_empty_column():
    assert join(number(protos.TracePacket, "timestamp", np.zeros(0, np.int64)), 0).size == 0
