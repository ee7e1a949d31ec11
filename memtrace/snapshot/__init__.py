"""Captures and torch snapshots: read safely into columns, written whole."""

from memtrace.snapshot.columns import (
    Action,
    Block,
    Events,
    Frame,
    Recording,
    Segment,
    StackTable,
)
from memtrace.snapshot.files import write_atomically, write_capture
from memtrace.snapshot.reader import read

__all__ = [
    "Action",
    "Block",
    "Events",
    "Frame",
    "Recording",
    "Segment",
    "StackTable",
    "read",
    "write_atomically",
    "write_capture",
]
