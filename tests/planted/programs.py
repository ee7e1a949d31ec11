"""Small programs, each with one cause of more memory that ``--planted`` turns on.

``python programs.py NAME [--planted] [--compile inductor|thunder|nvfuser]``, on the GPU if there is
one. The line that a cause stands in ends in ``# <NAME>``, so that the tests find its number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

STEPS = 5
EXECUTORS = {
    "thunder": ("sdpa", "torchcompile"),
    "nvfuser": ("sdpa", "torchcompile_cat", "nvfuser"),
}
COMPILER = sys.argv[sys.argv.index("--compile") + 1] if "--compile" in sys.argv else ""


def compiled(model: nn.Module) -> Callable[..., torch.Tensor]:
    """``model`` as ``--compile`` asks."""
    if COMPILER in EXECUTORS:
        import thunder
        from thunder.dynamo import ThunderCompiler

        executors = [thunder.get_executor(name) for name in EXECUTORS[COMPILER]]
        return torch.compile(model, backend=ThunderCompiler(executors=executors))
    return torch.compile(model) if COMPILER == "inductor" else model


def train(
    model: nn.Module,
    *inputs: torch.Tensor,
    optimizer: torch.optim.Optimizer | None = None,
    after: Callable[[torch.Tensor], Any] | None = None,
) -> None:
    """A few steps; ``after`` sees each one's output before it is let go."""
    call = compiled(model)
    for _ in range(STEPS):
        out = call(*inputs)
        out.float().square().mean().backward()
        if after is not None:
            after(out)
        if optimizer is not None:
            optimizer.step()
        model.zero_grad()
        del out


class Norm(nn.Module):
    def __init__(self, width: int, wide: bool) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width, dtype=torch.bfloat16))
        self.wide = wide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.wide:
            wide = x.float()  # kept_f32
            return (wide * self.scale).to(x.dtype)
        return x * self.scale


def kept_f32(planted: bool) -> None:
    """Norms computed in f32, whose inputs are kept a second time for it."""
    layers = [(nn.Linear(24, 640), nn.Tanh(), Norm(640, planted), nn.Linear(640, 24))] * 4
    model = nn.Sequential(*(layer for group in layers for layer in group)).bfloat16()
    train(model, torch.randn(300, 24, dtype=torch.bfloat16))


class Block(nn.Module):
    def __init__(self, again: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 512), nn.Linear(512, 16)
        self.again = again

    def inside(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).exp())  # checkpoint_off

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inside, x, use_reentrant=False) if self.again else self.inside(x)


def checkpoint_off(planted: bool) -> None:
    """Four blocks that save what they recomputed before."""
    train(nn.Sequential(*(Block(not planted) for _ in range(4))), torch.randn(200, 16) / 9)


class Scores(nn.Module):
    def __init__(self, late: bool) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 700, bias=False), nn.Linear(16, 900, bias=False)
        self.late = late

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.a(x)  # late_free
        best = scores.amax(1)
        if not self.late:
            del scores
        return self.b(x).amax(1) + best


def late_free(planted: bool) -> None:
    """A temporary that is let go later than the next big one is made."""
    model = compiled(Scores(planted))
    with torch.no_grad():
        for _ in range(STEPS):
            model(torch.ones(250, 16))


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(16, 32), nn.Linear(32, 777)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x))  # kept_output
        return out


def kept_output(planted: bool) -> None:
    """Outputs collected over the iterations."""
    outputs: list[torch.Tensor] = []
    train(Head(), torch.randn(120, 16), after=outputs.append if planted else None)


class Clone(nn.Module):
    def __init__(self, copy: bool) -> None:
        super().__init__()
        self.up, self.copy = nn.Linear(20, 330, bias=False), copy

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = z = self.up(x).transpose(1, 2)
        if self.copy:
            z = y.contiguous()  # cloned_view
        return y.sin() + z.cos()


def cloned_view(planted: bool) -> None:
    """A transposed view that is made contiguous."""
    train(Clone(planted), torch.randn(3, 110, 20))


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, planted: bool) -> torch.Tensor:
        ctx.save_for_backward(x, x.clone() if planted else x)  # stored_twice
        return x.square()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0] * 2 * ctx.saved_tensors[1], None


class Square(nn.Module):
    def __init__(self, planted: bool) -> None:
        super().__init__()
        self.up, self.down, self.planted = nn.Linear(12, 440), nn.Linear(440, 4), planted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(Twice.apply(self.up(x), self.planted))
        return y


def stored_twice(planted: bool) -> None:
    """An autograd function that saves its input and a copy of it."""
    train(Square(planted), torch.randn(150, 12))


class Attention(nn.Module):
    def __init__(self, mask: bool) -> None:
        super().__init__()
        self.qkv, self.mask = nn.Linear(32, 96), mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(2, 128, 3, 4, 8).permute(2, 0, 3, 1, 4)
        if self.mask:
            shape = 2, 4, 128, 128
            mask = torch.full(shape, -1e9).triu_(1)  # mask
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def mask(planted: bool) -> None:
    """A causal mask written out for each head."""
    train(Attention(planted), torch.randn(2, 128, 32))


class Upcast(nn.Module):
    def __init__(self, wide: bool) -> None:
        super().__init__()
        self.body, self.lm_head = nn.Linear(16, 32), nn.Linear(32, 1000, bias=False)
        self.wide = wide

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.lm_head(self.body(x))
        if self.wide:
            logits = logits.float()  # upcast_logits
        return F.cross_entropy(logits, labels) + logits.logsumexp(1).square().mean()


