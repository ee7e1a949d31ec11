"""Replays events: lifetimes, running totals, the allocator's blocks, windows and peaks."""

from memtrace.timeline.driver import Check, reconcile, reconciled
from memtrace.timeline.lifetimes import Lifetimes
from memtrace.timeline.replay import Accounting, Replay, live, replay, sizes
from memtrace.timeline.rules import Rules
from memtrace.timeline.windows import (
    Peak,
    Phase,
    Window,
    choose_window,
    find_windows,
    peak,
    position_in,
)

__all__ = [
    "Accounting",
    "Check",
    "Lifetimes",
    "Peak",
    "Phase",
    "Replay",
    "Rules",
    "Window",
    "choose_window",
    "find_windows",
    "live",
    "peak",
    "position_in",
    "reconcile",
    "reconciled",
    "replay",
    "sizes",
]
