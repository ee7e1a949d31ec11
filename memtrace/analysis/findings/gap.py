"""Which causes the gap between two peaks consists of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memtrace.analysis.diff import DiffReport, compare_peaks
from memtrace.analysis.findings.explain import Explained
from memtrace.analysis.findings.finding import Finding
from memtrace.analysis.peak import PeakReport, Subject, name_live
from memtrace.analysis.rows import Row, fold_rows, folded_symbol
from memtrace.symbols.categories import GRADIENT, OPTIMIZER, PARAMETER, SAVED

_TRY = {
    OPTIMIZER: "an optimizer with less state, or one option of it less, holds less",
    PARAMETER: "compare the two models' sizes",
    GRADIENT: "gradients follow the parameters' sizes and dtypes",
    SAVED: "let the backward make it again (activation checkpointing), or save less",
}
_LINES = 4
_KERNEL = re.compile(r"^[a-z]+_[a-z]+_fused_(?P<names>\w+?)_\d+$")
_BACKWARD = re.compile(r"^# AOT ID: \['\d+_backward'\]")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the gap: what a cause holds at either peak."""

    finding: Finding
    baseline_bytes: int
    candidate_bytes: int

    @property
    def delta(self) -> int:
        """Candidate minus baseline."""
        return self.candidate_bytes - self.baseline_bytes


@dataclass(frozen=True, slots=True)
class Gap:
    """Two recordings explained. The deltas of ``parts`` and ``rest`` sum to the gap."""

    diff: DiffReport
    baseline: Explained
    candidate: Explained
    parts: tuple[Part, ...]
    rest: int


def explain_gap(
    subjects: tuple[Subject, Subject],
    reports: tuple[PeakReport, PeakReport],
    explained: tuple[Explained, Explained],
) -> Gap:
    """The causes that one side has, or has more of; then the tensors that no cause explains.

    ``reports`` are the peaks, in one accounting.
    """
    parts = _pair(*explained)
    claimed = [{k for one in _whole(side) for k in one.lifetimes} for side in explained]
    left = [
        replace(report, rows=tuple(_rows_without(side, mine)))
        for report, side, mine in zip(reports, explained, claimed, strict=True)
    ]
    diff = compare_peaks(subjects, *left)
    floor = max(side.scene.floor for side in explained)
    for row in fold_rows(diff.rows):
        if abs(row.delta) >= floor and not row.symbol.special:
            parts.append(_part_of(row, explained))
    parts = [part for part in parts if abs(part.delta) >= floor]
    rest = diff.gap_bytes - sum(part.delta for part in parts)
    parts.sort(key=lambda part: (-abs(part.delta), part.finding.title))
    return Gap(diff, *explained, tuple(parts), rest)


def _whole(side: Explained) -> list[Finding]:
    """The findings that take all that their lifetimes hold: these stand for them in the gap."""
    return [one for one in side.findings if one.bytes == side.scene.bytes_of(one.lifetimes)]


def _pair(a: Explained, b: Explained) -> list[Part]:
    """The findings of both, those of one kind about the same thing as one."""
    baseline = {(one.kind, one.title): one for one in _whole(a)}
    parts = []
    for finding in _whole(b):
        other = baseline.pop((finding.kind, finding.title), None)
        parts.append(Part(finding, other.bytes if other else 0, finding.bytes))
    parts += [Part(finding, finding.bytes, 0) for finding in baseline.values()]
    return parts


def _rows_without(side: Explained, claimed: set[int]) -> Sequence[Row]:
    """The peak's rows by tensor without some lifetimes."""
    scene = side.scene
    held = scene.held[~np.isin(scene.held, list(claimed))]
    return name_live(
        scene.run, scene.attribution, held, scene.accounting, "tensor", scene.peak.event
    )


