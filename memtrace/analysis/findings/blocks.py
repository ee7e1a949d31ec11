"""What no tensor of the program needs: block slack, the inside of fusions, zeros for nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memtrace.analysis.findings.cause import Cause
from memtrace.analysis.findings.finding import Finding, Kind
from memtrace.analysis.findings.scene import Scene
from memtrace.analysis.findings.spots import Spot, Told, Wording
from memtrace.analysis.whatif import Change, Edit
from memtrace.program import is_nvfusion
from memtrace.symbols.categories import INTERMEDIATE

_WORDINGS: dict[Kind, Wording] = {
    "inside a fusion": Wording(
        "{what} inside a fusion, which its kernels pass on through memory",
        "make the fusion smaller, so that what the kernels exchange is freed between two of them: "
        "or keep what does not fit into one kernel out of it",
        "gone",
        "run {what} in one kernel",
        "certain",
    ),
    "zeros for an unused result": Wording(
        "{what}: zeros, the gradient of a result that the loss does not use",
        "return the loss alone from what is compiled, or detach the other results",
        "gone",
        "do without {what}, the gradient of an unused result",
        "certain",
    ),
}
_PROGRAMS = ("ThunderFunctionBackward", "CompiledFunctionBackward")
_SHOWN = 3


def find_unneeded(scene: Scene) -> list[Told]:
    """Causes within fusions, and in what autograd makes up."""
    spots = [*_find_inside(scene), *_find_zeros(scene)]
    return [(spot, _WORDINGS[spot.kind]) for spot in spots]


def _find_inside(scene: Scene) -> Iterator[Spot]:
    held = scene.held.tolist()
    for lifetime, category in zip(held, scene.categories(held), strict=True):
        naming = scene.naming(lifetime)
        if category == INTERMEDIATE and is_nvfusion(naming.symbol.name):
            yield Spot(
                "inside a fusion",
                lifetime,
                (
                    f"{naming.symbol.text} is at work at the peak and makes it for itself: "
                    "it is none of its outputs",
                ),
                key=naming.where,
            )


def _find_zeros(scene: Scene) -> Iterator[Spot]:
    """The gradients that autograd gives to a compiled backward for results that nothing used."""
    for lifetime in scene.inside:
        symbol = scene.naming(lifetime).symbol
        if symbol.name in _PROGRAMS and symbol.operation in ("aten::zeros", "aten::zeros_like"):
            names = " or ".join(dict.fromkeys(t.name for t in scene.tensors(lifetime)))
            result = f", here for {names}" if names else ""
            yield Spot(
                "zeros for an unused result",
                lifetime,
                (f"{symbol.name} makes zeros for every result that has no gradient{result}",),
                edit=Edit(lifetime),
            )


def find_slack(scene: Scene) -> list[Cause]:
    """What blocks hold because the allocator does not split them, or rounds them up as it was set.

    Every request is rounded up to 512 bytes, whatever the settings: that is no cause.
    """
    if scene.accounting != "allocated" or not len(scene.held):
        return []
    least = scene.narrowest(scene.held)
    excess = np.maximum(scene.size[scene.held] - least, 0)
    total = int(excess.sum())
    if total < scene.floor:
        return []
    wasting = np.flatnonzero(excess)
    order = wasting[np.argsort(-excess[wasting], kind="stable")][:_SHOWN]
    largest = scene.held[order].tolist()
    most = largest[0]
    finding = Finding(
        kind="block slack",
        title=f"{len(wasting)} blocks larger than their requests, rounded up, would have to be",
        bytes=total,
        symbols=tuple(dict.fromkeys(scene.naming(k).symbol.text for k in largest)),
        lines=tuple(dict.fromkeys(line for k in largest if (line := scene.where(k)))),
        layers=tuple(dict.fromkeys(layer for k in largest if (layer := scene.layer(k)))),
        evidence=(
            f"most of it in a block of {int(scene.size[most]):,} bytes for a request of "
            f"{int(scene.requested[most]):,}",
        ),
        try_="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, under which every block is split, "
        "and no roundup_power2_divisions",
        sure="certain",
    )
    edits = tuple(
        Edit(int(k), ((int(scene.born[k]), int(scene.end[k])),), int(size))
        for k, size in zip(scene.held[wasting], least[wasting], strict=True)
    )
    return [Cause(finding, (Change("narrower", "split every block", edits),))]
