"""How views lie in the memory of what they are views of; torch's own rules, in elements."""

from __future__ import annotations

from collections.abc import Sequence

Strides = tuple[int, ...]


def dense(shape: Sequence[int]) -> Strides:
    """Of a tensor laid out row by row."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def is_dense(shape: Sequence[int], strides: Strides) -> bool:
    """torch's ``is_contiguous()``: dimensions of one element may have any stride."""
    if 0 in shape:
        return True
    pairs = zip(shape, strides, dense(shape), strict=True)
    return all(have == want for length, have, want in pairs if length != 1)


def reshape(shape: Sequence[int], strides: Strides, new: Sequence[int]) -> Strides | None:
    """The strides of a view of another shape; None where torch has to copy.

    After ``computeStride`` of ATen/TensorUtils.cpp: neighbouring dimensions that lie one in the
    other without a hole are one chunk, and a chunk may be cut anew in any way.
    """
    if 0 in shape or not shape:
        return dense(new)
    result = [0] * len(new)
    at = len(new) - 1
    inner = strides[-1]
    have = want = 1
    for k in range(len(shape) - 1, -1, -1):
        have *= shape[k]
        ends = k == 0 or (shape[k - 1] != 1 and strides[k - 1] != have * inner)
        if not ends:
            continue
        while at >= 0 and (want < have or new[at] == 1):
            result[at] = want * inner
            want *= new[at]
            at -= 1
        if want != have:
            return None
        if k:
            inner, have, want = strides[k - 1], 1, 1
    return tuple(result) if at == -1 else None


def expand(shape: Sequence[int], strides: Strides, new: Sequence[int]) -> Strides | None:
    """Of ``shape`` made longer: new and lengthened dimensions step over nothing."""
    lead = len(new) - len(shape)
    if lead < 0:
        return None
    kept = (s if n == m else 0 for n, m, s in zip(shape, new[lead:], strides, strict=True))
    return (0,) * lead + tuple(kept)


def unsqueeze(shape: Sequence[int], strides: Strides, new: Sequence[int]) -> Strides | None:
    """Of ``shape`` with dimensions of one element more or less; None where it is another shape."""
    if [n for n in shape if n != 1] != [n for n in new if n != 1]:
        return None
    kept = iter([s for n, s in zip(shape, strides, strict=True) if n != 1])
    result, step = [], 1
    for length in new:
        result.append(next(kept) if length != 1 else 0)
    for k in range(len(new) - 1, -1, -1):
        if new[k] == 1:
            result[k] = step
        step = max(result[k] * new[k], step)
    return tuple(result)
