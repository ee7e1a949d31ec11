"""What eager operators read and made, by the shapes that the profiler saw.

Nothing in a recording says which memory an operator reads. But of the profiled iteration the
shapes of all operators' inputs are known, in order: an allocation whose number of elements no
later operator takes has had its last use. The same allocation of another iteration is found by
its place in the order of births.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memtrace.distinct import number_rows
from memtrace.snapshot.columns import Recording
from memtrace.snapshot.format import LAYER_PREFIX, LINE_PREFIX
from memtrace.symbols import Attribution
from memtrace.symbols.alignment import Aligner
from memtrace.symbols.owners import members_of
from memtrace.symbols.profiled import Operators, match_memory
from memtrace.timeline import Replay, Window

WIDTHS = (1, 2, 4, 8, 16)
# Views of a part: who reads that reads the whole memory, under another number of elements.
_PARTS = (
    "slice", "select", "split", "split_with_sizes", "chunk", "unbind", "narrow", "expand",
    "as_strided", "diagonal", "unfold", "broadcast_to", "tensor_split",
)  # fmt: skip
_COPIES = ("contiguous", "clone", "reshape", "flatten")


@dataclass(frozen=True, slots=True)
class Made:
    """How one allocation of the profiled iteration came about.

    ``operator`` is the outermost operator around it ('aten::to'), ``inner`` those within, ``row``
    its row in the profile; ``elements`` the number of elements of its first input, -1 unknown.
    """

    operator: str
    inner: tuple[str, ...]
    row: int
    elements: int

    @property
    def is_cast(self) -> bool:
        return "aten::_to_copy" in (self.operator, *self.inner) and self.elements > 0

    @property
    def is_copy(self) -> bool:
        """Whether it is the same values laid out anew."""
        names = {name.removeprefix("aten::") for name in (self.operator, *self.inner)}
        return "clone" in names and self.operator.removeprefix("aten::") in _COPIES


class EagerRun:
    """The profiled iteration of a recording, and which lifetime of ``window`` is which of it.

    ``made`` has the lifetimes of the window that some operator made.
    """

    def __init__(
        self, recording: Recording, replay: Replay, attribution: Attribution, window: Window
    ) -> None:
        self.made: dict[int, Made] = {}
        self._last_use: dict[int, int] = {}
        profile = (recording.meta or {}).get("profile")
        profiled = next((w for w in attribution.windows if w.profiled), None)
        if not profile or profiled is None:
            return
        ops = profile["ops"]
        self._ops = ops
        self._operators = Operators(ops)
        self._shapes = [_elements(text) for text in ops["shapes"]]
        twins = _pair(replay, attribution, profiled, window)
        begin, end = members_of(replay.lifetimes.born, [profiled])[0]
        addresses = replay.lifetimes.address[begin:end]
        device = -1 if (recording.meta or {})["facts"].get("device") == "cpu" else replay.device
        rows = match_memory(profile["memory"], device, addresses, np.arange(begin, end))
        inside = members_of(replay.lifetimes.born, [window])[0]
        self.twins = twins
        starts = np.array(ops["start_ns"], dtype=np.int64)
        ends = starts + np.array(ops["duration_ns"], dtype=np.int64)
        births = {k: int(starts[row]) for k, row in rows.items()}
        for k, row in rows.items():
            mine = twins.get(k)
            if mine is None or not inside[0] <= mine < inside[1]:
                continue
            made = self._describe(row)
            if made is not None:
                self.made[mine] = made
        self._find_last_uses(replay, rows, starts, ends, births)

    def last_use(self, lifetime: int) -> int | None:
        """The lifetime of the window that is the first born after this one's last use, None where
        the last use is not known."""
        return self._last_use.get(lifetime)

    def _describe(self, row: int) -> Made | None:
        chain = []
        while row >= 0:
            name = str(self._ops["name"][row])
            if self._ops["kind"][row] == "cpu_op" and not name.startswith(
                (LAYER_PREFIX, LINE_PREFIX)
            ):
                chain.append(row)
            row = self._operators.parent(row)
        if not chain:
            return None
        names = [str(self._ops["name"][k]) for k in chain]
        # Of a node of autograd, the operator within it.
        at = next((k for k in range(len(chain) - 1, -1, -1) if names[k].startswith("aten::")), -1)
        if at < 0:
            return Made(names[-1], tuple(names[:-1]), chain[-1], -1)
        first = self._shapes[chain[at]]
        return Made(names[at], tuple(names[:at]), chain[at], first[0] if first else -1)

    def _find_last_uses(
        self, replay: Replay, rows: dict[int, int], starts: Any, ends: Any, births: dict[int, int]
    ) -> None:
        """For each lifetime that operators made, the first one born after its last reader ended."""
        ordered = sorted(births, key=births.__getitem__)
        times = [births[k] for k in ordered]
        readers: dict[int, tuple[int, int]] = {}  # the last one's start, and the end around it
        parts: set[int] = set()
        outermost = self._outermost()
        for row, shapes in enumerate(self._shapes):
            name = str(self._ops["name"][row]).removeprefix("aten::")
            parent = self._operators.parent(row)
            outer = str(self._ops["name"][parent]) if parent >= 0 else ""
            for count in dict.fromkeys(shapes):
                start, end = readers.get(count, (-1, -1))
                last = int(ends[outermost[row]])
                readers[count] = (max(start, int(starts[row])), max(end, last))
                if name in _PARTS and not outer.startswith("aten::"):
                    parts.add(count)
        for k, row in rows.items():
            mine = self.twins.get(k)
            if mine is None:
                continue
            size = int(replay.lifetimes.requested[k])
            counts = [size // w for w in WIDTHS if size % w == 0]
            found = [readers[count] for count in counts if count in readers]
            used = [end for start, end in found if start >= births[k]]
            if not used or any(count in parts for count in counts):
                continue
            last = max(*used, int(ends[outermost[row]]))
            at = int(np.searchsorted(times, last, side="right"))
            following = (self.twins.get(one) for one in ordered[at:])
            first = next((one for one in following if one is not None), None)
            if first is not None:
                self._last_use[mine] = first

    def _outermost(self) -> list[int]:
        """For each row the outermost operator or node around it: what it reads is in use until the
        end of that. Calls of modules and lines of code are none."""
        found: list[int] = []
        for row in range(len(self._shapes)):
            parent = self._operators.parent(row)
            while parent >= 0 and self._is_frame(parent):
                parent = self._operators.parent(parent)
            found.append(row if parent < 0 or self._is_frame(row) else found[parent])
        return found

    def _is_frame(self, row: int) -> bool:
        name = str(self._ops["name"][row])
        return self._ops["kind"][row] != "cpu_op" or name.startswith((LAYER_PREFIX, LINE_PREFIX))


def _pair(
    replay: Replay, attribution: Attribution, profiled: Window, window: Window
) -> dict[int, int]:
    """{lifetime of the profiled iteration: the same one of the window}."""
    born = replay.lifetimes.born
    (begin, end), (first, last) = members_of(born, [profiled, window])
    if (begin, end) == (first, last):
        return {k: k for k in range(begin, end)}
    _, alike = number_rows(replay.lifetimes.requested, attribution.rows)
    theirs, mine = Aligner(alike[begin:end]).pairs(alike[first:last])
    return dict(zip((begin + theirs).tolist(), (first + mine).tolist(), strict=True))


def _elements(text: str) -> tuple[int, ...]:
    """The numbers of elements of an operator's tensor inputs, of '[[4, 8], [], [[2], [3]]]'."""
    try:
        shapes = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return ()
    return tuple(_counts(shapes)) if isinstance(shapes, list) else ()


def _counts(shapes: Sequence[Any]) -> Iterator[int]:
    for shape in shapes:
        if not isinstance(shape, list) or not shape:
            continue
        if all(isinstance(n, int) for n in shape):
            yield math.prod(shape)
        else:
            yield from _counts(shape)
