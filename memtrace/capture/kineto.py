"""Torch's profiler at its lowest Python level: start, stop, results.

Not torch.profiler.profile: the recorder must know a script's own profilers from its own, and needs
neither the schedule nor the events as Python objects.
"""

from __future__ import annotations

import contextlib
from typing import Any


def start(*, cuda: bool, stack: bool) -> None:
    """Start profiling this process. Raises RuntimeError if a profiler runs already."""
    import torch
    from torch._C._profiler import (
        ProfilerActivity,
        ProfilerConfig,
        ProfilerState,
        _ExperimentalConfig,
    )

    activities = {ProfilerActivity.CPU}
    if cuda and ProfilerActivity.CUDA in torch._C._autograd._supported_activities():
        activities.add(ProfilerActivity.CUDA)
    arguments = (
        ProfilerState.KINETO,
        True,  # shapes
        True,  # memory
        stack,
        False,  # flops
        False,  # modules
        _ExperimentalConfig(),
    )
    try:
        config = ProfilerConfig(*arguments, "")
    except TypeError:  # before torch 2.6 there was no trace id
        config = ProfilerConfig(*arguments)
    torch._C._autograd._prepare_profiler(config, activities)
    torch._C._autograd._enable_profiler(config, activities)
    with contextlib.suppress(Exception):
        torch._C._autograd._add_metadata_json("profile_memory", "1")


def stop() -> Any:
    """Stop; returns torch's _ProfilerResult (``experimental_event_tree()``, ``save(path)``)."""
    import torch

    return torch._C._autograd._disable_profiler()


def running() -> bool:
    """Whether any profiler, the script's own included, runs on this thread."""
    import torch

    return bool(torch._C._autograd._profiler_enabled())
