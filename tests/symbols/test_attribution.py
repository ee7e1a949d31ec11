"""Names of lifetimes: the profiler's operators, carried from one iteration to another."""

import pytest

from memtrace.symbols import BEFORE_RECORDING, UNATTRIBUTED, attribute
from memtrace.symbols.alignment import align
from memtrace.symbols.profiled import Operators
from memtrace.timeline import replay
from tests.builders import capture_meta, events, recording, stack_table

OPS = {
    "name": [
        "autograd::engine::evaluate_function: MmBackward0",
        "MmBackward0",
        "aten::mm",
        "aten::linear",
        "aten::addmm",
    ],
    "kind": ["cpu_op"] * 5,
    "thread": [2, 2, 2, 1, 1],
    "start_ns": [100, 110, 120, 10, 12],
    "duration_ns": [50, 30, 10, 20, 10],
    "sequence": [7, 7, -1, 7, -1],
    "forward_thread": [1, 1, 0, -1, -1],
    "correlation": [-1] * 5,
    "shapes": [""] * 5,
}


def test_the_node_names_what_the_engine_ran():
    operator = Operators(OPS).describe(2)
    assert (operator.name, operator.operation, operator.forward) == ("MmBackward0", "aten::mm", 3)


def test_the_outermost_operator_names_a_call():
    operator = Operators(OPS).describe(4)
    assert (operator.name, operator.operation) == ("aten::linear", "")


def test_ranges_of_modules_are_layers_and_no_operators():
    ops = {
        "name": ["memtrace layer model", "memtrace layer model.mlp", *OPS["name"]],
        "kind": ["cpu_op"] * 7,
        "thread": [1, 1, *OPS["thread"]],
        "start_ns": [8, 9, *OPS["start_ns"]],
        "duration_ns": [90, 80, *OPS["duration_ns"]],
        "sequence": [-1, -1, *OPS["sequence"]],
        "forward_thread": [-1, -1, *OPS["forward_thread"]],
    }
    forward = Operators(ops).describe(6)
    assert (forward.name, forward.layer) == ("aten::linear", "model.mlp")
    backward = Operators(ops).describe(4)
    assert (backward.name, backward.layer) == ("MmBackward0", "model.mlp")


def test_intervals_that_only_touch_do_not_nest():
    ops = OPS | {"start_ns": [100, 150, 160, 10, 12]}
    assert Operators(ops).describe(1).name == "MmBackward0"
    assert Operators(ops).parent(1) == -1


USER = stack_table(
    [("/site-packages/torch/nn/modules/linear.py", 9, "forward"), ("/a/m.py", 3, "f")]
)


def two_iterations(profile):
    """A plain iteration and a profiled one; each allocates in forward and, frameless, backward."""
    rows = []
    for address in (0x1000, 0x9000):
        rows += [
            ("alloc", address, 512, 0, 1),
            ("alloc", address + 512, 1024),
            ("free", address + 512, 1024),
            ("free", address, 512),
        ]
    marks = []
    for start in (0, 6):
        marks += [
            ("call", "begin", start), ("call", "end", start + 1),
            ("backward", "begin", start + 1), ("backward", "end", start + 6),
        ]  # fmt: skip
    meta = capture_meta(
        marks=[*marks, ("end", "", 12)],
        iterations=[{"begin": 0, "end": 4}, {"begin": 4, "end": 8, "profiled": True}],
        profile=profile,
        sources={}, thunder=[], fx={},
    )  # fmt: skip
    return recording(events(*rows), start=[], stacks=USER, meta=meta)


MEMORY = {
    "addr": [0x9000, 0x9200, 0x9200, 0x9000],
    "bytes": [512, 1024, -1024, -512],
    "device": [0] * 4,
    "thread": [1, 2, 2, 1],
    "time_ns": [13, 121, 122, 130],
    "op": [4, 2, 1, -1],
}


def names(one, **options):
    run = replay(one)
    attribution = attribute(one, run, **options)
    return [attribution.of(k).symbol for k in range(len(run.lifetimes))]


def test_profile_names_frameless_allocations_in_every_iteration():
    symbols = names(two_iterations({"iteration": 1, "ops": OPS, "memory": MEMORY}))
    assert [s.text for s in symbols] == [
        "forward aten::linear (a/m.py:3)",
        "backward MmBackward0 › aten::mm (a/m.py:3)",
    ] * 2


def test_without_profile_frameless_allocations_stay_open():
    symbols = names(two_iterations(None))
    assert [s.text for s in symbols] == [
        "forward torch.nn.modules.linear.forward (a/m.py:3)",
        UNATTRIBUTED,
    ] * 2


def test_operators_can_be_left_out_of_names_with_a_stack():
    profile = {"iteration": 1, "ops": OPS, "memory": MEMORY}
    symbols = names(two_iterations(profile), operators=False)
    assert symbols[0].name == "torch.nn.modules.linear.forward"
    assert symbols[1].name == "MmBackward0"


def test_alive_before_the_recording():
    one = recording(events(("free", 0x1000, 512), ("alloc", 0x1000, 512)))
    assert [s.text for s in names(one)] == [BEFORE_RECORDING, UNATTRIBUTED]


@pytest.mark.parametrize(
    ("model", "other", "pairs"),
    [
        ("abc", "abc", [(0, 0), (1, 1), (2, 2)]),
        ("abc", "axbc", [(0, 0), (1, 2), (2, 3)]),
        ("abcd", "ad", [(0, 0), (3, 1)]),
        ("", "ab", []),
        ("aa", "a", [(0, 0)]),
    ],
)
def test_align(model, other, pairs):
    assert align(model, other) == pairs


def capture(rows, **more):
    meta = capture_meta(
        marks=[("backward", "begin", 0), ("backward", "end", 100), ("end", "", 100)],
        profile=None,
        **more,
    )
    return recording(events(*rows), start=[], stacks=USER, meta=meta)


def owner(kind, address, mark=1, **more):
    row = {"mark": mark, "kind": kind, "name": "fc.weight", "device": 0, "address": address}
    return row | {"bytes": 512, "shape": [128], "dtype": "float32"} | more


def test_what_the_program_holds_by_name_is_named_by_it():
    rows = [("alloc", 0x1000, 512), ("alloc", 0x2000, 512), ("alloc", 0x3000, 512, 0, 1)]
    one = capture(
        rows,
        owners=[
            owner("parameter", 0x1000),
            owner("gradient", 0x1000),
            owner("optimizer", 0x2000, device=1),
            owner("gradient", 0x3000),
        ],
    )
    assert [s.name for s in names(one)] == [
        "AccumulateGrad",
        UNATTRIBUTED,  # the owner's is another device
        "torch.nn.modules.linear.forward",  # a stack says more
    ]


def test_an_owner_speaks_only_of_what_was_alive_at_its_mark():
    rows = [("alloc", 0x1000, 512), ("free", 0x1000, 512), ("alloc", 0x1000, 512)]
    one = capture(rows, owners=[owner("gradient", 0x1000, mark=2)])
    assert [s.name for s in names(one)] == [UNATTRIBUTED, "AccumulateGrad"]


def test_workspace_by_its_size_and_because_it_stays():
    rows = [("alloc", 0x1000, 4096), ("alloc", 0x9000, 4096), ("free", 0x9000, 4096)]
    one = capture(rows, facts={"cublas_workspace_bytes": 4096})
    assert [s.name for s in names(one)] == ["cuBLAS workspace", UNATTRIBUTED]
