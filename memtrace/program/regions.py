"""What Inductor's output file for a region says of memory: its buffers from line to line.

The file is code that is there before anything runs: every buffer is made, reused and deleted by a
line of its own, and operators that make their results themselves have these results' sizes
asserted. Their workspaces are not in the file.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from memtrace.symbols.numbers import NUMBER, SHAPE, read_shape
from memtrace.symbols.statements import Source, Statement, Tensor, parse_source

_CALL = re.compile(r"^[ \t]*def call\((?:self, )?args\)", re.MULTILINE)
_RETURNED = re.compile(
    rf"reinterpret_tensor\((?P<base>\w+), \((?P<shape>{SHAPE})\), \((?P<strides>{SHAPE})\)[^)]*\)"
    r"|(?P<name>[A-Za-z_]\w*)"
)
_RESULT = re.compile(rf"^(?P<whole>\w+)\[(?P<number>{NUMBER})\]")
_ALIAS = re.compile(r"^(?:reinterpret_tensor\((?P<base>\w+),|(?P<name>\w+)(?:;|\s*#|$))")
_MAKERS = ("torch.ops.", "extern_kernels.")

# The bytes an operator takes beside its results while it runs: (operator, inputs) → bytes.
Workspace = Callable[[str, tuple[Tensor, ...]], int]


@dataclass(frozen=True, slots=True)
class Returned:
    """A result of a region: ``memory`` is the same for results that are views of one buffer, or an
    argument's name where it is a view of that."""

    memory: str
    tensor: Tensor
    bytes: int


@dataclass(frozen=True, slots=True)
class Region:
    """One output file. ``inputs`` are its arguments; ``most`` the most bytes that it has allocated
    at once, its results among them."""

    filename: str
    inputs: tuple[Tensor, ...]
    returned: tuple[Returned, ...]
    most: int

    @property
    def inside(self) -> int:
        """The most bytes beyond its results."""
        return self.most - sum({one.memory: one.bytes for one in self.returned}.values())


@lru_cache(maxsize=64)
def read_region(filename: str, text: str, workspace: Workspace) -> Region | None:
    """The region in an output file; None where it has no ``call``."""
    head = _CALL.search(text)
    if head is None:
        return None
    first = text.count("\n", 0, head.start()) + 1
    source = parse_source(filename, text)
    memory = _Memory(source, workspace)
    results: tuple[Returned, ...] = ()
    for number in sorted(n for n in source.statements if n > first):
        statement = source.statements[number]
        if statement.text.startswith("return ("):
            results = memory.read_return(statement.text)
            break
        memory.step(statement)
    return Region(filename, tuple(source.inputs.values()), results, memory.most)


