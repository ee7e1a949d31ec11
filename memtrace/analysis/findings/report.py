"""What ``memtrace explain`` says: the findings of one recording or two, and what-if."""

from __future__ import annotations

from dataclasses import dataclass

from memtrace.analysis.diff import attribute_alike, common_accounting
from memtrace.analysis.findings.explain import Explained, explain
from memtrace.analysis.findings.gap import Gap, explain_gap
from memtrace.analysis.findings.scene import Scene
from memtrace.analysis.peak import PeakReport, Subject, report_peak
from memtrace.analysis.whatif import WhatIf, report_whatif
from memtrace.symbols import attribute


@dataclass(frozen=True, slots=True)
class ExplainReport:
    """One recording. ``whatif`` is None where it was not asked for.

    ``reserved_bytes`` is what the allocator held from the device at the peak, None where that is
    not known.
    """

    peak: PeakReport
    explained: Explained
    reserved_bytes: int | None
    whatif: WhatIf | None = None


@dataclass(frozen=True, slots=True)
class ExplainPair:
    """Two recordings and the causes of the gap between them. What-if is asked of the candidate."""

    baseline: ExplainReport
    candidate: ExplainReport
    gap: Gap


def report_explain(
    subject: Subject, *, whatif: bool = False, target: int | None = None
) -> ExplainReport:
    """The findings of one recording; with ``target`` bytes, what reaches them as well."""
    attribution = attribute(subject.recording, subject.replay)
    scene = Scene(subject, attribution, subject.replay.accounting)
    report = report_peak(subject, attribution=attribution)
    return _report(scene, report, whatif, target)


def report_explain_pair(
    baseline: Subject, candidate: Subject, *, whatif: bool = False, target: int | None = None
) -> ExplainPair:
    """The findings of both, and which the gap consists of. Without a ``target``, what-if says how
    the candidate gets down to the baseline's peak."""
    subjects = (baseline, candidate)
    accounting = common_accounting(subjects)
    scenes = [
        Scene(subject, attribution, accounting)
        for subject, attribution in zip(subjects, attribute_alike(subjects), strict=True)
    ]
    peaks = [
        report_peak(scene.subject, accounting=accounting, attribution=scene.attribution)
        for scene in scenes
    ]
    if whatif and target is None and peaks[1].peak_bytes > peaks[0].peak_bytes:
        target = peaks[0].peak_bytes
    a = _report(scenes[0], peaks[0], False, None)
    b = _report(scenes[1], peaks[1], whatif, target)
    gap = explain_gap(subjects, (a.peak, b.peak), (a.explained, b.explained))
    return ExplainPair(a, b, gap)


def _report(scene: Scene, peak: PeakReport, whatif: bool, target: int | None) -> ExplainReport:
    explained = explain(scene)
    reserved = scene.run.reserved
    asked = None
    if whatif:
        asked = report_whatif(scene.run, scene.stretch, scene.accounting, explained.changes, target)
    held = None if reserved is None else int(reserved[scene.peak.event])
    return ExplainReport(peak, explained, held, asked)
