"""What fuzzing and looking for trouble found, each as the kind of thing it was."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memtrace.analysis import open_subject
from memtrace.analysis.predicted import report_prediction
from memtrace.analysis.rows import Side, add_sides, split_number
from memtrace.analysis.tensors import describe
from memtrace.analysis.timing import Timing, add_timings
from memtrace.cli import main
from memtrace.errors import MemtraceError
from memtrace.symbols.dataflow import parameter_place
from memtrace.symbols.numbers import read_number, read_shape
from memtrace.symbols.profiled import _nest
from memtrace.symbols.sources import Sources
from memtrace.symbols.statements import Tensor, parse_source
from memtrace.timeline.assembly import _inside
from tests.snapshot.build import capture, event, meta, save, snapshot
from tests.snapshot.test_reader import fault, read

ENDLESS = "9" * 5000  # more digits than int() takes


@pytest.mark.parametrize("text", ["", " 1", "1 2", "-1", "1.0", "٣", ENDLESS, "x"])
def test_numbers_that_are_none(text: str) -> None:
    assert read_number(text) == -1


def test_shapes() -> None:
    assert read_shape("4, 8") == (4, 8)
    assert read_shape("32, ") == (32,)
    assert read_shape("") == ()


@pytest.mark.parametrize(
    "line",
    [
        f"# /a/b.py:{ENDLESS}: y = x",
        f'# t1: "cuda:0 f32[{ENDLESS}]"',
        '# t1: "cuda:0 f32[1 2,,3]"',
        f"buf0 = empty_strided_cuda(({ENDLESS}, ), (1, ), torch.float32)",
        "buf0 = empty_strided_cuda((1 2, ), (1, ), torch.float32)",
        f"arg0 = rand_strided(({ENDLESS}, ), (1, ), device='cuda:0', dtype=torch.float32)",
        f"return (reinterpret_tensor(buf0, ({ENDLESS}, ), (1, ), 0), )",
    ],
)
def test_lines_with_numbers_that_are_none(line: str) -> None:
    source = parse_source("x.py", f"{line}\nt2 = f(t1)")
    assert source.statements[2].callee == "f"
    assert source.tensors == source.buffers == source.inputs == {}
    text = (
        f"# AOT ID: ['0_forward']\nbuf0 = empty_strided_cuda((4, ), (1, ), torch.float32)\n{line}"
    )
    Sources({"sources": {"/tmp/torchinductor_x/a.py": text}})


def test_lines_that_read_on_and_on() -> None:
    begin = time.process_time()
    for line in ("a" + " " * 30_000 + "!", "a" + " ," * 30_000 + "!", "Source Nodes: [" * 30_000):
        parse_source("x.py", f"{line}\n# {line}\n{line}")
    parameter_place("l_" + "self_modules_" * 5000 + "_parameters_" * 5000 + "!")
    assert time.process_time() - begin < 2


def test_parameters_are_found_as_before() -> None:
    name = "l_self_modules_model_modules_layers_modules_3_parameters_weight_"
    place = parameter_place(name)
    assert place is not None
    assert place.layer == "model.layers.3"
    assert parameter_place("l_stack0_self_modules_a_buffers_b_") is not None
    for other in (
        "l_self_modules_a_parameters__",
        "l_self_modules__parameters_w_",
        "self_modules_a",
    ):
        assert parameter_place(other) is None


def test_rows_named_after_endless_numbers() -> None:
    assert split_number("nvFusion12") == ("nvFusion", "12")
    assert split_number("12") == ("12", "")
    assert split_number("f") == ("f", "")
    assert describe(f"float32[{ENDLESS}]") is None
    assert describe("float32[1 2]") is None
    found = describe("model.embed float32[8, 4]")
    assert found is not None
    assert found.shape == (8, 4)


@pytest.mark.parametrize("shape", [(1 << 62,) * 60, (7,) * 100_000, (-1,), (1 << 56,)])
def test_tensors_that_no_memory_holds(shape: tuple[int, ...]) -> None:
    assert Tensor("t", shape, "float32").bytes == -1
    strides = tuple(map(abs, shape))
    assert Tensor("t", shape, "float32", strides=strides).bytes == -1


def test_the_sums_of_very_many_are_taken_at_once() -> None:
    begin = time.process_time()
    times = [Timing(1, 1, f"k{k}", k, (f"x:{k}",), moved=2) for k in range(20_000)]
    sides = [Side(1, 1, (f"x:{k}",), names=(f"t{k}",), time=t) for k, t in enumerate(times)]
    total = add_sides(sides)
    assert (total.bytes, len(total.where), total.time.longest) == (20_000, 20_000, "k19999")
    assert (total.time.moved, total.time.where[0]) == (40_000, "x:19999")
    assert time.process_time() - begin < 2
    one, other = times[3], times[5]
    assert one + other == add_timings([one, other])
    assert (one + other).where == ("x:5", "x:3") == (other + one).where


def test_operators_far_within_one_another() -> None:
    n = 3000
    parents = _nest(["cpu_op"] * n, [1] * n, list(range(n)), [2 * n - 2 * k for k in range(n)])
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    assert depths[:50] == list(range(50))
    assert max(depths) == 100


def test_addresses_in_ranges_that_overlap() -> None:
    ranges = ((10, 20), (12, 14), (0, 0), (30, 1 << 64))
    addresses = np.array([0, 9, 10, 15, 19, 20, 30, (1 << 64) - 1], np.uint64)
    assert _inside(addresses, ranges).tolist() == [
        any(low <= a < high for low, high in ranges) for a in addresses.tolist()
    ]
    assert not _inside(addresses, ()).any()


def test_the_graph_that_has_most_of_the_nodes() -> None:
    key = meta()
    node = key["fx"]["<eval_with_key>.12"][0]
    key["fx"] = {
        f"<eval_with_key>.{k}": [node | {"node": name, "module": f"m{k}"} for name in names]
        for k, names in enumerate((["a"], ["a", "b"], ["b", "a"], ["c"]))
    }
    sources = Sources(key)
    assert sources.node_place(["a"]).layer == "m0"
    assert sources.node_place(["a", "b"]).layer == "m1"
    assert sources.node_place(["x"]).layer == ""


def test_one_text_in_very_many_places(tmp_path: Path) -> None:
    text = "t1 = f(t0)\n" * 100_000
    names = {f"thunder.computation_{k}": text for k in range(2000)}
    assert "repeats its parts" in fault(save(tmp_path, capture(sources=names)))
    key = {"x" * 1_000_000: 1}
    assert "repeats its parts" in fault(
        save(tmp_path, snapshot(external_annotations=[dict(key) for _ in range(2000)]))
    )
    long = "f" * 1_000_000

    def trace(texts: int) -> list[dict[str, Any]]:
        frames = [{"filename": long, "line": k, "name": "f"} for k in range(texts)]
        return [event("alloc", frames=[frame]) for frame in frames]

    assert "repeat their names" in fault(save(tmp_path, snapshot(device_traces=[trace(200)])))
    assert read(save(tmp_path, snapshot(device_traces=[trace(50)])))
    own = [
        event("alloc", frames=[{"filename": f"{k}{long}", "line": 1, "name": "f"}])
        for k in range(100)
    ]
    assert read(save(tmp_path, snapshot(device_traces=[own])))


def test_iterations_one_after_another(tmp_path: Path) -> None:
    whole = capture()
    whole["memtrace"]["iterations"] *= 2
    assert "iterations[1].begin is 0, not in 1 … 1" in fault(save(tmp_path, whole))


def test_places_in_messages_are_short(tmp_path: Path) -> None:
    deep: Any = 1 << 70
    for k in range(15):
        deep = {"a long key of a facts' dict" + str(k): deep}
    text = fault(save(tmp_path, capture(facts={"x": deep})))
    assert "memtrace.facts" in text
    assert "…" in text
    assert len(text) < len(str(tmp_path)) + 400


def test_names_that_are_suggested_are_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [{"filename": "/x/" + "n" * 5000, "line": 1, "name": "m" * 5000}]
    path = save(tmp_path, snapshot(device_traces=[[event("alloc", frames=frames)]]))
    monkeypatch.setattr(sys, "argv", ["memtrace", "show", str(path), "t1"])
    with pytest.raises(SystemExit):
        main()
    assert len(capsys.readouterr().err) < len(str(path)) + 300


def test_programs_in_a_message_are_few(tmp_path: Path) -> None:
    module = meta()["thunder"][0]
    many = [module | {"name": "M" * 5000 + str(k)} for k in range(50)]
    many += [module | {"name": f"M{k}"} for k in range(50)]
    subject = open_subject(read(save(tmp_path, capture(thunder=many))))
    with pytest.raises(MemtraceError) as stopped:
        report_prediction(subject)
    assert "none of its Thunder programs (MMM" in str(stopped.value)
    assert len(str(stopped.value)) < len(str(tmp_path)) + 600


def test_a_message_cannot_drive_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by what the file holds nor by what it is called."""
    path = tmp_path / "a\x1b[31m\n\u202e.pkl"
    path.write_bytes(b"\x80\x04\x8c\x04\x1b[2J.")
    monkeypatch.setattr(sys, "argv", ["memtrace", "peak", str(path)])
    with pytest.raises(SystemExit):
        main()
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.strip().isprintable()
