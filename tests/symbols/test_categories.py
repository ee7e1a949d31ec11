"""What part a lifetime plays, by evidence."""

from memtrace.symbols import attribute
from memtrace.symbols.dataflow import Place, find_places, parameter_place
from memtrace.timeline import replay
from tests.builders import capture_meta, events, recording, stack_table

FUSION, REGION, REGION_FREE, USER = 1, 2, 3, 4
OUTPUT = "/tmp/torchinductor_me/s7/cs7gbb4uf2p44hswiqyrxnv4botqoxtwcpn6ojxh6iaww6l4255o.py"
STACKS = stack_table(
    [("thunder.computation_1", 2, "computation")],
    [(OUTPUT, 5, "call"), ("thunder.computation_1", 3, "computation")],
    [(OUTPUT, 9, "call"), ("thunder.computation_1", 3, "computation")],
    [("/a/b/train.py", 3, "step")],
)


def tensor(name, *shape):
    return {"name": name, "shape": list(shape), "dtype": "float32", "device": "cuda:0"}


def symbol(name, outputs, *args, origin="", inside=()):
    return {
        "name": name, "line": 2, "origin": origin, "args": list(args), "outputs": outputs,
        "inside": list(inside),
    }  # fmt: skip


def trace(phase, filename, *symbols):
    return {
        "phase": phase, "filename": filename, "symbols": list(symbols), "inputs": [],
        "outputs": [],
    }  # fmt: skip


MODULE = {
    "name": "net", "kind": "module", "executors": [], "fx_filename": "",
    "traces": [
        trace(
            "forward", "thunder.computation_1",
            symbol("nvFusion0", [tensor("t1", 256)]), symbol("TorchCompile1", [tensor("t2", 128)]),
        )
    ],
}  # fmt: skip
SOURCE = "def computation(x):\n  [t1] = nvFusion0(x)\n  [t2] = TorchCompile1(x)\n"


def categories():
    """One iteration: forward events 4 to 12, backward 12 to 16."""
    rows = [
        ("alloc", 0x1000, 400, 0, USER),  # 0: the model's weight
        ("alloc", 0x2000, 64, 0, USER),  # 1: a batch
        ("alloc", 0x3000, 32, 0, USER),  # 2: something else
        ("alloc", 0x4000, 8),  # 3: alive before the first iteration, nameless
        ("alloc", 0x5000, 1024, 0, FUSION),  # 4: the fusion's output, saved
        ("alloc", 0x6000, 96, 0, FUSION),  # 5: within the fusion
        ("free_requested", 0x6000, 96, 0, FUSION),
        ("free_completed", 0x6000, 96, 0, FUSION),
        ("alloc", 0x7000, 512, 0, REGION),  # 8: a region's buffer, freed there
        ("free_requested", 0x7000, 512, 0, REGION_FREE),
        ("free_completed", 0x7000, 512, 0, REGION_FREE),
        ("alloc", 0x8000, 512, 0, REGION),  # 11: a region's output, saved
        ("alloc", 0x9000, 400, 0, USER),  # 12: the gradient, made in backward
        ("alloc", 0xA000, 48, 0, USER),  # 13: gone with the iteration
        ("free", 0xA000, 48),
        ("free", 0x5000, 1024),
        ("free", 0x8000, 512),
    ]
    meta = capture_meta(
        marks=[
            ("call", "begin", 4), ("call", "end", 12),
            ("backward", "begin", 12), ("backward", "end", 20), ("end", "", 20),
        ],
        iterations=[{"begin": 0, "end": 4}],
        thunder=[MODULE], sources={"thunder.computation_1": SOURCE},
        facts={"inputs": [tensor("x", 16)]},
        owners=[
            {
                "mark": 3, "kind": kind, "name": "fc.weight", "device": 0, "address": address,
                "bytes": 400, "shape": [100], "dtype": "float32",
            }
            for kind, address in (("parameter", 0x1000), ("gradient", 0x9000))
        ],
    )  # fmt: skip
    one = recording(events(*rows), start=[], stacks=STACKS, meta=meta)
    run = replay(one)
    found = attribute(one, run)
    return found.categories.of(range(len(run.lifetimes))), found


