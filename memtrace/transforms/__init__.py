"""What memtrace finds, carried out: Thunder transforms that hold less memory.

    thunder.jit(model, transforms=[KeepShapesOut()])
    torch.compile(model, backend=ThunderCompiler(transforms=[Recompute(["t1126", "t1714"])]))

Names are those of tensors in the executed traces, as every row and ``memtrace show`` print them;
they are the same on every run of the same program. Each transform works on the final traces, after
fusion and after the split into forward and backward, keeps the program's results (within the
rounding of the dtype) and leaves alone what it cannot change without harm: ``transform.left`` says
what and why, and so does a warning.

Written against lightning-thunder 0.2.6; the ``record`` extra has it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memtrace.transforms.move import MoveToConsumer
    from memtrace.transforms.narrow import HoldNarrow
    from memtrace.transforms.recompute import Recompute
    from memtrace.transforms.shapes import KeepShapesOut

__all__ = ["HoldNarrow", "KeepShapesOut", "MoveToConsumer", "Recompute"]

_ROOMS = {
    "HoldNarrow": "narrow",
    "KeepShapesOut": "shapes",
    "MoveToConsumer": "move",
    "Recompute": "recompute",
}


def __getattr__(name: str) -> Any:
    """The classes inherit from Thunder's, so that Thunder is imported when one is asked for."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in {"torch", "thunder"}:
            raise ImportError(
                f"{__name__}.{name} needs {error.name}: pip install 'torch-memtrace[record]'"
            ) from error
        raise
