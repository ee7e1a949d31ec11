"""What lifetimes are put into one row by: symbol, tensor, layer, category or line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from memtrace.distinct import number_rows
from memtrace.snapshot.columns import Int32
from memtrace.symbols import Attribution, Naming, Symbol
from memtrace.symbols.categories import CATEGORIES
from memtrace.symbols.kernels import layer_of, line_of
from memtrace.timeline import Replay

Dimension = Literal["symbol", "tensor", "layer", "category", "line"]
NO_LAYER = "<no layer>"


@dataclass(frozen=True, slots=True)
class Groups:
    """``rows[k]`` is the group, in ``symbols``, of the replay's lifetime k; shape (lifetimes,)."""

    symbols: list[Symbol]
    rows: Int32


def key_of(naming: Naming, size: int, category: str, by: Dimension) -> Symbol:
    """The group of a lifetime of ``size`` requested bytes; its symbol's text is the row's name."""
    symbol = naming.symbol
    if by == "symbol" or symbol.special:
        return symbol
    if by == "category":
        return Symbol(None, "", None, category)
    layer = naming.layer_of(size)
    if by == "layer":
        return Symbol(None, "", None, layer or NO_LAYER)
    if by == "line":
        return Symbol(None, "", None, naming.line_of(size) or symbol.text)
    fitting = naming.fitting(size)
    if not fitting:
        return symbol
    shapes = " | ".join(dict.fromkeys(tensor.text for tensor in fitting))
    if all(tensor.own for tensor in fitting):
        names = " | ".join(dict.fromkeys(tensor.name for tensor in fitting))
        return Symbol(None, "", None, f"{names} {shapes}")
    # Not by name: compilers give the same tensor different ones.
    if layer:
        return Symbol(None, "", symbol.phase, f"{layer} {shapes}")
    return Symbol(None, "", None, f"{symbol.text} {shapes}")


def key_of_kernel(naming: Naming, by: Dimension) -> Symbol | None:
    """The group of a kernel; None where it has none: it makes no one tensor, and no category."""
    symbol = naming.symbol
    if by == "symbol" or (symbol.special and by in ("layer", "line")):
        return symbol
    if by == "layer":
        return Symbol(None, "", None, layer_of(naming) or NO_LAYER)
    if by == "line":
        return Symbol(None, "", None, line_of(naming) or symbol.text)
    return None


def group_lifetimes(run: Replay, attribution: Attribution, by: Dimension) -> Groups:
    """Every lifetime's group, over its whole life (a category is the one it was made for)."""
    # Lifetimes of one category, or of one naming and one size, are in one group.
    if by == "category":
        every = np.arange(len(run.lifetimes), dtype=np.int64)
        rows, row = number_rows(attribution.categories.numbers(every))
        keys = [Symbol(None, "", None, CATEGORIES[number]) for (number,) in rows]
    else:
        rows, row = number_rows(attribution.rows, run.lifetimes.requested)
        keys = [key_of(attribution.namings[number], size, "", by) for number, size in rows]
    symbols: dict[Symbol, int] = {}
    numbers = [symbols.setdefault(key, len(symbols)) for key in keys]
    return Groups(list(symbols), np.array(numbers, dtype=np.int32)[row])
