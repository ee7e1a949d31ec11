"""Kernels belong to what launched them: lines of generated code, operators, nodes, graphs."""

import pytest

from memtrace.analysis import open_subject, report_peak
from memtrace.snapshot.format import LAYER_PREFIX
from memtrace.symbols import UNATTRIBUTED
from memtrace.symbols.kernels import layer_of, name_kernels
from tests.builders import (
    capture_meta,
    events,
    kernel,
    launch,
    op,
    profile,
    ran,
    recording,
    stack_table,
)
from tests.symbols.test_names import OUTPUT, QWEN, SITE, node, tensor

TRACE = """def computation(q):
  [t1112, t1126] = nvFusion2(q)
  # <eval_with_key>.12:82: attn_output = torch.matmul(a, b)
  t3526 = torch.matmul(t1126, q)  # t3526: "cuda:0 bf16[28, 4096]"
  [t9] = TorchCompile0(q)
  [t10] = TorchCompile1(q)
"""
REGION = """def to_be_compiled(q):
  # <eval_with_key>.12:85: weights = softmax(q)
  t5 = Tensor.to(q, torch.float32)  # t5: "cuda:0 f32[4, 4]"
  # <eval_with_key>.12:85: weights = softmax(q)
  t6 = torch.exp(t5)  # t6: "cuda:0 f32[4, 4]"
"""
# buf1 is filled at 10 (and half of buf2), buf3 at 15; 12 works in place.
INDUCTOR = """# AOT ID: ['3_inference']
import torch
def call(args):
    arg0_1, = args
    buf1 = empty_strided_cuda((4, 4), (4, 1), torch.float32)
    buf2 = empty_strided_cuda((2, 4), (4, 1), torch.float32)
    # Topologically Sorted Source Nodes: [t5], Original ATen: [aten._to_copy]
    stream0 = get_raw_stream(0)

    triton_poi_fused__to_copy_0.run(arg0_1, buf1, buf2, 16, stream=stream0)
    # Topologically Sorted Source Nodes: [t6], Original ATen: [aten.exp]
    triton_poi_fused_exp_1.run(buf1, 16, stream=stream0)
    buf3 = empty_strided_cuda((4, 4), (4, 1), torch.float32)
    # Topologically Sorted Source Nodes: [t6], Original ATen: [aten.mm]
    extern_kernels.mm(buf1, arg0_1, out=buf3)
    return (buf3, )
def get_args():
    arg0_1 = rand_strided((4, 4), (4, 1), device='cuda:0', dtype=torch.bfloat16)
"""
OPERATION = {"text": "t1112 = prims.exp(q)", "name": "prims.exp", "origin": "", "args": ["q"]}


def symbol(name, line, args, outputs, inside=()):
    return {
        "name": name, "line": line, "origin": "", "args": args, "outputs": outputs,
        "inside": list(inside),
    }  # fmt: skip


def trace(phase, filename, *symbols):
    return {
        "phase": phase, "filename": filename, "inputs": [], "outputs": [],
        "symbols": list(symbols),
    }  # fmt: skip


FUSED = [tensor("t1112", 28, 8), tensor("t1126", 28, 8, dtype="bfloat16")]
FORWARD = trace(
    "forward",
    "thunder.computation_20",
    symbol("unpack_trivial", 0, [], [tensor("q", 28, 8)]),
    symbol("nvFusion2", 2, ["q"], FUSED, [{**OPERATION, "outputs": FUSED}]),
    symbol("torch.matmul", 4, ["t1126", "q"], [tensor("t3526", 28, 4096, dtype="bfloat16")]),
    symbol("TorchCompile0", 5, ["q"], [tensor("t9", 4, 4)]),
    symbol("TorchCompile1", 6, ["q"], [tensor("t10", 4, 4)]),
)
PROGRAM = {
    "sources": {
        "thunder.computation_20": TRACE,
        "thunder.to_be_compiled_17": REGION,
        "thunder.to_be_compiled_18": REGION.replace("12:85", "12:86"),
        OUTPUT: INDUCTOR,
    },
    "thunder": [
        {
            "name": "decoder",
            "traces": [
                FORWARD,
                trace("region:TorchCompile0", "thunder.to_be_compiled_17"),
                trace("region:TorchCompile1", "thunder.to_be_compiled_18"),
            ],
        }
    ],
    "fx": {
        "<eval_with_key>.12": [
            node(82, "attn_output", "model.layers.3.self_attn", QWEN + ":150"),
            node(85, "weights", "model.layers.3.self_attn", QWEN + ":167"),
            node(86, "weights_1", "model.layers.4.self_attn", QWEN + ":167"),
        ]
    },
}


