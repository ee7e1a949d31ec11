"""How fast the GPU copies its own memory: what the speed of other kernels is held against."""

from __future__ import annotations

import ctypes
from typing import Any

# Several times what the caches of today's cards hold (50 to 130 MB), so that memory is measured.
_BYTES = 512 << 20
_COPIES = 8  # the best counts: the first finds the clock low, others may share the card


def copy_bandwidth() -> int:
    """Bytes read and written a second by a copy within the current GPU's memory.

    0 where less than four times the copied bytes are free. The memory comes from the driver, not
    from torch's allocator, whose figures the script may still read. Takes about 10 ms and waits
    for the GPU. Raises RuntimeError where the driver refuses, and torch's errors.
    """
    import torch

    if torch.cuda.mem_get_info()[0] < 4 * _BYTES:
        return 0
    torch.cuda.synchronize()
    driver = _Driver()
    source = driver.allocate(_BYTES)
    try:
        target = driver.allocate(_BYTES)
        try:
            return max(_time_copy(driver, target, source) for _ in range(_COPIES))
        finally:
            driver.free(target)
    finally:
        driver.free(source)


def _time_copy(driver: _Driver, target: Any, source: Any) -> int:
    import torch

    stream = torch.cuda.current_stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(stream)
    driver.copy(target, source, _BYTES, stream.cuda_stream)
    end.record(stream)
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return round(2 * _BYTES / (milliseconds / 1e3))


class _Driver:
    """The four calls of the CUDA driver API; they act in the context that torch has made."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def allocate(self, size: int) -> ctypes.c_void_p:
        pointer = ctypes.c_void_p()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def free(self, pointer: ctypes.c_void_p) -> None:
        self._call("cuMemFree_v2", pointer)

    def copy(
        self, target: ctypes.c_void_p, source: ctypes.c_void_p, size: int, stream: int
    ) -> None:
        self._call(
            "cuMemcpyDtoDAsync_v2", target, source, ctypes.c_size_t(size), ctypes.c_void_p(stream)
        )

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name} failed with code {code}")
