"""Records a run. The only room that imports torch or thunder, and never before the script does.

Nor numpy: its threads, too, are set by variables that the script may set at its top. So
memtrace.snapshot, which brings numpy, is imported inside functions here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memtrace.capture.options import MAX_EVENTS, Options, Outcome

if TYPE_CHECKING:
    from memtrace.capture.api import record, step
    from memtrace.capture.runner import record_script

__all__ = ["MAX_EVENTS", "Options", "Outcome", "record", "record_script", "step"]


def __getattr__(name: str) -> Any:
    # On first use: the other commands, too, ask for MAX_EVENTS, to print their help.
    if name in ("record", "step"):
        from memtrace.capture import api

        return getattr(api, name)
    if name == "record_script":
        from memtrace.capture import runner

        return runner.record_script
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
