"""Every allocation as a slice from alloc to free, one track a category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memtrace.analysis.groups import Groups
from memtrace.analysis.tracks.lanes import arrange
from memtrace.analysis.tracks.model import ABSENT, Facts, Slices, Value
from memtrace.analysis.tracks.scope import Scope
from memtrace.distinct import number_rows
from memtrace.snapshot.columns import Int32
from memtrace.symbols import Life, Line, Naming, read_life
from memtrace.symbols.sources import Sources
from memtrace.symbols.stacks import Stacks

FOLDER = "lifetimes"
_MOST_USES = 8  # uses of a tensor that are listed; the last one always is


@dataclass(frozen=True, slots=True)
class Names:
    """``label[k]`` is the row in ``labels`` of the replay's lifetime k; shape (lifetimes,)."""

    labels: list[str]
    label: Int32


def name_lifetimes(scope: Scope) -> Names:
    """The tensor's name where it is known, else the symbol's text."""
    rows = scope.subject.replay.lifetimes
    kinds, kind = number_rows(scope.attribution.rows, rows.requested)
    labels = [_label(scope.attribution.namings[naming], size) for naming, size in kinds]
    return Names(labels, kind.astype(np.int32))


def lay_lifetimes(scope: Scope, names: Names, groups: Groups) -> list[Slices]:
    """The lifetimes of each category (``groups``).

    Those not freed in the stretch end with it; those made before begin with it.
    """
    categories, category = [symbol.text for symbol in groups.symbols], groups.rows
    run = scope.subject.replay
    rows, n = run.lifetimes, run.n_events
    # A block that waited for a stream when the recording began is gone once that is done.
    gone = np.where(rows.freed < 0, rows.completed, rows.freed)
    shown = np.flatnonzero((rows.born < scope.end) & (gone >= scope.begin))
    times = np.append(scope.times, scope.stop)  # an event that does not come is at the end
    born, gone = rows.born[shown], gone[shown]
    begin = scope.clip(np.where(born < 0, scope.start, times[np.maximum(born, 0)]))
    end = scope.clip(times[gone])
    kinds, kind = number_rows(
        scope.attribution.rows[shown],
        rows.requested[shown],
        category[shown],
        scope.attribution.alike[rows.free_stack[shown]],
    )
    details = _describe(scope, kinds, categories)
    block = rows.block[shown]
    numbers = {
        "bytes": rows.requested[shown],
        "block_bytes": np.where(block < 0, ABSENT, block),
        "address": rows.address[shown].astype(np.int64),
        "alloc_event": np.where(born < 0, ABSENT, born),
        "free_event": np.where(gone >= n, ABSENT, gone),
    }
    found = []
    for row in range(len(categories)):
        mine = np.flatnonzero(category[shown] == row)
        if len(mine):
            found.append(
                arrange(
                    categories[row],
                    begin[mine],
                    end[mine],
                    (names.labels, names.label[shown[mine]]),
                    (details, kind[mine].astype(np.int32)),
                    {name: column[mine] for name, column in numbers.items()},
                    folder=FOLDER,
                    about="From allocation to free; its lanes are as many as lived at one time.",
                )
            )
    return found


def _label(naming: Naming, size: int) -> str:
    names = dict.fromkeys(tensor.name for tensor in naming.fitting(size))
    return " | ".join(names) or naming.symbol.text


def _describe(
    scope: Scope, kinds: Sequence[tuple[int, ...]], categories: Sequence[str]
) -> list[Facts]:
    """What is known of lifetimes of one naming, size, category and stack of the free."""
    recording = scope.subject.recording
    sources, stacks = Sources(recording.meta), Stacks(recording.stacks)
    found: list[Facts] = []
    for row, size, category, free_stack in kinds:
        naming = scope.attribution.namings[row]
        life = read_life(naming, size, stacks.python(free_stack), sources)
        found.append(_facts(naming, size, categories[category], life))
    return found


def _facts(naming: Naming, size: int, category: str, life: Life) -> Facts:
    fitting = naming.fitting(size)
    uses = [_text(line) for line in life.consumers]
    if len(uses) > _MOST_USES:
        uses = [*uses[: _MOST_USES - 1], f"… {len(uses)} uses in all, the last: {uses[-1]}"]
    found: dict[str, Value] = {
        "symbol": naming.symbol.text,
        "tensor": " | ".join(dict.fromkeys(tensor.name for tensor in fitting)),
        "shape": " | ".join(dict.fromkeys(str(list(tensor.shape)) for tensor in fitting)),
        "dtype": " | ".join(dict.fromkeys(tensor.dtype for tensor in fitting)),
        "layer": naming.layer_of(size),
        "category": category,
        "made_by": _text(life.producer),
        "used_by": tuple(uses),
        "freed_by": _text(life.freed) if life.freed else "",
    }
    return {key: value for key, value in found.items() if value}


def _text(line: Line) -> str:
    return f"{line.where}  {line.text}" if line.text else line.where
