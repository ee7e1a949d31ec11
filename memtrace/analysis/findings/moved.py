"""What a Thunder program makes too early or keeps too long, by the order of its statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memtrace.analysis.findings.finding import Kind
from memtrace.analysis.findings.placed import Placed
from memtrace.analysis.findings.scene import Scene
from memtrace.analysis.findings.spots import Spot, Told, Wording
from memtrace.analysis.whatif import Edit, Extension
from memtrace.program import (
    Operation,
    Statement,
    is_fusion,
    is_shape_only,
    is_tied,
    move_range,
    writes,
)

_WORDINGS: dict[Kind, Wording] = {
    "shape-only fusion": Wording(
        "{what} copied by a fusion that computes nothing",
        "keep operations that only change shapes out of the fusion, so that they stay views of "
        "what is alive anyway",
        "gone",
        "keep {what} out of the fusion, as views",
        "certain",
    ),
    "born early": Wording(
        "{what} made by a fusion long before the first use",
        "make them where they are first read: take their producers out of the fusion and move them "
        "to their consumers",
        "made at its first use",
        "make {what} where it is first read",
        "certain",
    ),
    "order alone": Wording(
        "{what} made before the peak and first read after it",
        "make it where it is first read: nothing in between depends on it",
        "made at its first use",
        "make {what} where it is first read",
        "certain",
    ),
    "held after last use": Wording(
        "{what} held after its last use",
        "let go of it after its last use",
        "freed at its last use",
        "free {what} after its last use",
        "certain",
    ),
}


def find_moved(scene: Scene, programs: Sequence[Placed]) -> list[Told]:
    """Copies of shapes, producers far from their consumers, and what outlives its last use."""
    spots = [
        spot
        for placed in programs
        for root, lifetime in placed.lifetimes.items()
        for spot in (_find_early(scene, placed, root, lifetime), _find_late(placed, root, lifetime))
        if spot is not None
    ]
    spots += [spot for placed in programs for spot in _find_copies(scene, placed)]
    return [(spot, _WORDINGS[spot.kind]) for spot in spots]


def _find_early(scene: Scene, placed: Placed, root: str, lifetime: int) -> Spot | None:
    """A memory that its producer could make where it is first read, in the same pass.

    The producer's inputs have to be there then, unchanged: where they are not, they last longer for
    it, and what is saved is so much less.
    """
    program = placed.program
    maker, uses = program.values[root].maker, placed.uses(root)
    if maker is None or not uses or placed.phase(uses[0]) != placed.phase(maker):
        return None
    first = placed.moment(uses[0])
    born, end = int(scene.born[lifetime]), int(scene.end[lifetime])
    if first >= end or not scene.grows(placed.after(maker), first):
        return None
    statement = program.statements[maker]
    inputs = _inputs_of(statement, root)
    if inputs is None or not _stay_unchanged(placed, statement, inputs, uses[0]):
        return None
    extensions = []
    needs = []
    for name in inputs:
        value, there = program.values.get(name), placed.lifetime(name)
        if value is None or (there is None and value.kind != "argument"):
            return None
        if there is None:
            continue
        needs.append(there)
        if int(scene.end[there]) < first + 1:
            extensions.append(Extension(there, first + 1))
    longer = sum(int(scene.requested[one.lifetime]) for one in extensions)
    size = int(scene.requested[lifetime])
    if longer >= size:
        return None
    alone = len(statement.outputs) == 1
    read = sum(program.values[name].bytes or 0 for name in inputs)
    return Spot(
        "born early" if is_fusion(statement.name) else "order alone",
        lifetime,
        (
            f"made at {placed.place(maker)}, first read {uses[0] - maker} statements later at "
            f"{placed.place(uses[0])}",
            *(
                (f"{len(extensions)} of its inputs would have to live longer for it",)
                if extensions
                else ()
            ),
        ),
        (),
        Edit(lifetime, ((first, end),)),
        tuple(extensions),
        tuple(needs),
        0 if alone else read + size,
        size - longer if born < scene.peak.event <= first else 0,
    )


def _inputs_of(statement: Statement, output: str) -> tuple[str, ...] | None:
    """What one output of a statement is made from; of a fusion, by its insides. None where the
    insides are not known, or where making the one would make the others again."""
    if len(statement.outputs) == 1:
        return statement.inputs
    makers = {name: part for part in statement.inside for name in part.outputs}
    if output not in makers:
        return None
    found: dict[str, None] = {}
    todo, seen = [output], {output}
    while todo:
        made = makers.get(todo.pop())
        for name in made.inputs if made is not None else ():
            if name in seen:
                continue
            seen.add(name)
            if name in makers:
                todo.append(name)
            else:
                found[name] = None
    return tuple(found)


def _stay_unchanged(
    placed: Placed, statement: Statement, inputs: Sequence[str], until: int
) -> bool:
    """Whether nothing between a statement and another writes into what it reads, and the statement
    may be moved at all: it writes nowhere, and draws no random numbers."""
    program = placed.program
    if len(statement.outputs) == 1:
        return until in move_range(program, statement.index)
    if writes(program, statement) or is_tied(statement):
        return False
    roots = {placed.root(name) for name in inputs if name in program.values}
    between = program.statements[statement.index + 1 : until]
    return all(
        one.kind != "gap" and roots.isdisjoint(placed.root(r) for r in writes(program, one))
        for one in between
    )


def _find_late(placed: Placed, root: str, lifetime: int) -> Spot | None:
    """A memory that is freed later than its last use in the program.

    Who gets an output may read it, which the program's text does not tell: only what the backward
    reads is looked at of these.
    """
    scene, uses = placed.scene, placed.uses(root)
    born, end = int(scene.born[lifetime]), int(scene.end[lifetime])
    if not uses:
        return None
    last = placed.after(uses[-1])
    handed_on = placed.is_saved(root) or placed.is_returned(root)
    if not scene.grows(last, end) or (handed_on and placed.phase(uses[-1]) != "backward"):
        return None
    if placed.is_returned(root) and not placed.is_saved(root):
        return None
    holder = placed.holder(root)
    freed = scene.free_line(lifetime)
    return Spot(
        "held after last use",
        lifetime,
        (
            f"last read at {placed.place(uses[-1])}, "
            + (f"freed by {freed}" if freed else "not freed by a line of Python"),
            *((f"held by {holder}",) if holder and holder != root else ()),
        ),
        (),
        Edit(lifetime, ((born, last),)),
        excess=int(scene.requested[lifetime]) if last < scene.peak.event <= end else 0,
    )


def _find_copies(scene: Scene, placed: Placed) -> Iterator[Spot]:
    """Outputs of fusions that compute nothing, whose inputs live as long as they do."""
    program = placed.program
    for statement in program.statements:
        if not is_fusion(statement.name) or not _computes_nothing(statement.inside):
            continue
        for output in statement.outputs:
            lifetime = placed.lifetimes.get(output)
            inputs = _inputs_of(statement, output)
            if lifetime is None or not inputs or len(inputs) != 1:
                continue
            source = placed.lifetime(inputs[0])
            value = program.values.get(inputs[0])
            if source is None and (value is None or value.kind != "argument"):
                continue
            end = int(scene.end[lifetime])
            extensions: tuple[Extension, ...] = ()
            if source is not None and int(scene.end[source]) < end:
                extensions = (Extension(source, end),)
            # What would have to stay instead is no gain.
            stays = source is None or int(scene.end[source]) >= scene.peak.event
            yield Spot(
                "shape-only fusion",
                lifetime,
                (
                    f"{len(statement.inside)} operations, all of them of shapes: "
                    f"{statement.inside[0].text}" + (", …" if len(statement.inside) > 1 else ""),
                    f"{inputs[0]} is alive at the peak as well"
                    if stays
                    else f"{inputs[0]} is not alive at the peak",
                ),
                () if source is None else (source,),
                Edit(lifetime),
                extensions,
                () if source is None else (source,),
                excess=None if stays else 0,
                key=tuple(part.name for part in statement.inside),  # fusions that are alike
            )


def _computes_nothing(inside: Sequence[Operation]) -> bool:
    return bool(inside) and all(is_shape_only(part.name) for part in inside)
