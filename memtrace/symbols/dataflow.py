"""Where in the model each tensor of a Thunder program comes from.

Thunder knows of most operations the line it traced them from: a line of an FX graph, whose node has
the module and the model's source line, or the user's own line. Operations without one, those of the
backward pass mostly, get the place of what they read: a parameter's module first, then that of a
tensor of the forward pass (it was saved for just this), then that of the gradient they pass on.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

# 'l_self_modules_model_modules_layers_modules_3_parameters_weight_', as Dynamo names a parameter
# A path ends at the first of these, and a name's beginning at the first 'self_modules_'.
_KIND = r"_(?:parameters|buffers)_"
_PROXY = re.compile(
    r"^l_(?:(?!self_modules_)\w)*+self_modules_"
    rf"(?P<path>\w(?:(?!{_KIND})\w)*+){_KIND}\w{{2,}}+(?<=_)$"
)
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Place:
    """``layer``: 'model.layers.3.self_attn'; ``line``: 'modeling_qwen2.py:150'; '' unknown."""

    layer: str = ""
    line: str = ""


NOWHERE = Place()


def parameter_place(proxy: str) -> Place | None:
    """The module that holds a parameter, by the name Dynamo gives its proxy; None for others."""
    found = _PROXY.match(proxy)
    return Place(found["path"].replace("_modules_", ".")) if found else None


def layer_of_call(layer: str, arguments: Iterable[str]) -> str:
    """``layer`` with the numbers of the call that runs it.

    One compiled graph serves all layers that are alike, and names the one it was compiled for.
    Which one calls it is told by the parameters that it is given: of those nearest to ``layer``
    in the model, if they agree, the numbers are taken.
    """
    parts = layer.split(".")
    best = 0
    found: set[tuple[str, ...]] = set()
    for name in arguments:
        if (held := parameter_place(name)) is None:
            continue
        other = held.layer.split(".")
        common = _common_depth(parts, other)
        if common > best:
            best, found = common, set()
        if common == best:
            found.add(tuple(other[:common]))
    return ".".join((*found.pop(), *parts[best:])) if best and len(found) == 1 else layer


def _common_depth(one: Sequence[str], other: Sequence[str]) -> int:
    """How many parts of two paths are alike from the root on, whatever their numbers are."""
    alike = (a == b or (a.isdecimal() and b.isdecimal()) for a, b in zip(one, other, strict=False))
    return sum(1 for _ in takewhile(bool, alike))


def find_places(
    traces: Iterable[Mapping[str, Any]],
    origin: Callable[[str], Place],
    outside: Mapping[str, Place] | None = None,
) -> dict[str, Place]:
    """{tensor name: place} for traces that share their names.

    ``traces`` are ThunderTraces; ``origin`` gives the place of a traced line ('…:82'). A region is
    a trace with names of its own, but for its arguments: ``outside`` are the places of those.
    """
    places: dict[str, Place] = {}
    known = ChainMap(places, dict(outside or {}))
    saved = frozenset(outside or ())
    order = {"forward": 0, "backward": 1}
    for trace in sorted(traces, key=lambda t: order.get(t["phase"], 2)):
        forward = set(saved | frozenset(places))
        for symbol in trace["symbols"]:
            for operation in symbol["inside"] or [symbol]:
                _place(operation, places, known, forward, origin)
    return places


def _place(
    operation: Mapping[str, Any],
    places: dict[str, Place],
    known: Mapping[str, Place],
    forward: set[str],
    origin: Callable[[str], Place],
) -> None:
    outputs = [tensor["name"] for tensor in operation["outputs"]]
    if operation["args"] and forward.issuperset(operation["args"]):
        forward.update(outputs)  # a view of what was saved, or made of it again
    if not outputs or all(name in places for name in outputs):
        return
    place = origin(operation["origin"]) if operation["origin"] else NOWHERE
    if place == NOWHERE:
        place = _inherit(operation["args"], known, forward)
    if place != NOWHERE:
        for name in outputs:
            places.setdefault(name, place)


def _inherit(arguments: Iterable[str], places: Mapping[str, Place], forward: Set[str]) -> Place:
    names = list(arguments)
    for name in names:
        if (held := parameter_place(name)) is not None:
            return held
    known = [(name, places[name]) for name in names if name in places]
    saved = [place for name, place in known if name in forward]
    # Of several, the one deepest in the model: a residual's other side is the model's own.
    candidates = saved or [place for _, place in known]
    return max(candidates, key=lambda p: p.layer.count("."), default=NOWHERE)
