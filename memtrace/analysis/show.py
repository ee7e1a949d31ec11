"""One symbol, tensor or layer: its lifetimes, who made, reads and frees each, and when."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from memtrace.analysis.peak import Subject
from memtrace.analysis.rows import layer_pattern
from memtrace.errors import MemtraceError
from memtrace.symbols import Attribution, Life, attribute, read_life
from memtrace.symbols.sources import Sources
from memtrace.symbols.stacks import Stacks
from memtrace.symbols.statements import Tensor
from memtrace.timeline import peak, position_in

_SUGGESTIONS = 6
_MOST_CHARACTERS = 100  # of a name that is suggested


@dataclass(frozen=True, slots=True)
class Shown:
    """One lifetime: ``alive_at_peak`` says whether it counts at the window's peak.

    ``born`` and ``freed`` are positions in the iteration ('forward 63%'), "before" and "after"
    where they lie outside of it. ``life`` is what the traces and stacks tell.
    """

    lifetime: int
    bytes: int
    symbol: str
    tensor: str
    layer: str
    category: str
    born: str
    freed: str
    alive_at_peak: bool
    life: Life


@dataclass(frozen=True, slots=True)
class ShowReport:
    """What a name stands for in one window, the largest lifetimes first."""

    name: str
    window: str
    bytes_at_peak: int
    shown: tuple[Shown, ...]


def report_show(subject: Subject, name: str) -> ShowReport:
    """Finds what ``name`` names: a symbol, a tensor, a layer or a part of one.

    MemtraceError where nothing alive in the window has such a name; it suggests some that have.
    """
    recording, run, window = subject.recording, subject.replay, subject.window
    if not name.strip():
        raise MemtraceError("no name given; name a symbol, a tensor or a layer, as a row has it")
    attribution = attribute(recording, run)
    lifetimes = run.lifetimes
    inside = np.flatnonzero((lifetimes.born < window.end) & (lifetimes.freed > window.begin))
    chosen = [k for k in inside.tolist() if _is_named(attribution, k, _size(subject, k), name)]
    if not chosen:
        raise MemtraceError(
            f"{recording.path}: nothing alive in {window.name} is named {name!r}; there are, for "
            "example: " + ", ".join(_examples(subject, attribution, inside.tolist()))
        )
    accounting = run.accounting
    top = peak(run, window, accounting).event
    sources, stacks = Sources(recording.meta), Stacks(recording.stacks)
    categories = attribution.categories.of(chosen)
    shown = []
    for k, category in zip(chosen, categories, strict=True):
        naming, size = attribution.of(k), _size(subject, k)
        born, freed = int(lifetimes.born[k]), int(lifetimes.freed[k])
        fitting = naming.fitting(size)
        shown.append(
            Shown(
                k,
                size,
                naming.symbol.text,
                " | ".join(dict.fromkeys(_tensor(t) for t in fitting)),
                naming.layer_of(size),
                category,
                "before" if born < window.begin else position_in(window, born + 1),
                "after" if freed >= window.end else position_in(window, freed),
                born < top <= freed,
                read_life(naming, size, stacks.python(int(lifetimes.free_stack[k])), sources),
            )
        )
    shown.sort(key=lambda one: (not one.alive_at_peak, -one.bytes, one.lifetime))
    return ShowReport(
        name, window.name, sum(one.bytes for one in shown if one.alive_at_peak), tuple(shown)
    )


def _tensor(tensor: Tensor) -> str:
    """'buf16: float32[8, 197], strides (208, 1)'; Thunder's traces know of no strides."""
    strides = f", strides {tensor.strides}" if tensor.strides else ""
    return f"{tensor.name}: {tensor.text}{strides}"


def _size(subject: Subject, lifetime: int) -> int:
    return int(subject.replay.lifetimes.requested[lifetime])


def _is_named(attribution: Attribution, lifetime: int, size: int, name: str) -> bool:
    naming = attribution.of(lifetime)
    symbol, layer = naming.symbol, naming.layer_of(size)
    return (
        name in (layer_pattern(layer), symbol.name, symbol.text, symbol.operation, layer)
        or any(name == tensor.name for tensor in naming.fitting(size))
        or layer.startswith(f"{name}.")
        or re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", symbol.text) is not None
    )


def _examples(subject: Subject, attribution: Attribution, lifetimes: list[int]) -> list[str]:
    """Names of the largest lifetimes there are."""
    largest = sorted(lifetimes, key=lambda k: -_size(subject, k))
    names = (attribution.of(k).layer_of(_size(subject, k)) for k in largest)
    symbols = (attribution.of(k).symbol.name for k in largest)
    both = [name for pair in zip(symbols, names, strict=True) for name in pair if name]
    # A longer one nobody would type.
    return [n for n in dict.fromkeys(both) if len(n) <= _MOST_CHARACTERS][:_SUGGESTIONS]
