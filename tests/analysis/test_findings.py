"""Causes in programs written by hand, with a known answer; and what is no cause."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from memtrace.analysis import Subject
from memtrace.analysis.findings import ExplainReport, Finding, report_explain
from memtrace.timeline import peak
from tests.analysis.thunder_program import Call, Del, Program, subject

BIG = 1000


def explained(program: Program) -> ExplainReport:
    return report_explain(subject(program), whatif=True)


def kinds(program: Program) -> dict[str, Finding]:
    return {finding.kind: finding for finding in explained(program).explained.findings}


def peak_of(one: Subject) -> int:
    return peak(one.replay, one.window, one.replay.accounting).total


def matmul(name: str, *args: str, size: int = BIG) -> Call:
    return Call({name: ("f32", size)}, "torch.matmul", args)


def test_softmax_in_two_dtypes() -> None:
    """The bf16 copy follows from the f32 one by a cast, and both are saved."""
    program = Program(
        given={"w": ("f32", 10)},
        forward=[
            matmul("t0", "w"),
            Call(
                {"t1": ("f32", BIG), "t2": ("bf16", BIG)},
                "nvFusion0",
                ["t0"],
                [
                    ("t1", "prims.amax", ["t0"]),
                    ("t2", "prims.convert_element_type", ["t1"]),
                ],
            ),
            Del(["t0"]),
            matmul("t3", "t2", size=5),
        ],
        saved=["t1", "t2"],
        returned=["t3"],
        backward=[
            matmul("t4", "w", size=2 * BIG),
            Del(["t4"]),
            matmul("t5", "t2", size=6),
            Del(["t2"]),
            matmul("t6", "t5", "t1", size=7),
            Del(["t1", "t5"]),
        ],
        gradients=["t6"],
    )
    report = explained(program)
    (finding,) = report.explained.findings
    assert finding.kind == "held twice: dtype"
    assert finding.bytes == 2 * BIG
    assert finding.symbols == ("model/forward nvFusion0",)
    assert "t2 follows from t1" in finding.evidence[0]
    assert report.whatif is not None
    (offer,) = report.whatif.offers
    # At the peak, in t4, the bf16 copy is neither read nor there; it comes back for t5.
    assert (offer.change.way, offer.saved) == ("recomputed", 2 * BIG)
    assert offer.change.moved == 4 * BIG + 2 * BIG


def test_a_reduction_is_not_cheap() -> None:
    program = Program(
        given={"w": ("f32", 10)},
        forward=[
            matmul("t0", "w"),
            Call({"t1": ("f32", BIG)}, "nvFusion0", ["t0"], [("t1", "prims.sum", ["t0"])]),
        ],
        saved=["t0", "t1"],
        backward=[matmul("t4", "w", size=BIG), Del(["t4"]), matmul("t6", "t0", "t1", size=7)],
        gradients=["t6"],
    )
    assert not explained(program).explained.findings


def cheap(*, saved: list[str], between: list[Call | Del]) -> Program:
    return Program(
        given={"w": ("f32", 10)},
        forward=[
            matmul("t0", "w"),
            Call({"t1": ("f32", BIG)}, "nvFusion0", ["t0"], [("t1", "prims.tanh", ["t0"])]),
            matmul("t2", "t1", size=3),
        ],
        saved=saved,
        returned=["t2"],
        backward=[
            matmul("t4", "w", size=BIG),
            Del(["t4"]),
            *between,
            matmul("t6", "t1", size=7),
            *([matmul("t7", "t0", size=8)] if "t0" in saved else []),
        ],
        gradients=["t6"],
    )


def test_an_elementwise_result_of_what_is_saved_is_cheap() -> None:
    found = kinds(cheap(saved=["t0", "t1"], between=[]))
    assert list(found) == ["cheap to recompute"]
    assert found["cheap to recompute"].bytes == 4 * BIG


def test_nothing_is_made_again_of_what_is_not_there() -> None:
    assert "cheap to recompute" not in kinds(cheap(saved=["t1"], between=[]))


def test_nothing_is_made_again_of_what_is_written_into() -> None:
    changed = Call({"t9": ("f32", BIG)}, "torch.add_", ["t0", "w"], view=True)
    assert "cheap to recompute" not in kinds(cheap(saved=["t0", "t1"], between=[changed]))


def fault(inputs_live: bool, *, writes: bool = False) -> Program:
    """The report's: transposes of saved tensors at the begin of the backward, read at its end."""
    inside = [("t5", "prims.transpose", ["t0"]), ("t6", "prims.transpose", ["t1"])]
    last = [matmul("t9", "t0", "t1", size=7)] if inputs_live else []
    write = [Call({"t8": ("f32", BIG)}, "torch.mul_", ["t0", "w"], view=True)] if writes else []
    return Program(
        given={"w": ("f32", 10)},
        forward=[matmul("t0", "w"), matmul("t1", "w", size=2 * BIG)],
        saved=["t0", "t1"],
        backward=[
            Call({"t5": ("f32", BIG), "t6": ("f32", 2 * BIG)}, "nvFusion0", ["t0", "t1"], inside),
            *([] if inputs_live else [Del(["t0", "t1"])]),
            *write,
            matmul("t7", "w", size=5 * BIG),
            Del(["t7"]),
            matmul("t10", "t5", size=3),
            Del(["t5"]),
            matmul("t11", "t6", size=4),
            Del(["t6"]),
            *last,
        ],
        gradients=["t10", "t11"],
    )