def _part_of(row: Row, explained: tuple[Explained, Explained]) -> Part:
    """What one side holds more of, as a finding."""
    a, b = row.sides
    if row.delta < 0:
        return Part(_more_in_a(row), a.bytes, b.bytes)
    name = folded_symbol(row).text
    category = max(b.categories, key=lambda one: one[1])[0] if b.categories else ""
    recomputed = category == SAVED and _is_recomputed(row, explained)
    lines = [*b.lines, *b.where]
    makers = tuple(symbol.text for symbol in b.symbols)
    evidence = [_difference(row)]
    if category:
        evidence.append(f"in B it is {category}")
    if recomputed:
        evidence.append("A's backward runs again what makes it in the forward; B's does not")
    finding = Finding(
        kind="recomputed in A, saved in B" if recomputed else "more in B",
        title=f"{name}: " + ("saved in B, made again in A" if recomputed else _word(row)),
        bytes=row.delta,
        symbols=makers or (row.symbol.text,),
        lines=tuple(dict.fromkeys(lines))[:_LINES],
        layers=tuple(layer for layer, _ in b.layers if layer),
        evidence=tuple(evidence),
        try_=_TRY.get(category, "compare what makes it in the two runs: memtrace diff A B"),
        sure="likely" if recomputed else "certain",
    )
    return Part(finding, a.bytes, b.bytes)


def _more_in_a(row: Row) -> Finding:
    a = row.sides[0]
    words = {"GONE": "only A makes it", "FREED EARLIER": "A holds it longer"}
    return Finding(
        kind="more in A",
        title=f"{folded_symbol(row).text}: {words.get(row.status, 'more in A')}",
        bytes=-row.delta,
        symbols=tuple(symbol.text for symbol in a.symbols) or (row.symbol.text,),
        lines=tuple(dict.fromkeys([*a.lines, *a.where]))[:_LINES],
        layers=tuple(layer for layer, _ in a.layers if layer),
        evidence=(_difference(row),),
        sure="certain",
    )


def _word(row: Row) -> str:
    """What the row's status says, in words."""
    status = row.status
    if status == "NEW":
        return "only B makes it"
    if status == "KEPT LONGER":
        return "B holds it longer"
    if status.startswith("COUNT"):
        return "B holds more of them"
    if status.startswith("SHAPE"):
        return "larger in B"
    if status.startswith("DTYPE"):
        return "in another dtype in B"
    return "more in B"


def _difference(row: Row) -> str:
    a, b = row.sides
    counts = f"A holds {a.count} at its peak, B {b.count}"
    status = row.status
    return f"{status}: {counts}" if status else counts


def _is_recomputed(row: Row, explained: tuple[Explained, Explained]) -> bool:
    """Whether A's backward runs again what makes B's tensors in the forward, and B's does not.

    Of operators the same one at the same line; of Inductor's kernels what they fuse.
    """
    for symbol in row.sides[1].symbols:
        if symbol.phase != "forward":
            continue
        if symbol.compiler == "inductor":
            fused = _fused(symbol.name)
            in_a, in_b = (fused <= _fused_in_backward(side) for side in explained)
        else:
            what = (symbol.name, symbol.operation, symbol.line)
            in_a, in_b = (what in _run_in_backward(side) for side in explained)
        if in_a and not in_b and (symbol.line or symbol.compiler == "inductor"):
            return True
    return False


def _run_in_backward(side: Explained) -> set[tuple[str, str, str]]:
    """What allocates in the window's backward, without its pass."""
    symbols = {side.scene.naming(lifetime).symbol for lifetime in side.scene.inside}
    return {(s.name, s.operation, s.line) for s in symbols if s.phase == "backward"}


def _fused(kernel: str) -> frozenset[str]:
    """'triton_poi_fused_addmm_exp_0' → addmm, exp. Empty sets are of no kernel's name."""
    found = _KERNEL.match(kernel)
    return frozenset(found["names"].split("_")) if found else frozenset({kernel})


def _fused_in_backward(side: Explained) -> frozenset[str]:
    """What all kernels of Inductor's backward files fuse."""
    sources = side.scene.attribution.sources
    found: set[str] = set()
    for filename in sources.filenames:
        if _BACKWARD.match(sources.text(filename)):
            for statement in sources.source(filename).statements.values():
                if statement.callee.endswith(".run"):
                    found |= _fused(statement.callee.removesuffix(".run"))
    return frozenset(found)
