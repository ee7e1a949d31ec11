"""The peak replayed with changes that a program's order of operations allows."""

from memtrace.analysis.whatif.change import Change, Edit, Extension, Way
from memtrace.analysis.whatif.search import Plan, combine, rank, reach, score
from memtrace.analysis.whatif.skyline import Base, NewPeak, Skyline, base_of

__all__ = [
    "Base",
    "Change",
    "Edit",
    "Extension",
    "NewPeak",
    "Plan",
    "Skyline",
    "Way",
    "base_of",
    "combine",
    "rank",
    "reach",
    "score",
]
