"""The shipped H200 captures: replay equals the driver, every byte has a name, the story told."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtrace.analysis import fold_rows, open_subject, report_diff, report_peak, report_show
from memtrace.errors import MemtraceError
from memtrace.snapshot import read
from memtrace.symbols import BEFORE_RECORDING, UNATTRIBUTED
from memtrace.timeline import find_windows, reconcile

SAMPLES = sorted((Path(__file__).parent.parent / "samples").glob("*.pkl.gz"))
# Small programs under every kind of allocator: scripts/record_allocators.py.
ALLOCATORS = {p.name[:-7]: p for p in (Path(__file__).parent / "data/allocators").glob("*.gz")}
EAGER = "qwen2-L4-eager-{}.pkl.gz"


def subject(name: str, window: str | None = None):
    return open_subject(read(str(SAMPLES[0].parent / name)), window)


def test_there_are_samples_and_they_are_small():
    assert len(SAMPLES) >= 15
    assert max(path.stat().st_size for path in SAMPLES) < 2_000_000


NATIVE = [path for name, path in sorted(ALLOCATORS.items()) if name not in ("async", "late")]


@pytest.mark.parametrize("path", [*SAMPLES, *NATIVE], ids=lambda path: path.name)
def test_every_figure_of_the_driver_is_met_to_the_byte(path):
    whole = open_subject(read(str(path)), "all")
    checks = reconcile(whole.recording, whole.replay)
    assert len(checks) > 75
    assert [check for check in checks if check.agrees is False] == []
    assert sum(check.agrees is None for check in checks) == 0
    report = report_peak(whole)
    assert report.driver_peak_bytes is not None
    assert whole.replay.end_mismatches == 0
    assert report.complete


@pytest.mark.parametrize("path", [*SAMPLES, *NATIVE], ids=lambda path: path.name)
def test_rows_sum_and_every_byte_has_a_name(path):
    report = report_peak(open_subject(read(str(path))))
    assert sum(row.sides[0].bytes for row in report.rows) == report.peak_bytes
    nameless = (UNATTRIBUTED, BEFORE_RECORDING)
    unnamed = sum(row.sides[0].bytes for row in report.rows if row.symbol.name in nameless)
    assert unnamed < 0.001 * report.peak_bytes


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
@pytest.mark.parametrize("by", ["symbol", "layer", "line"])
def test_times_sum_to_the_busy_time(path, by):
    report = report_peak(open_subject(read(str(path))), by=by)
    assert sum(row.sides[0].time.ns for row in report.rows) == report.gpu.busy_ns > 0
    kernels = read(str(path)).meta["profile"]["kernels"]
    assert sum(row.sides[0].time.kernels for row in report.rows) == len(kernels["name"])


@pytest.mark.parametrize("name", [p.name for p in SAMPLES if "checked" in p.name])
def test_checked_iterations_have_the_drivers_peak(name):
    whole = subject(name)
    windows = [w for w in find_windows(whole.recording, whole.replay) if w.kind == "iteration"]
    assert len(windows) >= 10
    for window in windows:
        report = report_peak(subject(name, str(window.index)))
        assert report.driver_peak_bytes == report.peak_bytes


def test_the_softmax_copies_are_found():
    report = report_diff(subject(EAGER.format("torchcompile")), subject(EAGER.format("nvfuser")))
    assert sum(row.delta for row in report.rows) == report.gap_bytes == 1_860_302_848
    first = fold_rows(report.rows)[0]
    assert [symbol.name for symbol in first.members] == [f"nvFusion{k}" for k in (2, 6, 10, 14)]
    assert dict(first.sides[1].tensors) == {
        "float32[1, 28, 4096, 4096]": 4,
        "bfloat16[1, 28, 4096, 4096]": 4,
    }
    assert first.delta == 4 * 3 * 939_524_096
    assert first.status == "NEW"


def test_names_are_the_same_on_every_run_of_a_program():
    report = report_diff(subject(EAGER.format("nvfuser")), subject(EAGER.format("nvfuser-checked")))
    assert report.gap_bytes == 0
    assert all(row.delta == 0 for row in report.rows)


def test_a_recording_that_began_late_keeps_what_was_alive():
    late = open_subject(read(str(ALLOCATORS["late"])))
    report = report_peak(late)
    assert report.accounting == "allocated"
    assert report.reconciled is True
    assert report.driver_peak_bytes == report.peak_bytes
    before = next(row for row in report.rows if row.symbol.name == BEFORE_RECORDING)
    # The Linear's weight, bias and gradients, the input, the cuBLAS workspace.
    assert before.sides[0].bytes > 2 * 1000 * 1000 * 4


def test_out_of_memory_shows_what_filled_it():
    report = report_peak(open_subject(read(str(ALLOCATORS["oom"]))))
    assert report.window == "all"
    assert report.rows[0].symbol.text.endswith("oom.py:10)")
    assert report.rows[0].sides[0].bytes == report.rows[0].sides[0].count * (128 << 20)


def test_cpp_frames_name_what_python_does_not():
    names = {
        row.symbol.text: row.sides[0].bytes
        for row in report_peak(open_subject(read(str(ALLOCATORS["cpp-stacks"])))).rows
    }
    assert names["cuBLAS workspace"] == 2 * 33_554_432 + 1_048_576
    assert any(name.startswith("backward AddmmBackward0 › aten::mm") for name in names)


def test_an_allocator_without_history_is_said():
    report = report_peak(open_subject(read(str(ALLOCATORS["async"]))))
    assert report.peak_bytes == 0
    assert any("cudaMallocAsync" in text for text in report.warnings)


def test_by_tensor_the_gap_is_the_second_copy_of_the_softmax():
    report = report_diff(
        subject(EAGER.format("torchcompile")), subject(EAGER.format("nvfuser")), by="tensor"
    )
    assert sum(row.delta for row in report.rows) == report.gap_bytes
    rows = {row.symbol.text: row for row in report.rows}
    for layer in range(4):
        place = f"forward model.layers.{layer}.self_attn"
        kept = rows[f"{place} bfloat16[1, 28, 4096, 4096]"]
        # The other executor makes it too, but frees it before the backward pass.
        assert (kept.status, kept.delta) == ("KEPT LONGER", 939_524_096)
        assert kept.beside == ("float32",)
        assert rows[f"{place} float32[1, 28, 4096, 4096]"].delta == 0
    first = fold_rows(report.rows)[0]
    assert first.delta == 4 * 939_524_096
    assert [side.names for side in first.sides] == [(), ("t1126", "t1714", "t2302", "t2890")]


@pytest.mark.parametrize("by", ["symbol", "tensor", "layer", "category", "line"])
@pytest.mark.parametrize("at", [None, "forward-end", "backward-start", "5000"])
def test_every_dimension_and_moment_sums_to_the_gap(by, at):
    a, b = subject("vit-eager.pkl.gz"), subject("vit-nvfuser.pkl.gz")
    report = report_diff(a, b, by=by, at=at)
    assert sum(row.delta for row in report.rows) == report.gap_bytes
    assert sum(row.sides[0].bytes for row in report.rows) == report.baseline.peak_bytes
    for row in report.rows:
        for side in row.sides:
            if side.layers:
                assert sum(amount for _, amount in side.layers) == side.bytes
                assert sum(amount for _, amount in side.categories) == side.bytes


def test_adamw_keeps_two_states_for_each_parameter():
    report = report_peak(subject("gpt2-inductor.pkl.gz"), by="category")
    sizes = {row.symbol.text: row.sides[0].bytes for row in report.rows}
    # 67,736,832 parameters of GPT-2 at 4 layers and width 768 in f32, counted from its shapes:
    # embeddings, layers, last norm (the head is tied to the embedding).
    layer = 2 * 2 * 768 + 768 * 2304 + 2304 + 768 * 768 + 768 + 2 * 768 * 3072 + 3072 + 768
    parameters = 4 * (50257 * 768 + 1024 * 768 + 4 * layer + 2 * 768)
    assert sizes["parameter"] == parameters
    steps = 52 * 4  # AdamW's step counts, one f32 a parameter, live on the device's host
    assert sizes["optimizer state"] in (2 * parameters, 2 * parameters + steps)


def test_a_tensor_is_shown_with_who_makes_uses_and_frees_it():
    (shown,) = report_show(subject(EAGER.format("nvfuser")), "t1714").shown
    assert (shown.bytes, shown.layer) == (939_524_096, "model.layers.1.self_attn")
    assert shown.category == "saved for backward"
    assert shown.alive_at_peak
    life = shown.life
    assert life.producer.text == "[t1700, t1714] = nvFusion6(t3534, attention_mask)"
    assert [line.text for line in life.consumers] == [
        "t3535 = torch.matmul(t1714, t1647)",
        "t3649 = torch.permute(t1714, (0, 1, 3, 2))",
        "t3606 = torch.matmul(t3649, t3690)",  # the permuted view is the same memory
    ]
    assert life.freed.text == "del t3649, t3690"
    assert life.idle_lines == 1


def test_a_symbol_is_not_a_part_of_another_ones_name():
    report = report_show(subject(EAGER.format("nvfuser")), "nvFusion2")
    assert {one.symbol for one in report.shown} == {"Qwen2ForCausalLM/forward nvFusion2"}
    assert report.bytes_at_peak == 3 * 939_524_096


def test_a_layer_shows_all_within_it():
    layers = {
        one.layer for one in report_show(subject("vit-eager.pkl.gz"), "vit.layers.2.mlp").shown
    }
    assert {"vit.layers.2.mlp.fc1", "vit.layers.2.mlp.fc2"} <= layers
    assert all(layer.startswith("vit.layers.2.mlp") for layer in layers)


def test_what_is_not_there_suggests_what_is():
    with pytest.raises(MemtraceError, match=r"named 'nvFusion99'; there are, for example: \w+"):
        report_show(subject(EAGER.format("nvfuser")), "nvFusion99")
