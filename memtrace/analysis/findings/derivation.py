"""How a value of a Thunder program could be made again from what is there anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from memtrace.program import Operation, Program, is_shape_only
from memtrace.program.aliases import operation, written

# One result for each element of the inputs: a kernel that reads them once and writes once.
ELEMENTWISE = frozenset(
    {
        "abs", "add", "addcdiv", "addcmul", "bitwise_and", "bitwise_not", "bitwise_or",
        "bitwise_xor", "ceil", "clamp", "convert_element_type", "cos", "div", "eq", "erf", "erfc",
        "exp", "exp2", "expm1", "floor", "fmod", "full_like", "ge", "gelu", "gt", "isfinite",
        "isnan", "le", "lerp", "log", "log1p", "log2", "logical_and", "logical_not", "logical_or",
        "logical_xor", "lt", "masked_fill", "maximum", "minimum", "mul", "ne", "neg", "ones_like",
        "pow", "reciprocal", "relu", "remainder", "round", "rsqrt", "sigmoid", "sign", "silu",
        "sin", "sinh", "softplus", "sqrt", "sub", "tan", "tanh", "to", "true_divide", "trunc",
        "where", "zeros_like", "float", "bfloat16", "half", "tril", "triu",
    }
)  # fmt: skip
# Made of nothing.
CREATED = frozenset({"arange", "full", "iota", "ones", "zeros", "tril_mask", "eye", "linspace"})
_CASTS = frozenset({"convert_element_type", "to", "float", "bfloat16", "half"})
_MOST_OPERATIONS = 64  # of one derivation; a longer one is no small work


@dataclass
class Derivation:
    """``operations`` in the order they would run, ``sources`` the values that they start from."""

    operations: list[Operation] = field(default_factory=list)
    sources: dict[str, None] = field(default_factory=dict)

    @property
    def is_cast(self) -> bool:
        """Whether it changes the dtype and, perhaps, the shape, and nothing else."""
        names = {operation(one.name) for one in self.operations}
        return bool(names & _CASTS) and all(name in _CASTS or is_shape_only(name) for name in names)

    @property
    def is_copy(self) -> bool:
        """Whether it moves elements and computes none."""
        return bool(self.operations) and all(is_shape_only(one.name) for one in self.operations)


def derive(
    makers: Mapping[str, Operation], name: str, available: Callable[[str], bool]
) -> Derivation | None:
    """How ``name`` follows from available values by elementwise and shape operations alone.

    None where it does not: something on the way is no such operation, or nothing there is
    available. What is made of nothing (a constant mask) has no sources. ``makers`` are the
    program's, see ``find_makers``.
    """
    found = Derivation()
    done: set[str] = set()

    def visit(value: str, first: bool) -> bool:
        if value in done:
            return True
        if not first and available(value):
            found.sources[value] = None
            return True
        made = makers.get(value)
        if made is None or len(done) >= _MOST_OPERATIONS:
            return False
        short = operation(made.name)
        known = short in ELEMENTWISE or short in CREATED or short == "copy"
        if not (known or is_shape_only(made.name)):
            return False
        read = made.inputs
        if (into := written(made.name, made.inputs)) is not None:
            if short != "copy":
                return False
            read = tuple(one for one in made.inputs if one != into)  # its old values are lost
        done.add(value)
        if not all(visit(one, False) for one in read):
            return False
        found.operations.append(made)
        return True

    return found if visit(name, True) else None


def find_makers(program: Program) -> dict[str, Operation]:
    """What makes each value: an operation inside a fusion where the trace has its insides."""
    makers: dict[str, Operation] = {}
    for statement in program.statements:
        if statement.kind != "call":
            continue
        whole = Operation(statement.name, statement.text, statement.inputs, statement.outputs)
        for part in statement.inside or (whole,):
            for output in part.outputs:
                if output not in part.inputs:
                    makers.setdefault(output, part)
    return makers
