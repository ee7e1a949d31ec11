"""What was running on the launching thread of each kernel, copy and memset of the profile.

The proof is the profiler's correlation: the number of the runtime's or the driver's call that put
the kernel into its stream. All kernels that one cudaGraphLaunch replays carry that call's number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memtrace.snapshot.columns import Int64

_CALLS = ("cuda_runtime", "cuda_driver")


def find_launches(ops: Mapping[str, Sequence[Any]], kernels: Mapping[str, Sequence[Any]]) -> Int64:
    """The row in ProfileOps of the call that launched each kernel; -1 where it was not seen.

    That is so of what was launched before the iteration and ran within it.
    """
    calls: dict[int, int] = {}
    for row, (kind, number) in enumerate(zip(ops["kind"], ops["correlation"], strict=True)):
        if number >= 0 and kind in _CALLS:
            calls.setdefault(number, row)
    rows = [calls.get(number, -1) if number >= 0 else -1 for number in kernels["correlation"]]
    return np.array(rows, dtype=np.int64)
