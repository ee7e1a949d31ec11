"""What operators of torch and of Thunder's executors take beside what their trace says.

Each rule is that of the code it names (torch 2.11, thunder 0.2.6), for CUDA. Sizes are requested
bytes. An operator without a rule is taken to need nothing beside its results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memtrace.program.strides import Strides, dense, is_dense
from memtrace.symbols.numbers import read_number
from memtrace.symbols.statements import Tensor

_FLOAT = 4  # bytes of the type that reductions accumulate in
_INDEX = 8


@dataclass(frozen=True, slots=True)
class Need:
    """``inside``: the most bytes beside the results; ``results``: bytes of results, by place, that
    are not those of their shape and dtype; ``strides``: of results that are not laid row by row."""

    inside: int = 0
    results: dict[int, int] = field(default_factory=dict)
    strides: dict[int, Strides] = field(default_factory=dict)


NOTHING = Need()


def find_need(name: str, text: str, inputs: Sequence[Tensor]) -> Need:
    """What an operator needs. ``inputs`` are its tensors in order, with strides where known."""
    for key, rule in _RULES:
        if key in name:
            try:
                return rule(text, inputs)
            except (ValueError, IndexError):  # fewer tensors than the operator takes: a cut line
                return NOTHING
    return NOTHING


def workspace(name: str, inputs: tuple[Tensor, ...]) -> int:
    """The bytes that an operator takes beside its results."""
    return find_need(name, "", inputs).inside


def _embedding_backward(text: str, inputs: Sequence[Tensor]) -> Need:
    """``embedding_dense_backward_cuda`` (ATen/native/cuda/Embedding.cu): more than 3072 indices are
    sorted, and gradients added up by parts of ten rows before they are added to the weight's."""
    grad, indices = inputs[0], inputs[1]
    count = math.prod(indices.shape)
    if count <= 3072:
        return NOTHING
    found = (read_number(n) for n in text.rpartition("(")[2].replace(" ", "").split(","))
    weights = next((number for number in found if number >= 0), count)
    parts = count // 10 + min(count, weights)
    sorting = 3 * count * _INDEX + 2 * _INDEX
    return Need(sorting + parts * (_INDEX + grad.shape[-1] * _FLOAT))


def _attention_forward(text: str, inputs: Sequence[Tensor]) -> Need:
    """``_scaled_dot_product_efficient_attention``: the mask in the query's dtype and for all heads
    (thunder/executors/sdpaex.py), a logsumexp padded to a multiple of 32, the result as B, M, H, K.
    """
    query, key = inputs[0], inputs[1]
    batch, heads, length, _ = query.shape
    value = inputs[2] if len(inputs) > 2 else key
    mask = inputs[3] if len(inputs) > 3 else None
    before, kept = _mask_bytes(mask, query)
    logsumexp = batch * heads * _round(length, 32) * _FLOAT
    shape = (*query.shape[:3], value.shape[-1])
    made = math.prod(shape) * _width(query) + logsumexp
    return Need(max(kept, before - made), {1: logsumexp}, {0: _by_row(shape)})


def _attention_backward(text: str, inputs: Sequence[Tensor]) -> Need:
    """``_efficient_attention_backward`` (ATen/native/transformers/cuda/attention_backward.cu): the
    mask as above and its gradient, the sum of gradient times result, and the kernel's workspace."""
    gradient, query, key, value = inputs[:4]
    mask = inputs[4] if len(inputs) > 8 else None
    batch, heads, length, depth = query.shape
    before, kept = _mask_bytes(mask, query)
    mask_gradient, returned = _mask_gradient_bytes(mask, query)
    lying = gradient.strides
    copy = 0
    if lying is not None and len(lying) == 4:
        shape = (batch, length, heads, gradient.shape[-1])
        if not is_dense(shape, (lying[0], lying[2], lying[1], lying[3])):
            copy = math.prod(gradient.shape) * _width(query)
    product = math.prod(gradient.shape) * _FLOAT
    delta = batch * heads * length * _FLOAT
    tiles = batch * heads * -(-length // 64) * -(-depth // 64)
    kernel = tiles * (64 * 64 * _FLOAT + 16) if depth <= 64 else 0
    running = max(product + 2 * delta, delta + kernel)
    gradients = sum(math.prod(one.shape) for one in (query, key, value)) * _width(query)
    in_kernel = kept + copy + gradients + mask_gradient + running
    # Where the heads share a mask, their gradients of it are summed up once the kernel is done.
    summed = gradients + mask_gradient + (returned if returned != mask_gradient else 0)
    results = {3: returned} if mask is not None else {}
    laid = {k: _by_row(one.shape) for k, one in enumerate((query, key, value))}
    most = max(before, in_kernel, summed)
    return Need(most - gradients - returned, results, laid)


def _mask_bytes(mask: Tensor | None, query: Tensor) -> tuple[int, int]:
    """What is there at once while the mask is prepared, and what is there of it in the kernel."""
    if mask is None or len(mask.shape) != 4:
        return 0, 0
    batch, _, rows, columns = mask.shape
    own = math.prod(mask.shape) * _width(query)
    boolean = mask.dtype == "bool"
    padded = _round(columns, 8) if query.shape[-1] != columns else columns
    kept = batch * query.shape[1] * rows * padded * _width(query)
    filling = 2 * own + math.prod(mask.shape) if boolean else 0
    return max(filling, kept + (own if boolean else 0)), kept


def _mask_gradient_bytes(mask: Tensor | None, query: Tensor) -> tuple[int, int]:
    """Of the gradient that the kernel makes, rows padded to 16, and of that which is returned."""
    if mask is None or len(mask.shape) != 4:
        return 0, 0
    batch, heads, rows, columns = mask.shape
    made = batch * query.shape[1] * rows * _round(columns, 16) * _width(query)
    if heads == query.shape[1]:
        return made, made
    return made, batch * rows * columns * _width(query)


def _by_row(shape: Sequence[int]) -> Strides:
    """The strides of [B, H, M, K] that lies as [B, M, H, K]."""
    batch, heads, length, depth = shape
    lying = dense((batch, length, heads, depth))
    return (lying[0], lying[2], lying[1], lying[3])


def _round(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _width(tensor: Tensor) -> int:
    return max(Tensor("", (1,), tensor.dtype).bytes, 0)


_RULES: tuple[tuple[str, Callable[[str, Sequence[Tensor]], Need]], ...] = (
    ("scaled_dot_product_efficient_attention_backward", _attention_backward),
    ("scaled_dot_product_efficient_attention", _attention_forward),
    ("embedding_dense_backward", _embedding_backward),
    ("embedding_backward", _embedding_backward),
)
