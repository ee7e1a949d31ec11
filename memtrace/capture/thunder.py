"""What Thunder compiled: its traces with the insides of fusions, while the run goes on.

Written against lightning-thunder 0.2.6. Calls and compilations are told from the statistics Thunder
keeps for every compiled callable (``CompileStats``): its functions stay as they are. Nothing here
keeps a compiled program, and with it a model's memory, alive for longer than the compiling call.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from memtrace.capture import fx
from memtrace.capture.thunder_traces import filename_of, read_trace, source_of

if TYPE_CHECKING:
    from memtrace.capture.session import Session
    from memtrace.snapshot.format import (
        ThunderModule,
        ThunderTrace,
    )

_REGION = "to_be_compiled"


class ThunderHooks:
    """Watches Thunder and collects its programs. ``modules`` is in order of compilation."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.modules: list[ThunderModule] = []
        self.sources: dict[str, str] = {}
        self.compilers: list[str] = []
        # CompileStats → (CompileData or None, name of the outermost call that compiled it)
        self._known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._taken: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._changed: list[weakref.ref[Any]] = []
        # Executed traces by file name, until the compiling call has ended.
        self._traces: dict[str, Any] = {}
        self._names: dict[str, int] = {}

    def install(self) -> None:
        """After ``import thunder``."""
        import thunder
        from thunder.common import CompileStats
        from thunder.core.trace import TraceCtx

        session, patches = self._session, self._session.patches
        jit = thunder.jit

        def watched_jit(fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            result = jit(fn, *args, **kwargs)
            session.guard("thunder.jit", self._remember)(result)
            return result

        watched_jit.__name__, watched_jit.__qualname__ = jit.__name__, jit.__qualname__
        watched_jit.__doc__, watched_jit.__module__ = jit.__doc__, jit.__module__
        watched_jit.__wrapped__ = jit  # type: ignore[attr-defined]
        patches.set(thunder, "jit", watched_jit)

        python_callable = TraceCtx.python_callable

        def watched_callable(trace: Any, *args: Any, **kwargs: Any) -> Any:
            function = python_callable(trace, *args, **kwargs)
            session.guard("reading a Thunder trace", self._keep_trace)(trace, function)
            return function

        patches.set(TraceCtx, "python_callable", watched_callable)
        self._watch_stats(CompileStats)

    def _watch_stats(self, stats: Any) -> None:
        session, phases = self._session, self._session.phases
        running: dict[int, list[Any]] = {}  # by CompileStats; a call can contain one of its own
        compiling: dict[int, Any] = {}

        def called(cs: Any) -> None:
            if phases.current() is None:
                session.compiler_used()
            phase = phases.begin("call", self._call_name(cs), grad=_grad_enabled())
            running.setdefault(id(cs), []).append(phase)
            frame = _caller("wrapped")  # of update_call_statistics: it has the arguments
            if phase is not None and frame is not None and not session.inputs:
                found = frame.f_locals
                session.note_call(found.get("args", ()), found.get("kwargs", {}))

        def returned(cs: Any) -> None:
            stack = running.get(id(cs))
            if stack:
                phases.end(stack.pop())
                if not stack:
                    del running[id(cs)]

        def missed(cs: Any) -> None:
            if not cs.__dict__.get("cache_misses"):
                return  # the object is being made
            self._changed.append(weakref.ref(cs))
            session.compilation("begin", "THUNDER")
            entries = len(cs.interpreter_cache)
            compiling[id(cs)] = session.compilations.missed(self._module_name(cs), entries)

        def prologue(cs: Any) -> None:
            if id(cs) in compiling:
                compiling.pop(id(cs))()
            session.compilation("end", "THUNDER")

        for name, hook in (
            ("calls", called),
            ("last_trace_host_stop", returned),
            ("cache_misses", missed),
            ("last_prologue_execution_start", prologue),
        ):
            session.patches.set(stats, name, _watched(name, session.guard("a Thunder hook", hook)))

    def _remember(self, result: Any) -> None:
        stats, data = getattr(result, "_lc_cs", None), getattr(result, "_lc_cd", None)
        if stats is not None:
            self._known[stats] = (weakref.ref(data), self._session.call_name())

    def _call_name(self, stats: Any) -> str:
        data = self._data(stats)
        return fx.callable_name(data.fn) if data is not None else "thunder"

    def _module_name(self, stats: Any) -> str:
        data, root = self._data(stats), self._known.get(stats, (None, ""))[1]
        return fx.module_name(None if data is None else data.fn, root) or root or "thunder"

    def _data(self, stats: Any) -> Any:
        known = self._known.get(stats)
        return None if known is None else known[0]()

    def _keep_trace(self, trace: Any, function: Any) -> None:
        filename = filename_of(function)
        if not filename:
            return
        self.sources[filename] = source_of(filename)
        self._traces[filename] = trace
        if _REGION in filename:  # nobody else keeps it: the fusion has only the function
            self._traces[filename] = read_trace(trace, filename, "region")

    @property
    def pending(self) -> bool:
        """Whether something was compiled that was not harvested yet."""
        return bool(self._changed)

    def harvest(self) -> None:
        """Turn what was compiled since the last time into ThunderModules."""
        changed, self._changed = self._changed, []
        for reference in changed:
            stats = reference()
            if stats is not None:
                self._take(stats)
        self._traces = {k: v for k, v in self._traces.items() if isinstance(v, dict)}

    def _take(self, stats: Any) -> None:
        entries = list(stats.interpreter_cache)
        data, name = self._data(stats), self._module_name(stats)
        for entry in entries[self._taken.get(stats, 0) :]:
            try:
                self.modules.append(self._module(entry, data, name))
            except Exception as error:
                self._session.notes.failure("reading a Thunder program", error)
        self._taken[stats] = len(entries)

    def _module(self, entry: Any, data: Any, name: str) -> ThunderModule:
        from memtrace.snapshot.format import ThunderModule

        traces: list[ThunderTrace] = []
        for phase, function, passes in (
            ("prologue", entry.prologue_fn, entry.prologue_traces),
            ("forward", entry.computation_fn, entry.computation_traces),
            ("backward", entry.backward_fn, entry.backward_traces),
        ):
            if function is None:
                continue
            filename = filename_of(function)
            trace = self._traces.get(filename) or (passes[-1] if passes else None)
            if trace is None:
                continue
            traces.append(read_trace(trace, filename, phase))
            if phase != "prologue":
                traces += self._regions(trace)
        function = None if data is None else data.fn
        executors = [] if data is None else _executors(data)
        label = f"thunder({', '.join(executors)})"
        if label not in self.compilers:
            self.compilers.append(label)
        return ThunderModule(
            name=self._unique(name),
            kind="module" if hasattr(function, "parameters") else "function",
            executors=executors,
            traces=traces,
            fx_filename=self._session.fx.add(function),
        )

    def _regions(self, trace: Any) -> list[ThunderTrace]:
        """The traces that torch.compile got for the TorchCompile fusions of ``trace``."""
        found = []
        for symbol in trace.bound_symbols:
            for name, function in (symbol._call_ctx or {}).items():
                filename = filename_of(function)
                region = self._traces.get(filename)
                if not isinstance(region, dict):
                    continue
                named: Any = {**region, "phase": f"region:{name}"}
                found.append(named)
        return found

    def _unique(self, name: str) -> str:
        self._names[name] = count = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def _caller(name: str) -> Any:
    """The nearest frame of a function called ``name``, among the next few; None if none."""
    frame: Any = sys._getframe(1)
    for _ in range(6):
        if frame is None or frame.f_code.co_name == name:
            return frame
        frame = frame.f_back
    return None


def _grad_enabled() -> bool:
    import torch

    return bool(torch.is_grad_enabled())


def _watched(name: str, hook: Any) -> property:
    """A property that stores like the plain attribute and tells ``hook`` when it is set."""

    def getter(self: Any) -> Any:
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(name) from None

    def setter(self: Any, value: Any) -> None:
        self.__dict__[name] = value
        # The first assignment is __init__'s.
        if value not in (0, -1):
            hook(self)

    return property(getter, setter)


def _executors(data: Any) -> list[str]:
    names = [str(getattr(e, "name", e)) for e in data.executors_list]
    # Thunder adds these to every list itself.
    chosen = [n for n in names if n != "python" and not n.startswith("__ad_hoc_executor")]
    return [n for n in chosen if n != "torch"] or chosen
