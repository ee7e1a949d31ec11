"""What the profiler saw of an allocation: the operator it happened in.

Allocations of autograd's C++ nodes have no Python frame, but the profiler's memory events of the
profiled iteration lie inside an operator that names the node. A history event and a memory event
are the same allocation when they are the k-th at the same address within the iteration; no clock
is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from memtrace.snapshot.columns import Frame, Int64, UInt64
from memtrace.snapshot.format import LAYER_PREFIX, LINE_PREFIX
from memtrace.symbols.numbers import read_number
from memtrace.symbols.stacks import Operator

_DEEPEST = 100  # of operators within one another; a module's call is one, too
_LAUNCHES = ("cuda_runtime", "cuda_driver")
# What autograd's engine puts around a node; the node's own name follows inside.
_ENGINE = "autograd::engine::evaluate_function: "
_NODE_SUFFIXES = ("Backward", "AccumulateGrad")


class Operators:
    """The operators of a profile and how they nest.

    ``ops`` is the capture's ProfileOps: columns of equal length ordered by start.
    """

    def __init__(self, ops: Mapping[str, Sequence[Any]]) -> None:
        self._names: Sequence[str] = ops["name"]
        self._kinds: Sequence[str] = ops["kind"]
        self._sequence: Sequence[int] = ops["sequence"]
        self._parents = _nest(ops["kind"], ops["thread"], ops["start_ns"], ops["duration_ns"])
        # A backward operator names the thread of its forward (from 1); a forward one names none.
        self._forward_rows = {
            number: row
            for row, number in enumerate(ops["sequence"])
            if number >= 0 and ops["forward_thread"][row] <= 0
        }

    def describe(self, row: int) -> Operator | None:
        """The operator around an innermost row, None where nothing names it."""
        chain: list[int] = []  # outermost last
        layer = ""
        while row >= 0:
            if self._names[row].startswith(LAYER_PREFIX):
                layer = layer or self._names[row].removeprefix(LAYER_PREFIX)
            elif self._kinds[row] == "cpu_op" and not self._names[row].startswith(LINE_PREFIX):
                chain.append(row)
            row = self._parents[row]
        for position in range(len(chain) - 1, -1, -1):
            at = chain[position]
            name = self._names[at].removeprefix(_ENGINE)
            if self._names[at].startswith(_ENGINE) or _is_node(name):
                inner = [self._names[k] for k in chain[:position] if self._names[k] != name]
                forward = self._forward_rows.get(self._sequence[at], -1)
                return Operator(name, inner[-1] if inner else "", forward, self._layer(forward))
        return Operator(self._names[chain[-1]], "", -1, layer) if chain else None

    def _layer(self, row: int) -> str:
        """The module whose call the row lies in, '' where the recording does not say."""
        while row >= 0 and not self._names[row].startswith(LAYER_PREFIX):
            row = self._parents[row]
        return self._names[row].removeprefix(LAYER_PREFIX) if row >= 0 else ""

    def lines(self, row: int) -> list[tuple[int, Frame]]:
        """The lines of generated code that were running at a row, innermost first.

        Each with the row of its own range: one line runs many times.
        """
        found = []
        while row >= 0:
            if self._names[row].startswith(LINE_PREFIX):
                filename, _, number = self._names[row].removeprefix(LINE_PREFIX).rpartition(":")
                if (line := read_number(number)) >= 0:
                    found.append((row, Frame(filename, line, "")))
            row = self._parents[row]
        return found

    def parent(self, row: int) -> int:
        """The row directly around ``row``, -1 where there is none."""
        return self._parents[row]


def _is_node(name: str) -> bool:
    base = name.rstrip("0123456789")
    return "::" not in name.removeprefix("torch::autograd::") and base.endswith(_NODE_SUFFIXES)


def _nest(
    kinds: Sequence[str], threads: Sequence[int], starts: Sequence[int], durations: Sequence[int]
) -> list[int]:
    """For each row the row directly around it on its thread, -1 where there is none.

    Calls of the CUDA runtime are seen by another clock reading than operators: such a row lies in
    what was running when it began, and nothing lies in it.
    """
    parents = [-1] * len(threads)
    open_rows: dict[int, list[int]] = defaultdict(list)
    for row, (thread, start, duration) in enumerate(zip(threads, starts, durations, strict=True)):
        above = open_rows[thread]
        launch = kinds[row] in _LAUNCHES
        end = start + 1 if launch else start + duration
        while above and starts[above[-1]] + durations[above[-1]] < end:
            above.pop()
        if above:
            parents[row] = above[-1]
        # What lies deeper than anything real lies in the last that does not.
        if not launch and len(above) < _DEEPEST:
            above.append(row)
    return parents


def match_memory(
    memory: Mapping[str, Sequence[int]], device: int, addresses: UInt64, rows: Int64
) -> dict[int, int]:
    """Which profiled operator each lifetime of the profiled iteration was allocated in.

    ``addresses`` are those of the lifetimes numbered ``rows``, in order of birth, all born within
    the profiled iteration. Gives {lifetime: row in ProfileOps}; lifetimes that the profiler
    did not see, or saw outside any operator, are left out.
    """
    seen: dict[int, list[int]] = defaultdict(list)
    columns = zip(memory["addr"], memory["bytes"], memory["device"], memory["op"], strict=True)
    for address, size, where, op in columns:
        if size > 0 and where == device:
            seen[address].append(op)
    turns: dict[int, int] = defaultdict(int)
    found: dict[int, int] = {}
    for lifetime, address in zip(rows.tolist(), addresses.tolist(), strict=True):
        turn = turns[address]
        turns[address] += 1
        if turn < len(seen[address]) and seen[address][turn] >= 0:
            found[lifetime] = seen[address][turn]
    return found
