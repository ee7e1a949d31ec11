"""Generated source, read line by line."""

import pytest

from memtrace.symbols import Naming, Symbol
from memtrace.symbols.statements import Tensor, parse_source

TRACE = """import torch

def computation(q, k):
  # q: "cuda:0 bf16[1, 28, 4096, 2]"
  [mask, t1112, t1126] = nvFusion2(q, k)

  # <eval_with_key>.12:82: \t    attn_output = torch.matmul(weights, value);  weights = None
  t3526 = torch.matmul(t1126, k)  # t3526: "cuda:0 bf16[1, 28, 4096, 1]"
  del mask, t1126
  C0, C1, = saved_for_backward
  buf16 = reinterpret_tensor(buf2, (4, 1), (1, 1), 0); del buf2  # reuse
"""


def test_fusion_line():
    statement = parse_source("t", TRACE).statements[5]
    assert statement.callee == "nvFusion2"
    assert statement.outputs == ("mask", "t1112", "t1126")
    assert statement.arguments == ("q", "k")
    assert statement.origin is None


def test_origin_and_type_of_a_line():
    source = parse_source("t", TRACE)
    assert source.statements[8].callee == "torch.matmul"
    assert source.statements[8].origin == ("<eval_with_key>.12", 82)
    assert source.tensors["t3526"] == Tensor("t3526", (1, 28, 4096, 1), "bfloat16")
    assert source.tensors["q"].bytes == 28 * 4096 * 2 * 2


def test_origin_does_not_reach_past_its_statement():
    assert parse_source("t", TRACE).statements[9].origin is None


def test_deletes():
    source = parse_source("t", TRACE)
    assert source.statements[9].deletes == ("mask", "t1126")
    assert source.statements[11].deletes == ("buf2",)
    assert source.statements[11].callee == "reinterpret_tensor"


def test_unpacking_calls_nothing():
    assert parse_source("t", TRACE).statements[10].callee == ""


def test_a_fragment_still_gives_what_is_left():
    source = parse_source("t", "[... omitted ...]\n[a, b] = nvFusion1(c\n((((((((((\n")
    assert source.statements[2].callee == "nvFusion1"
    assert source.statements[2].outputs == ("a", "b")


def test_unknown_dtype_has_no_size():
    assert Tensor("t", (2,), "float4").bytes == -1
    assert Tensor("t", (), "float32").bytes == 4


OPERATORS = """
    buf1 = empty_strided_cuda((2, 3, 5), (16, 5, 1), torch.bfloat16)
    buf2 = torch.ops.aten.sdpa.default(buf1, arg0)
    buf3 = buf2[0]
    assert_size_stride(buf3, (2, 3, 5), (15, 5, 1), 'torch.ops.aten.sdpa.default')
    buf4 = buf2[1]
    assert_size_stride(buf4, (2, 3), (3, 1), 'torch.ops.aten.sdpa.default')
    buf5 = extern_kernels.convolution(arg0, arg1, stride=(1, 1))
    assert_size_stride(buf5, (4,), (1,), 'torch.ops.aten.convolution.default')
    assert_size_stride(arg0, (7,), (1,))
"""


def test_padded_strides_count():
    source = parse_source("t", OPERATORS)
    # From the first element to the last: 1 + 1 × 16 + 2 × 5 + 4 × 1.
    assert source.buffers["buf1"].bytes == 31 * 2
    assert source.buffers["buf1"].strides == (16, 5, 1)
    assert Tensor("t", (2, 0), "float32", strides=(9, 1)).bytes == 0
    assert Tensor("t", (2, 3), "float32", strides=(0, 1)).bytes == 12  # expanded


def test_what_an_operator_returns_is_what_inductor_asserts():
    returned = parse_source("t", OPERATORS).returned
    assert set(returned) == {"buf2", "buf5"}
    assert [(t.name, t.dtype, t.shape) for t in returned["buf2"]] == [
        ("buf3", "bfloat16", (2, 3, 5)),
        ("buf3", "", (2, 3, 5)),
        ("buf4", "bfloat16", (2, 3)),
        ("buf4", "", (2, 3)),
    ]
    assert [(t.name, t.dtype) for t in returned["buf5"]] == [("buf5", "")]


@pytest.mark.parametrize(
    ("size", "texts"),
    [
        (60, ["bfloat16[2, 3, 5]"]),
        (24, ["32-bit[2, 3]"]),  # the log-sum-exp is wider than what attention reads
        (36, []),
        (0, []),
    ],
)
def test_a_size_tells_which_result_it_is(size, texts):
    tensors = parse_source("t", OPERATORS).returned["buf2"]
    naming = Naming(Symbol("inductor", "", None, "sdpa"), tensors=tensors)
    assert [tensor.text for tensor in naming.fitting(size)] == texts


def test_memory_that_is_passed_on_is_followed():
    source = parse_source(
        "t",
        """
    buf0 = empty_strided_cuda((4, 8), (8, 1), torch.float32)
    buf1 = reinterpret_tensor(buf0, (32, ), (1, ), 0)
    buf2 = buf0; del buf0  # reuse
    buf3 = reinterpret_tensor(buf2, (8, 4), (4, 1), 0); del buf2  # reuse
    buf4 = torch.ops.aten.uniform.default(arg0)
    buf5 = buf4
    assert_size_stride(buf5, (7, 6), (6, 1), 'torch.ops.aten.uniform.default')
    buf6 = buf5; del buf5  # reuse
""",
    )
    passed = {old: statement.outputs[0] for old, statement in source.reused.items()}
    assert passed == {"buf0": "buf2", "buf2": "buf3", "buf4": "buf5", "buf5": "buf6"}
    assert source.buffers["buf3"].shape == (8, 4)
    assert source.buffers["buf6"].shape == (7, 6)
