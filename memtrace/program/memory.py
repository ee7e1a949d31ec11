"""Whose memory each value is, how it lies there, and what statements need beside it."""

from __future__ import annotations

from collections.abc import Iterable

from memtrace.program.aliases import (
    Layout,
    alias_of,
    is_fusion,
    is_inductor,
    keeps_elements,
    written,
)
from memtrace.program.fusions import view_sources
from memtrace.program.model import Statement
from memtrace.program.regions import Region, find_region, match_results
from memtrace.program.strides import Strides, dense
from memtrace.program.workspaces import find_need
from memtrace.symbols.statements import Tensor


class Memory:
    """Fed with a program's calls in order.

    ``roots`` are the values whose memory the others are, ``sizes`` the bytes of values for which
    these are not what shape and dtype say. By a statement's index, ``needs`` are the bytes that it
    takes beside its results, ``regions`` Inductor's output file for each that runs one.
    ``fusion_views`` says that what a fusion's insides show to be a view has no memory of its own.
    """

    def __init__(
        self,
        tensors: dict[str, Tensor],
        names: Iterable[str],
        files: tuple[Region, ...],
        fusion_views: bool,
    ) -> None:
        self.roots = {name: name for name in names}
        self.sizes: dict[str, int] = {}
        self.needs: dict[int, int] = {}
        self.regions: dict[int, Region] = {}
        self._tensors = tensors
        self._strides: dict[str, Strides | None] = {}
        self._files = files
        self._fusion_views = fusion_views

    def add(self, statement: Statement) -> None:
        """The next call."""
        if is_fusion(statement.name):
            self._add_fusion(statement)
        else:
            self._add_operator(statement)

    def _layout(self, name: str) -> Layout | None:
        tensor = self._tensors.get(name)
        if tensor is None:
            return None
        strides = self._strides.get(name, dense(tensor.shape))
        return Layout(tensor.shape, tensor.dtype, strides)

    def _add_fusion(self, statement: Statement) -> None:
        lying = {n: x for n in statement.inputs if (x := self._layout(n)) is not None}
        views, viewed, strides = view_sources(statement, self._tensors, lying)
        if not self._fusion_views:
            views, viewed, strides = {}, {}, {}
        self._strides.update(strides)
        for name, source in viewed.items():
            if (base := self._tensors.get(source)) is not None and base.bytes >= 0:
                self.sizes[name] = base.bytes
        if self._files and is_inductor(statement.name):
            views = self._add_region(statement, views)
        for name, source in views.items():
            if name in self.roots and source in self.roots:
                self.roots[name] = self.roots[source]
                self._learn_size(name, source, statement)

    def _learn_size(self, name: str, source: str, statement: Statement) -> None:
        """A source that the text does not describe has the bytes of what only reorders it."""
        tensor = self._tensors.get(name)
        if tensor is None or tensor.bytes < 0 or source in self._tensors:
            return
        parts = (one for one in statement.inside if one.outputs == (name,))
        part = next(parts, None)
        if part is not None and part.inputs == (source,) and keeps_elements(part.name):
            self.sizes.setdefault(source, tensor.bytes)

    def _add_region(self, statement: Statement, views: dict[str, str]) -> dict[str, str]:
        """``views`` as Inductor's file says it, where that is there."""
        inputs = {n: self._tensors[n] for n in statement.inputs if n in self._tensors}
        outputs = {n: self._tensors[n] for n in statement.outputs if n in self._tensors}
        region = find_region(inputs.values(), outputs.values(), self._files)
        if region is None:
            return views
        self.regions[statement.index] = region
        self.needs[statement.index] = region.inside
        shared, results = match_results(region, inputs, outputs)
        for name, one in results.items():
            self._strides[name] = one.tensor.strides
            self.sizes.pop(name, None)
            if one.bytes and one.bytes != outputs[name].bytes:
                self.sizes[name] = one.bytes
        # What the file returns has memory of its own, or shares it as the file says.
        own = {name for name, one in results.items() if one.bytes}
        return {**shared, **{n: s for n, s in views.items() if n not in own}}

    def _add_operator(self, statement: Statement) -> None:
        base = written(statement.name, statement.inputs) or next(iter(statement.inputs), None)
        given = self._layout(base) if base is not None else None
        lying = (self._layout(name) for name in statement.inputs)
        inputs = [Tensor("", x.shape, x.dtype, strides=x.strides) for x in lying if x is not None]
        need = find_need(statement.name, statement.text, inputs)
        if need.inside:
            self.needs[statement.index] = need.inside
        for place, name in enumerate(statement.outputs):
            if name not in self.roots or name in statement.inputs:
                continue  # what a statement returns of its own inputs is these
            made = self._tensors.get(name)
            is_view, strides = alias_of(statement.name, statement.text, given, made)
            self._strides[name] = need.strides.get(place, strides)
            if place in need.results and made is not None:
                self.sizes[name] = need.results[place]
            if is_view and base is not None and self.roots[name] == name:
                self.roots[name] = self.roots[base]
                if given is None and made is not None and keeps_elements(statement.name):
                    self.sizes.setdefault(base, made.bytes)
