"""Findings and what-if as JSON. Everything counts: bytes are integers, nothing is cut."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from memtrace.analysis.findings import ExplainPair, ExplainReport, Finding
from memtrace.analysis.whatif import Together, WhatIf
from memtrace.render.json import SCHEMA, summary_object


def explain_object(report: ExplainReport) -> dict[str, Any]:
    """``memtrace explain A --json``: the peak object with ``findings``, the largest first."""
    return {"schema": SCHEMA, **_report(report)}


def explain_pair_object(pair: ExplainPair) -> dict[str, Any]:
    """``memtrace explain A B --json``: the ``delta_bytes`` of ``parts`` and ``rest_bytes`` sum to
    ``gap_bytes``."""
    return {
        "schema": SCHEMA,
        "baseline": {"schema": SCHEMA, **_report(pair.baseline)},
        "candidate": {"schema": SCHEMA, **_report(pair.candidate)},
        "gap_bytes": pair.gap.diff.gap_bytes,
        "differences": list(pair.gap.diff.differences),
        "warnings": list(pair.gap.diff.warnings),
        "parts": [
            {
                **finding_object(part.finding),
                "baseline_bytes": part.baseline_bytes,
                "candidate_bytes": part.candidate_bytes,
                "delta_bytes": part.delta,
            }
            for part in pair.gap.parts
        ],
        "rest_bytes": pair.gap.rest,
    }


def finding_object(finding: Finding) -> dict[str, Any]:
    """One finding; ``lifetimes`` are counted, their numbers mean nothing outside."""
    fields = asdict(finding)
    fields["try"] = fields.pop("try_")
    fields["count"] = len(fields.pop("lifetimes"))
    return fields


def _report(report: ExplainReport) -> dict[str, Any]:
    return {
        **summary_object(report.peak),
        "reserved_bytes": report.reserved_bytes,
        "findings": [finding_object(one) for one in report.explained.findings],
        "what_if": None if report.whatif is None else _whatif(report.whatif),
    }


def _whatif(whatif: WhatIf) -> dict[str, Any]:
    return {
        "window": whatif.window,
        "peak_bytes": whatif.peak.bytes,
        "event": whatif.peak.event,
        "changes": [
            {
                "way": offer.change.way,
                "title": offer.change.title,
                "finding": offer.change.finding if offer.change.finding >= 0 else None,
                "saved_bytes": offer.saved,
                "moved_bytes": offer.change.moved,
                "peak_bytes": offer.peak.bytes,
                "event": offer.peak.event,
                "position": offer.position,
            }
            for offer in whatif.offers
        ],
        "together": _together(whatif.together),
        "target_bytes": whatif.target,
        "reached": None if whatif.reached is None else _together(whatif.reached),
    }


def _together(plan: Together) -> dict[str, Any]:
    """``changes`` are places in the list of changes."""
    return {
        "changes": list(plan.offers),
        "peak_bytes": plan.peak.bytes,
        "event": plan.peak.event,
        "position": plan.position,
        "shortest": plan.shortest,
    }
