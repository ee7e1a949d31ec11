"""memtrace: which compiled symbols the gap in peak memory between two PyTorch runs consists of.

``with memtrace.record("a.pkl"): …`` records a block, ``memtrace.step()`` marks an iteration. Both
are loaded on first use; importing memtrace imports neither torch nor numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memtrace.capture.api import record, step

__version__ = "0.1.0"
__all__ = ["__version__", "record", "step"]


def __getattr__(name: str) -> Any:
    if name in ("record", "step"):
        from memtrace.capture import api

        value = getattr(api, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
