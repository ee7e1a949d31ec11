"""Names of stacks, as they were seen on a GPU."""

import pytest

from memtrace.snapshot.columns import Frame
from memtrace.snapshot.generated import is_output_file
from memtrace.symbols import Symbol, eager, inductor, thunder
from memtrace.symbols.dataflow import layer_of_call
from memtrace.symbols.sources import Sources

COMPUTATION = """def computation(q):
  [t1112, t1126] = nvFusion2(q)

  # <eval_with_key>.12:82: attn_output = torch.matmul(a, b)
  t3526 = torch.matmul(t1126, q)  # t3526: "cuda:0 bf16[28, 4096]"
  [t9] = TorchCompile0(q)

  # /x/site-packages/thunder/torch/helper.py:69: return f(*args)
  t10 = torch.permute(t9, (1, 0))
"""
REGION = """def to_be_compiled(q):
  # <eval_with_key>.12:85: weights = softmax(q)
  t5 = Tensor.to(q, torch.float32)  # t5: "cuda:0 f32[4, 4]"
"""
INDUCTOR = """# AOT ID: ['3_backward']
import torch
def call(args):
    buf1 = empty_strided_cuda((1, 28, 4096, 4096), (1, 1, 1, 1), torch.float32)
    buf2 = reinterpret_tensor(buf1, (4, 4), (4, 1), 0); del buf1  # reuse
    # Topologically Sorted Source Nodes: [x], Original ATen: [aten.softmax]
    stream0 = get_raw_stream(0)
    triton_red_fused__softmax_8.run(arg0, buf2, 114688, stream=stream0)
    buf3 = torch.ops.aten.addmm.default(buf2, arg1)
"""
OUTPUT = "/tmp/torchinductor_me/s7/cs7gbb4uf2p44hswiqyrxnv4botqoxtwcpn6ojxh6iaww6l4255o.py"


def tensor(name, *shape, dtype="float32"):
    return {"name": name, "shape": list(shape), "dtype": dtype, "device": "cuda:0"}


def trace(phase, filename, *symbols):
    return {
        "phase": phase,
        "filename": filename,
        "inputs": [],
        "outputs": [],
        "symbols": [
            {
                "name": name,
                "line": line,
                "origin": "",
                "args": [],
                "outputs": outputs,
                "inside": [],
            }
            for name, line, outputs in symbols
        ],
    }


QWEN = "/v/site-packages/transformers/models/qwen2/modeling_qwen2.py"


def node(line, name, module, source):
    return {
        "line": line, "node": name, "module": module, "module_class": "C", "source": source,
        "target": "",
    }  # fmt: skip


META = {
    "sources": {
        "thunder.computation_20": COMPUTATION,
        "thunder.to_be_compiled_17": REGION,
        OUTPUT: INDUCTOR,
    },
    "thunder": [
        {
            "name": "decoder",
            "traces": [
                trace(
                    "forward",
                    "thunder.computation_20",
                    (
                        "nvFusion2",
                        2,
                        [tensor("t1112", 28, 8), tensor("t1126", 28, 8, dtype="bfloat16")],
                    ),
                ),
                trace("region:TorchCompile0", "thunder.to_be_compiled_17"),
            ],
        }
    ],
    "fx": {
        "<eval_with_key>.12": [
            node(82, "attn_output", "model.layers.3.self_attn", QWEN + ":150"),
            node(85, "weights", "model.layers.3.self_attn", "/home/me/train/model.py:7"),
        ],
        "<inductor graph>.0": [node(0, "x", "model.layers.1", QWEN + ":220")],
    },
}
SITE = "/venv/lib/python3.12/site-packages/"
NVFUSER = Frame(SITE + "nvfuser_direct/__init__.py", 371, "execute")
NVFUSER_CALL = Frame(SITE + "thunder/executors/nvfuserex_impl.py", 561, "__call__")


@pytest.fixture
def sources():
    return Sources(META)


def computation(line):
    return Frame("thunder.computation_20", line, "computation")


def test_fusion(sources):
    naming = thunder.name_stack([NVFUSER, NVFUSER_CALL, computation(2)], sources)
    assert naming.symbol == Symbol("thunder", "decoder", "forward", "nvFusion2")
    assert naming.symbol.text == "decoder/forward nvFusion2"
    assert naming.where == "thunder.computation_20:2"
    assert [t.text for t in naming.tensors] == ["float32[28, 8]", "bfloat16[28, 8]"]


def test_operator_of_a_trace_has_the_models_line(sources):
    naming = thunder.name_stack([computation(5)], sources)
    assert naming.symbol.name == "torch.matmul"
    assert naming.symbol.line == "transformers/models/qwen2/modeling_qwen2.py:150"
    assert [t.text for t in naming.tensors] == ["bfloat16[28, 4096]"]


def test_thunders_own_helpers_are_no_line_of_the_model(sources):
    assert thunder.name_stack([computation(9)], sources).symbol.line == ""


def test_region_names_region_operation_and_buffer(sources):
    frames = [
        Frame(OUTPUT, 4, "call"),
        Frame("thunder.to_be_compiled_17", 3, "to_be_compiled"),
        Frame(SITE + "torch/_inductor/utils.py", 3401, "run"),
        Frame("thunder.to_be_compiled_17", 1, "to_be_compiled"),
        Frame(SITE + "thunder/executors/torch_compile.py", 84, "compiled_func_wrapper"),
        computation(6),
        Frame("/home/me/train.py", 3, "<module>"),
    ]
    naming = thunder.name_stack(frames, sources)
    assert naming.symbol == Symbol(
        "thunder", "decoder", "forward", "TorchCompile0", "Tensor.to", "train/model.py:7"
    )
    assert naming.symbol.text == "decoder/forward TorchCompile0 › Tensor.to (train/model.py:7)"
    assert [t.text for t in naming.tensors] == ["float32[1, 28, 4096, 4096]"]


