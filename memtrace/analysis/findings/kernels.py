"""What Inductor's kernels make of nothing, or only cast, by its own code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memtrace.analysis.findings.finding import Kind
from memtrace.analysis.findings.scene import Scene
from memtrace.analysis.findings.spots import CONSTANT, Spot, Told, Wording
from memtrace.analysis.whatif import Edit
from memtrace.snapshot.generated import is_output_file
from memtrace.symbols.categories import SAVED
from memtrace.symbols.statements import Source, Statement, Tensor

_WORDINGS: dict[Kind, Wording] = {
    "held twice: dtype": Wording(
        "{what} held beside what it is cast from",
        "compute in one dtype, or cast again where the other is needed instead of keeping both",
        "gone",
        "hold {what} in one dtype only",
        "likely",
    ),
    "kept wider than its values": Wording(
        "{what} kept in a wider dtype than its values have",
        "keep what it is cast from, in the narrower dtype, and cast it again where it is needed",
        "narrower",
        "hold {what} in the dtype it is cast from",
        "likely",
    ),
    "cheap to recompute": CONSTANT,
}
# What a kernel that only casts may fuse: names as Inductor writes them into the kernel's.
_MOVES = ("clone", "view", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "slice",
          "_unsafe_view", "unsafe_view", "select", "alias", "detach", "reshape")  # fmt: skip


def find_kernel_causes(scene: Scene) -> list[Told]:
    """Causes in buffers that Inductor's code of the window made."""
    return [(spot, _WORDINGS[spot.kind]) for spot in _find(scene)]


def _find(scene: Scene) -> Iterator[Spot]:
    if not any(is_output_file(name) for name in scene.attribution.sources.filenames):
        return
    rows = list(scene.inside)
    for lifetime, category in zip(rows, scene.categories(rows), strict=True):
        place = _place(scene, lifetime)
        if place is None:
            continue
        source, made, buffer = place
        call = _filled_by(source, made)
        if call is None:
            continue
        read = [
            name
            for name in call.arguments
            if (name in source.buffers or name in source.inputs) and name not in made.outputs
        ]
        if not read and category == SAVED:
            yield Spot(
                "cheap to recompute",
                lifetime,
                (f"{call.text}: it reads no tensor",),
                edit=Edit(lifetime),
            )
        elif len(read) == 1 and _only_casts(call.callee.removesuffix(".run")):
            given = source.buffers.get(read[0]) or source.inputs.get(read[0])
            if given is not None and 0 < given.bytes != buffer.bytes > 0:
                yield from _compare(scene, lifetime, call, given, buffer, category == SAVED)


def _place(scene: Scene, lifetime: int) -> tuple[Source, Statement, Tensor] | None:
    """Inductor's file, the statement that made a lifetime, and the buffer that it is."""
    naming = scene.naming(lifetime)
    short, _, number = naming.where.rpartition(":")
    file = scene.attribution.sources.full_name(short)
    if not number.isdecimal() or not is_output_file(file):
        return None
    source = scene.attribution.sources.source(file)
    made = source.statements.get(int(number))
    fitting = scene.tensors(lifetime)
    if made is None or not made.callee.startswith("empty_strided") or len(fitting) != 1:
        return None
    # Memory that another buffer gets later is that one's in the end.
    return (source, made, fitting[0]) if fitting[0].name in made.outputs else None


def _filled_by(source: Source, made: Statement) -> Statement | None:
    """The first kernel that is given the buffer."""
    for line in range(made.line + 1, made.line + 40):
        later = source.statements.get(line)
        if later is not None and later.callee and set(made.outputs) & set(later.arguments):
            return later if later.callee.endswith(".run") else None
    return None


def _only_casts(kernel: str) -> bool:
    found = re.match(r"^\w+?_fused_(?P<names>\w+?)_\d+$", kernel)
    names = found["names"] if found else ""
    if "_to_copy" not in names:
        return False
    rest = names.replace("_to_copy", " ")
    for name in sorted(_MOVES, key=len, reverse=True):
        rest = re.sub(rf"(?<![a-z]){name}(?![a-z])", " ", rest)
    return not rest.strip("_ ")


def _compare(
    scene: Scene, lifetime: int, call: Statement, given: Tensor, buffer: Tensor, saved: bool
) -> Iterator[Spot]:
    """A cast: beside its source, if that is alive for as long as it matters."""
    said = f"{call.text} only casts {given.name}, {given.text}, to {buffer.dtype}"
    born = int(scene.born[lifetime])
    other = next(
        (
            k
            for k in (
                *range(lifetime - 1, scene.inside.start - 1, -1),
                *scene.earlier[::-1].tolist(),
            )
            if int(scene.requested[k]) == given.bytes
            and int(scene.end[k]) > born
            and any(t.text == given.text for t in scene.tensors(k))
        ),
        None,
    )
    if other is not None and scene.overlap(lifetime, other):
        yield Spot(
            "held twice: dtype",
            lifetime,
            (said, "both are alive at once"),
            (other,),
            scene.beside(lifetime, other),
            needs=(other,),
            moved=given.bytes + buffer.bytes,
            excess=None if scene.at_peak[other] else 0,
        )
    elif saved and buffer.bytes > given.bytes:
        yield Spot(
            "kept wider than its values",
            lifetime,
            (said, "it is saved for the backward"),
            edit=scene.narrowed(lifetime, given.bytes),
            excess=int(scene.requested[lifetime]) - given.bytes,
        )
