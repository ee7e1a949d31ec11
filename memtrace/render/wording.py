"""What rows say in words, the same on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Sequence

from memtrace.analysis import Row, Side, describe, series
from memtrace.symbols import Symbol

_NAME_WIDTH = 40  # characters of a maker's name; Inductor's name all that a kernel fuses


def detail_text(row: Row) -> str:
    """The tensors that a row holds: their shapes, or their names where the row bears the shapes."""
    shaped = row.symbol.compiler is None and row.symbol.text.endswith("]")
    for side in row.sides[::-1]:
        if side.tensors:
            return name_text(row) if shaped else tensor_text(side)
    return ""


def renamed_name(row: Row) -> str:
    """The baseline's name; of a tensor, whose place is the same, its shape."""
    assert row.renamed is not None
    here, there = describe(row.symbol.text), describe(row.renamed.text)
    if here is not None and there is not None and here.place == there.place:
        return row.renamed.text.removeprefix(there.place).strip()
    return row.renamed.name


def tensor_text(side: Side, most: int = 4) -> str:
    """'4 × float32[1, 28, 4096, 4096], 4 × bfloat16[…]'."""
    parts = [f"{count} × {text}" if count > 1 else text for text, count in side.tensors[:most]]
    if len(side.tensors) > most:
        parts.append(f"{len(side.tensors) - most} more shapes")
    return ", ".join(parts)


def name_text(row: Row) -> str:
    """'buf19 by TorchCompile0 → t1112, t1126 by nvFusion2, 6': A's and B's names and makers."""
    return " → ".join(_side_names(side) for side in row.sides)


def _side_names(side: Side, most: int = 4) -> str:
    # What an allocation may be, of many possible ones the first.
    sets = (name.split(" | ") for name in side.names[:most])
    names = [" | ".join([*one[:most], *["…"] * (len(one) > most)]) for one in sets]
    names = names + ["…"] * (len(side.names) > most)
    makers = ", ".join(_makers(side.symbols))
    return " by ".join(part for part in (", ".join(names), makers) if part) or "·"


def _makers(symbols: Sequence[Symbol]) -> list[str]:
    """'nvFusion2, 6, 10': symbols by name and operation, numbered ones in a row."""
    kinds: dict[tuple[str, str], dict[str, None]] = {}
    for symbol in symbols:
        name = symbol.name
        base = name.rstrip("0123456789") if symbol.compiler in ("thunder", "inductor") else name
        kinds.setdefault((base, symbol.operation), {})[name] = None
    return [
        (series(list(names)) or _short(next(iter(names))))
        + (f" › {operation}" if operation else "")
        for (_, operation), names in kinds.items()
    ]


def _short(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[:_NAME_WIDTH]}…"
