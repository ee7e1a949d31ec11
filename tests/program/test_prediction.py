"""Predicted peaks: by hand, and held against Python's own reference counting."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtrace.program import find_lifetimes, predict, read_text
from tests.program.running import run

KB = 1000


def test_views_cost_nothing_and_hold_their_base():
    program = read_text(
        """def computation(x):
  # x: "cuda:0 f32[10, 20]"
  t1 = torch.add(x, 1)  # t1: "cuda:0 f32[10, 20]"
  t2 = torch.permute(t1, (1, 0))  # t2: "cuda:0 f32[20, 10]"
  del t1
  t3 = torch.mul(t2, 2)  # t3: "cuda:0 f32[20, 10]"
  del t2
  return t3
"""
    )
    assert program.aliases("t1") == ("t1", "t2")
    assert find_lifetimes(program)["t1"].freed == program.values["t2"].deleted[0]
    prediction = predict(program)
    assert prediction.argument_bytes == 800
    assert [step.during for step in prediction.steps] == [800, 800, 800, 1600, 1600, 800]


@pytest.mark.parametrize(
    ("operation", "copies"),
    [
        ("torch.reshape(t2, (200,))", True),  # rows of a transposed tensor do not lie in a row
        ("torch_prims_reshape_impl(t2, (200,))", True),
        ("torch.reshape(t1, (200,))", False),
        ("torch.reshape(t2, (20, 2, 5))", False),  # each row is cut by itself
        ("Tensor.contiguous(t2, memory_format=_torch_memory_format_0)", True),
        ("Tensor.contiguous(t1, memory_format=_torch_memory_format_0)", False),
        ("torch.unsqueeze(t2, 0)", False),
        ("Tensor.to(t1, copy=False)", False),
    ],
)
def test_a_reshape_copies_where_strides_do_not_allow_a_view(operation, copies):
    shape = "[20, 2, 5]" if "(20, 2, 5)" in operation else "[200]"
    shape = {"contiguous": "[20, 10]" if "t2" in operation else "[10, 20]"}.get(
        operation.split("(")[0].split(".")[-1], shape
    )
    shape = "[1, 20, 10]" if "unsqueeze" in operation else shape
    shape = "[10, 20]" if ".to(" in operation else shape
    program = read_text(
        f"""def computation(x):
  # x: "cuda:0 f32[10, 20]"
  t1 = torch.add(x, 1)  # t1: "cuda:0 f32[10, 20]"
  t2 = torch.permute(t1, (1, 0))  # t2: "cuda:0 f32[20, 10]"
  t3 = {operation}  # t3: "cuda:0 f32{shape}"
  return t3
"""
    )
    assert predict(program).peak_bytes == (1600 if copies else 800)


def test_a_cast_copies_and_an_inplace_operation_does_not():
    program = read_text(
        """def computation(x):
  # x: "cuda:0 f32[100]"
  t1 = torch.add(x, 1)  # t1: "cuda:0 f32[100]"
  t2 = Tensor.to(t1, torch.bfloat16)  # t2: "cuda:0 bf16[100]"
  t3 = torch.add_(t1, 1)  # t3: "cuda:0 f32[100]"
  t4 = copy_(t2, t1)  # t4: "cuda:0 f32[100]"
  return t4
"""
    )
    assert predict(program).peak_bytes == 400 + 200
    assert program.aliases("t1") == ("t1", "t3", "t4")


FUSED = """def computation(x):
  # x: "cuda:0 f32[10, 20]"
  [t1, t2, t3, t4, t5] = nvFusion0(x)
    # t0 = prims.add(x, x)  # t0: "cuda:0 f32[10, 20]"
    # t1 = prims.transpose(t0, (1, 0))  # t1: "cuda:0 f32[20, 10]"
    # t2 = prims.reshape(t0, (200,))  # t2: "cuda:0 f32[200]"
    # t3 = prims.reshape(x, (200,))  # t3: "cuda:0 f32[200]"
    # t6 = prims.sum(t0, (1,))  # t6: "cuda:0 f32[10]"
    # t4 = prims.broadcast_in_dim(t6, (10, 20), (0,))  # t4: "cuda:0 f32[10, 20]"
    # t5 = prims.reshape(t1, (200,))  # t5: "cuda:0 f32[200]"
  return t1, t2, t3, t4, t5
"""


def test_outputs_of_a_fusion_that_are_views():
    program = read_text(FUSED)
    assert program.aliases("t1") == ("t1", "t2")  # two views of one intermediate
    assert program.aliases("x") == ("x", "t3")  # a view of an input
    assert program.storage("t4").bytes == 40  # nothing is stored along a broadcast
    assert program.storage("t5").bytes == 800  # rows of a transposed tensor: a copy
    assert predict(program).peak_bytes == 800 + 40 + 800


def test_a_fusion_without_its_insides_makes_all_of_its_outputs():
    text = """def computation(x):
  # x: "cuda:0 f32[10]"
  [t1] = nvFusion0(x)  # t1: "cuda:0 f32[10]"
  return t1
