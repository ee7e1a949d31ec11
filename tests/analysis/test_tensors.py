"""The same tensor under another shape or dtype in the other recording."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtrace.analysis.matching import join_rows
from memtrace.analysis.rows import Row, Side
from memtrace.analysis.tensors import Described, describe, find_beside, join_reshaped
from memtrace.symbols import Symbol


def held(text, size, count=1, names=(), lines=("model.py:7",)):
    """A row of one side by tensor, as a peak has it."""
    what = describe(text)
    tensors = ((text.removeprefix(what.place).strip(), count),) if what else ()
    side = Side(size, count, (), tensors, names, lines=lines)
    return Row(Symbol(None, "", None, text), (side,))


def symbols(*texts):
    return {Symbol(None, "", None, text) for text in texts}


def joined(a, b, a_also=(), b_also=()):
    """What a diff of two peaks says; ``*_also`` are tensors made at other moments."""
    baseline = {row.symbol for row in a} | symbols(*a_also)
    candidate = {row.symbol for row in b} | symbols(*b_also)
    rows = join_reshaped(join_rows(a, b), baseline, candidate)
    return sorted((row.symbol.name, row.delta, row.status) for row in rows)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b float32[8, 4]", Described("a.b", "float32", (8, 4))),
        ("a | b int64[]", Described("a | b", "int64", ())),
        ("a bfloat16[8, 4] | bfloat16[4, 8]", Described("a", "bfloat16", (8, 4))),
        ("a bfloat16[8, 4] | float32[4, 4]", None),
        ("a bfloat16[8, 4] | bfloat16[8, 5]", None),
        ("<unattributed>", None),
        ("forward aten::mm (model.py:7)", None),
        ("", None),
    ],
)
def test_a_tensor_is_taken_apart(text, expected):
    assert describe(text) == expected


def test_another_shape_of_the_same_elements_is_the_same():
    a, b = [held("mlp bfloat16[4, 6]", 48)], [held("mlp bfloat16[1, 4, 6]", 48)]
    assert joined(a, b) == [("mlp bfloat16[1, 4, 6]", 0, "")]


def test_what_is_left_of_another_shape_counts():
    a = [held("mlp bfloat16[4, 6]", 96, 2), held("mlp bfloat16[1, 4, 6]", 48)]
    b = [held("mlp bfloat16[1, 4, 6]", 192, 4)]
    assert joined(a, b) == [("mlp bfloat16[1, 4, 6]", 48, "COUNT 3 → 4")]


def test_another_shape_made_by_another_line_is_another_tensor():
    a = [held("attn bfloat16[4, 6]", 48, lines=("model.py:7",))]
    b = [held("attn bfloat16[2, 4, 3]", 96, 2, lines=("model.py:9",))]
    assert [status for *_, status in joined(a, b)] == ["NEW", "GONE"]
    # As many of them, in shapes that the other run never has: a compiler's word for the same.
    b = [held("attn bfloat16[2, 4, 3]", 48, lines=("model.py:9",))]
    assert joined(a, b) == [("attn bfloat16[2, 4, 3]", 0, "")]


def test_shapes_that_both_runs_make_stay_apart():
    a, b = [held("mlp bfloat16[4, 6]", 48)], [held("mlp bfloat16[6, 4]", 48)]
    rows = joined(a, b, a_also=["mlp bfloat16[6, 4]"], b_also=["mlp bfloat16[4, 6]"])
    assert [delta for _, delta, _ in rows] == [-48, 48]


def test_a_layer_is_not_another_layer():
    a, b = [held("layers.0 bfloat16[4, 6]", 48)], [held("layers.1 bfloat16[1, 4, 6]", 48)]
    assert [status for *_, status in joined(a, b)] == ["GONE", "NEW"]


def test_a_changed_dtype_is_said():
    a, b = [held("mlp bfloat16[4, 6]", 48)], [held("mlp float32[1, 4, 6]", 96)]
    assert joined(a, b) == [("mlp float32[1, 4, 6]", 48, "DTYPE bfloat16 → float32")]


def test_tensors_of_other_lines_are_others():
    a = [held("mlp bfloat16[4, 6]", 48, lines=("model.py:7",))]
    b = [held("mlp float32[4, 6]", 96, lines=("model.py:8",))]
    assert [status for *_, status in joined(a, b)] == ["GONE", "NEW"]


def test_a_dtype_that_is_freed_earlier_is_not_changed():
    a, b = [held("mlp bfloat16[4, 6]", 48)], [held("mlp float32[4, 6]", 96)]
    assert len(joined(a, b, b_also=["mlp bfloat16[4, 6]"])) == 2


def test_a_larger_parameter_is_said():
    a = [held("embed float32[10, 4]", 160, names=("embed.weight",), lines=())]
    b = [held("embed float32[30, 4]", 480, names=("embed.weight",), lines=())]
    assert joined(a, b) == [("embed float32[30, 4]", 320, "SHAPE [10, 4] → [30, 4]")]


def test_a_longer_batch_changes_each_shape_by_itself():
    a = [held("mlp float32[8, 4]", 128, 1), held("mlp float32[8, 6]", 192, 1)]
    b = [held("mlp float32[16, 4]", 256, 1), held("mlp float32[16, 6]", 384, 1)]
    assert joined(a, b) == [
        ("mlp float32[16, 4]", 128, "SHAPE [8, 4] → [16, 4]"),
        ("mlp float32[16, 6]", 192, "SHAPE [8, 6] → [16, 6]"),
    ]


def test_of_several_nobody_knows_which():
    a = [held("mlp float32[8, 4]", 128), held("mlp float32[9, 4]", 144)]
    b = [held("mlp float32[16, 4]", 256), held("mlp float32[18, 4]", 288)]
    assert [status for *_, status in joined(a, b)] == ["NEW", "NEW", "GONE", "GONE"]


def test_a_sum_over_rows_is_no_smaller_tensor():
    a, b = [held("loss float32[8, 1]", 32)], [held("loss float32[8, 50]", 1600)]
    assert sorted(status for *_, status in joined(a, b)) == ["GONE", "NEW"]


def test_what_is_held_beside_is_named():
    rows = [
        Row(Symbol(None, "", None, "attn float32[4, 4]"), (Side(64, 1), Side(64, 1))),
        Row(Symbol(None, "", None, "attn bfloat16[4, 4]"), (Side(), Side(32, 1))),
        Row(Symbol(None, "", None, "attn float64[4, 4]"), (Side(128, 1), Side())),
    ]
    assert [row.beside for row in find_beside(rows)] == [(), ("float32",), ("float32",)]


TEXTS = st.sampled_from(
    [
        f"{layer} {dtype}{shape}"
        for layer in ("a", "a.0")
        for dtype in ("float32", "bfloat16")
        for shape in ([2, 6], [12], [1, 12], [4, 6], [2, 1], [4, 3, 1])
    ]
    + ["a float32[2, 6] | float32[6, 2]", "<unattributed>", "forward aten::mm"]
)


def sides(draw_rows):
    return [
        held(text, size, count, names, lines)
        for text, (size, count, names, lines) in draw_rows.items()
    ]


CONTENT = st.tuples(
    st.integers(1, 99),
    st.integers(1, 3),
    st.sampled_from([(), ("t1",), ("t2",)]),
    st.sampled_from([(), ("m.py:1",), ("m.py:2",)]),
)


@given(st.dictionaries(TEXTS, CONTENT), st.dictionaries(TEXTS, CONTENT), st.sets(TEXTS))
def test_no_byte_moves_and_nothing_is_lost(a, b, also):
    left, right = sides(a), sides(b)
    baseline = {row.symbol for row in left} | symbols(*also)
    candidate = {row.symbol for row in right} | symbols(*also)
    rows = find_beside(join_reshaped(join_rows(left, right), baseline, candidate))
    for k, side in enumerate((left, right)):
        assert sum(row.sides[k].bytes for row in rows) == sum(r.sides[0].bytes for r in side)
        assert sum(row.sides[k].count for row in rows) == sum(r.sides[0].count for r in side)


@given(st.dictionaries(TEXTS, CONTENT), st.dictionaries(TEXTS, CONTENT))
def test_back_is_forth_turned_round(a, b):
    forth = joined(sides(a), sides(b))
    back = joined(sides(b), sides(a))
    assert sorted(delta for _, delta, _ in forth) == sorted(-delta for _, delta, _ in back)
