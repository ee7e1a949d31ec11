"""Values that a hostile file may hold in any place, and names that would do harm if believed."""

from __future__ import annotations

import random
from typing import Any

NAMES = [
    "",
    "\x1b[2J\x1b]0;owned\x07",
    "\u202egnp.exe\u2066",
    "a\u2028b\u0085c",
    "\x00\x01\x7f\x9b31m",
    "</script><script>alert(1)</script>",
    "<!--<script>-->]]>",
    "<img src=x onerror=alert(1)>",
    '"\\\'`${x}{{y}}',
    "%s%d%n %(x)s {0} {x}",
    "[red]x[/red][/] [link=file:///etc/passwd]y[/link]",
    "=cmd|'/c calc'!A0",
    "a,b;c\td\r\ne",
    "../../../../etc/passwd",
    "e\u0301" * 50,
    "\U0001f600" * 20,
    "\ud800",
    "x" * 5000,
    "a." * 500,
    "1" * 5000,
    "٣٤",
    "float32[" + "9" * 4400 + "]",
    "thunder.computation_3",
    "thunder.backward_fn_" + "9" * 4400,
    "<eval_with_key>.12",
    "/tmp/torchinductor_x/ab/cabcdefghijklmnopqrstuvwxyz.py",
    "model.layers.3.self_attn",
    "memtrace layer ",
    "memtrace line x:1",
    "memtrace line thunder.computation_3:" + "9" * 4400,
    "ProfilerStep#" + "9" * 4400,
    "iteration",
    "alloc",
    "free_completed",
    "segment_map",
    "snapshot",
    "oom",
    "free",
    "cuda",
    "cpu",
    "call",
    "backward",
    "begin",
    "end",
    "active_allocated",
    "active_pending_free",
    "inactive",
    "parameter",
    "kernel",
    "recompile",
]  # fmt: skip

# Lines of generated code: cut off, overlong, with figures beyond all bounds, or slow to search.
LINES = [
    "t1 = " + "(" * 300,
    "a" + " " * 3000 + "!",
    "a" + " ," * 3000 + "!",
    "a, " * 2000 + "= f(x)",
    "del " + "a , " * 2000 + "!",
    "# " + "x:1" * 2000,
    "# x:" + "9" * 4400 + ": y = z",
    '# t1: "cuda:0 f32[' + "9" * 4400 + ']"',
    '# t1: "cuda:0 f32[1 2, 3,,4]"',
    '# t1: "cuda:0 f32[' + "2, " * 1500 + ']"',
    "buf0 = empty_strided_cuda((1 2, ), (1, ), torch.float32)",
    "buf0 = empty_strided_cuda((" + "9" * 4400 + ", ), (1, ), torch.float32)",
    "buf0 = empty_strided_cuda((1, ), (" + "9" * 300 + ", ), torch.float32)",
    "buf1 = buf0; del buf0",
    "buf0 = buf0",
    "buf1 = reinterpret_tensor(buf0, (3, 4), (1, ), 0); del buf0",
    "assert_size_stride(buf0, (1 2, ), (3, ))",
    "buf0 = torch.ops.aten.exp.default(buf0)",
    "buf1 = buf0[" + "9" * 4400 + "]",
    "arg0 = rand_strided((1 2, ), (1, ), device='cuda:0', dtype=torch.float32)",
    "# Topologically Sorted " + "Source Nodes: [" * 2000,
    "# AOT ID: ['" + "9" * 4400 + "_forward']",
    "'''",
    "t2 = nvFusion0(t1, t1)",
    "[t1, t2] = nvFusion0(t2, t1)",
    "del t1, t2",
    "\x1b[31m = \u202e(x)",
]

INTEGERS = [
    -1, 0, 1, 2, 7, 127, 128, 255, 256, 511, 512, 513, 65535, 1 << 20, (2 << 20) + 1,
    (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, 1 << 47, 1 << 53, 1 << 56, 1 << 62, (1 << 63) - 1,
    1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 63), -(1 << 63) - 1, -(1 << 31), -2, 1 << 70, 1 << 5000,
    0x7F0000000000, 1_700_000_000_000_000, 1_700_000_000_000_000_000, 9_223_372_036_854_775,
]  # fmt: skip

FLOATS = [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324]


def deep(levels: int) -> Any:
    """A list in a list in a list …"""
    inner: Any = []
    for _ in range(levels):
        inner = [inner]
    return inner


def exploding(levels: int = 40) -> Any:
    """A small thing that would be 2^levels items if written out."""
    inner: Any = "ha"
    for _ in range(levels):
        inner = [inner, inner]
    return inner


def looped(kind: type) -> Any:
    """A list or dict within itself."""
    ring: Any = kind()
    if kind is list:
        ring.append(ring)
    else:
        ring["ring"] = ring
    return ring


def any_value(chance: random.Random) -> Any:
    """Something of any type, seldom what the place is for."""
    kind = chance.randrange(14)
    if kind < 3:
        return chance.choice(INTEGERS)
    if kind < 6:
        return chance.choice(NAMES)
    if kind == 6:
        return chance.choice(FLOATS)
    if kind == 7:
        return chance.choice([None, True, False, b"", b"bytes", (), (0, 0), (1,), {1}, frozenset()])
    if kind == 8:
        return chance.choice([[], {}, [[]], [{}], {"": {}}, [None], [0], [""]])
    if kind == 9:
        return [any_value(chance) for _ in range(chance.randrange(4))]
    if kind == 10:
        return {chance.choice(NAMES): any_value(chance) for _ in range(chance.randrange(4))}
    if kind == 11:
        return chance.choice([deep(30), deep(2000), exploding(), looped(list), looped(dict)])
    if kind == 12:
        return chance.choice(LINES)
    return (any_value(chance), any_value(chance))
