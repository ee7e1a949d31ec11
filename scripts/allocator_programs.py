"""Small programs that make the CUDA allocator do what it seldom does, for record_allocators.py.

    python scripts/allocator_programs.py NAME [ARGUMENT]

Each is a training loop with something in it; what goes on in other threads is over before an
iteration ends, so that the driver's figures and the history are of one moment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

MIB = 1 << 20
_STEPS = 8
_to_the_end: list[object] = []  # what is still there when the program is over
_CYCLES = 20_000_000  # some ten milliseconds of work for the GPU


def loop(inside: Callable[[int, torch.Tensor], object] = lambda step, x: None) -> None:
    """Trains; ``inside`` is called in every iteration, before the forward pass."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(_STEPS):
        x = torch.randn(512, 1024, device="cuda")
        inside(step, x)
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()


def take(size: int) -> torch.Tensor:
    """So many bytes of the GPU's."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def train() -> None:
    """A side stream with record_stream, and a cache that is emptied on the way."""
    side = torch.cuda.Stream()

    def inside(step: int, x: torch.Tensor) -> None:
        with torch.cuda.stream(side):
            y = x * 2
            x.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        y.record_stream(torch.cuda.current_stream())
        if step == 4:
            torch.cuda.empty_cache()

    loop(inside)


def odd_sizes() -> None:
    """Sizes between powers of two, kept and let go in another order than they were made."""
    kept: list[torch.Tensor] = []

    def inside(step: int, x: torch.Tensor) -> None:
        sizes = (1, 700, 3000, 300_001, 700_000, MIB + 1, 3 * MIB + 5, 11_000_001, 33_333_333)
        some = [take(size + 1000 * step) for size in sizes]
        kept.extend(some[step % 2 :: 2])
        del kept[: max(0, len(kept) - 12) : 2]

    loop(inside)


def streams() -> None:
    """Blocks that wait for other streams when they have been freed."""
    others = [torch.cuda.Stream() for _ in range(3)]

    def inside(step: int, x: torch.Tensor) -> None:
        for k, stream in enumerate(others):
            block = take((k + 1) * 3 * MIB + 512 * step)
            with torch.cuda.stream(stream):
                torch.cuda._sleep(_CYCLES)
                block.add_(1)
                own = take(2 * MIB + k)  # of the other stream's own
            block.record_stream(stream)
            own.record_stream(torch.cuda.current_stream())
            del block, own
        take(7 * MIB)

    loop(inside)


def empty_cache() -> None:
    """Every iteration gives back what it does not use, and needs another size."""

    def inside(step: int, x: torch.Tensor) -> None:
        block = take((24 + 6 * step) * MIB)
        small = take(1000)
        del block
        torch.cuda.empty_cache()
        del small

    loop(inside)


def collect() -> None:
    """Little memory, so that cached blocks of other sizes are given back to make room."""
    torch.cuda.set_per_process_memory_fraction(0.004)  # 570 MB of an H200's

    def inside(step: int, x: torch.Tensor) -> None:
        take((60 + 16 * step) * MIB)
        take((61 + 16 * step) * MIB)

    loop(inside)


def memory_pools(never_split: bool = False) -> None:
    """Pools of the program's own: one for good, and unless nothing is split, some for a while."""
    lasting = torch.cuda.MemPool(no_split=never_split)
    kept: list[torch.Tensor] = []
    _to_the_end.extend((lasting, kept))

    def inside(step: int, x: torch.Tensor) -> None:
        with torch.cuda.use_mem_pool(lasting):
            kept.extend((take(3 * MIB), take(500 + step)))
            take(5 * MIB)
        if len(kept) > 6:
            del kept[:3]
        if never_split:
            return
        passing = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(passing):
            block = take((12 + step) * MIB)
        del block, passing

    loop(inside)


def whole_pools() -> None:
    memory_pools(never_split=True)


def reduce_overhead() -> None:
    """CUDA graphs by torch.compile, which keeps and restores private pools."""
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    for _ in range(_STEPS):
        model.zero_grad()
        torch.compiler.cudagraph_mark_step_begin()
        compiled(torch.randn(512, 1024, device="cuda")).square().mean().backward()


def own_graphs() -> None:
    """CUDA graphs that the program captures: two that share a pool, and one that is let go."""
    x = torch.zeros(512, 1024, device="cuda")
    weight = torch.randn(1024, 1024, device="cuda")
    (x @ weight).relu()  # cuBLAS gets its workspace outside of the graphs
    torch.cuda.synchronize()
    graphs: list[Any] = []
    results = []
    for k in range(3):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=graphs[0].pool() if k == 1 else None):
            results.append(((x @ weight).relu() @ weight).sum(dim=0))
        graphs.append(graph)

    def inside(step: int, fresh: torch.Tensor) -> None:
        x.copy_(fresh)
        for graph in graphs:
            graph.replay()
        if step == 3:
            graphs.pop()
            results.pop()
            torch.cuda.empty_cache()

    loop(inside)


def threads() -> None:
    """Four threads that take and give back at once, each on a stream of its own."""
    own = [torch.cuda.Stream() for _ in range(4)]

    def work(k: int) -> None:
        with torch.cuda.stream(own[k]):
            some = []
            for turn in range(6):
                some.append(take((turn + 1) * (k + 1) * 300_000))
                if turn % 2:
                    some.pop(0)

    with ThreadPoolExecutor(4) as pool:
        loop(lambda step, x: list(pool.map(work, range(4))))


def switch() -> None:
    """Expandable segments are switched on in the fourth iteration, and off in the sixth."""

    def inside(step: int, x: torch.Tensor) -> None:
        if step in (3, 5):
            torch.cuda.memory._set_allocator_settings(f"expandable_segments:{step == 3}")
            torch.cuda.empty_cache()
        take(19 * MIB + 700_000)
        take((30 + step) * MIB)

    loop(inside)


def fill() -> None:
    """Ends out of memory."""
    torch.cuda.set_per_process_memory_fraction(0.01)
    model = nn.Linear(1024, 1024).cuda()
    for _ in range(3):
        model(torch.randn(64, 1024, device="cuda")).relu().sum().backward()
    kept = []
    while True:
        kept.append(take(128 * MIB))


def late() -> None:
    """Recorded from the middle on, by itself; the file's name is the argument."""
    import memtrace

    model = nn.Linear(1000, 1000).cuda()
    x = torch.randn(300, 1000, device="cuda")
    model(x).sum().backward()
    with memtrace.record(sys.argv[2], force=True, check_driver=True):
        for _ in range(4):
            model(x).relu().sum().backward()


PROGRAMS: dict[str, Callable[[], None]] = {
    program.__name__: program
    for program in (
        train, odd_sizes, streams, empty_cache, collect, memory_pools, whole_pools,
        reduce_overhead, own_graphs, threads, switch, fill, late,
    )
}  # fmt: skip

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
