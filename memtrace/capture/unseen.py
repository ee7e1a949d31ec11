"""Makes Dynamo pass over the recorder's own functions.

While compiled code runs, Dynamo looks at every Python function that is called, ours included (a
hook in an optimizer's step after a graph break, say), and would compile them. Torch's own files are
on its list of files to skip; ours are marked one code object at a time: that leaves the list alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

_PACKAGE = "memtrace."


def skip_own_code() -> None:
    """Mark all functions of memtrace that are loaded, and those defined inside them."""
    from torch._dynamo.eval_frame import skip_code

    mark: Callable[[CodeType], None] = skip_code
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGE):
            for code in _codes(vars(module), name, set()):
                mark(code)


def _codes(space: Any, module: str, seen: set[int]) -> Iterator[CodeType]:
    for value in list(space.values()):
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            # With the name of the module, but for what dataclasses and decorators made.
            yield from _nested(value.__code__)
        elif isinstance(value, type) and value.__module__ == module:
            yield from _codes(vars(value), module, seen)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
