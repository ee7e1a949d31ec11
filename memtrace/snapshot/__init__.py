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
from memtrace.snapshot.files import check_target, compress, write_atomically, write_capture
from memtrace.snapshot.reader import read

__all__ = [
    "Action",
    "Block",
    "Events",
    "Frame",
    "Recording",
    "Segment",
    "StackTable",
    "check_target",
    "compress",
    "read",
    "write_atomically",
    "write_capture",
]
