"""Real recordings of compiled programs on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.capture.recording import Recorded, environment, record

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

# What the script itself can tell of Dynamo's work.
COUNTERS = """
def counters():
    from torch._dynamo.utils import counters
    print(json.dumps({
        "graphs": counters["stats"]["unique_graphs"],
        "frames": counters["frames"],
        "breaks": sum(counters["graph_break"].values()),
        "recompiles": len(torch._dynamo.utils.guard_failures),
    }))
"""

MODEL = """
import json
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(32, 128)
        self.down = torch.nn.Linear(128, 32)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

torch.manual_seed(0)
net = Net()
x = torch.randn(16, 32)
"""

COMPILED = (
    MODEL
    + COUNTERS
    + """
compiled = torch.compile(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
total = 0.0
for number in range(5):
    loss = compiled(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total += loss.item()
print(total)
counters()
"""
)


def bare(folder: Path, script: str, *args: str) -> str:
    path = folder / "bare.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, str(path), *args],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    return done.stdout


def steady(done: Recorded) -> list[dict[str, Any]]:
    return [i for i in done.meta["iterations"] if not i["compiled"] and i["whole"]]


def traces(done: Recorded) -> dict[str, dict[str, Any]]:
    return {t["filename"]: t for m in done.meta["thunder"] for t in m["traces"]}


def thunder_frames(done: Recorded, begin: int, end: int) -> set[tuple[str, int]]:
    marks = done.meta["marks"]["event"]
    return {
        (f["filename"], f["line"])
        for e in done.events[marks[begin][0] : marks[end][0]]
        for f in e["frames"]
        if f["filename"].startswith("thunder.")
    }


def test_torch_compile_runs_as_without_memtrace(tmp_path: Path) -> None:
    done = record(tmp_path, COMPILED)
    assert done.code == 0, done.err
    assert done.out == bare(tmp_path, COMPILED)
    meta = done.meta
    assert meta["facts"]["compilers"] == ["inductor"]
    assert done.kinds() == ["call", "backward", "optimizer"] * 5
    assert set(meta["marks"]["name"]) >= {"Net", "SGD", "dynamo"}
    assert [i["compiled"] for i in meta["iterations"]] == [True] + [False] * 4
    assert [i["profiled"] for i in meta["iterations"]] == [False, False, True, False, False]
    inductor = [n for n in meta["sources"] if n.endswith(".py")]
    assert inductor
    assert all("async_compile" in meta["sources"][n] for n in inductor)
    assert meta["facts"]["notes"] == []


def test_a_recompilation_is_noticed_and_not_profiled(tmp_path: Path) -> None:
    script = (
        MODEL
        + """
compiled = torch.compile(net, backend="aot_eager", dynamic=False)
for size in (16, 16, 8, 8, 8, 8):
    compiled(torch.randn(size, 32)).sum().backward()
"""
    )
    done = record(tmp_path, script)
    iterations = done.meta["iterations"]
    assert [i["compiled"] for i in iterations] == [True, False, True, False, False, False]
    assert [i["profiled"] for i in iterations] == [False, False, False, False, True, False]
    assert any("under the profiler" in n for n in done.meta["facts"]["notes"])
    assert done.meta["profile"]["iteration"] == 4


def test_inference_with_a_compiled_function(tmp_path: Path) -> None:
    script = (
        MODEL
        + """
@torch.compile(backend="eager")
def predict(x, *, scale):
    return net(x) * scale

with torch.no_grad():
    for _ in range(4):
        predict(x, scale=torch.tensor(2.0))
"""
    )
    done = record(tmp_path, script)
    assert done.kinds() == ["call"] * 4
    assert done.meta["facts"]["compilers"] == ["torch.compile(eager)"]
    assert [i["name"] for i in done.meta["facts"]["inputs"]] == ["0", "scale"]
    assert done.meta["facts"]["inputs"][0]["shape"] == [16, 32]


def test_a_compiled_optimizer_step_is_no_call(tmp_path: Path) -> None:
    script = (
        MODEL
        + """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
step = torch.compile(optimizer.step, backend="eager")
compiled = torch.compile(net, backend="eager")
for _ in range(4):
    compiled(x).sum().backward()
    step()
    optimizer.zero_grad()
"""
    )
    done = record(tmp_path, script)
    assert done.code == 0, done.err
    assert done.kinds() == ["call", "backward", "optimizer"] * 4
    assert len(done.meta["iterations"]) == 4


def test_eager_calls_before_the_compiler_count_and_leave_no_trace(tmp_path: Path) -> None:
    script = (
        MODEL
        + COUNTERS
        + """
before = net(x).sum().item()
compiled = torch.compile(net, backend="eager", fullgraph=True)
for _ in range(3):
    compiled(x).sum().backward()
print(before)
counters()
"""
    )
    done = record(tmp_path, script)
    assert done.out == bare(tmp_path, script)
    assert done.kinds() == ["call"] + ["call", "backward"] * 3


def test_a_compiled_helper_inside_an_eager_model(tmp_path: Path) -> None:
    script = (
        MODEL
        + COUNTERS
        + """
gelu = torch.compile(torch.nn.GELU(), backend="eager", fullgraph=True)
unused = torch.compile(net)
Block.forward = lambda self, x: x + self.down(gelu(self.up(x)))
with torch.no_grad():
    for _ in range(4):
        print(net(x).sum().item())
counters()
"""
    )
    done = record(tmp_path, script)
    assert done.out == bare(tmp_path, script)
    assert done.kinds() == ["call"] * 4
    assert set(done.meta["marks"]["name"]) == {"", "Net", "dynamo"}
    assert [i["compiled"] for i in done.meta["iterations"]] == [True, False, False, False]


THUNDER = (
    MODEL
    + """
import thunder
compiled = thunder.jit(net, executors=["sdpa", "torchcompile"] if "fuse" in sys.argv else [])
for number in range(4):
    compiled(x).square().mean().backward()
print(net.layers[0].up.weight.grad.double().sum().item())
"""
).replace("import json", "import json, sys")


def test_thunder_jit(tmp_path: Path) -> None:
    pytest.importorskip("thunder")
    done = record(tmp_path, THUNDER)
    assert done.code == 0, done.err
    assert done.out == bare(tmp_path, THUNDER)
    (module,) = done.meta["thunder"]
    assert (module["name"], module["kind"]) == ("Net", "module")
    assert [t["phase"] for t in module["traces"]] == ["prologue", "forward", "backward"]
    for trace in module["traces"][1:]:
        source = done.meta["sources"][trace["filename"]].splitlines()
        for symbol in trace["symbols"]:
            if symbol["name"] in ("unpack_trivial",):
                continue
            text = source[symbol["line"] - 1].strip()
            if symbol["name"] == "python_del":
                assert text == "del " + ", ".join(symbol["args"])
            elif symbol["outputs"] and symbol["name"] != "python_return":
                assert symbol["outputs"][0]["name"] in text.split(" = ")[0]
    assert done.kinds() == ["call", "backward"] * 4
    assert [i["compiled"] for i in done.meta["iterations"]] == [True, False, False, False]
    last = steady(done)[-1]
    found = thunder_frames(done, last["begin"], last["end"])
    lines = {t: {s["line"] for s in q["symbols"]} for t, q in traces(done).items()}
    assert {f for f, _ in found} == {t["filename"] for t in module["traces"][1:]}
    assert all(line in lines[filename] for filename, line in found)


def test_thunder_regions_belong_to_their_module(tmp_path: Path) -> None:
    pytest.importorskip("thunder")
    done = record(tmp_path, THUNDER, "fuse")
    assert done.code == 0, done.err
    (module,) = done.meta["thunder"]
    assert module["executors"] == ["sdpa", "torchcompile"]
    assert done.meta["facts"]["compilers"] == ["thunder(sdpa, torchcompile)"]
    fusions = {s["name"] for t in module["traces"] for s in t["symbols"] if s["inside"]}
    assert fusions
    regions = {t["phase"] for t in module["traces"] if t["phase"].startswith("region:")}
    assert regions == {f"region:{name}" for name in fusions}
    inside = next(s for t in module["traces"] for s in t["symbols"] if s["inside"])["inside"]
    assert all(o["text"] and o["name"] and o["outputs"] for o in inside)


QWEN = """
import sys
import torch
from thunder.dynamo import ThunderCompiler
from torch.utils.benchmark import Timer
from transformers import Qwen2Config, Qwen2ForCausalLM

config = Qwen2Config(
    vocab_size=200, hidden_size=28, intermediate_size=64, num_hidden_layers=1,
    num_attention_heads=28, num_key_value_heads=4, use_cache=False,
    attn_implementation=sys.argv[1],
)
torch.manual_seed(0)
model = Qwen2ForCausalLM(config)
ids = torch.randint(0, 200, (1, 32))
compiled = torch.compile(model, backend=ThunderCompiler(executors=["sdpa", "torchcompile"]))

def step():
    compiled(input_ids=ids, labels=ids).loss.backward()

for _ in range(5):
    step()
Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads()).timeit(3)
print(sum(p.grad.double().abs().sum().item() for p in model.parameters()))
"""


def test_the_reports_script(tmp_path: Path) -> None:
    """With eager attention; test_lines.py runs it with sdpa."""
    pytest.importorskip("thunder")
    pytest.importorskip("transformers")
    done = record(tmp_path, QWEN, "eager")
    assert done.code == 0, done.err
    meta = done.meta
    assert meta["facts"]["notes"] == []
    assert meta["facts"]["compilers"] == ["thunder(sdpa, torchcompile)"]
    assert [i["name"] for i in meta["facts"]["inputs"]] == ["input_ids", "labels"]
    names = [m["name"] for m in meta["thunder"]]
    assert "Qwen2ForCausalLM" in names
    assert len(set(names)) == len(names)
    iterations = meta["iterations"]
    assert [i["compiled"] for i in iterations] == [True] + [False] * (len(iterations) - 1)
    assert [i["index"] for i in iterations if i["profiled"]] == [2]
    assert len(iterations) >= 8
    # Every module has its FX graph, whose nodes know the model.
    for module in meta["thunder"]:
        assert module["fx_filename"] in meta["fx"]
    nodes = [n for graph in meta["fx"].values() for n in graph]
    assert any(n["module"] == "model.layers.0.self_attn" for n in nodes)
    assert any(n["module_class"] == "Qwen2Attention" for n in nodes)
    assert any("modeling_qwen2.py:" in n["source"] for n in nodes)
    # The frames of a steady iteration are lines of recorded sources.
    last = steady(done)[-1]
    found = thunder_frames(done, last["begin"], last["end"])
    # Inside a region the frame is the function that was given to torch.compile, at its first line.
    found = {(f, line) for f, line in found if not f.startswith("thunder.to_be_compiled")}
    assert {f.split("_")[0] for f, _ in found} == {"thunder.computation", "thunder.backward"}
    lines = {t: {s["line"] for s in q["symbols"]} for t, q in traces(done).items()}
    assert all(line in lines[filename] for filename, line in found)
    profile = meta["profile"]
    assert profile["iteration"] == 2
    assert "ThunderFunctionBackward" in profile["ops"]["name"]
    assert json.dumps(profile)
