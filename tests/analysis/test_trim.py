"""A part cut out of a recording: what is said of it is what is said of the whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtrace.analysis import Subject, open_subject, report_diff, report_peak, trim
from memtrace.errors import MemtraceError
from memtrace.render.json import diff_object, peak_object
from memtrace.snapshot import Recording, read, write_capture
from memtrace.snapshot.torch_form import to_snapshot
from memtrace.symbols import BEFORE_RECORDING
from memtrace.timeline import reconcile
from tests.builders import MIB, capture_meta, events, recording, segment, stack_table
from tests.timeline.test_model import MODELS, STEPS, run

ROOT = Path(__file__).parents[2]
CAPTURES = [
    "samples/qwen2-L4-eager-nvfuser.pkl.gz",
    "samples/vit-torchcompile.pkl.gz",
    "samples/gpt2-eager.pkl.gz",
    *(
        f"tests/data/allocators/{name}.pkl.gz"
        for name in ("checked", "cpp-stacks", "expandable", "graphs", "late", "max-split", "oom")
    ),
    "tests/data/plain/qwen2-L4-sdpa-nvfuser.snapshot.pkl.gz",
    "tests/data/plain/qwen2-L8-eager.snapshot.pkl.gz",
]
STACKS = stack_table(*([("/home/me/model.py", line, "forward")] for line in range(1, 5)))
HOME = 1 << 40


def said(subject: Subject, **how: Any) -> dict[str, Any]:
    """All that ``memtrace peak --json`` says, but for names of files and numbers of events."""
    found = peak_object(report_peak(subject, **how), None, "bytes", None)
    return {key: value for key, value in found.items() if key not in ("path", "label", "event")}


def same_window(subject: Subject, part: Recording) -> Subject:
    """The subject's window in its part."""
    return open_subject(part, subject.window.name)


def through_a_file(part: Recording, folder: Path, name: str = "part.pkl") -> Recording:
    write_capture(folder / name, to_snapshot(part), force=True)
    return read(folder / name)


@pytest.mark.parametrize("window", [None, "last", "0", "last:3", "all"])
@pytest.mark.parametrize("path", CAPTURES)
def test_of_a_part_of_a_real_capture_the_same_is_said(path, window, tmp_path):
    try:
        whole = open_subject(read(ROOT / path), window)
    except MemtraceError:  # a plain snapshot that has no iterations
        assert "plain" in path
        return
    part = same_window(whole, through_a_file(trim(whole), tmp_path))
    for by in ("symbol", "tensor", "layer", "category", "line"):
        assert said(part, by=by) == said(whole, by=by)
    assert part.replay.n_events == whole.window.end - whole.window.begin or window in (None, "all")
    assert to_snapshot(trim(part)) == to_snapshot(part.recording)
    assert part.replay.end_mismatches in (0, whole.replay.end_mismatches)


def test_the_part_is_open_for_what_chooses_no_window():
    whole = open_subject(read(ROOT / CAPTURES[0]))
    assert said(open_subject(trim(whole))) == said(whole)


def test_a_diff_of_parts_is_that_of_the_whole(tmp_path):
    paths = [ROOT / f"samples/qwen2-L4-eager-{name}.pkl.gz" for name in ("torchcompile", "nvfuser")]
    whole = [open_subject(read(path)) for path in paths]
    parts = [open_subject(through_a_file(trim(one), tmp_path)) for one in whole]

    def differences(subjects: list[Subject]) -> dict[str, Any]:
        found = diff_object(report_diff(*subjects), None, "time", [None, None])
        return {key: value for key, value in found.items() if key not in ("baseline", "candidate")}

    assert differences(parts) == differences(whole)
    mixed = differences([whole[0], parts[1]])
    assert mixed["rows"] == differences(whole)["rows"]


