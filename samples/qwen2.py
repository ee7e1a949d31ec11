"""The report's workload: a Qwen2.5-7B decoder compiled with Lightning Thunder, no network needed.

    python samples/qwen2.py                                   # small, runs on a laptop
    python samples/qwen2.py --report --layers 4               # the report's shape, four layers
    memtrace record -o a.pkl samples/qwen2.py --executors sdpa,torchcompile
    memtrace record -o b.pkl samples/qwen2.py --executors sdpa,torchcompile_cat,nvfuser

The numbers are those of Qwen/Qwen2.5-7B's config.json; the report set ``hidden_size`` to the number
of attention heads, so that attention and logits dominate. Executors: a comma-separated list of
Thunder executors, ``inductor`` for plain torch.compile, ``none`` for no compiler. ``--hoist`` makes
the report's fault (samples/hoist.py); the report's attention is ``--attention sdpa``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.benchmark import Timer
from transformers import Qwen2Config, Qwen2ForCausalLM

HEADS, KEY_VALUE_HEADS = 28, 4
REPORT = {"vocab_size": 152064, "intermediate_size": 18944, "layers": 28, "tokens": 4096}
SMALL = {"vocab_size": 1024, "intermediate_size": 512, "layers": 2, "tokens": 128}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", action="store_true", help="the report's size (needs a GPU)")
    parser.add_argument("--layers", type=int, help="decoder layers (2; with --report 28)")
    parser.add_argument("--tokens", type=int, help="sequence length (128; with --report 4096)")
    parser.add_argument("--executors", default="sdpa,torchcompile", help="see above")
    parser.add_argument("--attention", choices=["eager", "sdpa"], default="eager")
    parser.add_argument("--cache", action="store_true", help="use_cache=True: Thunder splits there")
    parser.add_argument("--hoist", action="store_true", help="copy shapes early in the backward")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--warmups", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5, help="timed steps after the warm-up calls")
    return parser.parse_args()


def build_model(options: argparse.Namespace, size: dict[str, int]) -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=size["vocab_size"],
        hidden_size=HEADS,
        intermediate_size=size["intermediate_size"],
        num_hidden_layers=options.layers or size["layers"],
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_VALUE_HEADS,
        max_position_embeddings=32768,
        rope_theta=1000000.0,
        rms_norm_eps=1e-6,
        use_cache=options.cache,
        attn_implementation=options.attention,
    )
    torch.manual_seed(0)
    with torch.device(options.device):
        return Qwen2ForCausalLM(config).to(torch.bfloat16)


def compile_model(
    model: torch.nn.Module, executors: str, transforms: Iterable[Any] = ()
) -> Callable[..., object]:
    if executors == "none":
        return model
    if executors == "inductor":
        return torch.compile(model)
    from thunder.dynamo import ThunderCompiler

    options: dict[str, Any] = {"transforms": list(transforms)} if transforms else {}
    return torch.compile(model, backend=ThunderCompiler(executors=executors.split(","), **options))


def main() -> None:
    options = parse_arguments()
    size = REPORT if options.report else SMALL
    tokens = options.tokens or size["tokens"]
    transforms = []
    if options.hoist:
        from hoist import Hoist

        transforms.append(Hoist())
    compiled = compile_model(build_model(options, size), options.executors, transforms)
    ids = torch.randint(0, size["vocab_size"], (1, tokens), device=options.device)

    def step() -> None:
        compiled(input_ids=ids, labels=ids).loss.backward()

    began = time.perf_counter()
    for _ in range(options.warmups):
        step()
    print(f"warm-up: {time.perf_counter() - began:.1f} s")
    if options.runs:
        # The Timer's default of one thread fails a Dynamo guard and compiles everything again.
        timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
        print(f"step: {timer.timeit(options.runs).median * 1e3:.1f} ms")
    if options.device.startswith("cuda"):
        print(f"peak allocated: {torch.cuda.max_memory_allocated():,} bytes")


if __name__ == "__main__":
    main()
