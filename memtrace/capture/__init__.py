"""Records a run. The only room that imports torch or thunder, and never before the script does.

Nor numpy: its threads, too, are set by variables that the script may set at its top. So
memtrace.snapshot, which brings numpy, is imported inside functions here.
"""

from memtrace.capture.api import record, step
from memtrace.capture.options import MAX_EVENTS, Options, Outcome
from memtrace.capture.runner import record_script

__all__ = ["MAX_EVENTS", "Options", "Outcome", "record", "record_script", "step"]
