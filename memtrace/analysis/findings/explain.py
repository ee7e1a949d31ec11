"""All that is found in one recording, and what the peak would be without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from memtrace.analysis.findings.blocks import find_slack, find_unneeded
from memtrace.analysis.findings.cause import Cause
from memtrace.analysis.findings.eager import EagerRun
from memtrace.analysis.findings.finding import Finding
from memtrace.analysis.findings.kernels import find_kernel_causes
from memtrace.analysis.findings.moved import find_moved
from memtrace.analysis.findings.operators import find_operators
from memtrace.analysis.findings.owned import find_owned
from memtrace.analysis.findings.placed import place_programs
from memtrace.analysis.findings.saved import find_saved
from memtrace.analysis.findings.scene import Scene
from memtrace.analysis.findings.spots import gather
from memtrace.analysis.whatif import Change


@dataclass(frozen=True)
class Explained:
    """One recording's causes, those that take most at the peak first.

    ``scene`` is what they were found in.
    """

    scene: Scene
    causes: tuple[Cause, ...]

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Those that take anything at the peak."""
        return tuple(cause.finding for cause in self.causes if cause.finding.bytes > 0)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """All changes; ``finding`` is the place of each one's cause in ``findings``, -1 for what
        takes nothing at this peak."""
        found = []
        for number, cause in enumerate(self.causes):
            place = number if cause.finding.bytes > 0 else -1
            found += [replace(change, finding=place) for change in cause.changes]
        return tuple(found)


def explain(scene: Scene) -> Explained:
    """Looks for every kind of cause there is."""
    programs = place_programs(scene)
    eager = EagerRun(scene.subject.recording, scene.run, scene.attribution, scene.stretch)
    told = [
        *find_saved(scene, programs),
        *find_moved(scene, programs),
        *find_operators(scene, eager),
        *find_kernel_causes(scene),
        *find_owned(scene),
        *find_unneeded(scene),
    ]
    return Explained(scene, tuple(sort_causes([*gather(scene, told), *find_slack(scene)])))


def sort_causes(causes: Sequence[Cause]) -> list[Cause]:
    """The most bytes at the peak first."""
    return sorted(causes, key=lambda cause: (-cause.finding.bytes, cause.finding.title))
