"""Generated Python source (Thunder traces, Inductor output) as statements by line number.

Thunder and Inductor print one statement a line, so lines are read one at a time with regular
expressions: a source cut short or with parts left out still gives what is left, and a hostile one
cannot exhaust the parser's stack as ``ast.parse`` can.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache

from memtrace.symbols.numbers import NUMBER, SHAPE, read_shape

# Quantifiers are possessive (``*+``) wherever what follows could take the same characters: a line
# of a hostile file is then read once, and not in every way in which it can be cut up.
_NAME = r"[A-Za-z_]\w*+"
_NAMES = rf"{_NAME}(?:\s*+,\s*+{_NAME})*+"
_ASSIGNMENT = re.compile(
    rf"^\s*+(?P<outputs>\[?\(?{_NAMES}(?:\s*+,)?+\s*+\]?+\)?+)\s*+(?::[^=]*+)?+=(?!=)\s*+(?P<value>.+)$"
)
_CALL = re.compile(rf"^(?P<callee>{_NAME}(?:\.{_NAME})*+)\((?P<rest>.*)$")
_DELETE = re.compile(rf"^\s*+del\s++(?P<names>{_NAMES})\s*+(?:;|#|$)")
_INLINE_DELETE = re.compile(rf";\s*+del\s++(?P<names>{_NAME})")
# '# <eval_with_key>.12:82: attn_output = …' or '# /home/me/model.py:17: y = …'
_ORIGIN = re.compile(rf"^\s*#\s(?P<file>\S.*?):(?P<line>{NUMBER}):\s(?P<text>.*)$")
# '# t1129: "cuda:0 f32[4095, 152064]"', alone or behind a statement
_TYPE = re.compile(
    rf'#\s*(?P<name>{_NAME}):\s"(?P<device>[\w:]+)\s(?P<dtype>\w+)\[(?P<shape>{SHAPE})\]"'
)
# Inductor's '# Topologically Sorted Source Nodes: [t208, t210], Original ATen: [aten.view]'
_SOURCE_NODES = re.compile(r"Source Nodes: \[(?P<names>[^\[\]]*)\]")
_EMPTY = re.compile(
    rf"^empty_strided(?:_\w+)?\(\((?P<shape>{SHAPE})\),\s*+\((?P<strides>{SHAPE})\),"
    r"\s*torch\.(?P<dtype>\w+)\)"
)
_REUSE = re.compile(
    rf"^(?:reinterpret_tensor\((?P<name>\w+), \((?P<shape>{SHAPE})\), \((?P<strides>{SHAPE})\)"
    r"|(?P<other>\w+)(?:;|$))"
)
# What an operator returns, as Inductor asserts it of each of its results
_ASSERTED = re.compile(
    rf"^assert_size_stride\((?P<name>\w+), \((?P<shape>{SHAPE})\), \((?P<strides>{SHAPE})\)"
)
# An input, in the example of a call that Inductor prints at the end of its files
_INPUT = re.compile(
    rf"^\w+ = rand_strided\(\((?P<shape>{SHAPE})\), \((?P<strides>{SHAPE})\),"
    r".*dtype=torch\.(?P<dtype>\w+)\)"
)
_ELEMENT = re.compile(r"^(?P<whole>\w+)\[\d+\]")
_CALLED_WHOLE = ("torch.ops.", "extern_kernels.")
_WORD = re.compile(_NAME)

THUNDER_DTYPES = {
    "b8": "bool", "ui8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64",
    "c128": "complex128", "f8_e4m3fn": "float8_e4m3fn", "f8_e5m2": "float8_e5m2",
}  # fmt: skip
_WIDTHS = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "bfloat16": 2,
    "float16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "uint16": 2, "uint32": 4, "uint64": 8,
}  # fmt: skip


# More elements than any memory holds, more dimensions than any tensor has: a file may say so, but
# nothing is to be reckoned with it.
_ENDLESS = 1 << 56
_MOST_DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as a trace describes it. ``dtype`` is torch's word ('bfloat16').

    ``layer`` and ``line`` are where in the model it comes from, '' where that is not known.
    ``strides`` are in elements; None where the trace does not say (Thunder's do not).
    ``dtype`` may be '' where only the shape is known. ``own`` says that the name is the program's,
    the same in every run, and not a compiler's.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layer: str = ""
    line: str = ""
    strides: tuple[int, ...] | None = None
    own: bool = False

    @property
    def text(self) -> str:
        """'float32[1, 28, 4096, 4096]'."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def bytes(self) -> int:
        """Bytes from its first element to its last, laid densely where the strides are not known;
        -1 where the dtype's width is not known, or where no memory could hold it."""
        width, extent = _WIDTHS.get(self.dtype, -1), self.extent
        return width * extent if width > 0 and 0 <= extent < _ENDLESS else -1

    @property
    def extent(self) -> int:
        """How many elements of memory lie from its first to its last."""
        if len(self.shape) > _MOST_DIMENSIONS:
            return _ENDLESS
        if self.strides is None or len(self.strides) != len(self.shape) or 0 in self.shape:
            return min(math.prod(self.shape), _ENDLESS)
        steps = ((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        return min(1 + sum(steps), _ENDLESS)


@dataclass(frozen=True, slots=True)
class Statement:
    """One line: what it calls ('' if nothing), makes and reads, and which names it frees."""

    line: int
    callee: str
    outputs: tuple[str, ...]
    arguments: tuple[str, ...]
    deletes: tuple[str, ...]
    origin: tuple[str, int] | None  # file and line of the comment above, where there is one
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """A generated file, by line number.

    ``tensors`` are those its comments describe, ``makers`` the statement that first makes a name,
    ``nodes`` the names of the operations that Inductor's comments give for the kernel below,
    ``inputs`` what Inductor's function is given, by its own example of a call,
    ``buffers`` what Inductor allocates, and what it calls the same memory later, ``reused`` the
    statement that gives a buffer's memory to another one, ``returned`` what the operators that it
    calls return, by the name that the result as a whole has, which ``results`` has for each part.
    """

    filename: str
    statements: dict[int, Statement]
    tensors: dict[str, Tensor]
    makers: dict[str, Statement]
    nodes: dict[int, tuple[str, ...]]
    buffers: dict[str, Tensor]
    reused: dict[str, Statement]
    returned: dict[str, tuple[Tensor, ...]]
    results: dict[str, str]
    inputs: dict[str, Tensor]


@lru_cache(maxsize=256)  # memory and time of one recording are named from the same files
def parse_source(filename: str, text: str) -> Source:
    """Reads ``text`` line by line; lines that are no statement are passed over."""
    source = Source(filename, {}, {}, {}, {}, {}, {}, {}, {}, {})
    origin: tuple[str, int] | None = None
    quoted = False  # within the text of a kernel, which is another program
    for number, line in enumerate(text.split("\n"), start=1):
        if quoted:
            quoted = line.count("'''") % 2 == 0
            continue
        for found in _TYPE.finditer(line):
            shape = read_shape(found["shape"])
            dtype = THUNDER_DTYPES.get(found["dtype"], found["dtype"])
            source.tensors[found["name"]] = Tensor(found["name"], shape, dtype)
        if not line.strip():
            origin = None  # an origin stands directly above the statements that it speaks of
            continue
        if line.lstrip().startswith("#"):
            if found_origin := _ORIGIN.match(line):
                origin = (found_origin["file"], int(found_origin["line"]))
            elif listed := _SOURCE_NODES.search(line):
                source.nodes[number] = _names(listed["names"])
            continue
        statement = source.statements[number] = parse_statement(number, line, origin)
        for name in statement.outputs:
            source.makers.setdefault(name, statement)
        _follow_buffers(statement, source)
        origin = None
        quoted = line.count("'''") % 2 == 1
    return source


def _follow_buffers(statement: Statement, source: Source) -> None:
    """Adds what an Inductor line says of buffers: whose memory has which name from there on."""
    if not statement.outputs:
        known = _ASSERTED.match(statement.text)
        call = source.results.get(known["name"]) if known else None
        if known is not None and call:
            results = _asserted(known, source.makers[call], source.buffers)
            source.returned[call] += results
            source.buffers.setdefault(known["name"], results[0])
        return
    name, value = statement.outputs[0], _value(statement)
    if (given := _INPUT.match(statement.text)) is not None:
        shape, strides = read_shape(given["shape"]), read_shape(given["strides"])
        source.inputs[name] = Tensor(name, shape, given["dtype"], strides=strides)
    if (made := _buffer(statement, source.buffers)) is not None:
        source.buffers[made.name] = made
    if statement.callee.startswith(_CALLED_WHOLE):
        source.results[name] = name
        source.returned[name] = ()
    elif part := _ELEMENT.match(value):
        source.results[name] = source.results.get(part["whole"], "")
    elif again := _REUSE.match(value):
        base = again["name"] or again["other"]
        if base in source.results:
            source.results[name] = source.results[base]
        if base in statement.deletes or source.results.get(base) == base:
            source.reused[base] = statement


def parse_statement(number: int, line: str, origin: tuple[str, int] | None) -> Statement:
    code = line.split("  # ", 1)[0].rstrip()
    if deleted := _DELETE.match(code):
        return Statement(number, "", (), (), _names(deleted["names"]), origin, code.strip())
    outputs: tuple[str, ...] = ()
    value = code.strip()
    if assigned := _ASSIGNMENT.match(code):
        outputs = _names(assigned["outputs"])
        value = assigned["value"]
    called = _CALL.match(value)
    deletes = tuple(found["names"] for found in _INLINE_DELETE.finditer(value))
    return Statement(
        number,
        # Thunder prints operators of torch.ops with the name of the package twice.
        called["callee"].replace("torch.torch.", "torch.") if called else "",
        outputs,
        _names(called["rest"] if called else value.split(";", 1)[0]) if outputs or called else (),
        deletes,
        origin,
        code.strip(),
    )


def _buffer(statement: Statement, known: dict[str, Tensor]) -> Tensor | None:
    """The buffer an Inductor line makes: 'buf19 = empty_strided_cuda((4, 8), (8, 1), torch.f…)',
    or 'buf20 = buf19', or 'buf20 = reinterpret_tensor(buf19, (32, ), …)', the same memory."""
    if len(statement.outputs) != 1:
        return None
    name, value = statement.outputs[0], _value(statement)
    if made := _EMPTY.match(value):
        strides = read_shape(made["strides"])
        return Tensor(name, read_shape(made["shape"]), made["dtype"], strides=strides)
    if view := _REUSE.match(value):
        base = known.get(view["name"] or view["other"])
        if base is not None and view["shape"] is None:
            return replace(base, name=name)
        if base is not None:
            strides = read_shape(view["strides"])
            return replace(base, name=name, shape=read_shape(view["shape"]), strides=strides)
    return None


def _value(statement: Statement) -> str:
    return statement.text.partition("=")[2].strip()


def _asserted(
    found: re.Match[str], call: Statement, buffers: dict[str, Tensor]
) -> tuple[Tensor, ...]:
    """A result of an operator: with the dtype of what it reads, and with none, for a size that
    this dtype does not give."""
    result = Tensor(
        found["name"], read_shape(found["shape"]), "", strides=read_shape(found["strides"])
    )
    dtypes = (buffers[name].dtype for name in call.arguments if name in buffers)
    return tuple(replace(result, dtype=dtype) for dtype in (*list(dtypes)[:1], ""))


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_WORD.findall(text)))
