"""Inductor's output files: what their buffers take."""

from __future__ import annotations

from memtrace.program.regions import find_region, match_results, read_region
from memtrace.program.workspaces import find_need, workspace
from memtrace.symbols.statements import Tensor

FILE = """# AOT ID: ['0_inference']
def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (10, 20), (20, 1))
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((10, 20), (20, 1), torch.float32)
        triton_poi_fused_add_0.run(arg0_1, buf0, 200, stream=stream0)
        buf1 = empty_strided_cuda((10, 24), (24, 1), torch.float32)
        extern_kernels.mm(buf0, buf0, out=buf1)
        buf2 = buf0; del buf0  # reuse
        triton_poi_fused_mul_1.run(buf1, buf2, 200, stream=stream0)
        buf3 = empty_strided_cuda((5, ), (1, ), torch.float64)
        triton_poi_fused_sum_2.run(buf2, buf3, 5, stream=stream0)
        del buf3
        buf4 = torch.ops.aten.sort.default(buf1)
        buf5 = buf4[0]
        assert_size_stride(buf5, (10, 10), (10, 1), 'torch.ops.aten.sort.default')
        del buf4
        del buf5
    return (reinterpret_tensor(buf1, (10, 20), (24, 1), 0), buf2, reinterpret_tensor(buf2, (200, ), (1, ), 0), reinterpret_tensor(arg0_1, (20, 10), (1, 20), 0), )


def benchmark_compiled_module(times=10, repeat=10):
    arg0_1 = rand_strided((10, 20), (20, 1), device='cuda:0', dtype=torch.float32)
    return print_performance(lambda: call([arg0_1]), times=times, repeat=repeat)
"""  # noqa: E501
X = Tensor("x", (10, 20), "float32")


def read():
    region = read_region("file.py", FILE, workspace)
    assert region is not None
    return region


def test_buffers_from_line_to_line():
    region = read()
    assert region.most == 800 + 960 + 400  # buf2 in buf0's memory, buf1, and what sort returns
    assert region.inside == 400
    assert [(one.memory, one.bytes) for one in region.returned] == [
        ("buf1", 960), ("buf0", 800), ("buf0", 800), ("arg0_1", 0),
    ]  # fmt: skip


def test_results_by_the_file():
    outputs = {
        "a": Tensor("a", (10, 20), "float32"),
        "b": Tensor("b", (10, 20), "float32"),
        "c": Tensor("c", (200,), "float32"),
        "d": Tensor("d", (20, 10), "float32"),
    }
    region = read()
    assert find_region([X], outputs.values(), [region]) is region
    shared, results = match_results(region, {"x": X}, outputs)
    assert shared == {"c": "b", "d": "x"}
    assert results["a"].bytes == 960


def test_another_regions_file_does_not_fit():
    assert find_region([Tensor("x", (10, 21), "float32")], [], [read()]) is None
    assert find_region([X], [Tensor("a", (10, 20), "float32")], [read()]) is None
    assert read_region("file.py", "def other(): pass", workspace) is None


def test_what_attention_needs_beside_its_results():
    # Sizes of allocations that an H200 recorded in GPT-2 of 8 × 1024 tokens.
    query = Tensor("", (8, 12, 1024, 64), "float32", strides=(786432, 64, 768, 1))
    mask = Tensor("", (8, 1, 1024, 1024), "bool")
    name = "sdpaex_grad_forward_scaled_dot_product_efficient_attention"
    assert (
        find_need(name, "", [query, query, query, mask]).inside == 402653184 + 33554432 - 25559040
    )
    name = "sdpaex_scaled_dot_product_efficient_attention_backward"
    need = find_need(name, "", [query] * 4 + [mask] + [query] * 4)
    assert need.inside == 2 * 402653184 + 25165824 + 2 * 393216 - 33554432
    assert need.results == {3: 33554432}


def test_sorting_of_many_indices():
    # Of a [152064, 28] embedding's gradient by 4096 indices, as an H200 recorded it.
    grad, indices = Tensor("", (1, 4096, 28), "bfloat16"), Tensor("", (1, 4096), "int64")
    text = "t15 = torch.ops.aten.embedding_backward(t12, ids, 152064, -1, False, False)"
    need = find_need("torch.ops.aten.embedding_backward", text, [grad, indices])
    assert need.inside == 3 * 32768 + 16 + 36040 + 504560
    few = Tensor("", (1, 3072), "int64")
    assert find_need("torch.ops.aten.embedding_backward", text, [grad, few]).inside == 0
