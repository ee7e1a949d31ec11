"""Predictions as text and as JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memtrace.analysis.predicted import Predicted, PredictReport
from memtrace.program import Lifetime, Program, Step, Value, is_fusion, is_nvfusion, predict
from memtrace.render.units import clean, format_bytes, format_delta, format_exact

SCHEMA = 1
_ALIVE = 6  # storages named that are alive at the peak
_NOTES = 6
_KINDS = {
    "argument": "an argument",
    "saved": "saved by a forward that is not in the text",
    "cotangent": "a cotangent",
    "made": "made here",
    "unknown": "made by a part that is not in the text",
}


def predict_object(report: PredictReport) -> dict[str, Any]:
    """``memtrace predict --json``: every statement that makes, reads or frees something.

    Bytes are requested bytes of the program's own memory: made by its statements, or given to its
    backward as a cotangent. ``argument_bytes`` and ``other_bytes`` come on top.
    """
    return {
        "schema": SCHEMA,
        "path": report.path,
        "window": report.window or None,
        "programs": [_program_object(one) for one in report.programs],
    }


def _program_object(one: Predicted) -> dict[str, Any]:
    prediction, measured = one.prediction, one.measured
    peak = prediction.peak
    return {
        "name": prediction.program.name,
        "predicted_peak_bytes": prediction.peak_bytes,
        "measured_peak_bytes": measured.peak_bytes if measured else None,
        "error": one.error,
        "peak": _place_object(peak.statement.index, prediction.program) if peak else None,
        "measured_peak": _place_object(measured.peak_index, prediction.program)
        if measured
        else None,
        "argument_bytes": prediction.argument_bytes,
        "other_bytes": measured.other_bytes if measured else None,
        "outputs_held": prediction.program.outputs_held,
        "unknown": list(prediction.unknown),
        "notes": list(prediction.program.notes),
        "statements": [_step_object(step, one) for step in prediction.steps],
    }


def _place_object(index: int, program: Program) -> dict[str, Any] | None:
    if index < 0:
        return None
    statement = program.statements[index]
    return {"pass": statement.phase or None, "line": statement.line, "symbol": statement.name}


def _step_object(step: Step, one: Predicted) -> dict[str, Any]:
    statement, measured = step.statement, one.measured
    return {
        "pass": statement.phase or None,
        "line": statement.line,
        "kind": statement.kind,
        "symbol": statement.name,
        "outputs": list(statement.outputs),
        "predicted_bytes": step.during,
        "predicted_after_bytes": step.after,
        "inside_bytes": step.inside,
        "measured_bytes": measured.most.get(statement.index) if measured else None,
        "measured_after_bytes": measured.after.get(statement.index) if measured else None,
    }


def print_predictions(console: Console, report: PredictReport, rows: int) -> None:
    """Each program's peak, the statements around it, and what is alive there."""
    for one in report.programs:
        _print_program(console, report, one, rows)


def _print_program(console: Console, report: PredictReport, one: Predicted, rows: int) -> None:
    prediction, measured = one.prediction, one.measured
    program, peak = prediction.program, prediction.peak
    where = f"{report.path}, {report.window}" if report.window else ""
    console.print(Text.assemble((clean(program.name), "bold"), f"  {clean(where)}".rstrip()))
    if peak is None:
        return
    place = _place(program, peak.statement.index)
    console.print(f"  predicted {format_bytes(prediction.peak_bytes)} at {place}", markup=False)
    console.print(f"    {format_exact(prediction.peak_bytes)}", markup=False)
    if measured is not None and one.error is not None:
        place = _place(program, measured.peak_index)
        error = f"{one.error:+.3%}".replace("-", "−")
        console.print(f"  measured  {format_bytes(measured.peak_bytes)} at {place}", markup=False)
        console.print(f"    {format_exact(measured.peak_bytes)}; error {error}", markup=False)
        console.print(
            "  alive besides when it began, measured and in neither figure: "
            f"{format_bytes(measured.other_bytes)}",
            markup=False,
        )
    if prediction.argument_bytes:
        size = format_bytes(prediction.argument_bytes)
        console.print(f"  its arguments, by their shapes and in no figure: {size}", markup=False)
    for note in _notes(one):
        console.print(f"  {clean(note)}", markup=False)
    console.print(_statements(one, rows))
    alive = [life for life in prediction.alive(peak.statement.index) if life.kind != "argument"]
    if alive:
        console.print("  alive at the predicted peak:", markup=False)
    for life in alive[:_ALIVE]:
        console.print(f"    {clean(_describe(life, program))}", markup=False)
    if len(alive) > _ALIVE:
        rest = sum(life.bytes or 0 for life in alive[_ALIVE:])
        count = len(alive) - _ALIVE
        console.print(f"    and {count:,} more, {format_bytes(rest)}", markup=False)
    console.print()