def captured(ops, kernels, rows=(), stacks=(), marks=(), **more):
    """A recording of one profiled iteration."""
    meta = capture_meta(
        marks=marks or [("start", "", 0), ("end", "", len(rows))],
        iterations=[{"begin": 0, "end": 1, "profiled": True}],
        profile=profile(ops, kernels),
        **{**PROGRAM, **more},
    )
    return recording(events(*rows), stacks=stack_table(*stacks), meta=meta)


def names(one):
    subject = open_subject(one)
    found = name_kernels(one, subject.replay)
    return [found.namings[row] for row in found.rows.tolist()]


def symbols(one):
    return [naming.symbol.text for naming in names(one)]


def test_a_line_of_a_trace_names_all_that_it_launches():
    one = captured(
        [ran("thunder.computation_20:2", 10, 90), launch(1, 20), launch(2, 30)],
        [kernel("nvfuser_a", 100, 200, 1), kernel("nvfuser_b", 200, 300, 2)],
    )
    first, second = names(one)
    assert first == second
    assert first.symbol.text == "decoder/forward nvFusion2"
    assert first.where == "thunder.computation_20:2"
    assert [t.name for t in first.tensors] == ["t1112", "t1126"]


def test_an_operator_of_a_trace_has_the_models_line_whatever_it_calls():
    one = captured(
        [
            ran("thunder.computation_20:4", 10, 90),
            op("aten::matmul", 20, 80),
            op("aten::mm", 30, 70),
            launch(1, 40),
        ],
        [kernel("gemm", 100, 200, 1)],
    )
    assert symbols(one) == [
        "decoder/forward torch.matmul (transformers/models/qwen2/modeling_qwen2.py:150)"
    ]


def test_the_innermost_line_that_was_running_counts():
    """A line that ended is no longer running, and one on another thread never was."""
    one = captured(
        [
            ran("thunder.computation_20:2", 10, 20),
            ran("thunder.computation_20:4", 20, 40),
            ran("thunder.computation_20:5", 0, 90, thread=2),
            launch(1, 20),
            launch(2, 40),
        ],
        [kernel("a", 100, 200, 1), kernel("b", 200, 300, 2)],
    )
    assert symbols(one)[0].startswith("decoder/forward torch.matmul")
    assert symbols(one)[1] == "b"


def test_a_launch_lies_in_what_ran_when_it_began():
    """The driver's call is seen by another clock reading, and may seem to outlast its range."""
    one = captured(
        [
            ran("thunder.computation_20:2", 10, 40),
            op("aten::exp", 20, 39),
            launch(1, 38, length=30),
            launch(2, 39),
        ],
        [kernel("a", 100, 200, 1), kernel("b", 200, 300, 2)],
    )
    assert symbols(one) == ["decoder/forward nvFusion2"] * 2


def inside(line, start, end, call="thunder.computation_20:5"):
    return [ran(call, start, end), ran(f"{OUTPUT}:{line}", start + 1, end - 1)]


def stack(line, region_line, region=17, call=5):
    """Of an allocation within a region, as an H200's history shows it."""
    return [
        (OUTPUT, line, "call"),
        ("thunder.to_be_compiled_17", region_line, "to_be_compiled"),
        (SITE + "torch/_inductor/utils.py", 3401, "run"),
        (f"thunder.to_be_compiled_{region}", 1, "to_be_compiled"),
        ("thunder.computation_20", call, "computation"),
    ]


def allocations(*stacks):
    return [("alloc", 0x1000 * (k + 1), 64, 0, k + 1) for k in range(len(stacks))]