def test_categories():
    assert categories()[0] == [
        "parameter",
        "input",
        "other",
        "other",
        "saved for backward",
        "fusion intermediate",
        "fusion intermediate",
        "saved for backward",
        "gradient",
        "temporary",
    ]


def test_what_outlives_its_iteration_is_saved_for_no_backward_pass():
    _, found = categories()
    assert found.categories.of([4], at=15) == ["saved for backward"]
    assert found.categories.of([4], at=30) == ["other"]


def test_owners_name_tensor_and_layer():
    naming = categories()[1].of(0)
    assert [(t.name, t.text) for t in naming.fitting(400)] == [("fc.weight", "float32[100]")]
    assert naming.layer_of(400) == "fc"


def test_places_flow_through_a_trace():
    def origin(text):
        return {"g:1": Place("model.layers.0.mlp", "m.py:4"), "g:2": Place("model", "m.py:9")}[text]

    inside = [
        {"name": "prims.mul", "text": "", "origin": "g:1", "args": ["x"], "outputs": [tensor("a")]},
        {"name": "prims.cast", "text": "", "origin": "", "args": ["a"], "outputs": [tensor("b")]},
    ]
    weight = "l_self_modules_model_modules_layers_modules_3_modules_mlp_parameters_weight_"
    places = find_places(
        [
            trace(
                "backward", "b",
                symbol("mul", [tensor("gb")], "g", "b"),
                symbol("matmul", [tensor("gw")], "gb", weight),
                symbol("neg", [tensor("gn")], "gw"),
                symbol("neg", [tensor("lost")], "unknown"),
            ),
            trace(
                "forward", "f",
                symbol("nvFusion0", [tensor("b")], "x", inside=inside),
                symbol("add", [tensor("c")], "b", origin="g:2"),
            ),
        ],
        origin,
    )  # fmt: skip
    assert places["a"] == places["b"] == Place("model.layers.0.mlp", "m.py:4")
    assert places["c"] == Place("model", "m.py:9")
    assert places["gb"] == places["b"]  # saved by the forward pass
    assert places["gw"] == places["gn"] == Place("model.layers.3.mlp")
    assert "lost" not in places


def test_parameters_by_their_proxies():
    name = "l_self_modules_model_modules_layers_modules_0_modules_q_proj_parameters_weight_"
    assert parameter_place(name) == Place("model.layers.0.q_proj")
    assert parameter_place("t12") is None


def test_a_region_has_names_of_its_own():
    outside = {"t1": Place("model.layers.0", "m.py:1"), "x": Place("model.embed", "m.py:2")}
    region = trace(
        "region:TorchCompile0", "r",
        symbol("linear", [tensor("t1")], "x", "w", origin="g:5"),
        symbol("neg", [tensor("t2")], "x"),
    )  # fmt: skip
    places = find_places([region], lambda text: Place("model.mlp", "m.py:5"), outside)
    assert places == {"t1": Place("model.mlp", "m.py:5"), "t2": Place("model.embed", "m.py:2")}


OPERATOR, LIBRARY, LIBRARY_FREE = 1, 2, 3
OPERATOR_STACKS = stack_table(
    [("thunder.computation_1", 2, "computation")],
    [(OUTPUT, 5, "call"), ("/a/b/train.py", 3, "step")],
    [(OUTPUT, 6, "call"), ("/a/b/train.py", 3, "step")],
)


