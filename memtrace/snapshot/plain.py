"""Pickling of plain data only: what load_plain reads back and pytorch.org/memory_viz opens."""

from __future__ import annotations

import numbers
import pickle
from collections.abc import Mapping
from typing import Any, BinaryIO, NoReturn

_ATOMS = (str, bool, int, float, bytes, type(None))


class PlainPickler(pickle.Pickler):
    """Protocol 4, refusing whatever would need a global to load.

    The C pickler asks ``reducer_override`` only about types that it does not know itself.
    """

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream, protocol=4)

    def reducer_override(self, obj: Any, /) -> NoReturn:
        raise pickle.PicklingError(f"{type(obj).__module__}.{type(obj).__qualname__} is not plain")


def simplify(obj: Any) -> Any:
    """A copy of plain data only: numbers and strings of other types become the plain ones, other
    objects their text. What was shared stays shared, or a capture would grow a hundredfold.
    """
    done: dict[int, tuple[Any, Any]] = {}  # with the original, whose id must stay taken

    def copy(value: Any) -> Any:
        if type(value) in _ATOMS:
            return value
        if id(value) in done:
            return done[id(value)][1]
        plain: Any
        if isinstance(value, Mapping):
            done[id(value)] = value, (plain := {})
            plain.update({copy(k): copy(v) for k, v in value.items()})
        elif isinstance(value, tuple):
            plain = tuple(copy(item) for item in value)
        elif isinstance(value, list):
            done[id(value)] = value, (plain := [])
            plain.extend(copy(item) for item in value)
        elif isinstance(value, set | frozenset):
            plain = sorted((copy(item) for item in value), key=repr)
        elif isinstance(value, str):
            plain = str.__str__(value)
        elif isinstance(value, numbers.Integral):
            plain = int(value)
        elif isinstance(value, numbers.Real):
            plain = float(value)
        elif hasattr(value, "tolist"):  # an array or tensor
            plain = copy(value.tolist())
        else:
            plain = str(value)
        done[id(value)] = value, plain
        return plain

    return copy(obj)
