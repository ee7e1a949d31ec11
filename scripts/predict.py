"""Prints how well peaks are predicted: memtrace's prediction and thunder's estimate, by capture.

    python scripts/predict.py [CAPTURE…]

Without captures, all recorded Thunder programs of samples/ and tests/data/planted. Bytes are
requested bytes. "own" is what the statements of a program make and the cotangents that its backward
is given; "all" is that and its arguments, by their shapes, which thunder's estimate counts, too.

thunder's estimate is the rule of ``get_alloc_memory`` (thunder.examine.memory_calculation, 0.2.6),
worked out here over the captured traces, since that function wants trace objects: the greater of
forward and backward, of which the latter counts the arguments that are saved alone. Where thunder
is installed, the rule is first checked against the function itself on a small program (``--check``
does that alone).
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from memtrace.analysis import open_subject  # noqa: E402
from memtrace.analysis.predicted import Predicted, report_prediction  # noqa: E402
from memtrace.program import Program, read_text  # noqa: E402
from memtrace.snapshot import read  # noqa: E402

# thunder_alias_operator_list: operators that get_alloc_memory takes for views.
_ALIASES = {
    "unsqueeze", "squeeze", "transpose", "expand", "reshape", "torch_prims_reshape_impl", "permute",
    "contiguous", "split", "torch_wait_prim_impl", "shallow_copy",
}  # fmt: skip


def main() -> None:
    check_rule()
    if sys.argv[1:] == ["--check"]:
        return
    paths = [Path(name) for name in sys.argv[1:]] or [
        *sorted((ROOT / "samples").glob("*nvfuser*.pkl.gz")),
        *sorted((ROOT / "samples").glob("*torchcompile*.pkl.gz")),
        *sorted((ROOT / "tests/data/planted").glob("*nvfuser*.pkl.gz")),
    ]
    print(f"{'measured own':>16} {'predicted':>16} {'error':>9} ", end="")
    print(f"{'measured all':>16} {'error':>9} {'thunder':>16} {'error':>9}  program")
    worst = closer = count = 0
    for path in paths:
        report = report_prediction(open_subject(read(str(path))))
        for one in report.programs:
            ours, theirs = print_line(path, one)
            worst = max(worst, abs(ours))
            closer += abs(ours) <= abs(theirs)
            count += 1
    print(f"{count} programs; largest error {worst:.3%}; ", end="")
    print(f"at least as close as thunder's estimate in {closer}")


def print_line(path: Path, one: Predicted) -> tuple[float, float]:
    """Prints one program; the errors of both estimates, arguments included."""
    if one.measured is None or one.error is None:
        return 0.0, 0.0
    arguments = one.prediction.argument_bytes
    measured = one.measured.peak_bytes + arguments
    ours = (one.prediction.peak_bytes + arguments) / measured - 1
    estimate = max(alloc_memory(one.prediction.program, phase) for phase in ("forward", "backward"))
    theirs = estimate / measured - 1
    name = f"{path.name.removesuffix('.pkl.gz')} {one.prediction.program.name}"
    print(
        f"{one.measured.peak_bytes:16,} {one.prediction.peak_bytes:16,} {one.error:+9.3%} "
        f"{measured:16,} {ours:+9.3%} {estimate:16,} {theirs:+9.3%}  {name}"
    )
    return ours, theirs


def alloc_memory(program: Program, phase: str) -> int:
    """The rule of ``get_alloc_memory`` over one pass of a program: its peak in bytes, 0 where the
    program has no such pass. Arguments count from the start and, unless a collection that they came
    in is cleared, to the end; names of views share a count of references."""
    statements = [s for s in program.statements if s.phase == phase]
    if not statements:
        return 0
    values = program.values
    given = [v.name for v in values.values() if v.kind == "argument" and phase == "forward"]
    unpacked: dict[str, list[str]] = {}
    for statement in statements:
        if statement.kind == "unpack":
            names = [name for name in statement.outputs if name in values]
            unpacked.setdefault(statement.inputs[0], []).extend(names)
    given += [name for names in unpacked.values() for name in names]
    counts = {name: [2, values[name].bytes or 0] for name in given}
    allocated = most = sum(size for _, size in counts.values())
    for statement in statements:
        if statement.kind == "call":
            outputs = [name for name in statement.outputs if name in values]
            if statement.name.rpartition(".")[2] in _ALIASES and statement.inputs:
                count = counts[statement.inputs[0]]
                for name in outputs:
                    count[0] += 1
                    counts[name] = count
            else:
                for name in outputs:
                    allocated += values[name].bytes or 0
                    counts.setdefault(name, [1, values[name].bytes or 0])
        released = [name for name in statement.deletes if name in counts]
        if statement.kind == "clear" and statement.inputs[0] == "cotangents":
            # What is saved it takes for a tuple, whose clearing it does not count.
            released += unpacked.get("cotangents", [])
        for name in released:
            counts[name][0] -= 1
            if counts[name][0] == 0:
                allocated -= counts[name][1]
        most = max(most, allocated)
    return most


def check_rule() -> None:
    """Exits where the rule gives another figure than thunder's own function on a small program."""
    try:
        import thunder
        import torch
        from thunder.examine.memory_calculation import get_alloc_memory
    except ImportError:
        print("thunder is not installed: its rule is used unchecked", file=sys.stderr)
        return
    layers = [torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10)]
    compiled = thunder.jit(torch.nn.Sequential(*layers), executors=[])
    compiled(torch.randn(32, 64)).square().sum().backward()
    traces = {
        "forward": thunder.last_traces(compiled)[-1],
        "backward": thunder.last_backward_traces(compiled)[-1],
    }
    program = read_text("\n".join(str(trace) for trace in traces.values()))
    for phase, trace in traces.items():
        rule, own = alloc_memory(program, phase), get_alloc_memory(trace)[0]
        if rule != own:
            sys.exit(f"predict: get_alloc_memory says {own:,} of the {phase}, its rule {rule:,}")


if __name__ == "__main__":
    main()
