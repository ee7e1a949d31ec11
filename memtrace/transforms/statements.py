"""A trace as a list of statements without ``del``: what each makes, reads and writes in place.

Statements are Thunder's bound symbols. Transforms change the list; ``finish`` puts the ``del``s
back where they belong then and refuses an order that cannot run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from thunder.core import prims
from thunder.core.proxies import TensorProxy
from thunder.core.pytree import tree_flatten
from thunder.core.trace import TraceProvenance, from_trace
from thunder.core.transform_common import NON_FUNCTIONAL_OPS
from thunder.executors.passes import del_last_used

from memtrace.errors import MemtraceError

_DEL = prims.PrimIDs.DEL
_ALWAYS_COPIES = {prims.PrimIDs.STRIDE_ORDER}
# Thunder's symbol for what torch runs in the place of a primitive; it has no tags.
_RESHAPE_BY_TORCH = "torch_prims_reshape_impl"


def statements_of(trace: Any) -> list[Any]:
    """The statements of a final trace. Collections are cleared anew where ``finish`` does."""
    return [
        s
        for s in trace.bound_symbols
        if s.sym.id != _DEL and s.sym.name != "clear_mutable_collection"
    ]


def finish(trace: Any, statements: Sequence[Any], what: str) -> Any:
    """A trace of ``statements``: each tensor is deleted after its last use.

    MemtraceError where a statement reads what no statement before it makes.
    """
    check_order(trace, statements)
    new = from_trace(trace)
    new.bound_symbols = list(statements)
    backward = any(s.sym.name == "clear_mutable_collection" for s in trace.bound_symbols)
    new = del_last_used(new, clear_mutable_collections=backward)
    new.set_provenance(TraceProvenance(what))
    return new


def check_order(trace: Any, statements: Sequence[Any]) -> None:
    """MemtraceError for a tensor that is read before it is made."""
    flat, _ = tree_flatten((trace.args, trace.kwargs))
    made = {p.name for p in flat if hasattr(p, "name")}
    for statement in statements:
        if statement.sym.id in (prims.PrimIDs.UNPACK_TRIVIAL, prims.PrimIDs.COMMENT):
            made |= names(statement.flat_proxy_outs)
            continue
        missing = names(statement.flat_proxy_args) - made
        if missing:
            raise MemtraceError(
                f"{statement.sym.name} would read {', '.join(sorted(missing))} before it is made; "
                "the trace is left as it was"
            )
        made |= names(statement.flat_proxy_outs)


def names(proxies: Iterable[Any]) -> set[str]:
    """The names of proxies."""
    return {str(p.name) for p in proxies}


def made_by(statement: Any) -> set[str]:
    """What a statement makes; an output that is one of its inputs was there before."""
    return names(statement.flat_proxy_outs) - names(statement.flat_proxy_args)


def leaves(operation: Any) -> Iterator[Any]:
    """The primitives that an operation consists of; itself where it has no parts."""
    if not operation.subsymbols:
        yield operation
    for part in operation.subsymbols:
        yield from leaves(part)


def is_shape_only(operation: Any) -> bool:
    """Whether all it does is to look at the same elements in another shape or order.

    Torch does so without a copy, but for a reshape that the strides forbid.
    """
    parts = list(leaves(operation))
    return bool(operation.flat_proxy_outs) and all(
        part.sym.name == _RESHAPE_BY_TORCH
        or (
            part.sym.is_prim
            and prims.OpTags.SHAPE_OP in (part.sym.tags or ())
            and part.sym.id not in _ALWAYS_COPIES
        )
        for part in parts
    )


def written(operation: Any) -> set[str]:
    """The names of tensors that an operation writes in place."""
    found = set()
    for part in (operation, *leaves(operation)):
        if part.sym.id == prims.PrimIDs.COPY_ or part.sym.name == "copy_":
            found |= names(part.flat_proxy_args[1:2])
        elif part.sym.tags and prims.OpTags.IN_PLACE in part.sym.tags:
            found |= names(part.flat_proxy_args)
    return found


def is_repeatable(operation: Any) -> bool:
    """Whether running it once more gives the same again: nothing random, nothing written."""
    random = prims.OpTags.RANDOM_OP
    parts = (operation, *operation.subsymbols, *leaves(operation))
    if written(operation):
        return False
    for part in parts:
        text = str(getattr(part.sym, "name", ""))
        if part.sym.id in NON_FUNCTIONAL_OPS or random in (part.sym.tags or ()):
            return False
        if any(word in text for word in ("dropout", "uniform", "rng_state", "sdpa", "scaled_dot")):
            return False
    return True


def views(statements: Iterable[Any]) -> dict[str, str]:
    """For each result of a shape-only statement, also within fusions, the tensor it looks at."""
    roots: dict[str, str] = {}
    for statement in statements:
        inside = statement.subsymbols if statement.sym.is_fusion else (statement,)
        for operation in inside:
            sources = [p for p in operation.flat_proxy_args if isinstance(p, TensorProxy)]
            if is_shape_only(operation) and len(sources) == 1:
                root = roots.get(sources[0].name, sources[0].name)
                roots.update(dict.fromkeys(made_by(operation), root))
    return roots
