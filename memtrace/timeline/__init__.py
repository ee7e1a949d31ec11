"""Replays events: lifetimes, running totals, the allocator's blocks, windows and peaks."""

from memtrace.timeline.choice import choose_window
from memtrace.timeline.clock import Clock
from memtrace.timeline.driver import Check, driver_peak, reconcile, reconciled
from memtrace.timeline.lifetimes import Lifetimes
from memtrace.timeline.profile import ProfileCheck, cross_check_profile
from memtrace.timeline.replay import Accounting, Replay, live, replay, settle, sizes
from memtrace.timeline.rules import Rules
from memtrace.timeline.unused import Unused, unused_blocks
from memtrace.timeline.windows import (
    Peak,
    Phase,
    Window,
    find_windows,
    peak,
    position_in,
)

__all__ = [
    "Accounting",
    "Check",
    "Clock",
    "Lifetimes",
    "Peak",
    "Phase",
    "ProfileCheck",
    "Replay",
    "Rules",
    "Unused",
    "Window",
    "choose_window",
    "cross_check_profile",
    "driver_peak",
    "find_windows",
    "live",
    "peak",
    "position_in",
    "reconcile",
    "reconciled",
    "replay",
    "settle",
    "sizes",
    "unused_blocks",
]