class _Memory:
    """The buffers that are alive, and what they sum to."""

    def __init__(self, source: Source, workspace: Workspace) -> None:
        self._source = source
        self._workspace = workspace
        self._of: dict[str, str] = {}  # a name → the buffer it was allocated as
        self._names: Counter[str] = Counter()  # of each buffer
        self._sizes: dict[str, int] = {}
        self._inside: dict[str, list[str]] = defaultdict(list)  # the parts of a tuple of results
        self._elements = _elements(source)
        self._live = 0
        self.most = 0

    def step(self, statement: Statement) -> None:
        name = statement.outputs[0] if statement.outputs else ""
        value = statement.text.partition("=")[2].strip()
        extra = 0
        if statement.callee.startswith("empty_strided"):
            self._make(name, self._tensor(name))
        elif statement.callee.startswith(_MAKERS) and not value.startswith("reinterpret"):
            inputs = tuple(t for a in statement.arguments if (t := self._known(a)) is not None)
            if name and "out=" not in value:
                self._make_results(name, statement)
            extra = self._workspace(statement.callee, inputs)
        elif (part := _RESULT.match(value)) is not None and name:
            whole = f"{part['whole']}[{part['number']}]"
            if whole in self._sizes:
                self._call(name, whole)
        elif (again := _ALIAS.match(value)) is not None and name:
            base = again["base"] or again["name"]
            if base in self._of:
                self._call(name, self._of[base])
        self.most = max(self.most, self._live + extra)
        for deleted in statement.deletes:
            self._delete(deleted)

    def _known(self, name: str) -> Tensor | None:
        return self._source.buffers.get(name) or self._source.inputs.get(name)

    def _tensor(self, name: str) -> Tensor:
        return self._source.buffers.get(name) or Tensor(name, (0,), "uint8")

    def _make(self, name: str, tensor: Tensor) -> None:
        self._call(name, name)
        self._add(name, max(tensor.bytes, 0))

    def _call(self, name: str, memory: str) -> None:
        """Gives a buffer a name, which may have been another's."""
        self._forget(name)
        self._of[name] = memory
        self._names[memory] += 1

    def _forget(self, name: str) -> str | None:
        memory = self._of.pop(name, None)
        if memory is not None:
            self._names[memory] -= 1
        return memory

    def _add(self, memory: str, size: int) -> None:
        self._sizes[memory] = size
        self._live += size

    def _make_results(self, name: str, statement: Statement) -> None:
        """What an operator returns, by the assertions that follow: itself or its parts."""
        self._call(name, name)
        whole = self._source.buffers.get(name)
        if whole is not None and whole.bytes >= 0:
            self._add(name, whole.bytes)
            return
        for number, part in self._parts(name).items():
            size = part.bytes if part.dtype else replace(part, dtype="float32").bytes
            self._add(f"{name}[{number}]", max(size, 0))
            self._inside[name].append(f"{name}[{number}]")

    def _parts(self, whole: str) -> dict[int, Tensor]:
        """The elements of a tuple of results, as far as the file takes and describes them."""
        found: dict[int, Tensor] = {}
        for name, number in self._elements.get(whole, ()):
            tensor = self._source.buffers.get(name)
            if tensor is not None:
                found[number] = tensor
        return found

    def _delete(self, name: str) -> None:
        memory = self._forget(name)
        if memory is None or self._names[memory]:
            return
        # The name of a tuple holds all of its parts, unless these were taken by name.
        for one in (memory, *self._inside.pop(memory, ())):
            if one in self._sizes and not self._names[one]:
                self._live -= self._sizes.pop(one)

    def read_return(self, text: str) -> tuple[Returned, ...]:
        found = []
        for one in _RETURNED.finditer(text.removeprefix("return")):
            name = one["base"] or one["name"]
            memory = self._of.get(name, name)
            base = self._known(name)
            if base is None and memory not in self._sizes:
                continue
            tensor = base if base is not None else Tensor(name, (), "")
            if one["base"]:
                tensor = replace(
                    tensor, shape=read_shape(one["shape"]), strides=read_shape(one["strides"])
                )
            found.append(Returned(memory, tensor, self._sizes.get(memory, 0)))
        return tuple(found)


def _elements(source: Source) -> dict[str, list[tuple[str, int]]]:
    """By the name of a tuple: what is taken out of it, and from which place."""
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for name, maker in source.makers.items():
        element = _RESULT.match(maker.text.partition("=")[2].strip())
        if element is not None:
            found[element["whole"]].append((name, int(element["number"])))
    return found


def find_region(
    inputs: Iterable[Tensor], outputs: Iterable[Tensor], regions: Iterable[Region]
) -> Region | None:
    """The file that Inductor made of a region: what it is given and what it returns have the shapes
    and dtypes of the region's. A region may be given what it does not read, and return what it is
    given or the same twice; of several files that fit, the one that leaves least of that open."""
    given = _kinds(inputs)
    made = Counter(tensor.shape for tensor in outputs)
    fitting = [
        region
        for region in regions
        if not _kinds(region.inputs) - given
        and not Counter(one.tensor.shape for one in region.returned) - made
    ]
    return max(
        fitting, key=lambda one: (len(one.returned), len(one.inputs), one.most), default=None
    )


def _kinds(tensors: Iterable[Tensor]) -> Counter[tuple[tuple[int, ...], str]]:
    return Counter((tensor.shape, tensor.dtype) for tensor in tensors)


def match_results(
    region: Region, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]
) -> tuple[dict[str, str], dict[str, Returned]]:
    """For a statement that runs a region: which outputs are the memory of another output or of an
    input, and what the file says of those that it returns. Outputs come in the file's order."""
    arguments = {tensor.name: tensor for tensor in region.inputs}
    left = list(region.returned)
    shared: dict[str, str] = {}
    results: dict[str, Returned] = {}
    holders: dict[str, str] = {}
    for name, tensor in outputs.items():
        one = next((r for r in left if r.tensor.shape == tensor.shape), None)
        if one is None:
            continue
        left.remove(one)
        results[name] = one
        if (given := arguments.get(one.memory)) is not None:
            alike = (
                n for n, t in inputs.items() if (t.shape, t.dtype) == (given.shape, given.dtype)
            )
            holders.setdefault(one.memory, next(alike, name))
        if one.memory in holders and holders[one.memory] != name:
            shared[name] = holders[one.memory]
        else:
            holders[one.memory] = name
    return shared, results