def _notes(one: Predicted) -> list[str]:
    """What was assumed and what is not known."""
    prediction = one.prediction
    program = prediction.program
    notes = list(program.notes[:_NOTES])
    if len(program.notes) > _NOTES:
        notes.append(f"and {len(program.notes) - _NOTES} more notes (--json has all)")
    if "backward" in program.phases and "forward" in program.phases:
        held = "holds" if program.outputs_held else "does not hold"
        note = f"assumed: the caller {held} the outputs through the backward"
        other = predict(replace(program, outputs_held=not program.outputs_held)).peak_bytes
        if other != prediction.peak_bytes:
            note += f" (otherwise {format_bytes(other)})"
        notes.append(note)
    if any(v.root != v.name and _is_made_by_nvfuser(v, program) for v in program.values.values()):
        notes.append(
            "assumed: an nvFusion's outputs that only move elements are views, as of nvFuser 0.2.36"
        )
    opaque = _without_insides(program)
    if opaque:
        names = ", ".join(opaque[:4]) + (", …" if len(opaque) > 4 else "")
        notes.append(
            f"the insides of {names} are not known: every output is taken for memory of its own, "
            "and intermediates are not counted"
        )
    if prediction.unknown:
        names = ", ".join(prediction.unknown[:6]) + (", …" if len(prediction.unknown) > 6 else "")
        notes.append(f"not known, counted as 0: the size of {len(prediction.unknown)} ({names})")
    return notes


def _is_made_by_nvfuser(value: Value, program: Program) -> bool:
    return value.maker is not None and is_nvfusion(program.statements[value.maker].name)


def _without_insides(program: Program) -> list[str]:
    return [
        s.name
        for s in program.statements
        if is_fusion(s.name) and not s.inside and s.index not in program.regions
    ]


def _statements(one: Predicted, rows: int) -> Table:
    """The statements at which most is there, in their order."""
    measured = one.measured
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for head in ("line", "predicted", *(["measured", "Δ"] if measured else [])):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("statement", overflow="fold")
    calls = [step for step in one.prediction.steps if step.statement.kind == "call"]
    calls = [step for step in calls if step.during != step.before or step.inside]
    chosen = sorted(calls, key=lambda step: -step.during)[:rows]
    for step in sorted(chosen, key=lambda step: step.statement.index):
        statement = step.statement
        cells = [f"{statement.phase[:8]} {statement.line}".strip(), format_bytes(step.during)]
        if measured is not None:
            seen = measured.most.get(statement.index)
            delta = "" if seen is None else format_delta(step.during - seen)
            cells += ["·" if seen is None else format_bytes(seen), delta]
        made = ", ".join(statement.outputs[:3]) + (", …" if len(statement.outputs) > 3 else "")
        table.add_row(*cells, Text(clean(f"{statement.name} → {made}")))
    return table


def _place(program: Program, index: int) -> str:
    if index < 0:
        return "its beginning"
    statement = program.statements[index]
    what = statement.name or statement.text[:40]
    return clean(f"{statement.phase} line {statement.line}, {what}".strip())


def _describe(life: Lifetime, program: Program) -> str:
    value = program.values[life.root]
    kind = value.tensor.text if value.tensor is not None else "of unknown size"
    maker = program.maker(life.root)
    made = f"made by {maker.name}, line {maker.line}" if maker else _KINDS[life.kind]
    size = format_bytes(life.bytes) if life.bytes is not None else "?"
    end = "to the end" if life.freed is None else f"to line {program.statements[life.freed].line}"
    held = life.holders[0] if life.holders and " " in life.holders[0] else ""
    return f"{size}  {life.root}: {kind}, {made}, {end}" + (f" ({held})" if held else "")
