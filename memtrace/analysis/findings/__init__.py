"""What would bring a peak down: causes, with their bytes, their evidence and what to try."""

from memtrace.analysis.findings.finding import Finding, Kind, Sure

__all__ = ["Finding", "Kind", "Sure"]
