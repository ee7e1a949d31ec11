"""What eager operators keep: twins, copies, constants, and what Python holds after its last use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from memtrace.analysis.findings.derivation import ELEMENTWISE
from memtrace.analysis.findings.eager import WIDTHS, EagerRun, Made
from memtrace.analysis.findings.finding import Kind
from memtrace.analysis.findings.scene import Scene
from memtrace.analysis.findings.spots import CONSTANT, Spot, Told, Wording
from memtrace.analysis.rows import layer_pattern
from memtrace.analysis.whatif import Edit, Extension
from memtrace.symbols.categories import SAVED, TEMPORARY

_WORDINGS: dict[Kind, Wording] = {
    "held twice: dtype": Wording(
        "{what} held in two dtypes",
        "compute in one dtype, or cast again where the other is needed instead of keeping both",
        "gone",
        "hold {what} in one dtype only",
        "likely",
    ),
    "held twice: copy": Wording(
        "{what} copied from a tensor that lives on",
        "use the tensor itself, or copy it only where the copy is needed",
        "gone",
        "do without the copy of {what}",
        "likely",
    ),
    "kept wider than its values": Wording(
        "{what} kept in a wider dtype than its values have",
        "keep what it is cast from, in the narrower dtype, and cast it again where it is needed",
        "narrower",
        "hold {what} in the dtype it is cast from",
        "likely",
    ),
    "cheap to recompute": Wording(
        "{what} saved for the backward, though cheap to make again",
        "make it again in the backward: checkpoint these lines, or compile them, so that the "
        "compiler does it",
        "recomputed",
        "make {what} again in the backward",
        "likely",
    ),
    "held after last use": Wording(
        "{what} held after its last use",
        "let go of it after its last use: del the name that holds it",
        "freed at its last use",
        "free {what} after its last use",
        "likely",
    ),
}
_REPEATED = Wording(
    "{what} saved for the backward, though it has the elements of a smaller tensor many times",
    "expand the smaller tensor instead: that is a view",
    "gone",
    "do without {what}",
    "likely",
)
_CONSTANT = ("arange", "eye", "full", "linspace", "ones", "tril", "triu", "zeros")
_REPEATS = ("repeat", "repeat_interleave", "tile")
_CHAIN = 3  # saved results of one line from which on they are a chain of operations


def find_operators(scene: Scene, eager: EagerRun) -> list[Told]:
    """Causes in what operators without a compiler made in the window."""
    spots = [
        *_find_casts(scene, eager),
        *_find_copies(scene, eager),
        *_find_chains(scene, eager),
        *_find_late(scene, eager),
    ]
    told = [(spot, _WORDINGS[spot.kind]) for spot in spots]
    for spot in _find_constants(scene, eager):
        repeated = _short(eager.made[spot.lifetime]) in _REPEATS
        told.append((spot, _REPEATED if repeated else CONSTANT))
    return told


def _find_casts(scene: Scene, eager: EagerRun) -> Iterator[Spot]:
    """What was cast and lives beside what it was cast from, or is wider than that.

    The values of the wider one fit into the narrower, if that one was there first: then the wider
    holds nothing more. A narrower one made of a wider one can be made of it again.
    """
    known: set[int] = set()
    for lifetime, made in eager.made.items():
        if not made.is_cast or lifetime in known:
            continue
        size = int(scene.requested[lifetime])
        width = size // made.elements
        if size != width * made.elements or width not in WIDTHS:
            continue
        source = _source(scene, lifetime, {made.elements * w for w in WIDTHS if w != width})
        if source is None:
            continue
        given = int(scene.requested[source])
        said = f"{made.operator} casts elements of {given // made.elements} bytes to {width}"
        edit = scene.beside(lifetime, source)
        longer: tuple[Extension, ...] = ()
        if size < given and (origin := _widened(scene, eager, source)) is not None:
            # Cast up and down again: the wide one between holds no more than the first, which then
            # has to last until the third is made.
            lifetime, source = source, lifetime
            narrow = int(scene.requested[origin]) // made.elements
            said += f", and those were cast from {narrow} bytes: they hold no more than that"
            until = max(int(scene.born[source]) + 1, int(scene.end[origin]))
            edit, longer = Edit(lifetime), (Extension(origin, until),)
        if lifetime in known:
            continue
        if scene.overlap(lifetime, source):
            known.add(lifetime)
            yield Spot(
                "held twice: dtype",
                lifetime,
                (said, f"both are alive {_when(scene, lifetime, source)}"),
                (source,),
                edit,
                longer,
                (source,),
                size + given,
                None if scene.at_peak[source] else 0,
            )
        elif size > given and scene.category(lifetime) == SAVED:
            known.add(lifetime)
            yield Spot(
                "kept wider than its values",
                lifetime,
                (said, "it is saved for the backward"),
                edit=scene.narrowed(lifetime, given),
                excess=size - given,
            )


def _find_copies(scene: Scene, eager: EagerRun) -> Iterator[Spot]:
    """Copies that live beside the tensor they were made of."""
    for lifetime, made in eager.made.items():
        size = int(scene.requested[lifetime])
        if not made.is_copy:
            continue
        source = _source(scene, lifetime, {size})
        if source is None or not scene.overlap(lifetime, source):
            continue
        yield Spot(
            "held twice: copy",
            lifetime,
            (
                f"{made.operator} copies a tensor of {made.elements:,} elements",
                f"both are alive {_when(scene, lifetime, source)}",
            ),
            (source,),
            scene.beside(lifetime, source),
            needs=(source,),
            excess=None if scene.at_peak[source] else 0,
        )


def _find_constants(scene: Scene, eager: EagerRun) -> Iterator[Spot]:
    """What is made of nothing, or of a few elements many times, and saved for the backward."""
    rows = [k for k, made in eager.made.items() if _short(made) in (*_CONSTANT, *_REPEATS)]
    for lifetime, category in zip(rows, scene.categories(rows), strict=True):
        if category == SAVED:
            operator = eager.made[lifetime].operator
            what = "constants, in every iteration"
            if _short(eager.made[lifetime]) in _REPEATS:
                what = "the elements of a smaller tensor, each of them many times"
            yield Spot(
                "cheap to recompute",
                lifetime,
                (f"{operator} makes it of {what}",),
                edit=Edit(lifetime),
            )


def _find_chains(scene: Scene, eager: EagerRun) -> Iterator[Spot]:
    """Elementwise operations of one line of the model that save several results each time.

    All of them follow from what the line is given, for which the first of them stands here: it
    stays.
    """
    for place, chain in _chains(scene, eager):
        if len(chain) < _CHAIN:
            continue
        following = chain[-1] + 1
        read = int(scene.born[following]) + 1 if following < len(scene.born) else 0
        edits = _made_again(scene, chain[1:], read)
        for lifetime, edit in zip(chain[1:], edits, strict=True):
            yield Spot(
                "cheap to recompute",
                lifetime,
                (
                    f"the elementwise operations of {place} save {len(chain)} tensors of one size "
                    "each time they run: all of them follow from what the line is given",
                ),
                edit=edit,
                needs=(chain[0],),
                moved=2 * int(scene.requested[lifetime]),
                key=(place, layer_pattern(scene.layer(lifetime))),
            )


def _chains(scene: Scene, eager: EagerRun) -> Iterator[tuple[str, list[int]]]:
    """Runs of saved elementwise results of one line and size, with nothing of another line
    between."""
    rows = [k for k in scene.inside if k in eager.made]
    chain: list[int] = []
    place = ""
    for lifetime, category in zip(rows, scene.categories(rows), strict=True):
        symbol = scene.naming(lifetime).symbol
        if symbol.phase != "forward" or not symbol.line or symbol.line != place:
            if chain:
                yield place, chain
            chain, place = [], symbol.line if symbol.phase == "forward" else ""
        elementwise = _short(eager.made[lifetime]) in ELEMENTWISE and category == SAVED
        alike = not chain or scene.requested[lifetime] == scene.requested[chain[0]]
        if place and elementwise and alike:
            chain.append(lifetime)
    if chain:
        yield place, chain


def _made_again(scene: Scene, lifetimes: Sequence[int], read: int) -> list[Edit]:
    """Lifetimes that end after their last use in the forward, at ``read``, and begin again before
    their first in the backward.

    That is not seen, but cannot be before the one that ran before it let go of what it had saved.
    """
    first = min(int(scene.end[k]) for k in lifetimes)
    inside = np.fromiter(scene.inside, dtype=np.int64)
    others = inside[(scene.end[inside] < first) & ~np.isin(inside, lifetimes)]
    again = int(scene.end[others].max(initial=-1))
    edits = []
    for lifetime in lifetimes:
        born, end = int(scene.born[lifetime]), int(scene.end[lifetime])
        whole = read >= again or not born < read < again < end
        edits.append(Edit(lifetime, ((born, end),) if whole else ((born, read), (again, end))))
    return edits


def _find_late(scene: Scene, eager: EagerRun) -> Iterator[Spot]:
    """What no operator reads any more, by its number of elements, and Python still holds."""
    if (scene.subject.recording.meta or {}).get("facts", {}).get("compilers") != ["eager"]:
        return  # compiled code reads without operators
    rows = list(eager.made)
    for lifetime, category in zip(rows, scene.categories(rows), strict=True):
        following = eager.last_use(lifetime)
        if category not in (TEMPORARY, SAVED) or following is None:
            continue
        last, end = int(scene.born[following]), int(scene.end[lifetime])
        line = scene.free_line(lifetime)
        if not line or last <= scene.born[lifetime] or not scene.grows(last, end):
            continue
        yield Spot(
            "held after last use",
            lifetime,
            (
                "no later operator of the profiled iteration takes a tensor of its number of "
                "elements",
                f"freed when Python lets go of it at {line}",
            ),
            edit=Edit(lifetime, ((int(scene.born[lifetime]), last),)),
            excess=int(scene.requested[lifetime]) if last < scene.peak.event <= end else 0,
        )


def _source(scene: Scene, lifetime: int, fitting: set[int]) -> int | None:
    """What an operator most likely read: the youngest lifetime of a fitting size that was alive."""
    before = np.append(scene.earlier, np.arange(scene.inside.start, lifetime))
    alive = before[scene.end[before] > scene.born[lifetime]]
    found = alive[np.isin(scene.requested[alive], list(fitting))]
    return int(found[-1]) if len(found) else None


def _widened(scene: Scene, eager: EagerRun, lifetime: int) -> int | None:
    """What a tensor was cast up from; None where it was not."""
    made = eager.made.get(lifetime)
    if made is None or not made.is_cast:
        return None
    width = int(scene.requested[lifetime]) // made.elements
    return _source(scene, lifetime, {made.elements * w for w in WIDTHS if w < width})


def _when(scene: Scene, one: int, other: int) -> str:
    return "at the peak" if scene.at_peak[[one, other]].all() else "for a time, not at the peak"


def _short(made: Made) -> str:
    return made.operator.removeprefix("aten::").removesuffix("_")
