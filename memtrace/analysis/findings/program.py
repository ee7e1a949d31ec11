"""What the text of a Thunder program shows without a run: causes as ``memtrace explain`` has them.

Nothing was measured, so that bytes are the tensors' own, and what a compiler makes of a fusion is
said as far as the text allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from memtrace.analysis.findings.finding import Finding
from memtrace.program import (
    Prediction,
    Program,
    Statement,
    can_move,
    is_fusion,
    is_nvfusion,
    is_only_shape,
    predict,
)

_LEAST_SHARE = 100  # a cause that takes less than a hundredth of the largest is not worth a line
_LEAST_CALLS = 2  # between a producer and its first use, to speak of early
_NAMED = 4


@dataclass(frozen=True, slots=True)
class TraceExplained:
    """What a text shows, the largest first, and what it does not tell."""

    prediction: Prediction
    findings: tuple[Finding, ...]
    gaps: tuple[str, ...]


def explain_program(program: Program) -> TraceExplained:
    """Looks for what a program makes twice, too early, or keeps too long."""
    prediction = predict(program)
    found = [
        *_find_shape_only(prediction),
        *_find_early(prediction),
        *_find_two_dtypes(prediction),
        *_find_held(prediction),
    ]
    least = max((one.bytes for one in found), default=0) // _LEAST_SHARE
    found = sorted((one for one in found if one.bytes > least), key=lambda one: -one.bytes)
    return TraceExplained(prediction, tuple(found), tuple(_gaps(prediction)))


def _find_shape_only(prediction: Prediction) -> Iterator[Finding]:
    """Fusions that compute nothing: views that are copied, if the compiler does not see it."""
    program = prediction.program
    for statement in program.statements:
        if not is_fusion(statement.name) or not is_only_shape(statement):
            continue
        sizes = {name: program.values[name].bytes or 0 for name in statement.outputs}
        total = sum(sizes.values())
        sources = {
            name: next(iter(part.inputs), "")
            for part in statement.inside
            for name in part.outputs
            if name in sizes
        }
        kept = [name for name in sizes if _stays(program, statement, sources.get(name, ""))]
        # An operation may be shown with those that it consists of: it counts once.
        named = {name: part.name for part in reversed(statement.inside) for name in part.outputs}
        operations = Counter(name.rpartition(".")[2] for name in named.values())
        kinds = ", ".join(f"{count} × {name}" for name, count in operations.most_common())
        evidence = [
            f"computes nothing: {kinds}",
            f"{len(sizes)} outputs of {total:,} bytes",
            *_kept_twice(program, kept, sources, sizes),
        ]
        unread = [name for name in sizes if not program.values[name].uses]
        if unread and statement.index < len(program.statements) - 1:
            evidence.append(f"{len(unread)} of them are not read in what is shown")
        if is_nvfusion(statement.name):
            evidence.append(
                "whether it copies depends on nvFuser: 0.2.36 was recorded returning views; "
                "memtrace record shows what yours does"
            )
        yield Finding(
            "shape-only fusion",
            f"{statement.name} only changes shapes: {len(sizes)} outputs, {total:,} bytes",
            total,
            (statement.name,),
            (_line(statement),),
            (),
            tuple(evidence),
            "keep operations that only change shapes out of the fusion, so that they are views",
            "possible",
        )


def _kept_twice(
    program: Program, kept: Iterable[str], sources: dict[str, str], sizes: dict[str, int]
) -> Iterator[str]:
    """Of outputs whose inputs stay alive: by shape, what is held twice if it is copied."""
    groups: dict[str, list[str]] = {}
    for name in sorted(kept, key=lambda n: -sizes[n]):
        tensor = program.values[name].tensor
        groups.setdefault(tensor.text if tensor is not None else "?", []).append(name)
    for shape, names in groups.items():
        inputs = ", ".join(dict.fromkeys(sources[name] for name in names))
        each = " each" if len(names) > 1 else ""
        yield (
            f"{', '.join(names)}: {shape} of {sizes[names[0]]:,} bytes{each}, and {inputs}, which "
            f"{'they are' if len(names) > 1 else 'it is'} made of, "
            f"{'are' if len(names) > 1 else 'is'} not deleted: held twice if copied"
        )


def _stays(program: Program, statement: Statement, name: str) -> bool:
    """Whether an input is still held once what follows the statement is deleted."""
    if name not in program.values or name in statement.deletes:
        return False
    for later in program.statements[statement.index + 1 :]:
        if name in later.deletes:
            return False
        if later.kind != "delete":
            break
    return True


def _find_early(prediction: Prediction) -> Iterator[Finding]:
    """What is made before the peak and first read after it, though it could be made there."""
    program, peak = prediction.program, prediction.peak
    if peak is None:
        return
    for statement in program.statements:
        if statement.kind != "call" or statement.index >= peak.statement.index:
            continue
        own = [name for name in statement.outputs if _is_own(program, name, statement)]
        uses = [use for name in own for a in program.aliases(name) for use in _uses(program, a)]
        first = min(uses, default=None)
        if first is None or first <= peak.statement.index:
            continue
        calls = [s for s in program.statements[statement.index + 1 : first] if s.kind == "call"]
        size = sum(program.storage(name).bytes or 0 for name in own)
        if len(calls) < _LEAST_CALLS or not size or not can_move(program, statement.index, first):
            continue
        yield Finding(
            "born early" if is_fusion(statement.name) else "order alone",
            f"{statement.name} makes {_names(own)} before the peak, first read after it",
            size,
            (statement.name,),
            (_line(statement), _line(program.statements[first])),
            (),
            (
                f"{len(calls)} calls lie between line {statement.line} and the first use at line "
                f"{program.statements[first].line}",
                f"the predicted peak is at line {peak.statement.line}, in between",
            ),
            "make it where it is first read: nothing in between depends on it",
            "likely",
        )


def _find_two_dtypes(prediction: Prediction) -> Iterator[Finding]:
    """Outputs of a fusion that are one another in another dtype, both there at the peak."""
    program, peak = prediction.program, prediction.peak
    if peak is None:
        return
    alive = {life.root for life in prediction.alive(peak.statement.index)}
    for statement in program.statements:
        if not is_fusion(statement.name):
            continue
        outputs = {program.values[name].root: name for name in statement.outputs}
        same = _same_values(statement)
        for part in statement.inside:
            if not part.name.endswith("convert_element_type") or not part.inputs:
                continue
            wide = _output_of(part.inputs[0], same, statement, program)
            narrow = _output_of(part.outputs[0], same, statement, program)
            if wide is None or narrow is None or wide == narrow:
                continue
            roots = {program.values[wide].root, program.values[narrow].root}
            if len(roots) < 2 or not roots <= alive or not roots <= set(outputs):
                continue
            sizes = {name: program.storage(name).bytes or 0 for name in (wide, narrow)}
            less = min(sizes, key=lambda name: sizes[name])
            yield Finding(
                "held twice: dtype",
                f"{statement.name} keeps {wide} and {narrow}, the same values in two dtypes",
                sizes[less],
                (statement.name,),
                (_line(statement),),
                (),
                (f"{part.text}", "both are there at the predicted peak"),
                f"keep one of them and cast it where the other is read ({less} is the smaller)",
                "certain",
            )


def _same_values(statement: Statement) -> dict[str, str]:
    """What a fusion's shallow copies are copies of."""
    return {
        name: part.inputs[0]
        for part in statement.inside
        for name in part.outputs
        if part.name.endswith("shallow_copy") and part.inputs
    }


