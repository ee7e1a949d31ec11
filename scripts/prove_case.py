"""One recorded run of a proof: a model, compiled with or without a change. See scripts/prove.py.

    python scripts/prove_case.py qwen2-eager --out OUT --name NAME [--change JSON] [--small]

Writes OUT/NAME.pkl.gz (the capture), OUT/NAME.json (what was done, the loss) and, into the folder
GRADIENTS, NAME.npz: the gradients after the first backward pass.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "samples"), str(ROOT / "scripts"), str(ROOT)]

import memtrace  # noqa: E402

STEPS = 10
NVFUSER = "sdpa,torchcompile_cat,nvfuser"
STAND_IN = "sdpa,stand_in"


def make_transforms(change: dict[str, Any]) -> list[Any]:
    """The transforms that a change names: {"kind", "names", "dtype"}, or several of these."""
    import torch

    from memtrace import transforms

    made: list[Any] = []
    for one in change.get("all", [change] if change else []):
        if one["kind"] == "KeepShapesOut":
            made.append(transforms.KeepShapesOut())
        elif one["kind"] == "HoldNarrow":
            made.append(transforms.HoldNarrow(one["names"], getattr(torch, one["dtype"])))
        else:
            made.append(getattr(transforms, one["kind"])(one["names"]))
    return made


def build_qwen2(
    attention: str, layers: int, small: bool, device: str
) -> tuple[Any, Callable[[Any], Any], Any]:
    """(the model, what calls it, its optimizer), as samples/qwen2.py has it."""
    import qwen2
    import torch

    size = qwen2.SMALL if small else qwen2.REPORT
    options = argparse.Namespace(layers=layers, cache=False, attention=attention, device=device)
    model = qwen2.build_model(options, size)
    ids = torch.randint(0, size["vocab_size"], (1, size["tokens"]), device=device)
    return model, lambda compiled: compiled(input_ids=ids, labels=ids), None


def build_llama(layers: int, small: bool, device: str) -> tuple[Any, Callable[[Any], Any], Any]:
    """The same of Llama 3.2 1B, whose heads share keys and whose embedding is its last layer's."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokens = 64 if small else 4096
    config = LlamaConfig(
        hidden_size=64 if small else 2048,
        intermediate_size=160 if small else 8192,
        num_hidden_layers=layers,
        num_attention_heads=4 if small else 32,
        num_key_value_heads=2 if small else 8,
        vocab_size=512 if small else 128256,
        max_position_embeddings=tokens,
        tie_word_embeddings=True,
        use_cache=False,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(device, torch.bfloat16).train()
    ids = torch.randint(0, config.vocab_size, (1, tokens), device=device)
    return model, lambda compiled: compiled(input_ids=ids, labels=ids), None


def build_train(name: str, small: bool, device: str) -> tuple[Any, Callable[[Any], Any], Any]:
    """The same of samples/train.py. GPT-2's Conv1D becomes a Linear with the same weights: Thunder
    leaves ``addmm`` to Inductor, and with it every layer becomes a program of its own."""
    import torch
    import train
    from transformers.pytorch_utils import Conv1D

    size = train.TINY if small else train.LARGE
    torch.manual_seed(0)
    model = train.build(name, size).to(device)
    for module in list(model.modules()):
        for key, child in list(module.named_children()):
            if isinstance(child, Conv1D):
                linear = torch.nn.Linear(*child.weight.shape, device=device)
                linear.weight.data = child.weight.data.t().contiguous()
                linear.bias.data = child.bias.data
                setattr(module, key, linear)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    state: dict[str, Any] = {}

    def forward(compiled: Any) -> Any:
        # The inputs are made once, as the sample does.
        if "step" not in state:
            state["step"] = train.make_step(name, compiled, size, device)
        return state["step"]()

    return model, forward, optimizer


def keep_gradients(model: Any, path: Path) -> None:
    """Every parameter's gradient, as float32 on the host."""
    import numpy as np

    np.savez(
        path,
        **{
            name: parameter.grad.detach().cpu().float().numpy()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload")
    parser.add_argument("--name", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gradients", type=Path, required=True)
    parser.add_argument("--change", default="{}")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    began = time.perf_counter()
    with memtrace.record(options.out / f"{options.name}.pkl.gz", force=True):
        result = run(options)
    result["seconds"] = round(time.perf_counter() - began, 1)
    (options.out / f"{options.name}.json").write_text(json.dumps(result) + "\n")


def run(options: argparse.Namespace) -> dict[str, Any]:
    import torch
    from qwen2 import compile_model

    device = "cuda" if torch.cuda.is_available() else "cpu"
    executors = NVFUSER
    if device == "cpu":
        from stand_in import register

        register()
        executors = STAND_IN
    torch.manual_seed(0)
    if options.workload.startswith("qwen2"):
        attention = "eager" if options.workload == "qwen2-eager" else "sdpa"
        model, forward, optimizer = build_qwen2(attention, options.layers, options.small, device)
    elif options.workload == "llama":
        model, forward, optimizer = build_llama(options.layers, options.small, device)
    else:
        model, forward, optimizer = build_train(options.workload, options.small, device)
    transforms = make_transforms(json.loads(options.change))
    first = []
    if options.workload == "qwen2-hoist":
        from hoist import Hoist

        first.append(Hoist())
    compiled = compile_model(model, executors, [*first, *transforms])
    losses = []
    for step in range(4 if options.small else STEPS):
        if optimizer is not None:
            optimizer.zero_grad()
        loss = forward(compiled).loss
        loss.backward()
        losses.append(float(loss.detach()))
        if step == 0:
            keep_gradients(model, options.gradients / f"{options.name}.npz")
        if optimizer is not None:
            optimizer.step()
        del loss
    return {
        "workload": options.workload,
        "done": [asdict(one) for t in transforms for one in t.done],
        "left": {name: why for t in transforms for name, why in t.left.items()},
        "losses": losses,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }


if __name__ == "__main__":
    main()
