"""The same thing in two recordings, under other numbers too."""

from hypothesis import given
from hypothesis import strategies as st

from memtrace.analysis.matching import join_rows
from memtrace.analysis.rows import Row, Side
from memtrace.symbols import Symbol


def fusion(name, size, *tensors, layer="model.layers.0", count=1):
    side = Side(size, count, (), tuple((text, 1) for text in tensors), (), ((layer, size),))
    return Row(Symbol("thunder", "net", "forward", name), (side,))


def joined(a, b):
    return [
        (row.symbol.name, row.renamed.name if row.renamed else "", row.delta, row.status)
        for row in join_rows(a, b)
    ]


def test_fusions_renumbered_are_the_same():
    a = [fusion("nvFusion1", 40, "f32[10]"), fusion("nvFusion2", 20, "f32[5]")]
    b = [
        fusion("nvFusion0", 7, "f32[1]"),
        fusion("nvFusion2", 40, "f32[10]"),
        fusion("nvFusion3", 20, "f32[5]"),
    ]
    assert joined(a, b) == [
        ("nvFusion0", "", 7, "NEW"),
        ("nvFusion2", "nvFusion1", 0, ""),
        ("nvFusion3", "nvFusion2", 0, ""),
    ]


def test_the_same_name_and_content_come_first():
    a = [fusion("nvFusion1", 40, "f32[10]"), fusion("nvFusion2", 40, "f32[10]")]
    assert joined(a, a[1:]) == [("nvFusion1", "", -40, "GONE"), ("nvFusion2", "", 0, "")]


def test_a_fusion_that_holds_more_is_still_itself():
    a, b = [fusion("nvFusion2", 40, "f32[10]")], [fusion("nvFusion2", 60, "f32[10]", "bf16[10]")]
    assert joined(a, b) == [("nvFusion2", "", 20, "")]


def test_a_fusion_that_returns_another_dtype_says_so():
    a, b = [fusion("nvFusion2", 20, "bf16[10]")], [fusion("nvFusion2", 40, "f32[10]")]
    assert joined(a, b) == [("nvFusion2", "", 20, "DTYPE bf16 → f32")]


def test_as_much_in_another_shape_is_no_change():
    a, b = [fusion("nvFusion2", 40, "f32[10]")], [fusion("nvFusion2", 40, "f32[2, 5]")]
    assert joined(a, b) == [("nvFusion2", "", 0, "")]


def test_a_kernel_that_fuses_something_more_is_still_itself():
    def kernel(name, *tensors, layer="model.layers.0"):
        row = fusion(name, 40, *tensors, layer=layer)
        return Row(Symbol("inductor", "graph 0", "forward", name), row.sides)

    a, b = (
        kernel("triton_poi_fused_mul_0", "f32[10]"),
        kernel("triton_poi_fused_mul_sin_0", "f32[10]"),
    )
    assert joined([a], [b]) == [("triton_poi_fused_mul_sin_0", "triton_poi_fused_mul_0", 0, "")]
    elsewhere = kernel("triton_poi_fused_mul_sin_0", "f32[10]", layer="model.layers.1")
    assert [status for *_, status in joined([a], [elsewhere])] == ["GONE", "NEW"]
    nowhere = [kernel(name, "f32[10]", layer="") for name in ("triton_a", "triton_b")]
    assert len(joined(nowhere[:1], nowhere[1:])) == 2


def test_a_number_alone_makes_nothing_the_same():
    a = [fusion("nvFusion2", 40, "f32[10]", layer="model.layers.0")]
    b = [fusion("nvFusion2", 60, "f32[15]", layer="model.layers.7")]
    assert joined(a, b) == [("nvFusion2", "", 60, "NEW"), ("nvFusion2", "", -40, "GONE")]


def test_names_without_numbers_are_all_there_is():
    eager = Symbol("eager", "", "forward", "aten::mm")
    a, b = [Row(eager, (Side(5, 1),))], [Row(eager, (Side(9, 2),))]
    assert joined(a, b) == [("aten::mm", "", 4, "COUNT 1 → 2")]


def test_fusions_whose_layers_nobody_knows_are_matched_by_their_tensors():
    a = [fusion("nvFusion0", 40, "f32[10]", layer="")]
    b = [fusion("nvFusion0", 4, "f32[1]", layer=""), fusion("nvFusion1", 40, "f32[10]", layer="")]
    assert joined(a, b) == [("nvFusion0", "", 4, "NEW"), ("nvFusion1", "nvFusion0", 0, "")]


