"""Recordings as traces: counters, slices on lanes and instants, ready to be written."""

from memtrace.analysis.tracks.model import (
    ABSENT,
    CORRELATION,
    Counter,
    Facts,
    Process,
    Slices,
    Trace,
    Value,
    arrow_ids,
)
from memtrace.analysis.tracks.pair import describe_pair
from memtrace.analysis.tracks.run import describe_run

__all__ = [
    "ABSENT",
    "CORRELATION",
    "Counter",
    "Facts",
    "Process",
    "Slices",
    "Trace",
    "Value",
    "arrow_ids",
    "describe_pair",
    "describe_run",
]