def test_names_without_operators_come_along(tmp_path):
    """As a diff takes them, where one of two recordings has no profile."""
    whole = open_subject(read(ROOT / "samples/gpt2-eager.pkl.gz"))
    meta = whole.recording.meta
    bare = open_subject(replace(whole.recording, meta={**meta, "profile": None}))
    part = open_subject(through_a_file(trim(whole), tmp_path))
    assert report_diff(part, bare).rows == report_diff(whole, bare).rows


def test_the_figures_of_the_driver_within_the_part_are_met():
    whole = open_subject(read(ROOT / "tests/data/allocators/checked.pkl.gz"), "5")
    part = open_subject(trim(whole), "5")
    checks = [check for check in reconcile(part.recording, part.replay) if check.agrees is not None]
    assert len(checks) > 20
    assert all(check.agrees for check in checks)
    assert report_peak(part).driver_peak_bytes == report_peak(whole).driver_peak_bytes is not None


def capture(rows: list[tuple[Any, ...]], ends: list[int], **more: Any) -> Recording:
    """Events and where iterations end; the first begins at the first end."""
    marks = [("step", "", end) for end in ends]
    steps = [{"begin": k, "end": k + 1} for k in range(len(ends) - 1)]
    device = more.pop("device", "cuda")
    meta = capture_meta(marks=marks, iterations=steps, device=device)
    return recording(events(*rows), meta=meta, stacks=STACKS, **more)