def test_rows_of_tensors_of_renumbered_fusions():
    a, b = (
        [
            Row(
                Symbol(None, "", None, f"net fused_{n} f32[10]"),
                (Side(40, 1, (), (("f32[10]", 1),)),),
            )
        ]
        for n in (0, 1)
    )
    assert [(row.delta, row.status) for row in join_rows(a, b)] == [(0, "")]


def at(line, name, size):
    return Row(Symbol("eager", "", "forward", name, "", f"a/model.py:{line}"), (Side(size, 1),))


def test_lines_moved_by_an_edit_are_the_same():
    a = [at(8, "aten::exp", 40), at(9, "aten::mm", 7), at(20, "aten::mul", 30)]
    b = [at(15, "aten::exp", 40), at(16, "aten::sin", 5), at(17, "aten::mm", 7)]
    b.append(at(28, "aten::mul", 31))  # one more line before it, and more bytes
    rows = [(r.symbol.name, r.symbol.line, r.delta, r.status) for r in join_rows(a, b)]
    assert rows == [
        ("aten::sin", "a/model.py:16", 5, "NEW"),
        ("aten::mul", "a/model.py:28", 1, ""),
        ("aten::exp", "a/model.py:15", 0, ""),
        ("aten::mm", "a/model.py:17", 0, ""),
    ]


def test_lines_that_stayed_put_are_not_taken_for_others():
    a = [at(8, "aten::mm", 7), at(9, "aten::mm", 7)]
    b = [at(7, "aten::mm", 7), *a]
    rows = [(r.symbol.line, r.delta, r.status) for r in join_rows(a, b)]
    assert rows[0] == ("a/model.py:7", 7, "NEW")


SOME = st.lists(
    st.builds(
        lambda number, size, shape, layer: fusion(
            f"nvFusion{number}", size, *shape, layer=f"model.layers.{layer}"
        ),
        st.integers(0, 4),
        st.integers(1, 9),
        st.lists(st.sampled_from(["f32[1]", "f32[2]"]), unique=True),
        st.integers(0, 1),
    ),
    unique_by=lambda row: row.symbol,
)


@given(SOME, SOME)
def test_matching_moves_no_byte_and_works_both_ways(a, b):
    forth, back = join_rows(a, b), join_rows(b, a)
    assert sum(row.sides[0].bytes for row in forth) == sum(row.sides[0].bytes for row in a)
    assert sum(row.sides[1].bytes for row in forth) == sum(row.sides[0].bytes for row in b)
    assert sorted(row.delta for row in forth) == sorted(-row.delta for row in back)
    assert all(row.delta == 0 and not row.renamed for row in join_rows(a, a))


def test_a_function_in_angle_brackets_is_a_symbol_like_any():
    script = Symbol("eager", "", None, "<module>", "", "a/train.py:5")
    assert not script.special
    assert Symbol(None, "", None, "<unattributed>").special
    assert joined([Row(script, (Side(5, 1),))], [Row(script, (Side(9, 2),))]) == [
        ("<module>", "", 4, "COUNT 1 → 2")
    ]


def test_a_symbol_that_holds_more_layers_is_still_itself():
    def regional(size, *layers):
        tensors = (("f32[5]", len(layers)),)
        side = Side(size, len(layers), (), tensors, layers=tuple((layer, 1) for layer in layers))
        return Row(Symbol("thunder", "net", "forward", "TorchCompile0", "linear"), (side,))

    assert joined([regional(40, "l.0", "l.1")], [regional(20, "l.0")]) == [
        ("TorchCompile0", "", -20, "COUNT 2 → 1")
    ]
    assert [status for *_, status in joined([regional(40, "l.0")], [regional(20, "l.7")])] == [
        "GONE", "NEW",
    ]  # fmt: skip


def test_a_line_of_an_unedited_file_stays_itself_whatever_it_holds():
    """Line 6 makes less, line 7 something new: no reason to think that 6 has become 7."""

    def line(number, size, *names):
        symbols = tuple(Symbol("eager", "", "forward", n, "", f"m/a.py:{number}") for n in names)
        return Row(Symbol(None, "", None, f"m/a.py:{number}"), (Side(size, 1, symbols=symbols),))

    a = [line(6, 30, "aten::linear", "aten::gelu"), line(8, 10, "aten::linear")]
    b = [line(6, 15, "aten::linear"), line(7, 30, "aten::dropout"), line(8, 10, "aten::linear")]
    assert joined(a, b) == [
        ("m/a.py:7", "", 30, "NEW"),
        ("m/a.py:6", "", -15, ""),
        ("m/a.py:8", "", 0, ""),
    ]
