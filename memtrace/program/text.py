"""A Thunder program from text: what ``thunder.last_traces(f)[-1]`` prints, or a piece of it.

People post traces in reports: quoted, fenced, wrapped, with parts left out and indentation lost.
What is there is read; what is not is noted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from memtrace.errors import MemtraceError
from memtrace.program.aliases import is_fusion
from memtrace.program.build import Draft, build_program
from memtrace.program.lines import MOST_CHARACTERS, Line, read_lines
from memtrace.program.model import (
    COLLECTION_OF_SAVED,
    COTANGENTS,
    Operation,
    Program,
    Statement,
    StatementKind,
)
from memtrace.symbols.statements import THUNDER_DTYPES, Tensor, parse_statement

# 't1129: "cuda:0 f32[4095, 152064]"', in a comment, a signature or an annotation
_TYPE = re.compile(
    r'(?<!\w)(?P<name>[A-Za-z_]\w*+)\s*+:\s*+"(?:FUTURE\s++)?(?P<device>[\w:]+)\s(?P<dtype>\w+)'
    r'\[(?P<shape>[\d,\s]*)\]"'
)
_MOST_DIGITS = 15
_ORIGIN = re.compile(r"^\s*#\s(?P<file>\S.*?):(?P<line>\d+):\s")
_DEF = re.compile(r"^\s*def\s+(?P<name>\w+)\s*\((?P<signature>.*)$")
_UNPACK = re.compile(r"^(?P<names>[\w\s,]++)=\s*+(?P<collection>[A-Za-z_]\w*+)\s*+(?:#.*)?$")
_CLEAR = re.compile(r"\bclear_mutable_collection\((?P<name>\w+)\)")
_INSIDE = re.compile(r"^\s*#\s*(?P<code>[\[(]?[A-Za-z_][^=#\"]*=\s[A-Za-z_][\w.]*\(.*)$")
_CALLED = re.compile(r"^\s*[\w.]+\(|=\s*[A-Za-z_][\w.]*\(")
_QUOTED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?![\w.])(?!\s*=[^=])(?!\s*\()")
_NO_VALUES = frozenset(
    {"None", "True", "False", "inf", "nan", "return", "lambda", "torch", "Tensor"}
)
_OUTPUT = re.compile(r"['\"](?P<key>output|flat_args|flat_output)['\"]\s*:")
_NUMBER = re.compile(r"^i\d+$|^f\d+$")  # proxies of Python numbers


@dataclass
class _Pass:
    """One function of the text, or what stands outside of any."""

    name: str
    phase: str
    lines: list[Line] = field(default_factory=list)
    signature: str = ""
    returns: bool = False


def read_text(text: str, name: str = "trace") -> Program:
    """The program in a text. MemtraceError where there is no statement in it.

    Of several traces of one pass (the stages of a compilation) the last is taken: it is executed.
    """
    if len(text) > MOST_CHARACTERS:
        raise MemtraceError(f"{name}: too long for a trace ({len(text):,} characters)")
    passes = _split(list(read_lines(text)))
    chosen: dict[str, _Pass] = {}
    notes = []
    for one in passes:
        if one.phase in chosen and one.phase:
            notes.append(f"several {one.phase} traces are there; the last one is taken")
        chosen[one.phase] = one
    order = {"forward": 0, "": 1, "backward": 2}
    draft = Draft(name, notes=notes)
    for one in sorted(chosen.values(), key=lambda p: order[p.phase]):
        add_pass(draft, one.phase, "", one.lines, one.signature)
    if not any(s.kind in ("call", "delete", "unpack") for s in draft.statements):
        raise MemtraceError(
            f"{name}: no statement of a Thunder trace is in it; give what "
            "thunder.last_traces(f)[-1] prints, or a part of it"
        )
    _note_what_is_missing(draft, chosen)
    return build_program(draft)


def _split(lines: Sequence[Line]) -> list[_Pass]:
    """The functions in a text; what stands before the first is a pass of its own."""
    passes = [_Pass("", "")]
    for line in lines:
        if found := _DEF.match(line.text):
            phase = _phase(found["name"])
            passes.append(_Pass(found["name"], phase, [], found["signature"]))
            continue
        passes[-1].lines.append(line)
        passes[-1].returns |= line.text.lstrip().startswith("return")
    kept = [p for p in passes if p.phase != "skip" and any(_is_code(x) for x in p.lines)]
    for one in kept:
        reads = (COLLECTION_OF_SAVED, COTANGENTS, "= C0")
        if not one.phase and any(word in line.text for line in one.lines for word in reads):
            one.phase = "backward"
    return kept


def _is_code(line: Line) -> bool:
    text = line.text.strip()
    return bool(text) and (_CALLED.search(text) is not None or text.startswith(("del ", "return")))


def _phase(function: str) -> str:
    if function.startswith(("prologue", "epilogue")):
        return "skip"
    return "backward" if "backward" in function else "forward"


def add_pass(
    draft: Draft, phase: str, filename: str, lines: Sequence[Line], signature: str = ""
) -> None:
    """Adds the statements of one pass, the types that it describes and what it returns."""
    for name in _names(signature):
        draft.given.setdefault(name, phase)
    _read_types(draft, signature)
    origin = ""
    returned = False
    for line in lines:
        text = line.text.strip()
        _read_types(draft, text)
        if line.gap:
            _append(draft, phase, filename, line, "gap")
            draft.notes.append(f"line {line.number}: a part is left out")
        elif not text:
            origin = ""
        elif text.startswith("#"):
            if (found := _ORIGIN.match(text)) is not None:
                origin = f"{found['file']}:{found['line']}"
            elif (inner := _INSIDE.match(text)) is not None:
                _add_inside(draft, inner["code"])
        elif _add_statement(draft, phase, filename, line, origin):
            returned |= text.startswith("return")
            origin = ""
    if signature and returned:
        draft.whole.add(phase)


def _add_statement(draft: Draft, phase: str, filename: str, line: Line, origin: str) -> bool:
    """Whether a line is a statement; then it is added."""
    text = line.text.strip()
    if line.cut:
        draft.notes.append(f"line {line.number}: the end is missing")
    if text.startswith("return"):
        _append(draft, phase, filename, line, "return", inputs=_names(text))
        _read_return(draft, text, phase)
        return True
    if (cleared := _CLEAR.search(text)) is not None:
        _append(draft, phase, filename, line, "clear", inputs=(cleared["name"],))
        return True
    if text.startswith(("import ", "from ", "@", "with ")):
        return False
    parsed = parse_statement(line.number, text, None)
    if parsed.deletes and not parsed.outputs and not parsed.callee:
        _append(draft, phase, filename, line, "delete", deletes=_plain(parsed.deletes))
        return True
    if parsed.callee and (parsed.outputs or draft.statements):
        if parsed.callee.startswith("check_") or " " in text.partition("(")[0].partition("=")[
            0
        ].strip().replace(", ", ","):
            return False
        inputs = _names(
            text.partition("=")[2].partition("(")[2] if parsed.outputs else text.partition("(")[2]
        )
        _append(
            draft, phase, filename, line, "call", parsed.callee, inputs, _plain(parsed.outputs),
            _plain(parsed.deletes), origin,
        )  # fmt: skip
        return True
    if (unpacked := _UNPACK.match(text)) is not None and "," in text:
        names = _names(unpacked["names"])
        _append(draft, phase, filename, line, "unpack", "", (unpacked["collection"],), names)
        if unpacked["collection"] != COTANGENTS:
            draft.saved.update(names)
        return True
    return False


def _append(
    draft: Draft,
    phase: str,
    filename: str,
    line: Line,
    kind: StatementKind,
    name: str = "",
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    deletes: Sequence[str] = (),
    origin: str = "",
) -> None:
    text = line.text.strip().partition("  # ")[0]
    draft.statements.append(
        Statement(
            len(draft.statements), phase, filename, line.number, kind, name, text,
            tuple(inputs), tuple(outputs), tuple(deletes), (), origin,
        )
    )  # fmt: skip


def _add_inside(draft: Draft, code: str) -> None:
    """A comment below a fusion: one of the operations that it fuses."""
    if not draft.statements:
        return
    last = draft.statements[-1]
    if last.kind != "call" or not is_fusion(last.name):
        return
    operation = read_operation(code)
    draft.statements[-1] = replace(last, inside=(*last.inside, operation))


def read_operation(code: str) -> Operation:
    """'t5 = prims.reshape(t1, (2, 3))  # t5: "cuda:0 f32[2, 3]"' as an operation."""
    text = code.partition("  # ")[0].strip()
    parsed = parse_statement(0, text, None)
    inputs = _names(text.partition("=")[2].partition("(")[2])
    return Operation(parsed.callee, text, inputs, _plain(parsed.outputs))


def _read_types(draft: Draft, text: str) -> None:
    if '"' not in text:
        return
    for found in _TYPE.finditer(text):
        # A space within a number is where a line was wrapped.
        lengths = re.sub(r"\s", "", found["shape"]).split(",")
        if any(len(length) > _MOST_DIGITS for length in lengths):
            continue
        shape = tuple(int(length) for length in lengths if length)
        dtype = THUNDER_DTYPES.get(found["dtype"], found["dtype"])
        draft.tensors[found["name"]] = Tensor(found["name"], shape, dtype)
        draft.devices[found["name"]] = found["device"]


def _read_return(draft: Draft, text: str, phase: str) -> None:
    """What a pass returns: outputs, and behind the dictionary what it saves for the backward."""
    found = list(_OUTPUT.finditer(text))
    if phase == "backward" or not found:
        draft.returned.update(_names(text))
        return
    bounds = [*(f.start() for f in found), len(text)]
    for k, one in enumerate(found):
        part = text[one.end() : bounds[k + 1]]
        if one["key"] == "flat_args":
            continue
        if k == len(found) - 1:
            part, _, rest = part.partition("}")
            draft.saved.update(_names(rest))
        draft.returned.update(_names(part))


def _names(text: str) -> tuple[str, ...]:
    """The names of values in a piece of code, without strings, keywords, calls and attributes."""
    words = _WORD.findall(_QUOTED.sub("''", text.partition("  # ")[0]))
    return _plain(dict.fromkeys(words))


def _plain(names: Sequence[str] | dict[str, None]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in _NO_VALUES and not _NUMBER.match(name))


def _note_what_is_missing(draft: Draft, chosen: dict[str, _Pass]) -> None:
    if "backward" in chosen and "forward" not in chosen:
        draft.notes.append("the forward trace is not there: what it saves is known by name alone")
    for phase, one in chosen.items():
        if not one.signature:
            draft.notes.append(
                f"the {phase or 'trace'}'s signature is not there".replace("trace's", "trace's")
            )
        if not one.returns:
            draft.notes.append(f"the {phase or 'trace'}'s return is not there")