def test_a_fusion_of_shapes_holds_twice_what_lives_on() -> None:
    report = explained(fault(inputs_live=True))
    (finding,) = report.explained.findings
    assert finding.kind == "shape-only fusion"
    assert finding.bytes == 4 * 3 * BIG
    assert report.whatif is not None
    assert report.whatif.together.peak.bytes == report.peak.peak_bytes - 4 * 3 * BIG


def test_a_fusion_of_shapes_whose_inputs_end_holds_nothing_twice() -> None:
    report = explained(fault(inputs_live=False))
    assert not report.explained.findings
    assert report.whatif is not None
    assert report.whatif.together.peak.bytes == report.peak.peak_bytes


def early(*between: Call | Del, needs: str = "w") -> Program:
    """A fusion whose second output is read only after the peak."""
    return Program(
        given={"w": ("f32", 10)},
        forward=[
            matmul("t0", "w", size=BIG // 2),
            Call(
                {"t1": ("f32", BIG), "t2": ("f32", BIG)},
                "nvFusion0",
                [needs, "t0"],
                [("t1", "prims.exp", ["t0"]), ("t2", "prims.sum", [needs])],
            ),
            Del(sorted({"t0", needs} - {"w"})),
            matmul("t3", "t1", size=3 * BIG),
            Del(["t1"]),
            *between,
            matmul("t4", "t3", size=5),
            Del(["t3"]),
            matmul("t5", "t2", "t4", size=6),
            Del(["t2", "t4"]),
        ],
        returned=["t5"],
    )


def test_an_output_made_before_the_peak_and_read_after_it() -> None:
    report = explained(early())
    (finding,) = report.explained.findings
    assert finding.kind == "born early"
    assert finding.bytes == 4 * BIG
    assert report.whatif is not None
    (offer,) = report.whatif.offers
    assert offer.change.way == "made at its first use"
    assert offer.saved == 4 * BIG


def test_a_producer_does_not_pass_a_write_into_its_input() -> None:
    write = Call({"t8": ("f32", 10)}, "torch.add_", ["w", "t3"], view=True)
    assert "born early" not in kinds(early(write))


def test_a_producer_does_not_move_if_its_inputs_would_have_to_last_longer() -> None:
    """The other input is as large as what would be moved."""
    given_ = {"w": ("f32", 10)}
    larger = [matmul("t9", "w", size=BIG), *early(needs="t9").forward]
    assert "born early" not in kinds(Program(given=given_, forward=larger, returned=["t5"]))
    smaller = [matmul("t9", "w", size=BIG // 4), *early(needs="t9").forward]
    found = kinds(Program(given=given_, forward=smaller, returned=["t5"]))
    assert found["born early"].bytes == 4 * (BIG - BIG // 4)


def test_random_numbers_keep_their_order() -> None:
    program = early()
    drawn = Call(
        {"t1": ("f32", BIG), "t2": ("f32", BIG)},
        "nvFusion0",
        ["w", "t0"],
        [("t1", "prims.exp", ["t0"]), ("t2", "prims.uniform", ["w"])],
    )
    program.forward = [
        drawn if isinstance(one, Call) and one.inside else one for one in program.forward
    ]
    assert "born early" not in kinds(program)


def late(*, aliased: bool = False) -> Program:
    use = "v" if aliased else "t0"
    view = [Call({"v": ("f32", BIG)}, "torch.permute", ["t0"], view=True)] if aliased else []
    return Program(
        given={"w": ("f32", 10)},
        forward=[
            matmul("t0", "w"),
            *view,
            *([matmul("t1", "t0", size=3)] if not aliased else [matmul("t1", "w", size=3)]),
            matmul("t2", "t1", size=4 * BIG),
            *([matmul("t3", use, size=5)] if aliased else [matmul("t3", "t2", size=5)]),
            Del(["t2", "t1", "t0", *(["v"] if aliased else [])]),
            matmul("t4", "t3", size=6),
        ],
        returned=["t4"],
    )


def test_held_after_its_last_use() -> None:
    report = explained(late())
    (finding,) = report.explained.findings
    assert (finding.kind, finding.bytes) == ("held after last use", 4 * BIG)
    assert report.whatif is not None
    assert report.whatif.offers[0].saved == 4 * BIG


def test_a_view_that_is_read_later_is_a_use() -> None:
    assert not kinds(late(aliased=True))


def test_saved_collections_that_are_not_cleared_hold_to_the_end() -> None:
    """Dead in the trace after its use in the backward, and held by the collection."""
    program = cheap(saved=["t1"], between=[])
    program.cleared = False
    program.backward = [
        matmul("t6", "t1", size=7),
        Del(["t1"]),
        matmul("t8", "w", size=2 * BIG),
        Del(["t8"]),
    ]
    (finding,) = explained(program).explained.findings
    assert (finding.kind, finding.bytes) == ("held after last use", 4 * BIG)
    assert any("saved for backward" in text for text in finding.evidence)


sizes = st.integers(1, 50)


def chain(lengths: list[int]) -> list[Call | Del]:
    """Each value is read by the next statement alone, and deleted at once."""
    statements: list[Call | Del] = [matmul("c0", "w", size=lengths[0])]
    for k, size in enumerate(lengths[1:], 1):
        statements += [matmul(f"c{k}", f"c{k - 1}", size=size), Del([f"c{k - 1}"])]
    return statements


@given(st.lists(sizes, min_size=2, max_size=8))
@settings(max_examples=50)
def test_nothing_is_offered_where_nothing_can_be_gained(lengths: list[int]) -> None:
    program = Program(given={"w": ("f32", 10)}, forward=chain(lengths))
    report = explained(program)
    assert not report.explained.findings
    assert report.whatif is not None
    assert not report.whatif.offers


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Statements that read what is there, and let go of it at once or later."""
    statements: list[Call | Del] = []
    there, dead = ["w"], []
    for k in range(draw(st.integers(2, 9))):
        args = draw(st.lists(st.sampled_from(there), min_size=1, max_size=2, unique=True))
        statements.append(matmul(f"x{k}", *args, size=draw(sizes)))
        gone = draw(st.lists(st.sampled_from(there), max_size=2, unique=True))
        gone = [name for name in gone if name != "w"]
        there = [name for name in there if name not in gone] + [f"x{k}"]
        dead += gone
        if dead and draw(st.booleans()):
            statements.append(Del(dead))
            dead = []
    return Program(given={"w": ("f32", 10)}, forward=statements)


def changed(program: Program, report: ExplainReport) -> Program:
    """The program with all changes made that what-if makes together."""
    statements = list(program.forward)
    made = [one for one in statements if isinstance(one, Call)]
    whatif = report.whatif
    assert whatif is not None

    def readers(name: str) -> list[Call]:
        return [one for one in made if name in one.args]

    for number in whatif.together.offers:
        change = whatif.offers[number].change
        for edit in change.edits:
            call = made[edit.lifetime]
            (name,) = call.outputs
            if change.way == "made at its first use":
                first = next(one for one in statements if one in readers(name))
                passed = statements[statements.index(call) : statements.index(first)]
                statements.remove(call)
                for gone in [one for one in passed if isinstance(one, Del)]:
                    kept = [n for n in gone.names if n in call.args]
                    if kept:
                        rest = [n for n in gone.names if n not in kept]
                        statements[statements.index(gone)] = Del(rest)
                        statements.insert(statements.index(first) + 1, Del(kept))
                statements.insert(statements.index(first), call)
            else:
                assert change.way == "freed at its last use"
                statements = [
                    Del([n for n in one.names if n != name]) if isinstance(one, Del) else one
                    for one in statements
                ]
                last = [one for one in statements if one in readers(name)][-1]
                statements.insert(statements.index(last) + 1, Del([name]))
    kept = [one for one in statements if isinstance(one, Call) or one.names]
    return Program(given=program.given, forward=kept)


@given(programs())
@settings(max_examples=60)
def test_what_is_predicted_is_the_peak_of_the_changed_program(program: Program) -> None:
    """Changes are made in the program's text, and the program is run again."""
    report = explained(program)
    assert report.whatif is not None
    again = peak_of(subject(changed(program, report)))
    assert report.whatif.together.peak.bytes == again
    held = report.peak.peak_bytes
    assert all(finding.bytes <= held for finding in report.explained.findings)
