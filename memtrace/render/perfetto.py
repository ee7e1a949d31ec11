"""A trace in Perfetto's protobuf format, for ui.perfetto.dev and trace_processor.

What there is little of goes through the ``perfetto`` package's builder, counters and slices through
``packets``. All packets are of one sequence, so what is interned once holds for all of them. Time
is the trace's own (the boot-time clock, from 0); a clock snapshot gives the epoch time of 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from memtrace.analysis.tracks import (
    CORRELATION,
    Counter,
    Facts,
    Process,
    Slices,
    Trace,
    Value,
    arrow_ids,
)
from memtrace.render.packets import Piece, eight_bytes, fixed, inside, join, number, split
from memtrace.snapshot.columns import Int64

_SEQUENCE = 1
_CHUNK = 1 << 15  # rows at a time: small enough for the cache

_Packet, _Event, _Note = protos.TracePacket, protos.TrackEvent, protos.DebugAnnotation


def write_perfetto(trace: Trace, stream: BinaryIO) -> None:
    """Writes the whole trace, track by track; trace_processor sorts by time itself."""
    writer = _Writer(stream)
    writer.begin(trace)
    for pid, process in enumerate(trace.processes, start=1):
        writer.write_process(process, pid)


class _Writer:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._builder = StreamingTraceProtoBuilder(stream)
        self._tracks = 0
        self._interned: dict[str, dict[str, int]] = {}
        self._new: Any = protos.InternedData()

    def begin(self, trace: Trace) -> None:
        """The sequence's first packet, the clocks, and what the trace is of."""
        packet = self._packet()
        packet.sequence_flags = _Packet.SEQ_INCREMENTAL_STATE_CLEARED
        packet.first_packet_on_sequence = True
        packet.trace_packet_defaults.timestamp_clock_id = protos.BUILTIN_CLOCK_BOOTTIME
        self._builder.write_packet(packet)
        packet = self._packet()
        packet.clock_snapshot.primary_trace_clock = protos.BUILTIN_CLOCK_BOOTTIME
        packet.clock_snapshot.clocks.add(clock_id=protos.BUILTIN_CLOCK_BOOTTIME, timestamp=0)
        if trace.start_ns is not None and trace.start_ns >= 0:
            packet.clock_snapshot.clocks.add(
                clock_id=protos.BUILTIN_CLOCK_REALTIME, timestamp=trace.start_ns
            )
        self._builder.write_packet(packet)
        packet = self._packet()
        for key, value in trace.facts.items():
            text = "\n".join(value) if isinstance(value, tuple) else str(value)
            packet.trace_attributes.attribute.add(key=key, string_value=text)
        self._builder.write_packet(packet)

    def write_process(self, process: Process, pid: int) -> None:
        """The process and its tracks, in their order."""
        parent = self._announce(self._describe(process.name, rank=pid))
        folders: dict[str, int] = {"": parent}
        for rank, track in enumerate(process.tracks):
            if track.folder not in folders:
                folder = self._describe(track.folder, parent, rank)
                folders[track.folder] = self._announce(folder)
            if isinstance(track, Counter):
                self._write_counter(track, folders[track.folder], rank)
            else:
                self._write_slices(track, folders[track.folder], rank, pid)

    def _write_counter(self, counter: Counter, parent: int, rank: int) -> None:
        packet = self._describe(counter.name, parent, rank, counter.about)
        packet.track_descriptor.counter.unit = protos.CounterDescriptor.UNIT_SIZE_BYTES
        if counter.scale:
            packet.track_descriptor.counter.y_axis_share_key = counter.scale
        track = self._announce(packet)
        example = _Event(type=_Event.TYPE_COUNTER, track_uuid=track)
        for low in range(0, len(counter.time), _CHUNK):
            rows = slice(low, low + _CHUNK)
            event = [*fixed(example), *number(_Event, "counter_value", counter.value[rows])]
            time = counter.time[rows]
            self._stream.write(join(_packet(time, event), len(time)).tobytes())

    def _write_slices(self, slices: Slices, parent: int, rank: int, pid: int) -> None:
        lanes = int(slices.lane.max()) + 1 if len(slices) else 0
        first = self._tracks + 1
        for _ in range(lanes):
            # Tracks of one name in one folder: the UI draws them as one with several rows.
            self._announce(self._describe(slices.name, parent, rank, slices.about))
        details = [self._encode(facts) for facts in slices.details]
        lengths = np.array([len(one) for one in details], np.int64)
        label = np.array([self._intern("event_names", text) for text in slices.labels], np.int64)
        keys = {name: self._intern("debug_annotation_names", name) for name in slices.numbers}
        self._flush()
        track = first + slices.lane.astype(np.int64)
        kind = _Event.TYPE_INSTANT if slices.end is None else _Event.TYPE_SLICE_BEGIN
        begins: list[bytes] = [b""] * len(slices)
        for chosen, present in slices.shapes():
            for low in range(0, len(chosen), _CHUNK):
                rows = chosen[low : low + _CHUNK]
                event = fixed(_Event(type=kind))
                event += number(_Event, "track_uuid", track[rows])
                event += number(_Event, "name_iid", label[slices.label[rows]])
                if slices.arrows and CORRELATION in present:
                    arrow = arrow_ids(slices.numbers[CORRELATION][rows], pid)
                    event += eight_bytes(_Event, "flow_ids", arrow)
                for name in present:
                    note = fixed(_Note(name_iid=keys[name]))
                    field = "pointer_value" if name == "address" else "int_value"
                    note += number(_Note, field, slices.numbers[name][rows])
                    event += inside(_Event, "debug_annotations", note)
                tail = lengths[slices.detail[rows]]
                heads = split(join(_packet(slices.begin[rows], event, tail), len(rows)))
                for row, head, detail in zip(
                    rows.tolist(), heads, slices.detail[rows].tolist(), strict=True
                ):
                    begins[row] = head + details[detail]
        if slices.end is None:
            self._stream.write(b"".join(begins))
            return
        event = [*fixed(_Event(type=_Event.TYPE_SLICE_END)), *number(_Event, "track_uuid", track)]
        ends = split(join(_packet(slices.end, event), len(slices)))
        for piece in _in_order(slices, begins, ends):
            self._stream.write(piece)

    def _encode(self, facts: Facts) -> bytes:
        """Facts as a slice's debug annotations, without the slice."""
        event = _Event()
        for name, value in facts.items():
            note = event.debug_annotations.add(
                name_iid=self._intern("debug_annotation_names", name)
            )
            self._fill(note, value)
        found: bytes = event.SerializeToString()
        return found

    def _fill(self, note: Any, value: Value) -> None:
        if isinstance(value, int):
            note.int_value = value
        elif isinstance(value, str):
            note.string_value_iid = self._intern("debug_annotation_string_values", value)
        else:
            for one in value:
                self._fill(note.array_values.add(), one)

    def _intern(self, table: str, text: str) -> int:
        """The number of a string, from 1; it must be flushed before it is used."""
        known = self._interned.setdefault(table, {})
        if text not in known:
            known[text] = len(known) + 1
            entry = getattr(self._new, table).add(iid=known[text])
            if table == "debug_annotation_string_values":
                entry.str = text.encode()
            else:
                entry.name = text
        return known[text]

    def _flush(self) -> None:
        packet = self._packet()
        packet.interned_data.CopyFrom(self._new)
        self._builder.write_packet(packet)
        self._new = protos.InternedData()

    def _describe(self, name: str = "", parent: int = 0, rank: int = 0, about: str = "") -> Any:
        packet = self._packet()
        descriptor = packet.track_descriptor
        descriptor.name = name
        descriptor.sibling_order_rank = rank
        descriptor.child_ordering = protos.TrackDescriptor.EXPLICIT
        if parent:
            descriptor.parent_uuid = parent
        if about:
            descriptor.description = about
        return packet

    def _announce(self, packet: Any) -> int:
        """Writes a track's descriptor and returns the track's number."""
        self._tracks += 1
        packet.track_descriptor.uuid = self._tracks
        self._builder.write_packet(packet)
        return self._tracks

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet


def _packet(time: Int64, event: Sequence[Piece], tail: Int64 | None = None) -> list[Piece]:
    """A packet of the trace with a time and an event, which ``tail`` bytes more belong to."""
    header = _Packet(
        trusted_packet_sequence_id=_SEQUENCE,
        sequence_flags=_Packet.SEQ_NEEDS_INCREMENTAL_STATE,
    )
    packet = [*fixed(header), *number(_Packet, "timestamp", time)]
    packet += inside(_Packet, "track_event", event, tail)
    return inside(protos.Trace, "packet", packet, tail)


def _in_order(slices: Slices, begins: list[bytes], ends: list[bytes]) -> Iterator[bytes]:
    """Begins and ends as a track needs them: what ends goes before what begins at that time.

    Sorting by time alone would not do: an empty slice ends after it begins.
    """
    assert slices.end is not None
    stop, lane = slices.end.tolist(), slices.lane.tolist()
    around: list[int] = []
    for row, start in enumerate(slices.begin.tolist()):
        while around and (stop[around[-1]] <= start or lane[around[-1]] != lane[row]):
            yield ends[around.pop()]
        yield begins[row]
        around.append(row)
    while around:
        yield ends[around.pop()]