def test_a_region_compiled_for_another_layer_has_its_own_lines():
    meta = {
        **META,
        "sources": {
            **META["sources"],
            "thunder.to_be_compiled_18": REGION.replace("12:85", "12:86"),
        },
        "fx": {
            "<eval_with_key>.12": [
                node(85, "weights", "model.layers.3.self_attn", QWEN + ":7"),
                node(86, "weights_1", "model.layers.4.self_attn", QWEN + ":7"),
            ]
        },
    }
    program = meta["thunder"][0]
    regions = [trace(f"region:TorchCompile{k}", f"thunder.to_be_compiled_{17 + k}") for k in (0, 1)]
    for k, region in enumerate(regions):
        region["symbols"] = [
            {
                "name": "Tensor.to", "line": 3, "origin": f"<eval_with_key>.12:{85 + k}",
                "args": ["q"], "outputs": [tensor("t5", 4, 4)], "inside": [],
            }
        ]  # fmt: skip
    meta["thunder"] = [{**program, "traces": [program["traces"][0], *regions]}]
    frames = [
        Frame(OUTPUT, 4, "call"),
        Frame("thunder.to_be_compiled_17", 3, "to_be_compiled"),
        Frame("thunder.to_be_compiled_18", 1, "to_be_compiled"),
        computation(6),
    ]
    naming = thunder.name_stack(frames, Sources(meta))
    assert naming.symbol.operation == "Tensor.to"
    assert naming.layer == "model.layers.4.self_attn"
    own = thunder.name_stack([*frames[:2], frames[1]._replace(line=1), frames[3]], Sources(meta))
    assert own.layer == "model.layers.3.self_attn"


PROXY = "l_self_modules_model_modules_layers_modules_{}_modules_{}_parameters_weight_"


@pytest.mark.parametrize(
    ("given", "layer"),
    [
        ([PROXY.format(1, "up")], "model.layers.1.act"),
        ([PROXY.format(0, "up")], "model.layers.0.act"),
        ([PROXY.format(1, "up"), PROXY.format(1, "down"), "x_3"], "model.layers.1.act"),
        ([PROXY.format(1, "up"), PROXY.format(2, "up")], "model.layers.0.act"),  # no agreement
        (["x_3"], "model.layers.0.act"),
        (["l_self_modules_other_parameters_weight_"], "model.layers.0.act"),
    ],
)
def test_the_call_tells_which_of_alike_layers_runs(given, layer):
    assert layer_of_call("model.layers.0.act", given) == layer


def test_without_sources_the_kind_and_the_line_remain():
    nothing = Sources(None)
    naming = thunder.name_stack([NVFUSER, NVFUSER_CALL, computation(91)], nothing)
    assert naming.symbol == Symbol("thunder", "thunder", "forward", "nvFusion@line91")
    backward = Frame("thunder.backward_fn_24", 7, "backward_fn")
    assert thunder.name_stack([backward], nothing).symbol.phase == "backward"


def test_no_thunder_frame_is_no_thunder_symbol(sources):
    assert thunder.name_stack([Frame("/a/thunder.computation_1.py", 3, "f")], sources) is None
    assert thunder.name_stack([], sources) is None


@pytest.mark.parametrize(
    ("line", "name"),
    [(4, "triton_red_fused__softmax_8"), (9, "torch.ops.aten.addmm.default")],
)
def test_inductor_kernel_that_fills_the_buffer(sources, line, name):
    frames = [
        Frame(OUTPUT, line, "call"),
        Frame(SITE + "transformers/models/qwen2/modeling_qwen2.py", 220, "forward"),
        Frame(SITE + "torch/_inductor/utils.py", 3401, "run"),
    ]
    symbol = inductor.name_stack(frames, sources).symbol
    assert symbol == Symbol(
        "inductor", "graph 3", "backward", name, "",
        "transformers/models/qwen2/modeling_qwen2.py:220",
    )  # fmt: skip


def test_inductor_file_is_known_by_its_hash_wherever_the_cache_lies():
    assert is_output_file(OUTPUT)
    assert is_output_file(OUTPUT.replace("/tmp/torchinductor_me", "/scratch/cache"))
    assert not is_output_file("/home/me/s7/cs7.py")


def test_eager_function_and_users_line():
    frames = [
        Frame(SITE + "torch/nn/functional.py", 2397, "silu"),
        Frame(SITE + "torch/nn/modules/module.py", 1790, "_call_impl"),
        Frame("/home/me/project/model.py", 47, "forward"),
    ]
    symbol = eager.name_stack(frames, "forward", "", "", Sources(None)).symbol
    assert symbol == Symbol(
        "eager", "", "forward", "torch.nn.functional.silu", "", "project/model.py:47"
    )
    assert (
        eager.name_stack(frames, None, "aten::silu", "", Sources(None)).symbol.name == "aten::silu"
    )


def test_optimizer_is_known_by_its_frames():
    frames = [Frame(SITE + "torch/optim/adamw.py", 5, "_init_group"), Frame("/a/b/t.py", 1, "f")]
    assert eager.name_stack(frames, None, "", "", Sources(None)).symbol.phase == "optimizer"