def upcast_logits(planted: bool) -> None:
    """Logits in f32 for the loss."""
    labels = torch.zeros(140, dtype=torch.int64)
    train(Upcast(planted).bfloat16(), torch.randn(140, 16, dtype=torch.bfloat16), labels)


class Tokens(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.embed(tokens).sin()


def bigger_vocabulary(planted: bool) -> None:
    """An embedding of more rows."""
    train(Tokens(3000 if planted else 1000), torch.zeros(40, dtype=torch.int64))


class Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 480), nn.Linear(480, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(
            self.up(x).exp()  # longer_batch
        )
        return y


def longer_batch(planted: bool) -> None:
    """More rows in each batch."""
    model = nn.Sequential(*(Feed() for _ in range(3)))
    train(model, torch.randn(260 if planted else 100, 16) / 99)


def more_state(planted: bool) -> None:
    """AdamW, which keeps two states of a parameter, for SGD with momentum, which keeps one."""
    model = nn.Sequential(*(nn.Linear(150, 150) for _ in range(5)))
    parameters = list(model.parameters())
    optimizer: torch.optim.Optimizer = (
        torch.optim.AdamW(parameters) if planted else torch.optim.SGD(parameters, 0.1, 0.9)
    )
    train(model, torch.randn(10, 150), optimizer=optimizer)


def amsgrad(planted: bool) -> None:
    """Adam with the greatest of its second moments kept too."""
    model = nn.Linear(300, 200)
    optimizer = torch.optim.Adam(model.parameters(), amsgrad=planted)
    train(model, torch.randn(10, 300), optimizer=optimizer)


def f32_gradients(planted: bool) -> None:
    """Gradients of a bf16 model summed in f32, beside the model's own."""
    model = nn.Sequential(nn.Linear(200, 310), nn.Linear(310, 10)).bfloat16()
    sums: dict[torch.Tensor, torch.Tensor] = {}

    def accumulate(_: torch.Tensor) -> None:
        for parameter in model.parameters():
            if planted and parameter.grad is not None:
                if parameter in sums:
                    sums[parameter] += parameter.grad
                else:
                    sums[parameter] = parameter.grad.float()  # f32_gradients

    train(model, torch.randn(10, 200, dtype=torch.bfloat16), after=accumulate)


def kept_losses(planted: bool) -> None:
    """A second loss that is looked at only, collected with its graph."""
    model, x = Head(), torch.randn(130, 16)
    seen: list[Any] = []

    def look(_: torch.Tensor) -> None:
        loss = model.body(x).repeat(1, 20).square().mean()  # kept_losses
        seen.append(loss if planted else loss.item())

    train(model, x, after=look)


class Cast(nn.Module):
    def __init__(self, cast: bool) -> None:
        super().__init__()
        self.weight, self.cast = nn.Parameter(torch.randn(30, 550)), cast

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.weight
        if self.cast:
            y = y.double()  # extra_cast
        return y.float().tanh() if self.cast else y.tanh()


def extra_cast(planted: bool) -> None:
    """A cast up and down again, in inference."""
    model = compiled(Cast(planted))
    with torch.no_grad():
        for _ in range(STEPS):
            model(torch.ones(170, 30))


SOURCE = """
class Moved(nn.Module):
    def __init__(self, planted):
        super().__init__()
        self.up, self.down, self.planted = nn.Linear(16, 390), nn.Linear(390, 16), planted

    def forward(self, x):
        y = self.up(x).exp()
        if self.planted:
            y = y.sin()
        return self.down(y)
"""


def moved_lines(planted: bool) -> None:
    """One operation more, in a file whose lines have moved down."""
    names = {"nn": nn, "__name__": "model"}
    exec(compile("\n" * 7 * planted + SOURCE, "/planted/model.py", "exec"), names)
    moved: Any = names["Moved"]
    train(nn.Sequential(*(moved(planted) for _ in range(3))), torch.randn(90, 16) / 99)


class Gated(nn.Module):
    def __init__(self, first: bool, wide: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 270), nn.Linear(270, 16)
        self.first, self.wide = first, wide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.first:
            x = (x * 3).tanh()
        y = self.up(x).exp()
        if self.wide:
            y = y * y.double().sin()
        z: torch.Tensor = self.down(y.float() * y.float().tanh())
        return z


def thunder_renumbered(planted: bool) -> None:
    """An operation in front, by which the fusions behind it get other numbers."""
    import thunder

    executors = [thunder.get_executor("torchcompile")]
    layers = Gated(planted, False), *(Gated(False, False) for _ in range(2))
    train(thunder.jit(nn.Sequential(*layers), executors=executors), torch.randn(110, 16) / 99)


def thunder_kept(planted: bool) -> None:
    """An intermediate in f64 within what Thunder compiled."""
    import thunder

    train(thunder.jit(Gated(False, planted), executors=[]), torch.randn(130, 16) / 99)


def thunder_fused(planted: bool) -> None:
    """The same program without the fusions that keep intermediates from memory."""
    import thunder

    executors = [] if planted else [thunder.get_executor("torchcompile")]
    train(thunder.jit(Gated(False, False), executors=executors), torch.randn(130, 16) / 99)


if __name__ == "__main__":
    torch.manual_seed(0)
    if torch.cuda.is_available():
        torch.set_default_device("cuda")
    globals()[sys.argv[1]]("--planted" in sys.argv)
