"""Stacks that are alike: whoever names things by them sees no difference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtrace.snapshot import read
from memtrace.snapshot.columns import Frame, StackTable
from memtrace.snapshot.generated import is_generated
from memtrace.symbols import eager, inductor, thunder
from memtrace.symbols.likeness import find_alike
from memtrace.symbols.sources import Sources
from memtrace.symbols.stacks import Stacks
from tests.builders import stack_table

ROOT = Path(__file__).parent.parent.parent
OUTPUT = "/tmp/torchinductor_me/ab/cabcdefghijklmnopqrstuvwxyz.py"
SITE = "/x/site-packages"
MODEL = ("/a/b/model.py", 7, "forward")
CALLERS = [("/a/b/tree.py", line, "walk") for line in range(4)]
FRAMES = [
    MODEL,
    ("/a/b/other.py", 3, "step"),
    (OUTPUT, 12, "call"),
    (OUTPUT.replace("ab", "cd"), 5, "call"),
    ("thunder.computation_3", 4, "computation"),
    ("thunder.backward_fn_5", 9, "backward_fn"),
    ("thunder.to_be_compiled_2", 3, "to_be_compiled"),
    ("<eval_with_key>.7", 2, "forward"),
    (f"{SITE}/torch/nn/modules/linear.py", 130, "forward"),
    (f"{SITE}/torch/utils/_device.py", 100, "__torch_function__"),
    (f"{SITE}/torch/optim/adamw.py", 60, "step"),
    (f"{SITE}/torch/_tensor.py", 500, "backward"),
    (f"{SITE}/thunder/executors/nvfuserex_impl.py", 40, "__call__"),
    ("??", 0, "at::_ops::mm::call(at::Tensor const&)"),
    ("??", 0, "torch::autograd::generated::MmBackward0::apply()"),
    ("CUDABlas.cpp", 0, "at::cuda::getCurrentCUDABlasHandle()"),
]
SOURCES = Sources(
    {
        "sources": {
            OUTPUT: "\n" * 11 + "buf0 = empty_strided_cuda((2, 2), (2, 1), torch.float32)\n"
            "triton_poi_fused_0.run(buf0, 4)\n",
            "thunder.computation_3": "\n\n\nt1 = nvFusion0(t0)\n",
        }
    }
)


def told(table: StackTable, stack: int) -> list[object]:
    """All that is ever asked of a stack."""
    stacks = Stacks(table)
    frames = stacks.python(stack)
    found: list[object] = [stacks.native(stack), stacks.workspace(stack)]
    for kept in (False, True):
        found.append(thunder.name_stack(frames, SOURCES, kept))
        found.append(inductor.name_stack(frames, SOURCES, kept))
    found.append(eager.is_engine(frames))
    if frames:
        found.append(eager.name_stack(frames, None, "", "", SOURCES))
    found.append(frames[:2])
    found.append([frame for frame in frames if is_generated(frame.filename)])
    return found


STACKS = st.lists(st.lists(st.sampled_from(FRAMES), max_size=6), min_size=1, max_size=12)


@settings(deadline=None)
@given(STACKS, st.lists(st.sampled_from(CALLERS), max_size=3))
def test_what_is_alike_is_named_alike(
    inner: list[list[tuple[str, int, str]]], callers: list[tuple[str, int, str]]
) -> None:
    table = stack_table(*inner, *(stack + callers for stack in inner))
    alike = find_alike(table)
    assert np.array_equal(alike[alike], alike)
    assert (alike <= np.arange(len(alike))).all()
    for stack, first in enumerate(alike.tolist()):
        assert told(table, stack) == told(table, first)


@pytest.mark.parametrize("inner", [[FRAMES[2], MODEL], [FRAMES[4], MODEL], [FRAMES[8], MODEL]])
def test_callers_further_out_make_no_difference(inner: list[tuple[str, int, str]]) -> None:
    table = stack_table(*([*inner, caller, *CALLERS] for caller in CALLERS))
    assert find_alike(table).tolist() == [0, 1, 1, 1, 1]


def test_an_optimizer_further_out_does() -> None:
    inner = [FRAMES[8], MODEL]
    table = stack_table([*inner, CALLERS[0]], [*inner, FRAMES[10]])
    assert find_alike(table).tolist() == [0, 1, 2]


def test_no_frames_and_no_python() -> None:
    assert find_alike(stack_table()).tolist() == [0]
    table = stack_table([FRAMES[13]], [FRAMES[13], FRAMES[14]])
    assert find_alike(table).tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["gpt2-eager", "qwen2-L4-eager-torchcompile"])
def test_stacks_of_shipped_captures(name: str) -> None:
    recording = read(ROOT / f"samples/{name}.pkl.gz")
    table, sources = recording.stacks, Sources(recording.meta)
    stacks = Stacks(table)
    alike = find_alike(table).tolist()

    def name_of(frames: Sequence[Frame]) -> object:
        found = thunder.name_stack(frames, sources) or inductor.name_stack(frames, sources)
        return found or (frames and eager.name_stack(frames, None, "", "", sources))

    different = [k for k, first in enumerate(alike) if k != first]
    for k in different:
        assert name_of(stacks.python(k)) == name_of(stacks.python(alike[k]))