"""
    assert predict(read_text(text)).peak_bytes == 40


def test_cotangents_are_held_until_the_end_where_dynamo_made_the_graph():
    lines = """def backward_fn(saved_for_backward, cotangents):
  t1, = cotangents
  # t1: "cuda:0 f32[100]"
  clear_mutable_collection(cotangents)
  del cotangents
{origin}
  t2 = torch.neg(t1)  # t2: "cuda:0 f32[100]"
  del t1
  t3 = torch.neg(t2)  # t3: "cuda:0 f32[100]"
  del t2
  return (t3,)
"""
    assert predict(read_text(lines.format(origin=""))).peak_bytes == 800
    dynamo = lines.format(origin="\n  # <eval_with_key>.4:5: \t    y = x.neg()")
    assert predict(read_text(dynamo)).peak_bytes == 1200


@st.composite
def programs(draw):
    """A forward and a backward with random operators, views, deletes, outputs and saved values."""
    sizes: dict[str, int] = {}
    counter = iter(range(1, 1000))

    def body(alive: list[str], lines: list[str], length: int) -> None:
        for _ in range(length):
            kind = draw(st.sampled_from(["new", "two", "view", "delete"]))
            base = draw(st.sampled_from(alive)) if alive else None
            if kind == "delete" and base is not None and len(alive) > 1:
                if base in arguments:  # the forward returns them all
                    continue
                alive.remove(base)
                lines.append(f"  del {base}")
                continue
            if kind == "view" and base is not None:
                name = f"t{next(counter)}"
                sizes[name] = sizes[base]
                lines.append(f"  {name} = torch.permute({base}, (0,))")
                lines.append(f'  # {name}: "cuda:0 ui8[{sizes[name]}]"')
                alive.append(name)
                continue
            made = [f"t{next(counter)}" for _ in range(2 if kind == "two" else 1)]
            target = f"[{', '.join(made)}]" if kind == "two" else made[0]
            lines.append(f"  {target} = torch.{'topk' if kind == 'two' else 'add'}({base})")
            for name in made:
                sizes[name] = draw(st.integers(1, 100))
                lines.append(f'  # {name}: "cuda:0 ui8[{sizes[name]}]"')
            alive += made

    arguments = {f"x{n}": draw(st.integers(1, 100)) for n in range(draw(st.integers(1, 3)))}
    sizes |= arguments
    lines = [f"def computation({', '.join(arguments)}):"]
    lines += [f'  # {name}: "cuda:0 ui8[{size}]"' for name, size in arguments.items()]
    alive = list(arguments)
    body(alive, lines, draw(st.integers(1, 12)))
    given_out = draw(st.sampled_from(alive))
    saved = draw(st.lists(st.sampled_from(alive), unique=True))
    held = f"({', '.join(saved)}{',' if len(saved) == 1 else ''})"
    flat = ", ".join(arguments)
    lines.append(
        f"  return {{'output': ({given_out},), 'flat_args': [{flat}], "
        f"'flat_output': ({given_out},)}}, ({held}, ())"
    )
    cotangents = [draw(st.integers(1, 100)) for _ in range(draw(st.integers(1, 2)))]
    names = [f"g{n}" for n in range(len(cotangents))]
    sizes |= dict(zip(names, cotangents, strict=True))
    lines += [
        "def backward_fn(saved_for_backward, cotangents):",
        "  C0, C1, = saved_for_backward",
        "  clear_mutable_collection(saved_for_backward)",
        "  del C1, saved_for_backward",
        f"  {', '.join(names)}, = cotangents",
        *(f'  # {name}: "cuda:0 ui8[{sizes[name]}]"' for name in names),
        "  clear_mutable_collection(cotangents)",
        "  del cotangents",
    ]
    if saved:
        lines.append(f"  {', '.join(saved)}, = C0")
    lines += ["  clear_mutable_collection(C0)", "  del C0"]
    alive = [*names, *saved]
    body(alive, lines, draw(st.integers(1, 12)))
    kept = draw(st.lists(st.sampled_from(alive), min_size=1, unique=True))
    lines.append(f"  return ({', '.join(kept)},)")
    return "\n".join(lines), sizes, arguments, cotangents


@settings(deadline=None)
@given(programs(), st.booleans())
def test_the_peak_is_that_of_running_it(case, hold):
    text, sizes, arguments, cotangents = case
    program = replace(read_text(text), outputs_held=hold)
    expected = run(text, sizes, ("permute",), arguments, cotangents, hold)
    assert predict(program).peak_bytes == expected
