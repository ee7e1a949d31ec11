"""C++ frames in stacks: what they name, and that they do not hide the Python line."""

from memtrace.symbols.stacks import Operator, Stacks
from tests.builders import stack_table


def native(*names):
    return [("??", 0, name) for name in names]


PYTHON = ("/a/b/model.py", 7, "forward")
ALLOCATOR = native("torch::unwind::unwind()", "c10::cuda::CUDACachingAllocator::malloc()")
LINEAR = native(
    "at::native::addmm_out_cuda_impl(at::Tensor&)",
    "at::_ops::addmm::call(at::Tensor const&)",
    "at::_ops::linear::redispatch(c10::DispatchKeySet)",
)
NODE = native(
    "at::_ops::mm::call(at::Tensor const&)",
    "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)",
    "torch::autograd::Node::operator()(std::vector<at::Tensor>&&)",
)


def test_python_frames_are_what_is_left():
    interpreter = native("_PyEval_EvalFrameDefault")
    generated = [("<eval_with_key>.3", 5, "forward"), ("thunder.computation_1", 2, "computation")]
    table = stack_table([*ALLOCATOR, *LINEAR, PYTHON, *interpreter, *generated])
    assert Stacks(table).python(1) == [PYTHON, *generated]


def test_the_outermost_operator_inside_the_python_line():
    outer = native("at::_ops::dropout::call()")
    table = stack_table([*ALLOCATOR, *LINEAR, PYTHON, *outer])
    assert Stacks(table).native(1) == Operator("aten::linear", "")


def test_a_node_and_the_operator_in_it():
    table = stack_table([*ALLOCATOR, *NODE])
    assert Stacks(table).native(1) == Operator("MmBackward0", "aten::mm")
    assert Stacks(table).python(1) == []


def test_an_overload_is_no_part_of_the_name():
    table = stack_table(native("at::_ops::add_Tensor::call(at::Tensor const&)"))
    assert Stacks(table).native(1) == Operator("aten::add", "")


def test_gradients_that_are_made_where_they_are_accumulated():
    table = stack_table(native("torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>)"))
    assert Stacks(table).native(1) == Operator("AccumulateGrad", "")


def test_workspace():
    table = stack_table(
        [*ALLOCATOR, *native("at::cuda::getCurrentCUDABlasHandle()"), *LINEAR, PYTHON],
        [*ALLOCATOR, *LINEAR, PYTHON, *native("at::cuda::getCurrentCUDABlasHandle()")],
    )
    assert Stacks(table).workspace(1)
    assert not Stacks(table).workspace(2)


def test_python_alone_says_nothing_of_operators():
    assert Stacks(stack_table([PYTHON])).native(1) is None
