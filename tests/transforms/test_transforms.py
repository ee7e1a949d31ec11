"""Thunder transforms: less is saved or held, and the results stay."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("thunder")

from memtrace.errors import MemtraceError
from tests.transforms.programs import Compiled

pytestmark = pytest.mark.slow

BFLOAT16 = 2.0**-8  # its rounding, relative


@pytest.fixture(scope="module")
def plain() -> Compiled:
    return Compiled()


def find(run: Compiled, dtype: str, *shape: int) -> str:
    """The one saved tensor of a dtype and shape that a fusion makes."""
    made = {p.name for f in run.fusions(run.forward) for p in f.flat_proxy_outs}
    (name,) = (
        n
        for n, p in run.saved.items()
        if n in made and str(p.dtype).endswith(dtype) and p.shape == shape
    )
    return name


def lines(trace: Any) -> list[str]:
    return [s.sym.name for s in trace.bound_symbols]


def position(trace: Any, name: str) -> int:
    """The statement that makes a tensor."""
    return next(
        k for k, s in enumerate(trace.bound_symbols)
        if name in {p.name for p in s.flat_proxy_outs} and s.sym.name != "python_del"
    )  # fmt: skip


def test_a_copy_is_cast_again_before_its_reader(plain: Compiled) -> None:
    from memtrace.transforms import Recompute

    copy, wide = find(plain, "bfloat16", 2, 32, 32), find(plain, "float32", 2, 32, 32)
    change = Recompute([copy])
    run = Compiled([change])
    assert copy not in run.saved
    assert wide in run.saved
    assert run.apart(plain) == 0
    (done,) = change.done
    assert (done.tensor, done.way, done.sources) == (copy, "made again", (wide,))
    # Its view is made where it is read, so that it is not made at the start for the view's sake.
    first = position(run.backward, copy)
    assert first > lines(run.backward).index("matmul")
    assert run.backward.bound_symbols[first + 1].sym.name == "permute"


def test_an_activation_is_made_again_from_what_is_saved(plain: Compiled) -> None:
    from memtrace.transforms import Recompute

    product = find(plain, "bfloat16", 2, 32, 64)
    run = Compiled([Recompute([product])])
    assert set(plain.saved) - set(run.saved) == {product}
    assert run.apart(plain) == 0


def test_what_lies_between_is_run_again_as_well(plain: Compiled) -> None:
    from memtrace.transforms import Recompute

    both = {find(plain, "bfloat16", 2, 32, 32), find(plain, "float32", 2, 32, 32)}
    change = Recompute(both)
    run = Compiled([change])
    assert set(plain.saved) - set(run.saved) == both
    assert {one.tensor for one in change.done} == both
    assert all(len(one.between) == 1 for one in change.done)  # the scores
    assert run.apart(plain) == 0


def test_a_tensor_is_held_in_the_dtype_that_goes_on_anyway(plain: Compiled) -> None:
    import torch

    from memtrace.transforms import HoldNarrow

    copy, wide = find(plain, "bfloat16", 2, 32, 32), find(plain, "float32", 2, 32, 32)
    change = HoldNarrow([wide], torch.bfloat16)
    run = Compiled([change])
    assert set(plain.saved) - set(run.saved) == {wide}
    assert not set(run.saved) - set(plain.saved)
    assert [(one.tensor, one.way, one.sources) for one in change.done] == [
        (wide, "made by its readers", (copy,))
    ]
    assert 0 < run.apart(plain) < 4 * BFLOAT16


def test_a_tensor_without_a_narrow_copy_gets_one(plain: Compiled) -> None:
    import torch

    from memtrace.transforms import HoldNarrow

    wide = find(plain, "float32", 2, 32, 32)
    run = Compiled([HoldNarrow([wide], torch.float16)])
    assert f"{wide}_narrow" in run.saved
    assert wide not in run.saved
    assert run.apart(plain) < 4 * BFLOAT16


def test_shapes_stay_out_of_fusions(plain: Compiled) -> None:
    from memtrace.transforms import KeepShapesOut
    from memtrace.transforms.shapes import shape_results

    assert any(shape_results(f) for f in plain.fusions(plain.backward))
    change = KeepShapesOut()
    run = Compiled([change])
    assert change.done
    assert not any(shape_results(f) for f in run.fusions(run.backward))
    assert run.apart(plain) == 0


def test_what_can_be_moved_is_next_to_its_reader(plain: Compiled) -> None:
    from memtrace.transforms import MoveToConsumer
    from memtrace.transforms.statements import names

    views = [s for s in plain.backward.bound_symbols if s.sym.name in ("permute", "reshape")]
    wanted = [p.name for s in views for p in s.flat_proxy_outs]
    change = MoveToConsumer(lambda proxy: proxy.name in wanted)
    run = Compiled([change])
    assert change.done
    statements = [s for s in run.backward.bound_symbols if s.sym.name != "python_del"]
    for name in wanted:
        at = next(k for k, s in enumerate(statements) if name in names(s.flat_proxy_outs))
        reader = next(
            k for k, s in enumerate(statements) if k > at and name in names(s.flat_proxy_args)
        )
        # Only what else the reader waits for lies in between.
        assert all(s.sym.name in ("permute", "reshape") for s in statements[at + 1 : reader])
    assert run.apart(plain) == 0


def test_a_result_that_others_need_is_left_in_its_fusion(plain: Compiled) -> None:
    from memtrace.transforms import MoveToConsumer

    wide = find(plain, "float32", 2, 32, 32)
    change = MoveToConsumer([wide])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = Compiled([change])
    assert not change.done
    assert "saved for the backward" in change.left[wide] or "next to it" in change.left[wide]
    assert any(wide in str(one.message) for one in told)
    assert run.apart(plain) == 0


def test_transforms_follow_each_other(plain: Compiled) -> None:
    import torch

    from memtrace.transforms import HoldNarrow, KeepShapesOut, Recompute

    wide, product = find(plain, "float32", 2, 32, 32), find(plain, "bfloat16", 2, 32, 64)
    run = Compiled([KeepShapesOut(), Recompute([product]), HoldNarrow([wide], torch.bfloat16)])
    assert set(plain.saved) - set(run.saved) == {wide, product}
    assert run.apart(plain) < 4 * BFLOAT16


def test_nothing_random_is_run_again() -> None:
    from memtrace.transforms import Recompute

    change = Recompute(lambda proxy: True)
    base = Compiled(dropout=0.5)
    run = Compiled([change], dropout=0.5)
    random = [name for name, why in change.left.items() if "random" in why]
    assert random
    assert set(random) <= set(run.saved)
    assert run.apart(base) == 0  # the same seed: the same mask in both passes


def test_names_that_no_trace_has_change_nothing(plain: Compiled) -> None:
    from memtrace.transforms import Recompute

    change = Recompute(["t999999"])
    run = Compiled([change])
    assert lines(run.backward) == lines(plain.backward)
    assert (change.done, change.left) == ([], {})


def test_torch_compile_regions_recompute_inside_themselves() -> None:
    from memtrace.transforms import Recompute

    base = Compiled(fuser="torchcompile")
    change = Recompute(lambda proxy: proxy.shape == (2, 32, 32))
    run = Compiled([change], fuser="torchcompile")
    assert [one.way for one in change.done] == ["made by its readers"]
    assert run.apart(base) < 4 * BFLOAT16


def test_the_hoisted_shapes_are_copied_and_can_be_kept_out(plain: Compiled) -> None:
    import sys
    from pathlib import Path

    sys.path.append(str(Path(__file__).parents[2] / "samples"))
    from hoist import Hoist

    from memtrace.transforms import KeepShapesOut, MoveToConsumer

    fault = Compiled([Hoist()])
    (first, *_) = fault.fusions(fault.backward)
    assert first.sym.name == "nvFusion0"
    assert {o.sym.name for o in first.subsymbols} == {"permute", "reshape"} or all(
        o.sym.id.name in ("TRANSPOSE", "RESHAPE") for o in first.subsymbols
    )
    names = [p.name for p in first.flat_proxy_outs]
    shapes = [s for s in plain.backward.bound_symbols if s.sym.name in ("permute", "reshape")]
    assert len(names) == len(shapes) == 10
    assert fault.apart(plain) == 0
    keep, move = KeepShapesOut(), MoveToConsumer(names)
    for change in (keep, move):
        run = Compiled([Hoist(), change])
        assert set(names) <= {one.tensor for one in change.done if one.way == "a view"}
        assert all(f.sym.name != "nvFusion0" for f in run.fusions(run.backward))
        assert run.apart(plain) == 0


def test_an_order_that_cannot_run_is_refused(plain: Compiled) -> None:
    from memtrace.transforms.statements import check_order, statements_of

    statements = statements_of(plain.backward)
    check_order(plain.backward, statements)
    last_matmul = max(k for k, s in enumerate(statements) if s.sym.name == "matmul")
    early = [statements[last_matmul], *statements[:last_matmul], *statements[last_matmul + 1 :]]
    with pytest.raises(MemtraceError, match="before it is made"):
        check_order(plain.backward, early)


def test_nothing_moves_past_a_write_to_its_memory() -> None:
    from thunder.core import devices, dtypes, prims
    from thunder.core.proxies import TensorProxy
    from thunder.core.trace import TraceCtx, tracectx

    from memtrace.transforms.change import Done
    from memtrace.transforms.move import move

    trace = TraceCtx(None)
    with tracectx(trace):
        x, y = (
            TensorProxy(n, shape=(2, 3), device=devices.Device("cpu"), dtype=dtypes.float32,
                        requires_grad=False)
            for n in "xy"
        )  # fmt: skip
        view = prims.transpose(x, (1, 0))
        other = prims.transpose(y, (1, 0))
        written = prims.copy_(y, x, grad_enabled=False)
        prims.add(view, prims.neg(other))
    statements = list(trace.bound_symbols)
    assert "writes x in place" in str(move(statements, view.name))
    assert [s.sym.name for s in statements] == [s.sym.name for s in trace.bound_symbols]
    assert isinstance(move(statements, other.name), Done)  # y is only read
    assert [s.sym.name for s in statements] == ["transpose", "copy_", "transpose", "neg", "add"]
    assert written.name in {p.name for s in statements for p in s.flat_proxy_outs}
