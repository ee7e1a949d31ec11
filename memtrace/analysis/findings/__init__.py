"""What would bring a peak down: causes, with their bytes, their evidence and what to try."""

from memtrace.analysis.findings.explain import Explained
from memtrace.analysis.findings.finding import Finding, Kind, Sure
from memtrace.analysis.findings.gap import Gap, Part
from memtrace.analysis.findings.report import (
    ExplainPair,
    ExplainReport,
    report_explain,
    report_explain_pair,
)

__all__ = [
    "ExplainPair",
    "ExplainReport",
    "Explained",
    "Finding",
    "Gap",
    "Kind",
    "Part",
    "Sure",
    "report_explain",
    "report_explain_pair",
]
