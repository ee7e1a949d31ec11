"""Runs our setup right after the script imported a module, without importing it before the script.

Environment variables such as PYTORCH_CUDA_ALLOC_CONF or CUDA_VISIBLE_DEVICES, set by the script
above its ``import torch``, must keep working: so torch is never imported on the script's behalf.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class ImportHook(importlib.abc.MetaPathFinder):
    """Calls ``callbacks[name]()`` once, when module ``name`` has finished importing."""

    def __init__(self, callbacks: dict[str, Callable[[], Any]]) -> None:
        self._callbacks = dict(callbacks)

    def install(self) -> None:
        """Watch imports from now on; what is imported already is reported at once."""
        for name in [n for n in self._callbacks if _finished(n)]:
            self._callbacks.pop(name)()
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Watch no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._callbacks.clear()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Importlib's question. Answers only for watched modules, with the real spec."""
        if fullname not in self._callbacks:
            return None
        for finder in list(sys.meta_path):
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is None:
                continue
            loader = spec.loader
            if loader is not None and hasattr(loader, "exec_module"):
                self._watch(loader, fullname)
            return spec
        return None

    def _watch(self, loader: Any, name: str) -> None:
        # An attribute of this one loader object (each spec has its own) and not another loader
        # around it: code that asks for the loader's type or its get_data() finds what it expects.
        inner = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            try:
                inner(module)
            finally:
                loader.__dict__.pop("exec_module", None)
            callback = self._callbacks.pop(name, None)
            if callback is not None:
                callback()

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader with slots: nothing to be done, the start is late
            return


def _finished(name: str) -> bool:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    # A module that is still importing (a script that imports memtrace.record half-way) counts as
    # there: nothing can be awaited any more.
    return module is not None and spec is not None
