"""A trace as Chrome's JSON, for chrome://tracing and Perfetto.

``ts`` and ``dur`` are microseconds with three decimals, from the trace's start: so no nanosecond is
lost in a double. A process is a recording, a thread a lane; counters belong to the process. Records
are filled into one form a kind, thousands at a time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, BinaryIO

import numpy as np

from memtrace.analysis.tracks import CORRELATION, Counter, Process, Slices, Trace, arrow_ids
from memtrace.snapshot.columns import Int64

_CHUNK = 256  # records at a time
_TIME = "%d.%03d"  # microseconds


def write_chrome(trace: Trace, stream: BinaryIO) -> None:
    """Writes the whole trace, track by track; viewers sort by time themselves."""
    about = _text({"start_epoch_ns": trace.start_ns, **trace.facts})
    stream.write(f'{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":['.encode())
    for pid, process in enumerate(trace.processes, start=1):
        if pid > 1:
            stream.write(b",")
        _Writer(stream, pid).write(process)
    stream.write(b"\n]}\n")


class _Writer:
    """Writes one process. Every record but the first follows a comma."""

    def __init__(self, stream: BinaryIO, pid: int) -> None:
        self._stream = stream
        self._pid = pid
        self._lanes = 0

    def write(self, process: Process) -> None:
        name = {"ph": "M", "pid": self._pid, "name": "process_name", "args": {"name": process.name}}
        self._stream.write(b"\n" + _text(name).encode())
        self._tell("process_sort_index", 0, {"sort_index": self._pid})
        for track in process.tracks:
            if isinstance(track, Counter):
                self._write_counter(track)
            else:
                self._write_slices(track)

    def _write_counter(self, counter: Counter) -> None:
        form = f',\n{{"ph":"C","pid":{self._pid},"name":{_form(_title(counter))},"ts":{_TIME}'
        self._fill(form + ',"args":{"bytes":%d}}', [*_times(counter.time), counter.value])

    def _write_slices(self, slices: Slices) -> None:
        first = self._lanes + 1
        self._lanes += int(slices.lane.max()) + 1 if len(slices) else 0
        for tid in range(first, self._lanes + 1):
            self._tell("thread_name", tid, {"name": _title(slices)})
            self._tell("thread_sort_index", tid, {"sort_index": tid})
        labels = np.array([_text(text) for text in slices.labels], object)
        # What is between the braces.
        details = np.array([_text(facts)[1:-1] for facts in slices.details], object)
        for rows, present in slices.shapes():
            columns: list[Any] = [first + slices.lane[rows].astype(np.int64)]
            columns += [labels[slices.label[rows]], *_times(slices.begin[rows])]
            form = f',\n{{"pid":{self._pid},"tid":%d,"name":%s,"ts":{_TIME},'
            if slices.end is None:
                form += '"ph":"i","s":"t","args":{'
            else:
                form += f'"ph":"X","dur":{_TIME},"args":{{'
                columns += _times(slices.end[rows] - slices.begin[rows])
            parts = []
            for name in present:
                column = slices.numbers[name][rows]
                is_address = name == "address"
                parts.append(f"{_form(name)}:{chr(34) + '0x%x' + chr(34) if is_address else '%d'}")
                columns.append(column.astype(np.uint64) if is_address else column)
            described = details[slices.detail[rows]]
            form += ",".join(parts)
            # A comma only where something stands on both sides of it.
            joint = "," if parts else ""
            columns.append(np.array([joint + one if one else "" for one in described], object))
            self._fill(form + "%s}}", columns)
            if slices.arrows and CORRELATION in present:
                self._write_arrows(slices, rows, first)

    def _write_arrows(self, slices: Slices, rows: Int64, first: int) -> None:
        """One end of each arrow: it binds to the slice that begins there."""
        end = '"ph":"s"' if slices.arrows == "from" else '"ph":"f","bp":"e"'
        form = (
            f',\n{{"pid":{self._pid},"tid":%d,"name":"launch","cat":"launch",{end},'
            f'"id":%d,"ts":{_TIME}}}'
        )
        lane = first + slices.lane[rows].astype(np.int64)
        arrow = arrow_ids(slices.numbers[CORRELATION][rows], self._pid)
        self._fill(form, [lane, arrow, *_times(slices.begin[rows])])

    def _fill(self, form: str, columns: Sequence[Any]) -> None:
        """Writes ``form`` once a row. One form for many rows takes less time than many forms."""
        many = form * _CHUNK
        for low in range(0, len(columns[0]), _CHUNK):
            parts = [column[low : low + _CHUNK].tolist() for column in columns]
            rows = len(parts[0])
            values = tuple(chain.from_iterable(zip(*parts, strict=True)))
            self._stream.write(((many if rows == _CHUNK else form * rows) % values).encode())

    def _tell(self, what: str, tid: int, arguments: dict[str, Any]) -> None:
        record = {"ph": "M", "pid": self._pid, "tid": tid, "name": what, "args": arguments}
        self._stream.write(b",\n" + _text(record).encode())


def _title(track: Counter | Slices) -> str:
    return f"{track.folder}: {track.name}" if track.folder else track.name


def _times(column: Int64) -> tuple[Int64, Int64]:
    """Whole microseconds and the nanoseconds that remain."""
    return column // 1000, column % 1000


def _text(value: Any) -> str:
    # Not ASCII alone: trace_processor shows the escapes of arguments as they stand.
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _form(text: str) -> str:
    """A JSON string as a part of a form to be filled in."""
    return _text(text).replace("%", "%%")
