"""What all transforms have in common: which tensors they are asked about, and what came of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from thunder.core.transform_common import Transform

Choice = Iterable[str] | Callable[[Any], bool]
Way = Literal["a view", "moved", "made again", "made by its readers"]


@dataclass(frozen=True)
class Done:
    """A tensor that is held less: how, what it is made from now, and what is made on the way."""

    tensor: str
    way: Way
    sources: tuple[str, ...]
    between: tuple[str, ...] = ()


class Change(Transform):  # type: ignore[misc]
    """A transform of the final traces.

    ``tensors`` are names, or a predicate of Thunder's tensor proxies (``name``, ``shape``,
    ``dtype``). ``done`` is what was changed, in order; ``left`` are the tensors that were not, with
    the reason. A name that no trace has is in neither: a program is many traces, and each has its
    own names.
    """

    def __init__(self, tensors: Choice) -> None:
        if isinstance(tensors, str):
            tensors = [tensors]
        self._chosen = tensors if callable(tensors) else _Named(tensors)
        self.done: list[Done] = []
        self.left: dict[str, str] = {}

    def wants(self, proxy: Any) -> bool:
        """Whether a tensor is one of those asked for."""
        return bool(self._chosen(proxy))

    def leave(self, name: str, reason: str) -> None:
        """Notes that a tensor stays as it is."""
        self.left[name] = reason
        if isinstance(self._chosen, _Named):  # a predicate asks about everything
            warnings.warn(f"{type(self).__name__} leaves {name} as it is: {reason}", stacklevel=3)


class _Named:
    def __init__(self, tensors: Iterable[str]) -> None:
        self._names = frozenset(tensors)

    def __call__(self, proxy: Any) -> bool:
        return proxy.name in self._names
