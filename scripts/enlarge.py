"""A real capture made longer: one steady iteration of it, run many times more.

    python scripts/enlarge.py samples/qwen2-L4-eager-torchcompile.pkl.gz 1000000 big.pkl
    python scripts/enlarge.py samples/qwen2-L4-eager-torchcompile.pkl.gz 1000000 big.pkl --stacks

The iteration that is repeated ends with just the allocations it began with, at the same addresses,
so the caching allocator would go through the very same motions again, as it does in a real run:
the longer capture replays with no misfit and has the source's peak. Every event is a dict with a
list of frames of its own at a time of its own; frame dicts and the lists of two halves of a free
are shared, as torch shares them. Marks and iterations are repeated with the events; profile,
owners and the driver's peaks move with the events that they speak of.

With ``--stacks`` no two allocations of the repeats come from the same stack: each is called through
a few more functions, some hundreds of lines in as many orders as it takes, as a program does that
walks a deep tree.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from memtrace.errors import MemtraceError
from memtrace.snapshot import write_capture
from memtrace.snapshot.files import read_bytes
from memtrace.snapshot.unpickle import load_plain

_CALLS, _LEVELS = 64, 5  # lines in each of the functions of --stacks, and how many of these


class Repeated(NamedTuple):
    """The iteration to repeat: numbers of its marks and of its events, both begin to end."""

    row: int  # in ``iterations``
    begin: int
    end: int
    first: int
    last: int


def load(path: str | Path) -> dict[str, Any]:
    """The snapshot in a file, as it lies there."""
    snapshot: dict[str, Any] = load_plain(read_bytes(path), str(path))
    return snapshot


def enlarge(snapshot: dict[str, Any], events: int, stacks: bool = False) -> dict[str, Any]:
    """``snapshot`` with as many iterations more as take it to ``events`` events or just beyond.

    Its lists are changed. Nothing is taken away: a source with more events stays as it is.
    ``stacks``: each list of frames in the repeats is another one.
    """
    (trace,) = snapshot["device_traces"]
    meta = snapshot["memtrace"]
    one = choose(meta, trace)
    length = one.last - one.first
    times = max(0, -(-(events - len(trace)) // length))
    span = trace[one.last]["time_us"] - trace[one.first]["time_us"]
    _repeat_marks(meta, one, times, span)
    more: list[dict[str, Any]] = []
    callers = _Callers() if stacks else None
    for turn in range(1, times + 1):
        more += _copy(trace[one.first : one.last], turn * span, callers)
    for event in trace[one.last :]:
        event["time_us"] += times * span
    trace[one.last : one.last] = more
    return snapshot


def choose(meta: Mapping[str, Any], trace: list[dict[str, Any]]) -> Repeated:
    """The last steady iteration after which everything is as it was before."""
    events = [row[0] for row in meta["marks"]["event"]]
    for row, step in reversed(list(enumerate(meta["iterations"]))):
        begin, end = step["begin"], step["end"]
        first, last = events[begin], events[end]
        steady = step["whole"] and not step["compiled"] and not step["profiled"]
        if steady and 0 <= first < last and _returns(trace, first, last):
            return Repeated(row, begin, end, first, last)
    raise MemtraceError("no steady iteration of this capture ends as it began")


def _returns(trace: list[dict[str, Any]], first: int, last: int) -> bool:
    """Whether the allocations alive before the two events are the same."""
    if any(event["action"].startswith("segment") for event in trace[first:last]):
        return False
    return _alive(trace[:first]) == _alive(trace[:last])


def _alive(events: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    alive: dict[int, int] = {}
    for event in events:
        if event["action"] == "alloc":
            alive[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            alive.pop(event["addr"], None)
    return alive


class _Callers:
    """Outermost frames, in another order each time."""

    def __init__(self) -> None:
        self._count = 0
        self._levels = [
            [
                {"filename": "/home/user/tree.py", "line": 100 * level + k, "name": f"walk{level}"}
                for k in range(_CALLS)
            ]
            for level in range(_LEVELS)
        ]

    def take(self) -> list[dict[str, Any]]:
        rest, frames = self._count, []
        for level in self._levels:
            rest, k = divmod(rest, _CALLS)
            frames.append(level[k])
        self._count += 1
        return frames


def _copy(
    events: list[dict[str, Any]], later: int, callers: _Callers | None
) -> list[dict[str, Any]]:
    """The events once more, ``later`` microseconds on."""
    lists: dict[int, list[Any]] = {}
    copies = []
    for event in events:
        frames = event["frames"]
        if id(frames) not in lists:
            lists[id(frames)] = [*frames, *(callers.take() if callers else ())]
        copy = event | {"time_us": event["time_us"] + later, "frames": lists[id(frames)]}
        # torch makes this text anew for each event, so that a pickle holds it as often.
        copy["compile_context"] = "".join(list(event["compile_context"]))
        copies.append(copy)
    return copies


def _repeat_marks(meta: dict[str, Any], one: Repeated, times: int, span: int) -> None:
    """Marks, iterations and whatever else refers to marks, events and times after the repeats."""
    marks, steps = meta["marks"], meta["iterations"]
    more_events, more_marks = one.last - one.first, one.end - one.begin

    def event(number: int, turn: int) -> int:
        return number + turn * more_events if number >= 0 else number

    moved: dict[str, list[Any]] = {key: column[: one.end] for key, column in marks.items()}
    for turn in range(1, times + 1):
        for key, column in marks.items():
            moved[key] += column[one.begin : one.end]
        for k in range(len(moved["kind"]) - more_marks, len(moved["kind"])):
            moved["event"][k] = [event(e, turn) for e in moved["event"][k]]
            moved["time_ns"][k] += turn * span * 1000
    for key, column in marks.items():
        moved[key] += column[one.end :]
    for k in range(one.end + times * more_marks, len(moved["kind"])):
        moved["event"][k] = [event(e, times) for e in moved["event"][k]]
        moved["time_ns"][k] += times * span * 1000
    marks.update(moved)

    def mark(number: int) -> int:
        return number + times * more_marks if number >= one.end else number

    source = steps[one.row]
    repeated = [
        source
        | {
            "index": source["index"] + turn,
            "begin": source["begin"] + turn * more_marks,
            "end": source["end"] + turn * more_marks,
        }
        for turn in range(1, times + 1)
    ]
    later = [
        step
        | {"index": step["index"] + times, "begin": mark(step["begin"]), "end": mark(step["end"])}
        for step in steps[one.row + 1 :]
    ]
    meta["iterations"] = [*steps[: one.row + 1], *repeated, *later]
    for owner in meta["owners"]:
        owner["mark"] = mark(owner["mark"])
    for device in meta["devices"]:
        for peak in device["peaks"]:
            for key in ("begin", "end"):
                if peak[key] >= one.last:
                    peak[key] = event(peak[key], times)


def main() -> None:
    """Writes one longer capture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source")
    parser.add_argument("events", type=int)
    parser.add_argument("target")
    parser.add_argument("--stacks", action="store_true", help="every stack a new one")
    options = parser.parse_args()
    snapshot = enlarge(load(options.source), options.events, options.stacks)
    write_capture(options.target, snapshot, force=True)
    print(f"{options.target}: {len(snapshot['device_traces'][0]):,} events")


if __name__ == "__main__":
    main()
