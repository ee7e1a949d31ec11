"""Torch's profiler at its lowest Python level: start, stop, results.

Not torch.profiler.profile: the recorder must know a script's own profilers from its own, and needs
neither the schedule nor the events as Python objects.
"""

from __future__ import annotations

import contextlib
import os
import sys
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
    if cuda:
        _keep_cupti_for_graphs()
    torch._C._autograd._prepare_profiler(config, activities)
    if cuda:
        # Inductor then names its graphs and Triton kernels for the profiler.
        _announce("_run_on_profiler_start")
    torch._C._autograd._enable_profiler(config, activities)
    with contextlib.suppress(Exception):
        torch._C._autograd._add_metadata_json("profile_memory", "1")


def stop() -> Any:
    """Stop; returns torch's _ProfilerResult (``experimental_event_tree()``, ``save(path)``)."""
    import torch

    try:
        return torch._C._autograd._disable_profiler()
    finally:
        _announce("_run_on_profiler_stop")


def _announce(name: str) -> None:
    import torch

    function = getattr(torch.autograd.profiler, name, None)
    if function is not None:
        function()


def _keep_cupti_for_graphs() -> None:
    """As torch.profiler does: CUDA graphs crash when CUPTI was torn down and comes back."""
    inductor = sys.modules.get("torch._inductor.config")
    if inductor is not None and inductor.triton.cudagraphs:
        os.environ["DISABLE_CUPTI_LAZY_REINIT"] = "1"
        os.environ["TEARDOWN_CUPTI"] = "0"


def running() -> bool:
    """Whether any profiler, the script's own included, runs on this thread."""
    import torch

    return bool(torch._C._autograd._profiler_enabled())