def test_what_an_operator_makes_for_itself_is_a_workspace():
    rows = [
        ("alloc", 0x1000, 64, 0, OPERATOR),  # 0: freed by the same statement
        ("alloc", 0x2000, 64, 0, OPERATOR),  # 1: what it returns
        ("free", 0x1000, 64, 0, OPERATOR),
        ("alloc", 0x3000, 96, 0, LIBRARY),  # 2: of an operator that Inductor calls
        ("free", 0x3000, 96, 0, LIBRARY),
        ("alloc", 0x4000, 96, 0, LIBRARY),  # 3: freed by a later line
        ("free", 0x4000, 96, 0, LIBRARY_FREE),
        ("free", 0x2000, 64),
    ]
    program = {**MODULE, "traces": [trace("forward", "thunder.computation_1", symbol("sdpa", []))]}
    meta = capture_meta(
        marks=[("call", "begin", 0), ("call", "end", 12), ("end", "", 12)],
        iterations=[{"begin": 0, "end": 2}],
        thunder=[program],
        sources={"thunder.computation_1": "def computation(x):\n  t1 = sdpa(x)\n"},
    )  # fmt: skip
    one = recording(events(*rows), start=[], meta=meta, stacks=OPERATOR_STACKS)
    found = attribute(one, replay(one)).categories.of(range(4))
    assert found == ["workspace", "temporary", "workspace", "fusion intermediate"]


def test_a_batch_has_the_name_of_the_input_it_becomes():
    attribution = categories()[1]
    assert [t.text for t in attribution.of(1).fitting(64)] == ["float32[16]"]
    assert attribution.of(2).tensors == ()


def test_saved_is_what_the_backward_pass_lets_go():
    rows = [
        ("alloc", 0x1000, 64, 0, USER),  # 0: saved for the first backward pass
        ("alloc", 0x2000, 64, 0, USER),  # 1: kept by the program, and returned
        ("alloc", 0x3000, 64, 0, USER),  # 2: the loss's own, made after the forward pass
        ("free", 0x1000, 64),  # events 3 and 4
        ("free", 0x3000, 64),
        ("alloc", 0x4000, 64, 0, USER),  # 3: of a second micro-batch
        ("free", 0x4000, 64),
        ("free", 0x2000, 64),
    ]
    meta = capture_meta(
        marks=[
            ("call", "begin", 0), ("call", "end", 2),
            ("backward", "begin", 3), ("backward", "end", 7),
            ("call", "begin", 7), ("call", "end", 8),
            ("backward", "begin", 8), ("backward", "end", 10), ("end", "", 12),
        ],
        iterations=[{"begin": 0, "end": 8}],
    )  # fmt: skip
    one = recording(events(*rows), start=[], meta=meta, stacks=STACKS)
    found = attribute(one, replay(one)).categories.of(range(4))
    assert found == [
        "saved for backward", "temporary", "saved for backward", "saved for backward",
    ]  # fmt: skip


def test_what_is_made_of_saved_tensors_again_belongs_where_they_do():
    places = find_places(
        [
            trace("forward", "f", symbol("view", [tensor("v")], "x", origin="g:1")),
            trace(
                "backward", "b",
                symbol("permute", [tensor("vt")], "v"),
                symbol("matmul", [tensor("grad")], "deep", "vt"),
            ),
        ],
        {"g:1": Place("model.layers.3.self_attn")}.__getitem__,
        {"deep": Place("model.layers.3.self_attn.o_proj"), "x": Place("model")},
    )  # fmt: skip
    assert places["vt"].layer == "model.layers.3.self_attn"


def test_no_lifetimes_have_no_categories():
    found = categories()[1]
    assert found.categories.of([]) == []


def test_an_iteration_in_which_nothing_was_allocated():
    one = recording(
        events(("alloc", 0x1000, 400, 0, USER), ("alloc", 0x2000, 64, 0, USER)),
        stacks=STACKS,
        meta=capture_meta(
            marks=[("call", "begin", 1), ("call", "end", 1)], iterations=[{"begin": 0, "end": 1}]
        ),
    )
    attribution = attribute(one, replay(one))
    assert attribution.categories.of([0, 1]) == ["other", "other"]