@given(
    model=MODELS,
    steps=STEPS,
    start=st.integers(0, 60),
    ends=st.lists(st.integers(0, 120), min_size=2, max_size=5),
    told=st.sampled_from(["start", "nothing", "cpu", "marks"]),
    wanted=st.sampled_from(["0", "last", "last:2", "0-1", "all"]),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_of_a_part_of_any_history_the_same_is_said(model, steps, start, ends, told, wanted):
    first, segments = run(model, steps, start)
    if told == "cpu":
        rows = [row for row in model.events if not row[0].startswith("segment")]
        more = {"device": "cpu"}
    else:
        rows = model.events[first:]
        more = {
            "segments": model.segments(),
            "start": segments if told == "start" else None,
            "settings": {
                "max_split_size": -1 if model.max_split_size == 1 << 62 else model.max_split_size,
                "expandable_segments": model.expandable,
                "roundup_power2_divisions": {str(1 << k): model.divisions for k in range(16)},
            },
        }
    rows = [(*row, k % 5, 1000 + k) for k, row in enumerate(rows)]
    source = capture(rows, sorted(min(end, len(rows)) for end in ends), **more)
    if told == "nothing":
        source = replace(source, meta=None)
    try:
        whole = open_subject(source, wanted)
    except MemtraceError:
        return
    part = same_window(whole, trim(whole))
    for by in ("symbol", "category"):
        assert said(part, by=by) == said(whole, by=by)
    assert to_snapshot(trim(part)) == to_snapshot(part.recording)
    inside = slice(whole.window.begin, whole.window.end + 1)
    assert part.replay.requested.tolist()[: inside.stop - inside.start] == (
        whole.replay.requested[inside].tolist()
    )


def test_what_was_alive_before_keeps_its_stack_and_its_block(tmp_path):
    rows = [
        ("segment_alloc", HOME, 20 * MIB),
        ("alloc", HOME, 3 * MIB, 0, 1),
        ("alloc", HOME + 3 * MIB, 1000, 0, 2),
        ("free", HOME, 3 * MIB, 0, 1),
        ("alloc", HOME, 2 * MIB, 0, 3),
        ("free", HOME, 2 * MIB, 0, 4),
    ]
    source = capture(rows, [5, 8], segments=[segment(HOME, [("free", 20 * MIB)])])
    whole = open_subject(source, "0")
    found = to_snapshot(trim(whole))
    (begin,) = found["memtrace"]["devices"][0]["start_segments"]
    assert [(b["address"] - HOME, b["size"], b["state"]) for b in begin["blocks"]] == [
        (0, 3 * MIB, "inactive"),
        (3 * MIB, 1024, "active_allocated"),
        (3 * MIB + 1024, 17 * MIB - 1024, "inactive"),
    ]
    assert begin["blocks"][1]["frames"] == [
        {"filename": "/home/me/model.py", "line": 2, "name": "forward"}
    ]
    assert begin["blocks"][1]["requested_size"] == 1000
    (end,) = found["segments"]
    assert (end["allocated_size"], end["requested_size"]) == (1024, 1000)
    assert [entry["action"] for entry in found["device_traces"][0]] == [
        "alloc",
        "free_requested",
        "free_completed",
    ]
    part = open_subject(through_a_file(trim(whole), tmp_path, "small.pkl.zst"), "0")
    names = [row.symbol.name for row in report_peak(part).rows]
    assert BEFORE_RECORDING not in names
    assert said(part) == said(whole)


def test_a_free_of_nothing_stays_one():
    """On its own it would look like the end of what was there before."""
    rows = [
        ("alloc", HOME, 512, 0, 1),
        ("free", HOME, 512, 0, 1),
        ("alloc", HOME + 512, 512, 0, 2),
        ("free", HOME, 512, 0, 1),
    ]
    whole = open_subject(capture(rows, [3, 6], device="cpu"), "0")
    part = open_subject(trim(whole), "0")
    assert (
        whole.replay.requested[3:].tolist() == part.replay.requested.tolist() == [0, 512, 512, 512]
    )
    assert said(part) == said(whole)


def test_what_is_missing_in_the_whole_is_missing_in_the_part():
    rows = [
        ("alloc", HOME, 512, 0, 1),
        ("alloc", HOME, 512, 0, 2),
        ("alloc", HOME + 512, 512, 0, 3),
    ]
    whole = open_subject(capture(rows, [2, 3], device="cpu"), "0")
    part = open_subject(trim(whole), "0")
    assert not part.replay.complete
    assert part.replay.warnings == whole.replay.warnings != ()


def test_all_devices_are_cut_and_the_busiest_stays_the_one_asked_about(tmp_path):
    """Device 1 has the greatest peak of all, but not in the last iteration."""
    quiet = [("alloc", HOME + k * MIB, MIB, 0, 1) for k in range(4)]
    busy = [("alloc", HOME, 64 * MIB, 0, 2), ("free", HOME, 64 * MIB, 0, 2)]
    busy += [("alloc", HOME, 2 * MIB, 0, 3)]
    meta = capture_meta(
        marks=[("step", "", 2), ("end", "", 4)], iterations=[{"begin": 0, "end": 1}]
    )
    meta["marks"]["event"] = [[2, 3], [4, 4]]
    meta["marks"]["stats"] = [[], []]
    meta["facts"]["device"] = "cpu"
    meta["devices"].append(meta["devices"][0] | {"index": 1})
    source = recording(events(*quiet), events(*busy), meta=meta, stacks=STACKS)
    whole = open_subject(source, "0")
    assert whole.replay.device == 1
    part = open_subject(through_a_file(trim(whole), tmp_path), "0")
    assert part.replay.device == 1
    assert [len(one) for one in part.recording.events] == [2, 1]
    assert said(part) == said(whole)


def test_steps_of_the_profiler_in_a_plain_snapshot(tmp_path):
    rows = [("alloc", HOME + k * 512, 512, 0, k % 5, 100 + 10 * k) for k in range(9)]
    steps = [
        {"name": f"ProfilerStep#{number}", "stage": stage, "time_us": time, "device": 0}
        for number, begin, end in ((3, 100, 130), (4, 130, 160), (5, 160, 185))
        for stage, time in (("START", begin), ("END", end))
    ]
    source = recording(events(*rows), annotations=steps, stacks=STACKS)
    for window in ("4", "last", "3-4", None):
        whole = open_subject(source, window)
        part = through_a_file(trim(whole), tmp_path)
        assert said(same_window(whole, part)) == said(whole)
        assert said(open_subject(part)) == said(same_window(whole, part)) or window == "3-4"


def test_nothing_is_cut_from_nothing():
    with pytest.raises(MemtraceError, match="no history"):
        trim(open_subject(recording()))