def test_a_kernel_in_a_region_has_the_name_of_the_buffer_that_it_fills():
    stacks = [stack(5, 3), stack(6, 5)]  # buf1 is Tensor.to's, the smaller buf2 torch.exp's
    one = captured(
        [*inside(10, 10, 50), launch(1, 20)],
        [kernel("triton_poi_fused__to_copy_0", 100, 200, 1)],
        allocations(*stacks),
        stacks,
    )
    rows = report_peak(open_subject(one)).rows
    row = next(row for row in rows if row.symbol.operation == "Tensor.to")
    assert row.symbol.text == (
        "decoder/forward TorchCompile0 › Tensor.to "
        "(transformers/models/qwen2/modeling_qwen2.py:167)"
    )
    assert (row.sides[0].bytes, row.sides[0].time.ns) == (64, 100)


def test_without_a_recorded_stack_the_comment_on_the_call_names_the_operation():
    one = captured(
        [*inside(10, 10, 50), launch(1, 20)], [kernel("triton_poi_fused__to_copy_0", 1, 2, 1)]
    )
    assert symbols(one)[0].startswith("decoder/forward TorchCompile0 › Tensor.to")


def test_what_works_in_place_is_named_by_its_comment():
    stacks = [stack(5, 3)]
    one = captured(
        [*inside(12, 10, 50), launch(1, 20)],
        [kernel("triton_poi_fused_exp_1", 100, 200, 1)],
        allocations(*stacks),
        stacks,
    )
    assert symbols(one)[0].startswith("decoder/forward TorchCompile0 › torch.exp")


def test_regions_that_share_a_compiled_file_have_each_its_own_name_and_layer():
    stacks = [stack(5, 3)]  # of the first region alone: the second's buffer was not recorded
    one = captured(
        [
            *inside(10, 10, 50),
            launch(1, 20),
            *inside(10, 60, 90, "thunder.computation_20:6"),
            launch(2, 70),
        ],
        [kernel("triton", 100, 200, 1), kernel("triton", 200, 300, 2)],
        allocations(*stacks),
        stacks,
    )
    first, second = names(one)
    assert (first.symbol.name, second.symbol.name) == ("TorchCompile0", "TorchCompile1")
    assert first.symbol.operation == second.symbol.operation == "Tensor.to"
    assert first.where == "thunder.computation_20:5"
    assert second.where == "thunder.computation_20:6"


def test_inductor_alone_is_named_as_its_memory_is():
    stacks = [[(OUTPUT, 5, "call"), (QWEN, 220, "forward")]]
    one = captured(
        [ran(f"{OUTPUT}:10", 10, 50), launch(1, 20)],
        [kernel("triton_poi_fused__to_copy_0", 100, 200, 1)],
        allocations(*stacks),
        stacks,
        thunder=[],
    )
    report = report_peak(open_subject(one))
    assert [(r.sides[0].bytes, r.sides[0].time.ns) for r in report.rows] == [(64, 100)]
    assert report.rows[0].symbol.text == (
        "graph 3/forward triton_poi_fused__to_copy_0 "
        "(transformers/models/qwen2/modeling_qwen2.py:220)"
    )


def test_another_generated_file_is_no_line_of_the_model():
    other = OUTPUT.replace("/s7/cs7", "/x7/cx7")
    stacks = [[(OUTPUT, 5, "call"), (other, 40, "run"), (QWEN, 220, "forward")]]
    one = captured(
        [ran(f"{OUTPUT}:10", 10, 50), launch(1, 20)],
        [kernel("triton_poi_fused__to_copy_0", 100, 200, 1)],
        allocations(*stacks),
        stacks,
        thunder=[],
    )
    assert symbols(one)[0].endswith("(transformers/models/qwen2/modeling_qwen2.py:220)")


def test_captures_without_ranges_know_inductors_kernels_by_their_names():
    stacks = [stack(5, 3)]
    one = captured(
        [op("Torch-Compiled Region: 3/0", 10, 90), launch(1, 20), launch(2, 30)],
        [kernel("triton_poi_fused__to_copy_0", 100, 200, 1), kernel("gemm", 200, 300, 2)],
        allocations(*stacks),
        stacks,
    )
    assert symbols(one) == [
        "decoder/forward TorchCompile0 › Tensor.to "
        "(transformers/models/qwen2/modeling_qwen2.py:167)",
        "Torch-Compiled Region: 3/0",
    ]


