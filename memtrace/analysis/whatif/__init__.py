"""The peak replayed with changes that a program's order of operations allows."""

from memtrace.analysis.whatif.change import Change, Edit, Extension, Way
from memtrace.analysis.whatif.offers import Offer, Together, WhatIf, report_whatif
from memtrace.analysis.whatif.search import Plan, combine, reach, score
from memtrace.analysis.whatif.skyline import Base, NewPeak, Skyline, base_of

__all__ = [
    "Base",
    "Change",
    "Edit",
    "Extension",
    "NewPeak",
    "Offer",
    "Plan",
    "Skyline",
    "Together",
    "Way",
    "WhatIf",
    "base_of",
    "combine",
    "reach",
    "report_whatif",
    "score",
]
