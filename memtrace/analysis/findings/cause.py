"""A finding together with the changes that would undo it."""

from __future__ import annotations

from dataclasses import dataclass

from memtrace.analysis.findings.finding import Finding
from memtrace.analysis.whatif import Change


@dataclass(frozen=True, slots=True)
class Cause:
    """``changes`` are ways to undo what was found, of which one is enough; () where no change of
    the program alone does."""

    finding: Finding
    changes: tuple[Change, ...] = ()