def _output_of(
    name: str, same: dict[str, str], statement: Statement, program: Program
) -> str | None:
    """The output of a fusion that has the values of ``name``."""
    for output in statement.outputs:
        base = output
        for _ in range(len(same) + 1):
            if base == name:
                return output
            if base not in same:
                break
            base = same[base]
    return None


def _find_held(prediction: Prediction) -> Iterator[Finding]:
    """What is read for the last time before the peak and freed after it."""
    program, peak = prediction.program, prediction.peak
    if peak is None:
        return
    cut = any(statement.kind == "gap" for statement in program.statements)
    for life in prediction.alive(peak.statement.index):
        uses = [use for name in program.aliases(life.root) for use in _uses(program, name)]
        returned = any(program.values[name].returned for name in program.aliases(life.root))
        if not uses or life.kind in ("argument", "unknown") or returned or cut:
            continue
        last = program.statements[max(uses)]
        if last.index >= peak.statement.index or not life.bytes or last.phase == "forward":
            continue
        yield Finding(
            "held after last use",
            f"{life.root} is held after its last use",
            life.bytes,
            (last.name,),
            (_line(last),),
            (),
            (f"last read at line {last.line}", f"held by {_names(life.holders)}"),
            "let go of it after its last use",
            "likely",
        )


def _gaps(prediction: Prediction) -> Iterator[str]:
    """What the text does not tell."""
    program = prediction.program
    yield from program.notes
    opaque = [
        s.name
        for s in program.statements
        if is_fusion(s.name) and not s.inside and s.index not in program.regions
    ]
    if opaque:
        yield f"the insides of {_names(opaque)} are not shown"
    if prediction.unknown:
        yield f"the sizes of {len(prediction.unknown)} are not given: {_names(prediction.unknown)}"


def _is_own(program: Program, name: str, statement: Statement) -> bool:
    value = program.values.get(name)
    return value is not None and value.root == name and value.maker == statement.index


def _uses(program: Program, name: str) -> Iterator[int]:
    """The statements that read a value, but for those that only give it another name."""
    for use in program.values[name].uses:
        statement = program.statements[use]
        if not all(program.values[o].root == program.values[name].root for o in statement.outputs):
            yield use


def _names(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(names))
    return ", ".join(listed[:_NAMED]) + (", …" if len(listed) > _NAMED else "")


def _line(statement: Statement) -> str:
    text = statement.text if len(statement.text) <= 160 else f"{statement.text[:159]}…"
    return f"{statement.line}: {text}"
