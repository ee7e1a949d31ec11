"""Records a run. The only room that imports torch or thunder, and never before the script does."""

from memtrace.capture.api import record, step
from memtrace.capture.options import MAX_EVENTS, Options, Outcome
from memtrace.capture.runner import record_script

__all__ = ["MAX_EVENTS", "Options", "Outcome", "record", "record_script", "step"]
