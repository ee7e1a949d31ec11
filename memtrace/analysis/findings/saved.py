"""What a Thunder program saves for the backward although the backward could make it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memtrace.analysis.findings.derivation import Derivation, derive, find_makers
from memtrace.analysis.findings.finding import Kind
from memtrace.analysis.findings.placed import Placed
from memtrace.analysis.findings.scene import Scene
from memtrace.analysis.findings.spots import CONSTANT, Spot, Told, Wording
from memtrace.analysis.whatif import Edit
from memtrace.program import Operation
from memtrace.symbols.statements import Tensor

_WORDINGS: dict[Kind, Wording] = {
    "held twice: dtype": Wording(
        "{what} kept beside what it is cast from",
        "save what it is cast from alone and cast it again in the backward: same values",
        "recomputed",
        "cast {what} again in the backward",
        "certain",
    ),
    "held twice: copy": Wording(
        "{what} kept beside what it is a copy of",
        "save the original alone and lay it out anew in the backward, or keep it a view",
        "recomputed",
        "copy {what} again in the backward",
        "certain",
    ),
    "cheap to recompute": Wording(
        "{what} saved for the backward, though cheap to make again",
        "make it again in the backward: checkpoint these lines, or recompute it in a transform",
        "recomputed",
        "make {what} again in the backward",
        "certain",
    ),
    "kept wider than its values": Wording(
        "{what} kept in a wider dtype than its values have",
        "save what it is cast from and cast it again in the backward: same values",
        "narrower",
        "save {what} in the dtype it is cast from",
        "certain",
    ),
}
_MOST_SHOWN = 3


def find_saved(scene: Scene, programs: Sequence[Placed]) -> list[Told]:
    """Twins, copies and cheap values that are kept from the forward pass to the backward."""
    spots = [spot for placed in programs for spot in _find(scene, placed)]
    return [(spot, _wording(spot)) for spot in spots]


def _wording(spot: Spot) -> Wording:
    constant = spot.edit is not None and not spot.edit.alive
    return CONSTANT if constant else _WORDINGS[spot.kind]


def _find(scene: Scene, placed: Placed) -> Iterator[Spot]:
    """One spot a memory, the largest first. What others are made of again is not made again."""
    makers = find_makers(placed.program)
    relied_on: set[int] = set()
    given_up: set[str] = set()
    saved = [root for root in placed.lifetimes if placed.is_saved(root)]
    for root in sorted(saved, key=lambda r: -int(scene.requested[placed.lifetimes[r]])):
        lifetime = placed.lifetimes[root]
        gap = placed.idle(root)
        if gap is None or lifetime in relied_on:
            continue
        last, again, reader = gap
        name = placed.last_name(root)

        def available(name: str, again: int = again, root: str = root) -> bool:
            known = name in placed.program.values
            taken = known and placed.root(name) in given_up | {root}
            return known and not taken and placed.is_there(name, again)

        found = derive(makers, name, available)
        if found is not None:
            found_in = (placed.lifetime(name) for name in found.sources)
            sources = tuple(k for k in found_in if k is not None)
            relied_on.update(sources)
            given_up.add(root)
            kind = _kind(found)
            read = sum(placed.program.values[one].bytes or 0 for one in found.sources)
            whole = (int(scene.born[lifetime]), int(scene.end[lifetime]))
            again_too = ((whole[0], last), (again, whole[1]))
            yield Spot(
                kind,
                lifetime,
                _evidence(placed, name, found, reader),
                sources if kind != "cheap to recompute" else (),
                Edit(lifetime, again_too if found.sources else ()),
                needs=sources,
                moved=read + int(scene.requested[lifetime]) if found.sources else 0,
            )
        elif (narrow := _narrower(placed, makers.get(name), name)) is not None:
            yield Spot(
                "kept wider than its values",
                lifetime,
                (f"{makers[name].text}: the same values as {narrow.name}, {narrow.text}",),
                edit=scene.narrowed(lifetime, narrow.bytes),
                excess=int(scene.requested[lifetime]) - narrow.bytes,
            )


def _kind(found: Derivation) -> Kind:
    if found.sources and found.is_cast:
        return "held twice: dtype"
    if found.sources and found.is_copy:
        return "held twice: copy"
    return "cheap to recompute"


def _narrower(placed: Placed, made: Operation | None, name: str) -> Tensor | None:
    """What a saved value was widened from; None where it was not."""
    if made is None or len(made.inputs) != 1 or not Derivation([made]).is_cast:
        return None
    wide = placed.program.values[name].tensor
    given = placed.program.values.get(made.inputs[0])
    if wide is None or given is None or given.tensor is None:
        return None
    return given.tensor if 0 < given.tensor.bytes < wide.bytes else None


def _evidence(placed: Placed, name: str, found: Derivation, reader: int) -> tuple[str, ...]:
    """How it follows from what is there, and where it is first read in the backward."""
    steps = list(dict.fromkeys(one.name.rpartition(".")[2] for one in found.operations))
    if len(steps) > _MOST_SHOWN:
        steps = [*steps[: _MOST_SHOWN - 1], "…", steps[-1]]
    names = list(found.sources)
    more = len(names) - _MOST_SHOWN
    listed = ", ".join(names[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
    said = f"{name} follows from {listed or 'constants alone'} by {', '.join(steps)}"
    where = placed.place(reader)
    if not names:
        return (said, f"the backward first reads it at {where}")
    be = "is" if len(names) == 1 else "are"
    return (said, f"the backward first reads it at {where}, where {listed} {be} alive anyway")
