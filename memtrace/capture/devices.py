"""Which allocator to record."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable


def choose_device() -> str:
    """ "cuda" if there is a GPU, found without initialising CUDA.

    torch.cuda.is_available() calls cuInit, after which CUDA_VISIBLE_DEVICES counts no more and a
    fork is poisoned. NVML does neither; where it is missing, the driver's device files tell.
    """
    import glob

    import torch

    if not torch.backends.cuda.is_built():
        return "cpu"
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return "cpu"
    count = -1
    probe: Callable[[], int] | None = getattr(torch.cuda, "_device_count_nvml", None)
    if probe is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a machine without a driver is no news here
            count = probe()
    if count < 0:
        return "cuda" if glob.glob("/dev/nvidia[0-9]*") or torch.version.hip else "cpu"
    return "cuda" if count > 0 else "cpu"
