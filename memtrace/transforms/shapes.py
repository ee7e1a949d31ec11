"""Shape-only operations stay out of nvFusions: a view by torch instead of a copy by nvFuser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.core.proxies import TensorProxy

from memtrace.transforms.change import Change, Done
from memtrace.transforms.fusions import needed, remake, run_by_torch
from memtrace.transforms.statements import (
    finish,
    is_shape_only,
    made_by,
    names,
    statements_of,
    views,
)


class KeepShapesOut(Change):
    """Takes results that are a mere view of an input or of another result out of nvFusions.

    Reshapes, transposes, squeezes and broadcasts at the edges of a fusion are executed by torch
    right after it; those in its midst make no tensor and stay. A view of a part (a slice) stays,
    too: it would hold the whole.
    """

    def __init__(self) -> None:
        super().__init__(lambda proxy: True)

    def transform_trace_post_optimization(self, computation_trace: Any, **_: Any) -> Any:
        """The forward's and the backward's final trace, one after the other."""
        statements: list[Any] = []
        changed = False
        for statement in statements_of(computation_trace):
            out = shape_results(statement) if is_nvfusion(statement) else ()
            if not out:
                statements.append(statement)
                continue
            changed = True
            statements += split_off(statement, out)
            roots = views(path_to(statement, names(out)))
            self.done += [Done(p.name, "a view", (roots[p.name],)) for p in out]
        if not changed:
            return computation_trace
        return finish(computation_trace, statements, "memtrace: shapes kept out of nvFusions")


def is_nvfusion(statement: Any) -> bool:
    """Whether nvFuser runs it."""
    return bool(statement.sym.is_fusion) and str(statement.sym.name).startswith("nvFusion")


def shape_results(fusion: Any) -> tuple[Any, ...]:
    """The results of a fusion that are views of its inputs or of its other results."""
    results = names(fusion.flat_proxy_outs)
    outside = names(fusion.flat_proxy_args)
    found = []
    for operation in fusion.subsymbols:
        if _is_view_of(operation, outside):
            outside |= made_by(operation)
            found += [p for p in operation.flat_proxy_outs if p.name in results]
        else:
            outside |= made_by(operation) & results
    return tuple(found)


def _is_view_of(operation: Any, outside: set[str]) -> bool:
    if not is_shape_only(operation) or not names(operation.flat_proxy_args) <= outside:
        return False
    sources = [p for p in operation.flat_proxy_args if isinstance(p, TensorProxy)]
    return all(
        source.numel <= result.numel for source in sources for result in operation.flat_proxy_outs
    )


def split_off(fusion: Any, results: Sequence[Any]) -> list[Any]:
    """A fusion without some shape-only results, and after it the views that make them."""
    taken = names(results)
    kept = [p for p in fusion.flat_proxy_outs if p.name not in taken]
    smaller = remake(fusion, fusion.subsymbols, kept)
    return [*([smaller] if smaller else []), *run_by_torch(path_to(fusion, taken))]


def path_to(fusion: Any, results: set[str]) -> list[Any]:
    """The operations of a fusion that lead to ``results`` from its inputs and other results."""
    others = names(fusion.flat_proxy_outs) - results
    return needed([o for o in fusion.subsymbols if not made_by(o) & others], results)
