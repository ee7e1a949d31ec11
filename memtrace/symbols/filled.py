"""From a line of Inductor's code that ran a kernel to the symbol that its memory has.

Memory is named by the line that makes a buffer and by the frames that Inductor adds from compile
time; a kernel runs at a later line, that of its call. The kernel's symbol is that of the buffer it
fills: the largest, where it fills several. What fills memory that another buffer had before it, or
works in place, is named by the comment on its call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memtrace.distinct import distinct_values
from memtrace.snapshot.columns import Frame, Int32
from memtrace.snapshot.generated import is_output_file
from memtrace.symbols import inductor, thunder
from memtrace.symbols.sources import Sources
from memtrace.symbols.stacks import Stacks
from memtrace.symbols.table import Naming

_Key = tuple[str, int]
_LIBRARIES = ("extern_kernels.", "torch.ops.", "aten.")  # callees that Inductor did not generate


class Filled:
    """The recorded stacks of one recording by the innermost line of Inductor's code in them.

    Of stacks that are ``alike`` one stands for all.
    """

    def __init__(self, stacks: Stacks, alike: Int32, sources: Sources) -> None:
        self._sources = sources
        self._stacks: dict[_Key, list[list[Frame]]] = {}
        self._makers: dict[str, dict[int, list[int]]] = {}
        for number in distinct_values(alike).tolist():
            frames = stacks.python(number)
            found = next((f for f in frames if is_output_file(f.filename)), None)
            if found is not None:
                self._stacks.setdefault((found.filename, found.line), []).append(frames)

    def name(self, frames: Sequence[Frame]) -> Naming | None:
        """The symbol of what ran at ``frames``, lines of generated code, innermost first.

        The innermost is Inductor's; a line of a Thunder trace is around it where Thunder called it.
        """
        made = frames[0]._replace(line=self._made_for(frames[0]))
        known = self._stacks.get((made.filename, made.line), ())
        caller = next((f for f in frames[1:] if thunder.is_trace_file(f.filename)), None)
        if caller is None:
            same = [stack for stack in known if not any(_is_trace(f) for f in stack)]
            return _agreed([self._name(stack) for stack in same]) or self._name([made])
        outer = self._with_region(frames[1:], caller)
        # Regions that are alike run one compiled file: then a line's frames from compile time are
        # those of whichever was recorded, under the caller that ran.
        own = next((stack for stack in known if _calls(stack, caller)), None)
        other = next((stack for stack in known if any(map(_is_trace, stack))), None)
        if own is not None:
            return self._name(own)
        if other is not None:
            at = next(k for k, frame in enumerate(other) if _is_trace(frame))
            return self._name([*other[:at], *outer])
        return self._name([made, *outer])

    def every(self, ran: Frame) -> list[Naming]:
        """The namings that the line ``ran`` may have: of all its callers that were recorded."""
        known = self._stacks.get((ran.filename, self._made_for(ran)), ())
        found = [self._name(stack) for stack in known] or [self.name([ran])]
        return [naming for naming in found if naming is not None]

    def operations(self, frames: Sequence[Frame]) -> tuple[str, ...]:
        """What the call at the innermost of ``frames`` fuses, by the comment on it.

        () for a library's kernel: it does one thing, and its comment lists its inputs' makers. In
        the words of the region that Thunder gave to Inductor, where there is one.
        """
        caller = next((f for f in frames[1:] if thunder.is_trace_file(f.filename)), None)
        kernel, fused = inductor.kernel_at(frames, self._sources)
        if kernel.startswith(_LIBRARIES):
            return ()
        region = self._with_region(frames[1:], caller)[0].filename if caller else ""
        makers = self._sources.source(region).makers
        return tuple(makers[name].text if name in makers else name for name in fused)

    def _name(self, frames: Sequence[Frame]) -> Naming | None:
        return thunder.name_stack(frames, self._sources) or inductor.name_stack(
            frames, self._sources
        )

    def _with_region(self, outer: Sequence[Frame], caller: Frame | None) -> list[Frame]:
        """The frames around Inductor's, with the region's own file if no range of it was seen."""
        if caller is None:
            return list(outer)
        inside = [f for f in outer if thunder.is_region_file(f.filename)]
        if not inside:
            file = self._sources.region_file(caller.filename, caller.line)
            inside = [Frame(file, 0, "")] if file else []
        return [*inside, caller]

    def _made_for(self, ran: Frame) -> int:
        """The line that makes the largest of the buffers which the call at ``ran`` fills first.

        The call's own line where it fills none, as an operator that makes its own result does.
        """
        if ran.filename not in self._makers:
            self._makers[ran.filename] = inductor.lines_filled(self._sources.source(ran.filename))
        return self._makers[ran.filename].get(ran.line, [ran.line])[0]


def _is_trace(frame: Frame) -> bool:
    return thunder.is_trace_file(frame.filename)


def _calls(stack: Sequence[Frame], caller: Frame) -> bool:
    return any((f.filename, f.line) == (caller.filename, caller.line) for f in stack)


def _agreed(namings: Sequence[Naming | None]) -> Naming | None:
    """The one naming of all; without a layer, where one file serves several. Else None."""
    if not namings or namings[0] is None:
        return None
    first = namings[0]
    if any(naming is None or naming.symbol != first.symbol for naming in namings):
        return None
    if any(naming is not None and naming.layer != first.layer for naming in namings):
        return replace(first, layer="", tensors=tuple(replace(t, layer="") for t in first.tensors))
    return first
