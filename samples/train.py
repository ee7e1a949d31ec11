"""Small training loops with an optimizer: a GPT-2 and a vision transformer, no network needed.

    python samples/train.py gpt2                          # tiny, runs on a laptop
    python samples/train.py vit --large --executors sdpa,torchcompile_cat,nvfuser
    memtrace record -o a.pkl samples/train.py gpt2 --executors inductor

AdamW steps after every backward pass, so that gradients and optimizer state are in the peak.
Executors as in samples/qwen2.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from qwen2 import compile_model
from transformers import GPT2Config, GPT2LMHeadModel, ViTConfig, ViTForImageClassification

TINY = {"layers": 2, "width": 64, "heads": 4, "tokens": 64, "batch": 2, "image": 32}
LARGE = {"layers": 4, "width": 768, "heads": 12, "tokens": 1024, "batch": 8, "image": 224}


def build(name: str, size: dict[str, int]) -> torch.nn.Module:
    if name == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=512 if size is TINY else 50257,
                n_positions=size["tokens"],
                n_embd=size["width"],
                n_layer=size["layers"],
                n_head=size["heads"],
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                use_cache=False,
            )
        )
    return ViTForImageClassification(
        ViTConfig(
            hidden_size=size["width"],
            num_hidden_layers=size["layers"],
            num_attention_heads=size["heads"],
            intermediate_size=4 * size["width"],
            image_size=size["image"],
            patch_size=16,
            num_labels=10,
        )
    )


def make_step(
    name: str, model: Callable[..., object], size: dict[str, int], device: str
) -> Callable[[], object]:
    if name == "gpt2":
        ids = torch.randint(0, 512, (size["batch"], size["tokens"]), device=device)
        return lambda: model(input_ids=ids, labels=ids)
    pixels = torch.randn(size["batch"], 3, size["image"], size["image"], device=device)
    labels = torch.randint(0, 10, (size["batch"],), device=device)
    return lambda: model(pixel_values=pixels, labels=labels)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=["gpt2", "vit"])
    parser.add_argument("--executors", default="none")
    parser.add_argument("--large", action="store_true", help="a size for a GPU")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    size = LARGE if options.large else TINY
    torch.manual_seed(0)
    model = build(options.model, size).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    forward = make_step(
        options.model, compile_model(model, options.executors), size, options.device
    )
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss = forward().loss
        loss.backward()
        optimizer.step()
    print(f"loss: {loss.item():.4f}")
    if options.device.startswith("cuda"):
        print(f"peak allocated: {torch.cuda.max_memory_allocated():,} bytes")


if __name__ == "__main__":
    main()
