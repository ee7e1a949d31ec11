"""Times as text: what a step takes, how busy the GPU is, what a symbol's kernels do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from memtrace.analysis import GpuTime, PeakReport, Row, Spread, Timing, card_bandwidth
from memtrace.analysis import measure_throughput as measure
from memtrace.render.hta import Breakdown
from memtrace.render.units import (
    clean,
    format_bytes,
    format_range,
    format_time,
    format_time_delta,
)

_KERNEL_WIDTH = 48  # characters of a kernel's name; templates make them endless
_NOTABLE = 0.01  # of the busy time: what a symbol must take for its kernels to be spoken of
_OPERATIONS = 6  # names of a fusion's operations that are printed
_CALLED = re.compile(r"(?<![\w.])(?P<name>[\w.]++)\(")


def print_times(
    console: Console, reports: Sequence[PeakReport], breakdowns: Sequence[Breakdown | None]
) -> None:
    """Step times and the GPU's busy and idle time of one run, or of two with an arrow between."""
    steps = [report.steps for report in reports]
    for name, spreads in (
        ("step", [step.gpu for step in steps]),
        ("step on the host", [step.wall for step in steps]),
    ):
        known = [spread for spread in spreads if spread is not None]
        if len(known) == len(spreads):
            console.print(Text(f"  {name} {spread_text(known)}", style="dim"))
            break
    gpus = [report.gpu for report in reports]
    if any(gpus):
        text = " → ".join(gpu_text(gpu) for gpu in gpus)
        console.print(Text(f"  GPU of the profiled step: {text}", style="dim"))
    for letter, breakdown in zip(
        ["A: ", "B: "] if len(reports) > 1 else [""], breakdowns, strict=True
    ):
        if breakdown is not None:
            console.print(Text(f"  {letter}{_waits(breakdown)}", style="dim"))


def spread_text(spreads: Sequence[Spread]) -> str:
    """'187.7 ms (186.9–188.1) → 153.6 ms (153.2–154.0), −18.2%'."""
    text = " → ".join(
        f"{format_time(s.median_ns)}"
        + (f" ({format_range(s.low_ns, s.high_ns)})" if s.count > 1 else "")
        for s in spreads
    )
    counts = " and ".join(str(spread.count) for spread in spreads)
    explained = f"of {counts} step{'' if counts == '1' else 's'}"
    if any(spread.count > 1 for spread in spreads):
        explained = f"median (middle half) {explained}"
    if len(spreads) < 2 or not spreads[0].median_ns:
        return f"{text}, {explained}"
    a, b = spreads
    change = f"{(b.median_ns - a.median_ns) / a.median_ns:+.1%}".replace("-", "−")
    if a.overlaps(b):
        apart = a.high_ns < b.low_ns or b.high_ns < a.low_ns
        change = f"~ {change} ({'too few steps to tell' if apart else 'the ranges overlap'})"
    return f"{text}, {change}; {explained}"


def gpu_text(gpu: GpuTime | None) -> str:
    if gpu is None:
        return "none seen"
    return f"busy {format_time(gpu.busy_ns)}, idle {format_time(gpu.idle_ns)}"


def _waits(breakdown: Breakdown) -> str:
    """'idle, as HolisticTraceAnalysis splits it: host-bound 3.34 ms, launch-bound 411.4 µs'."""
    texts = []
    for wait in breakdown.waits:
        kinds = (("host-bound", wait.host), ("launch-bound", wait.launch), ("other", wait.other))
        parts = ", ".join(f"{name} {format_time(ns)}" for name, ns in kinds if ns)
        stream = f"on stream {wait.stream} " if len(breakdown.waits) > 1 else ""
        texts.append(f"{stream}{parts or 'nothing'}")
    return f"idle, as HolisticTraceAnalysis splits it: {'; '.join(texts)}"


def time_text(row: Row) -> str:
    """'GPU 156.5 ms', of two runs 'GPU +160.8 ms'; '' where nothing ran."""
    if not any(side.time.kernels for side in row.sides):
        return ""
    if len(row.sides) == 1:
        return f"GPU {time_amount(row.sides[0].time)}"
    return f"GPU {format_time_delta(row.delta_ns)}"


def time_amount(time: Timing) -> str:
    """A side's time in a table, a dot where nothing ran."""
    return format_time(time.ns) if time.kernels else "·"


def describe_kernels(time: Timing, report: PeakReport) -> list[str]:
    """Lines under a row: its longest kernel and where it was launched, what that fuses, how fast it
    moves what it must. None where the symbol takes no notable part of the busy time."""
    busy = report.gpu.busy_ns if report.gpu else 0
    if not time.longest or time.ns < _NOTABLE * busy:
        return []
    name = clean(_without_parameters(time.longest))
    if len(name) > _KERNEL_WIDTH:
        name = f"{name[:_KERNEL_WIDTH]}…"
    many = f"{time.kernels} kernels, the longest {format_time(time.longest_ns)}: " * (
        time.kernels > 1
    )
    where = f", launched at {clean(time.where[0])}" if time.where else ""
    lines = [f"{many}{name}{where}"]
    if len(time.operations) > 1:
        names = dict.fromkeys(_called(text) for text in time.operations)
        more = ", …" if len(names) > _OPERATIONS else ""
        shown = clean(", ".join(list(names)[:_OPERATIONS]))
        lines.append(f"fuses {len(time.operations)} operations: {shown}{more}")
    if moved := describe_throughput(time, report):
        lines.append(moved)
    return lines


def _without_parameters(kernel: str) -> str:
    """'void f<int>(int*)' → 'f<int>': what a C++ function is called, without what it takes."""
    depth = 0
    for at, sign in enumerate(kernel):
        depth += (sign == "<") - (sign == ">")
        if sign == "(" and depth == 0 and at and not kernel.startswith("(anonymous", at):
            kernel = kernel[:at]
            break
    return kernel.removeprefix("void ")


def _called(text: str) -> str:
    """'t1286 = prims.transpose(t651, …)' → 'transpose'."""
    found = _CALLED.search(text)
    return found["name"].rpartition(".")[2] if found else text


def describe_throughput(time: Timing, report: PeakReport) -> str:
    """'must move 3.76 GB: 23.6 GB/s, 0.6% of what a copy reaches, 4.10 TB/s'; '' where that is not
    known."""
    found = measure(time, card_bandwidth(report.facts))
    if found is None:
        return ""
    text = f"must move {format_bytes(found.moved)}: {format_bytes(found.per_second)}/s"
    if found.card is None:
        return text
    speed = f"{format_bytes(found.card.per_second)}/s"
    card = f"what a copy reaches, {speed}" if found.card.measured else f"the card's {speed}"
    if found.share is None:
        return f"{text}, more than {card}: it reads a part of its inputs only, or from the cache"
    return f"{text}, {found.share:.1%} of {card}"
