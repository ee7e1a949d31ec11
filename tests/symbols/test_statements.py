"""Generated source, read line by line."""

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