def test_a_kernel_called_for_several_symbols_is_not_guessed():
    stacks = [stack(5, 3), stack(5, 3, region=18, call=6)]
    one = captured(
        [op("Torch-Compiled Region: 3/0", 10, 90), launch(1, 20)],
        [kernel("triton_poi_fused__to_copy_0", 100, 200, 1)],
        allocations(*stacks),
        stacks,
    )
    assert symbols(one) == ["Torch-Compiled Region: 3/0"]


def test_eager_kernels_have_the_operator_the_node_the_pass_and_the_layer():
    marks = [("start", "", 0), ("call", "begin", 0), ("call", "end", 0), ("end", "", 0)]
    one = captured(
        [
            op(f"{LAYER_PREFIX}model.mlp", 5, 60),
            op("aten::linear", 10, 50, sequence=7, forward_thread=0),
            op("aten::addmm", 20, 40),
            launch(1, 30),
            op("autograd::engine::evaluate_function: AddmmBackward0", 70, 99, thread=2, sequence=7,
               forward_thread=1),
            op("AddmmBackward0", 71, 98, thread=2, sequence=7, forward_thread=1),
            op("aten::mm", 72, 97, thread=2),
            launch(2, 80, thread=2),
        ],
        [kernel("gemm", 100, 200, 1), kernel("gemm", 200, 300, 2)],
        marks=marks,
    )  # fmt: skip
    one.meta["marks"]["time_ns"] = [0, 4, 61, 200]
    assert symbols(one) == ["forward aten::linear", "backward AddmmBackward0 › aten::mm"]
    assert [layer_of(naming) for naming in names(one)] == ["model.mlp", "model.mlp"]


def test_the_stack_of_what_an_operator_allocates_gives_its_kernels_a_line():
    stacks = [[(SITE + "torch/nn/functional.py", 9, "silu"), ("/home/me/net/model.py", 3, "f")]]
    memory = {
        "addr": [0x1000], "bytes": [512], "device": [0], "thread": [1], "time_ns": [25], "op": [1],
    }  # fmt: skip
    ops = [op("aten::silu", 10, 50), op("aten::empty", 20, 30), launch(1, 40)]
    one = captured(ops, [kernel("a", 100, 200, 1)], allocations(*stacks), stacks)
    one.meta["profile"]["memory"] = memory
    assert symbols(one) == ["aten::silu (net/model.py:3)"]


