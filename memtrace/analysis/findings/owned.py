"""What the program itself holds: results kept over iterations, and state in a wide dtype."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from memtrace.analysis.findings.finding import Kind
from memtrace.analysis.findings.scene import Scene
from memtrace.analysis.findings.spots import Spot, Told, Wording
from memtrace.analysis.whatif import Edit
from memtrace.symbols.categories import (
    BUFFER,
    GRADIENT,
    INPUT,
    OPTIMIZER,
    PARAMETER,
    SAVED,
    WORKSPACES,
)
from memtrace.symbols.statements import Tensor

_WORDINGS: dict[Kind, Wording] = {
    "kept over iterations": Wording(
        "{what} kept from earlier iterations, one more each time",
        "do not collect them: keep .item() or .detach().cpu() of what is logged, and let go of "
        "results, losses and their graphs at the end of each iteration",
        "gone",
        "let go of {what} at the end of each iteration",
        "certain",
    ),
    "wider than its parameter": Wording(
        "{what} in a wider dtype than the parameters they belong to",
        "hold them in the parameters' dtype, if the wider one was not meant",
        "narrower",
        "hold {what} in the parameters' dtype",
        "certain",
    ),
    "optional state": Wording(
        "{what} of the optimizer that an option of it keeps",
        "turn the option off, if it was not meant",
        "gone",
        "turn off the option that keeps {what}",
        "certain",
    ),
}
_COPIES = Wording(
    "{what}: copies of all parameters' size in a wider dtype",
    "sum gradients in place in the parameters' own .grad, or hold the copies in the parameters' "
    "dtype or on the host",
    "gone",
    "do without {what}",
    "likely",
)
_HELD_FOR_GOOD = (PARAMETER, BUFFER, GRADIENT, OPTIMIZER, INPUT, WORKSPACES)
_LEAST_ITERATIONS = 2  # earlier ones that left one each: one may be the last result, a name's value
# State that torch.optim keeps only if asked to, and the option: what Adam, RMSprop and SGD do
# without it is what they are known for.
_OPTIONS = {"max_exp_avg_sq": "amsgrad=True", "grad_avg": "centered=True"}


_COLLECTED = Wording(
    "{what} made one after another and let go all at once",
    "do not collect them: use each one and let go of it, or keep what is needed of it alone",
    "freed at its last use",
    "free each of {what} when the next one is made",
    "possible",
)
_LEAST_COLLECTED = 3


def find_owned(scene: Scene) -> list[Told]:
    """Causes in what is alive from one iteration to the next."""
    held = scene.held.tolist()
    categories = dict(zip(held, scene.categories(held), strict=True))
    spots = [
        *_find_kept(scene, categories),
        *_find_options(scene, categories),
        *_find_wide(scene, categories),
    ]
    copies = [(spot, _COPIES) for spot in _find_copies(scene, categories)]
    collected = [(spot, _COLLECTED) for spot in _find_collected(scene)]
    return [*((spot, _WORDINGS[spot.kind]) for spot in spots), *copies, *collected]


def _find_collected(scene: Scene) -> Iterator[Spot]:
    """Alike tensors of one iteration that Python lets go of together: what a list holds.

    Made at different times, with other things in between, and freed by one line one after another:
    nothing but a collection, or a frame's locals, does that. They may all be read then.
    """
    lifetimes = scene.run.lifetimes
    rows = [k for k in scene.inside if scene.at_peak[k]]
    groups: dict[object, list[int]] = defaultdict(list)
    for lifetime, category in zip(rows, scene.categories(rows), strict=True):
        symbol = scene.naming(lifetime).symbol
        ours = category not in (*_HELD_FOR_GOOD, SAVED) and symbol.phase == "forward"
        if ours and lifetimes.free_stack[lifetime]:
            stack = int(lifetimes.free_stack[lifetime])
            groups[scene.kind_of(lifetime), stack].append(lifetime)
    for members in groups.values():
        ends = [int(scene.end[k]) for k in members]
        apart = all(b - a > 1 for a, b in pairwise(members))
        if len(members) < _LEAST_COLLECTED or not apart or scene.grows(min(ends), max(ends)):
            continue
        line = scene.free_line(members[0])
        for lifetime in members[:-1]:
            yield Spot(
                "held after last use",
                lifetime,
                (
                    f"{len(members)} alike are made one after another, and {line or 'one line'} "
                    "lets go of all of them: whether each is read until then is not known",
                ),
            )


def _find_kept(scene: Scene, categories: dict[int, str]) -> Iterator[Spot]:
    """What several iterations before this one made, each the same, and none let go."""
    windows = scene.iterations
    begins = [window.begin for window in windows]
    at = bisect_right(begins, scene.stretch.begin) - 1
    groups: dict[tuple[object, int], list[tuple[int, int]]] = defaultdict(list)
    for lifetime, category in categories.items():
        born = int(scene.born[lifetime])
        iteration = bisect_right(begins, born) - 1
        if category in _HELD_FOR_GOOD or born < 0 or not 0 <= iteration < at:
            continue
        # What runs between two iterations belongs to the one before.
        key = (scene.naming(lifetime).symbol, int(scene.requested[lifetime]))
        groups[key].append((iteration, lifetime))
    for members in groups.values():
        iterations = sorted({iteration for iteration, _ in members})
        last = list(range(at - len(iterations), at))
        if len(iterations) < _LEAST_ITERATIONS or iterations != last:
            continue
        first, final = windows[iterations[0]].name, windows[iterations[-1]].name
        for _, lifetime in members:
            end = int(scene.end[lifetime])
            freed = scene.free_line(lifetime) if end < scene.run.n_events else ""
            yield Spot(
                "kept over iterations",
                lifetime,
                (
                    f"each iteration from {first} to {final} left {len(members) // len(iterations)}"
                    f" alive: {len(members)} in all at the peak",
                    f"freed in the end by {freed}" if freed else "not freed in the recording",
                ),
                edit=Edit(lifetime),
            )


def _find_options(scene: Scene, categories: dict[int, str]) -> Iterator[Spot]:
    for lifetime, category in categories.items():
        for tensor in scene.tensors(lifetime) if category == OPTIMIZER else ():
            state = tensor.name.rpartition(":")[2]
            if state in _OPTIONS:
                yield Spot(
                    "optional state",
                    lifetime,
                    (
                        f"the optimizer keeps {tensor.name} beside its other state",
                        f"torch keeps {state} only with {_OPTIONS[state]}",
                    ),
                    edit=Edit(lifetime),
                    key=state,
                )
                break


def _parameters(scene: Scene, categories: dict[int, str]) -> dict[str, Tensor]:
    """The parameters by name."""
    return {
        tensor.name: tensor
        for lifetime, category in categories.items()
        if category == PARAMETER
        for tensor in scene.tensors(lifetime)[:1]
    }


def _find_wide(scene: Scene, categories: dict[int, str]) -> Iterator[Spot]:
    """Gradients and optimizer state that the program names, wider than their parameters."""
    parameters = _parameters(scene, categories)
    for lifetime, category in categories.items():
        if category not in (GRADIENT, OPTIMIZER):
            continue
        for tensor in scene.tensors(lifetime)[:1]:
            owner = parameters.get(tensor.name.partition(":")[0].removesuffix(".grad"))
            if owner is None or owner.shape != tensor.shape or not 0 < owner.bytes < tensor.bytes:
                continue
            what = tensor.name.rpartition(":")[2] if ":" in tensor.name else "gradients"
            yield Spot(
                "wider than its parameter",
                lifetime,
                (f"{tensor.name} is {tensor.dtype}, its parameter {owner.dtype}",),
                edit=scene.narrowed(lifetime, owner.bytes),
                excess=int(scene.requested[lifetime]) - owner.bytes,
                key=(category, what, tensor.dtype),
            )


def _find_copies(scene: Scene, categories: dict[int, str]) -> list[Spot]:
    """What one line made before this iteration, of the size that each parameter would have in a
    wider dtype: sums of gradients, or a second set of weights.

    Of one such size nothing follows; all that the line made have to be of different parameters.
    """
    parameters = list(_parameters(scene, categories).values())
    lines: dict[str, list[int]] = defaultdict(list)
    for lifetime, category in categories.items():
        outside = category not in _HELD_FOR_GOOD and scene.born[lifetime] < scene.stretch.begin
        stays = scene.end[lifetime] >= scene.stretch.end
        if outside and stays and scene.born[lifetime] >= 0:
            symbol = scene.naming(lifetime).symbol
            lines[symbol.line or symbol.text].append(lifetime)
    spots = []
    for place, lifetimes in lines.items():
        left = [p for p in parameters if p.bytes > 0]
        pairs = []
        for lifetime in lifetimes:
            size = int(scene.requested[lifetime])
            fitting = (p for p in left if size in (2 * p.bytes, 4 * p.bytes))
            owner = next(fitting, None)
            if owner is None:
                break
            left.remove(owner)
            pairs.append((lifetime, owner))
        distinct = {int(scene.requested[lifetime]) for lifetime in lifetimes}
        if len(pairs) != len(lifetimes) or len(distinct) < 2:
            continue
        spots += [
            Spot(
                "wider than its parameter",
                lifetime,
                (
                    f"{len(pairs)} tensors, made before this iteration and kept after it, have "
                    f"each the size of another parameter in a wider dtype: {owner.name} is "
                    f"{owner.bytes:,} bytes, this one {int(scene.requested[lifetime]):,}",
                ),
                edit=Edit(lifetime),
                key=("copies", place),
            )
            for lifetime, owner in pairs
        ]
    return spots
