"""Thunder programs written by hand, run by hand: the recording that Python would make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memtrace.analysis import Subject, open_subject
from memtrace.snapshot.columns import Recording
from tests.builders import capture_meta, events, recording, stack_table

WIDTHS = {"f32": 4, "bf16": 2, "b8": 1}
DTYPES = {"f32": "float32", "bf16": "bfloat16", "b8": "bool"}
FILES = {"forward": "thunder.computation_1", "backward": "thunder.backward_fn_0"}


@dataclass(frozen=True)
class Call:
    """``outputs`` are {name: (dtype, elements)}; ``inside`` the (output, operation, inputs) of a
    fusion; ``view`` makes no memory but that of its first argument."""

    outputs: dict[str, tuple[str, int]]
    callee: str
    args: Sequence[str] = ()
    inside: Sequence[tuple[str, str, Sequence[str]]] = ()
    view: bool = False

    @property
    def text(self) -> str:
        names = ", ".join(self.outputs)
        left = f"[{names}]" if self.inside else names if len(self.outputs) == 1 else f"({names})"
        comment = "".join(
            f'  # {name}: "cuda:0 {dtype}[{n}]"' for name, (dtype, n) in self.outputs.items()
        )
        return f"  {left} = {self.callee}({', '.join(self.args)}){comment}"


@dataclass(frozen=True)
class Del:
    names: Sequence[str]

    @property
    def text(self) -> str:
        return f"  del {', '.join(self.names)}"


@dataclass
class Program:
    """``given`` are the arguments, ``saved`` what the backward gets and clears at once."""

    forward: Sequence[Call | Del]
    backward: Sequence[Call | Del] = ()
    given: dict[str, tuple[str, int]] = field(default_factory=dict)
    saved: Sequence[str] = ()
    returned: Sequence[str] = ()
    gradients: Sequence[str] = ()
    cleared: bool = True

    def types(self) -> dict[str, tuple[str, int]]:
        found = dict(self.given)
        for one in (*self.forward, *self.backward):
            if isinstance(one, Call):
                found |= one.outputs
        return found

    def sources(self) -> dict[str, tuple[str, dict[int, Call | Del]]]:
        """{pass: (text, {line: statement})}."""
        given = [f'  # {n}: "cuda:0 {d}[{k}]"' for n, (d, k) in self.given.items()]
        texts = {}
        head = ["import torch", "", f"def computation({', '.join(self.given)}):", *given]
        kept = f"(({', '.join(self.saved)}{',' * bool(self.saved)}), ())"
        output = ", ".join(self.returned) + ("," if self.returned else "")
        tail = [f"  return {{'output': ({output}), 'flat_args': []}}, {kept}"]
        texts["forward"] = self._number(head, self.forward, tail)
        if self.backward:
            types = self.types()
            names = [f'  # {n}: "cuda:0 {types[n][0]}[{types[n][1]}]"' for n in self.saved]
            clear = ["  clear_mutable_collection(C0)", "  del C0"] if self.cleared else []
            head = [
                "import torch", "", "def backward_fn(saved_for_backward, cotangents):",
                "  C0, C1, = saved_for_backward", "  clear_mutable_collection(saved_for_backward)",
                "  del C1, saved_for_backward",
                f"  {', '.join(self.saved)}{',' * bool(self.saved)} = C0", *names, *clear,
            ]  # fmt: skip
            tail = [f"  return ({', '.join(self.gradients) or 'None'},)"]
            texts["backward"] = self._number(head, self.backward, tail)
        return texts

    @staticmethod
    def _number(
        head: list[str], body: Sequence[Call | Del], tail: list[str]
    ) -> tuple[str, dict[int, Call | Del]]:
        lines = {len(head) + k: one for k, one in enumerate(body, 1)}
        return "\n".join([*head, *(one.text for one in body), *tail]) + "\n", lines


class _Run:
    """Python running a program: who holds what, and the events that this makes."""

    def __init__(self, program: Program) -> None:
        self.types = program.types()
        self.rows: list[tuple[str, int, int, int, int]] = []
        self.stacks: list[list[tuple[str, int, str]]] = []
        self.root: dict[str, str] = {name: name for name in program.given}
        self.holders: dict[str, set[str]] = {}
        self.address: dict[str, int] = {}
        self.marks: list[tuple[str, str, int]] = []

    def event(self, kind: str, root: str, phase: str, line: int) -> None:
        size = WIDTHS[self.types[root][0]] * self.types[root][1]
        self.stacks.append([(FILES[phase], line, "f"), ("/model/train.py", 3, "train")])
        self.address.setdefault(root, 0x1000 * (len(self.address) + 1))
        self.rows.append((kind, self.address[root], size, 0, len(self.stacks)))

    def hold(self, name: str, holder: str) -> None:
        self.holders.setdefault(self.root[name], set()).add(holder)

    def drop(self, name: str, holder: str, phase: str, line: int) -> None:
        root = self.root[name]
        held = self.holders.get(root)
        if held is None or holder not in held:
            return
        held.discard(holder)
        if not held:
            self.event("free", root, phase, line)

    def call(self, one: Call, phase: str, line: int) -> None:
        for name in one.outputs:
            self.root[name] = self.root[one.args[0]] if one.view else name
            if not one.view:
                self.event("alloc", name, phase, line)
            if self.root[name] in self.holders or not one.view:
                self.hold(name, name)

    def body(self, statements: dict[int, Call | Del], phase: str) -> None:
        for line, one in statements.items():
            if isinstance(one, Call):
                self.call(one, phase, line)
            else:
                for name in one.names:
                    self.drop(name, name, phase, line)

    def now(self) -> int:
        return sum(2 if row[0] == "free" else 1 for row in self.rows)


def record(program: Program) -> Recording:
    """One iteration of a program: forward, backward, and what is left is let go."""
    run = _Run(program)
    sources = program.sources()
    marks = [("call", "begin", 0)]
    run.body(sources["forward"][1], "forward")
    end = len(sources["forward"][0].splitlines())
    for name in program.saved:
        if run.root[name] in run.holders:
            run.hold(name, "saved")
    for name in program.returned:
        run.hold(name, "output")
    for name in list(run.root):
        run.drop(name, name, "forward", end)
    marks.append(("call", "end", run.now()))
    if program.backward:
        marks.append(("backward", "begin", run.now()))
        for name in program.saved:
            if run.root[name] in run.holders:
                run.hold(name, name)
                if program.cleared:
                    run.drop(name, "saved", "backward", 1)
        run.body(sources["backward"][1], "backward")
        end = len(sources["backward"][0].splitlines())
        for name in program.gradients:
            run.hold(name, "gradient")
        for name in list(run.root):
            run.drop(name, name, "backward", end)
            run.drop(name, "saved", "backward", end)
        marks.append(("backward", "end", run.now()))
    for name in (*program.returned, *program.gradients):
        run.drop(name, "output", "forward", 1)
        run.drop(name, "gradient", "forward", 1)
    marks.append(("end", "", run.now()))
    meta = capture_meta(
        marks=marks,
        iterations=[{"begin": 0, "end": len(marks) - 1}],
        device="cpu",
        sources={FILES[phase]: text for phase, (text, _) in sources.items()},
        thunder=[_module(program, sources)],
    )
    return recording(events(*run.rows), stacks=stack_table(*run.stacks), meta=meta)


def subject(program: Program) -> Subject:
    return open_subject(record(program))


def _module(program: Program, sources: dict[str, tuple[str, dict[int, Call | Del]]]) -> object:
    types = program.types()

    def tensor(name: str) -> dict[str, object]:
        dtype, n = types.get(name, ("f32", 1))
        return {"name": name, "shape": [n], "dtype": DTYPES[dtype], "device": "cuda:0"}

    traces = []
    for phase, (_, statements) in sources.items():
        symbols = [
            {
                "name": one.callee,
                "line": line,
                "origin": "",
                "args": list(one.args),
                "outputs": [tensor(name) for name in one.outputs],
                "inside": [
                    {
                        "text": f"{output} = {operation}({', '.join(inputs)})",
                        "name": operation,
                        "origin": "",
                        "args": list(inputs),
                        "outputs": [tensor(output)],
                    }
                    for output, operation, inputs in one.inside
                ],
            }
            for line, one in statements.items()
            if isinstance(one, Call)
        ]
        traces.append(
            {
                "phase": phase,
                "filename": FILES[phase],
                "symbols": symbols,
                "inputs": [tensor(name) for name in program.given] if phase == "forward" else [],
                "outputs": [tensor(name) for name in program.returned],
            }
        )
    return {"name": "model", "kind": "module", "executors": [], "fx_filename": "", "traces": traces}