def test_all_that_a_graph_replays_belongs_to_its_launch():
    one = captured(
        [
            ran("thunder.computation_20:2", 10, 50),
            launch(1, 20, call="cudaGraphLaunch"),
            launch(2, 60, call="cudaGraphLaunch"),
        ],
        [kernel(f"k{n}", 100 + n, 101 + n, 1 + n // 3) for n in range(6)],
    )
    assert symbols(one) == ["decoder/forward nvFusion2"] * 3 + ["cudaGraphLaunch"] * 3


def test_copies_and_memsets_are_named_too():
    one = captured(
        [op("aten::copy_", 10, 50), launch(1, 20, call="cudaMemcpyAsync")],
        [kernel("Memcpy DtoH", 100, 200, 1, kind="gpu_memcpy")],
    )
    assert symbols(one) == ["aten::copy_"]


@pytest.mark.parametrize("number", [99, -1])
def test_what_was_launched_before_the_iteration_is_unattributed(number):
    one = captured([op("aten::mm", 0, 9), launch(1, 2)], [kernel("a", 1, 2, number)])
    assert symbols(one) == [UNATTRIBUTED]


def test_a_programs_own_kernel_bears_its_own_name():
    one = captured([launch(1, 20)], [kernel("void my::kernel<int>(int*)", 1, 2, 1)])
    assert symbols(one) == ["void my::kernel"]


@pytest.mark.parametrize(
    "name",
    [
        "no line",
        "thunder.computation_20:",
        "thunder.computation_20:²",
        "thunder.computation_20:" + "9" * 50,
        ":7",
        "",
        "</script>\u202e:3",
        "x" * 10_000 + ":1",
    ],
)
def test_lines_that_are_none_name_nothing(name):
    one = captured(
        [ran(name, 0, 90), op("aten::mm", 10, 50), launch(1, 20)], [kernel("a", 1, 2, 1)]
    )
    assert symbols(one) in (["aten::mm"], [UNATTRIBUTED])


def test_a_recording_without_a_profile_has_no_kernels():
    one = recording(events(("alloc", 0, 512)))
    assert names(one) == []
    assert report_peak(open_subject(one)).gpu is None


def moved(line, **more):
    one = captured(
        [ran("thunder.computation_20:5", 5, 60), ran(line, 10, 50), launch(1, 20)],
        [kernel("a", 100, 200, 1)],
        **more,
    )
    (size,) = name_kernels(one, open_subject(one).replay).moved.values()
    return size


def test_a_fusion_must_move_its_inputs_and_outputs():
    assert moved("thunder.computation_20:2") == 28 * 8 * (4 + 4 + 2)


def test_a_view_is_no_more_than_its_base():
    wide = [tensor("t1112", 28, 8), tensor("t1126", 4096, 28, 8)]
    inside = [
        {**OPERATION, "outputs": wide[:1]},
        {"text": "", "name": "prims.broadcast_in_dim", "origin": "", "args": ["t1112"],
         "outputs": wide[1:]},
    ]  # fmt: skip
    forward = {
        **FORWARD,
        "symbols": [FORWARD["symbols"][0], symbol("nvFusion2", 2, ["q"], wide, inside)],
    }
    thunder = [{"name": "decoder", "traces": [forward]}]
    assert moved("thunder.computation_20:2", thunder=thunder) == 28 * 8 * 4 * 2


def test_a_tensor_and_its_view_are_moved_once():
    outputs = [tensor("t1112", 28, 8), tensor("t1126", 8, 28)]
    inside = [
        {**OPERATION, "outputs": outputs[:1]},
        {"text": "", "name": "prims.transpose", "origin": "", "args": ["t1112"],
         "outputs": outputs[1:]},
    ]  # fmt: skip
    parts = [FORWARD["symbols"][0], symbol("nvFusion2", 2, ["q"], outputs, inside)]
    thunder = [{"name": "decoder", "traces": [{**FORWARD, "symbols": parts}]}]
    assert moved("thunder.computation_20:2", thunder=thunder) == 28 * 8 * 4 * 2


def test_what_multiplies_matrices_is_not_bound_by_bytes():
    assert moved("thunder.computation_20:4") is None
    assert moved(f"{OUTPUT}:15") is None


def test_inductors_kernel_must_move_its_buffers_and_inputs():
    assert moved(f"{OUTPUT}:10") == 16 * 2 + 16 * 4 + 8 * 4


def test_an_input_that_is_not_known_leaves_the_sum_unknown():
    forward = {**FORWARD, "symbols": FORWARD["symbols"][1:]}  # q is nowhere described
    assert moved("thunder.computation_20:2", thunder=[{"name": "d", "traces": [forward]}]) is None


def test_a_librarys_kernel_fuses_nothing_whatever_the_comment_on_it_lists():
    """Inductor lists there what made its inputs, too."""
    above = "# Topologically Sorted Source Nodes: [weights, mm], Original ATen: [aten.mm]\n"
    text = INDUCTOR.replace("    extern_kernels.mm", f"    {above}    extern_kernels.mm")
    line = next(n for n, t in enumerate(text.split("\n"), 1) if "extern_kernels.mm(" in t)
    sources = {**PROGRAM["sources"], OUTPUT: text}
    for ran_line, count in ((10, 1), (line, 0)):
        one = captured(
            [*inside(ran_line, 10, 50), launch(1, 20)],
            [kernel("gemm", 100, 200, 1)],
            sources=sources,
        )
        (row,) = report_peak(open_subject(one)).rows
        assert len(row.sides[0].time.operations) == count


def test_a_fusion_says_what_it_fuses():
    one = captured(
        [ran("thunder.computation_20:2", 10, 90), launch(1, 20)], [kernel("a", 100, 200, 1)]
    )
    (row,) = report_peak(open_subject(one)).rows
    assert row.sides[0].time.operations == ("t1112 = prims.exp(q)",)
