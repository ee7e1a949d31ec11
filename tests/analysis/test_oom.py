"""What is said where memory ran out: recordings with a known answer, and one of an H200."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memtrace.analysis import PeakReport, open_subject, report_peak, usual_moment
from memtrace.analysis.history import report_history
from memtrace.errors import MemtraceError
from memtrace.render.json import peak_object
from memtrace.render.oom import oom_lines
from memtrace.render.page.data import page_data
from memtrace.render.page.packing import Packer
from memtrace.render.text import print_peak
from memtrace.snapshot import read
from memtrace.snapshot.columns import Recording, Segment
from tests.builders import MIB, capture_meta, events, recording, segment, stack_table

STACKS = stack_table([("/home/me/train.py", 7, "step")], [("/home/me/train.py", 9, "eval")])
REAL = Path(__file__).parents[1] / "data/allocators/oom.pkl.gz"
FULL = "OutOfMemoryError: CUDA out of memory."
BASE = 1 << 32


def ran_out(
    rows: Iterable[tuple[Any, ...]],
    segments: Iterable[Segment],
    free: int,
    *,
    kind: str = "oom",
    message: str = FULL,
    total: int = 100 * MIB,
) -> Recording:
    """A recording of these rows with ``free`` bytes left on the device at its OOM events."""
    found = events(*rows)
    found.device_free[found.action == 8] = free
    meta = capture_meta(marks=[("start", "", 0), ("end", "", len(found))])
    meta["facts"]["exit"] = {"kind": kind, "code": 1, "message": message}
    meta["devices"][0]["total_bytes"] = total
    return recording(found, segments=segments, start=(), stacks=STACKS, meta=meta)


def fragmented(**more: Any) -> Recording:
    """Two segments of 20 MiB, the middle and the end of each free: 24 MiB in pieces of 6."""
    rows: list[tuple[Any, ...]] = []
    laid = []
    for base in (BASE, BASE + (1 << 30)):
        rows.append(("segment_alloc", base, 20 * MIB))
        for k, size in enumerate((4, 6, 4)):
            address = base + sum((4, 6, 4)[:k]) * MIB
            rows.append(("alloc", address, size * MIB, 0, 1))
        rows.append(("free", base + 4 * MIB, 6 * MIB, 0, 1))
        laid.append(
            segment(base, [("used", 4 * MIB), ("free", 6 * MIB), ("used", 4 * MIB),
                           ("free", 6 * MIB)])
        )  # fmt: skip
    rows.append(("oom", 0, 8 * MIB, 0, 2))
    return ran_out(rows, laid, 10 * MIB, **more)


def ask(found: Recording) -> PeakReport:
    subject = open_subject(found)
    return report_peak(subject, at=usual_moment(subject))


def text_of(report: PeakReport) -> str:
    console = Console(width=100, highlight=False, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    print_peak(console, report)
    return console.export_text()


def test_fragmentation_is_told_to_the_byte() -> None:
    report = ask(fragmented())
    oom = report.oom
    assert oom is not None
    assert oom.ended
    assert (oom.asked, oom.segment, oom.free, oom.total) == (
        8 * MIB, 20 * MIB, 10 * MIB, 100 * MIB,
    )  # fmt: skip
    assert (oom.reserved, oom.allocated, oom.pending) == (40 * MIB, 16 * MIB, 0)
    assert (oom.unused, oom.usable, oom.largest) == (24 * MIB, 24 * MIB, 6 * MIB)
    assert oom.outside == 50 * MIB
    assert oom.fragmented is True
    assert oom.naming.symbol.text.endswith("eval (me/train.py:9)")
    assert report.event == oom.event
    assert report.peak_bytes == sum(r.sides[0].bytes for r in report.rows) == 16 * MIB
    text = text_of(report)
    assert "8,388,608 bytes were asked for by" in text
    assert "the largest block it could have used: 6.3 MB" in " ".join(text.split())
    assert "lost to fragmentation: 25.2 MB" in text


def test_the_peak_before_is_another_moment() -> None:
    # 36 MiB were allocated once, before 20 of them were freed: memory ran out later.
    rows = [
        ("segment_alloc", BASE, 20 * MIB), ("alloc", BASE, 20 * MIB, 0, 1),
        ("segment_alloc", BASE + (1 << 30), 16 * MIB), ("alloc", BASE + (1 << 30), 16 * MIB, 0, 2),
        ("free", BASE, 20 * MIB, 0, 1), ("segment_free", BASE, 20 * MIB),
        ("oom", 0, 90 * MIB, 0, 1),
    ]  # fmt: skip
    laid = [segment(BASE + (1 << 30), [("used", 16 * MIB)])]
    found = ran_out(rows, laid, 60 * MIB)
    report = ask(found)
    assert report.peak_bytes == 16 * MIB
    assert report.position.endswith("when memory ran out")
    assert [row.symbol.text for row in report.rows] == ["eval (me/train.py:9)"]
    assert report_peak(open_subject(found)).peak_bytes == 36 * MIB
    assert report.oom is not None
    assert (report.oom.unused, report.oom.largest, report.oom.fragmented) == (0, 0, False)
    assert not any("fragmentation" in line for line in oom_lines(report))


def test_what_other_streams_and_pools_hold_is_no_help() -> None:
    laid = [
        segment(BASE, [("used", 1 * MIB), ("free", 19 * MIB)], stream=7),
        segment(BASE + (1 << 30), [("free", 20 * MIB)], pool=(0, 1)),
        segment(BASE + (2 << 30), [("pending", 12 * MIB), ("free", 8 * MIB)]),
        segment(BASE + (3 << 30), [("free", 2 * MIB)], kind="small"),
    ]
    rows = [
        ("segment_alloc", BASE, 20 * MIB, 7), ("alloc", BASE, MIB + 512, 7),
        ("segment_alloc", BASE + (1 << 30), 20 * MIB),
        ("segment_alloc", BASE + (2 << 30), 20 * MIB), ("alloc", BASE + (2 << 30), 12 * MIB),
        ("free_requested", BASE + (2 << 30), 12 * MIB),
        ("segment_alloc", BASE + (3 << 30), 2 * MIB),
        ("oom", 0, 15 * MIB),
    ]  # fmt: skip
    laid[0] = segment(BASE, [("used", MIB + 512), ("free", 19 * MIB - 512)], stream=7)
    report = ask(ran_out(rows, laid, 5 * MIB))
    oom = report.oom
    assert oom is not None
    assert (oom.reserved, oom.allocated, oom.pending) == (62 * MIB, MIB + 512, 12 * MIB)
    assert (oom.unused, oom.usable, oom.largest) == (49 * MIB - 512, 8 * MIB, 8 * MIB)
    assert oom.fragmented is False
    assert "awaited by other streams" in " ".join(oom_lines(report))


def test_those_caught_before_are_listed() -> None:
    rows: list[tuple[Any, ...]] = [("segment_alloc", BASE, 20 * MIB), ("oom", 0, 512, 0, 1)]
    rows += [("alloc", BASE, 4 * MIB, 0, 1), ("oom", 0, 70 * MIB, 0, 1), ("oom", 0, MIB, 0, 2)]
    laid = [segment(BASE, [("used", 4 * MIB), ("free", 16 * MIB)])]
    report = ask(ran_out(rows, laid, 0))
    assert report.earlier_ooms == ((1, 512), (3, 70 * MIB))
    assert report.oom is not None
    assert report.oom.event == 4
    assert "run out 2 times before" in oom_lines(report)[-1]
    assert "event 3 (73.4 MB)" in oom_lines(report)[-1]


def test_a_script_that_went_on_is_asked_about_its_peak() -> None:
    found = fragmented(kind="ok", message="")
    report = ask(found)
    assert report.oom is not None
    assert not report.oom.ended
    assert report.peak_bytes == 22 * MIB
    (line,) = oom_lines(report)
    assert "ran out once" in line
    assert "--at oom" in line
    then = report_peak(open_subject(found), at="oom")
    assert then.peak_bytes == 16 * MIB
    assert len(oom_lines(then)) > 2


def test_the_hosts_memory_is_another_one() -> None:
    report = ask(fragmented(message="MemoryError: Unable to allocate 8 GiB"))
    assert report.oom is not None
    assert not report.oom.ended
    assert usual_moment(open_subject(fragmented(message="_ArrayMemoryError: x"))) is None


def test_without_an_event_the_message_is_what_there_is() -> None:
    rows = [("segment_alloc", BASE, 20 * MIB), ("alloc", BASE, 20 * MIB)]
    found = ran_out(rows, [segment(BASE, [("used", 20 * MIB)])], 0, message="RuntimeError: no more")
    report = ask(found)
    assert report.oom is None
    assert "the script ended for lack of memory: RuntimeError: no more" in report.warnings
    with pytest.raises(MemtraceError, match="never ran out"):
        report_peak(open_subject(found), at="oom")


def test_the_page_says_it_too() -> None:
    page = page_data(report_history([open_subject(fragmented())]), Packer())
    told = page["runs"][0]["summary"]["warnings"]
    assert any("lost to fragmentation" in line for line in told)
    json.dumps(page["runs"][0]["summary"])


def test_names_from_the_file_are_clean() -> None:
    found = fragmented()
    stacks = stack_table([("/a.py", 1, "f")], [("/b\x1b[31m.py", 1, "\u202eevil" + "x" * 10_000)])
    hostile = Recording(**{
        **{name: getattr(found, name) for name in Recording.__dataclass_fields__}, "stacks": stacks,
    })  # fmt: skip
    text = text_of(ask(hostile))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_device_that_ran_out_is_looked_at() -> None:
    one = fragmented()
    busy = events(("segment_alloc", BASE, 80 * MIB), ("alloc", BASE, 80 * MIB))
    both = Recording(**{
        **{name: getattr(one, name) for name in Recording.__dataclass_fields__},
        "events": (one.events[0], busy),
    })  # fmt: skip
    assert open_subject(both).replay.device == 0


def test_a_real_one_agrees_with_torchs_message() -> None:
    report = ask(read(REAL))
    oom = report.oom
    assert oom is not None
    assert report.reconciled
    message = str(report.facts["exit"]["message"])

    def said(pattern: str) -> float:
        found = re.search(rf"{pattern}", message)
        assert found is not None
        return float(found[1])

    assert oom.segment / MIB == said(r"allocate ([\d.]+) MiB")
    assert oom.total is not None
    assert oom.free is not None
    assert oom.reserved is not None
    assert oom.allocated is not None
    assert oom.outside is not None
    gib = 1 << 30
    assert round(oom.total / gib, 2) == said(r"capacity of ([\d.]+) GiB")
    assert round(oom.free / gib, 2) == said(r"of which ([\d.]+) GiB")
    assert round(oom.allocated / gib, 2) == said(r"([\d.]+) GiB is allocated by")
    assert round((oom.reserved - oom.allocated) / MIB, 2) == said(r"([\d.]+) MiB is reserved by")
    assert round((oom.reserved + oom.outside) / gib, 1) == round(said(r"has ([\d.]+) GiB mem"), 1)
    assert oom.limit == "1.40 GiB"
    # The driver's own figures at the end of the recording, which is that moment.
    assert oom.reserved == 1_432_354_816
    assert (oom.unused, oom.usable, oom.largest) == (13_623_296, 12_582_912, 12_582_912)
    found = json.loads(json.dumps(peak_object(report)))["oom"]
    assert found["asked_bytes"] == 128 * MIB
    assert found["reserved_bytes"] == (
        found["allocated_bytes"] + found["unused_bytes"] + found["pending_bytes"]
    )
    assert "this process is allowed 1.40 GiB" in text_of(report)
