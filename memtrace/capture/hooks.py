"""Where a run is watched: torch's own extension points where there are any, thin patches elsewhere.

Nothing here may change what runs. In particular Dynamo must see what it would see without us: no
function that it might trace or guard on is replaced while something is being compiled. Compiled
callables are watched through the enter/exit hooks that Dynamo's own contexts have, Thunder's
through the statistics that Thunder keeps; ``Module.__call__`` is replaced only until the script
calls something compiled, and never while a compiler works.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from memtrace.capture.dynamo import contexts

if TYPE_CHECKING:
    from memtrace.capture.session import Session


# Modules that are compiled programs: torch.compile's and thunder.jit's.
_COMPILED = ("OptimizedModule", "ThunderModule")


class TorchHooks:
    """Backward passes, optimizer steps, profiler steps, and modules while nothing is compiled."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._handles: list[Any] = []
        self._module_call: Any = None  # what stands in for Module.__call__, if anything
        self._paused = 0

    def install(self) -> None:
        """After ``import torch``."""
        import torch

        session, patches = self._session, self._session.patches
        phases = session.phases

        run_backward = torch.autograd._engine_run_backward

        # Not torch.autograd.backward and grad themselves: Dynamo knows those by identity.
        def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
            phase = phases.begin("backward", "backward")
            try:
                return run_backward(*args, **kwargs)
            finally:
                phases.end(phase)

        patches.set(torch.autograd, "_engine_run_backward", _engine_run_backward)
        self._watch_optimizers()
        self._watch_profilers()
        if "torch._dynamo.eval_frame" not in sys.modules or not contexts():
            self._watch_modules()

    def _watch_optimizers(self) -> None:
        import torch
        from torch.optim import optimizer as optim

        session, phases = self._session, self._session.phases
        opened: list[Any] = []

        # Dynamo traces hooks of an optimizer step that is compiled: there they do nothing, and the
        # compiled call is the mark.
        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if torch.compiler.is_compiling():
                return
            frame = sys._getframe(1)
            phase = phases.begin(
                "optimizer", type(optimizer).__name__, owner=(id(frame), frame.f_code)
            )
            if phase is not None:
                opened.append(phase)

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if torch.compiler.is_compiling() or not opened:
                return
            # The outermost step of this thread; a nested one began nothing.
            phase = phases.current()
            if phase is None or phase not in opened:
                return
            if phase.owner == (id(sys._getframe(1)), sys._getframe(1).f_code):
                opened.remove(phase)
                phases.end(phase, failed=False)

        self._handles += [
            optim.register_optimizer_step_pre_hook(before),
            optim.register_optimizer_step_post_hook(after),
        ]
        init = optim.Optimizer.__init__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            session.structure.optimizes = True
            init(self, *args, **kwargs)

        session.patches.set(optim.Optimizer, "__init__", __init__)

    def _watch_profilers(self) -> None:
        import torch

        session = self._session
        profiler = torch.profiler.profile
        step = profiler.step

        def profiler_step(self: Any, *args: Any, **kwargs: Any) -> Any:
            session.step("profiler_step")
            return step(self, *args, **kwargs)

        session.patches.set(profiler, "step", profiler_step)
        low = torch.autograd.profiler.profile
        prepare, leave = low._prepare_trace, low.__exit__

        def _prepare_trace(self: Any, *args: Any, **kwargs: Any) -> Any:
            session.foreign_profiler(True)
            return prepare(self, *args, **kwargs)

        def __exit__(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return leave(self, *args, **kwargs)
            finally:
                session.foreign_profiler(False)

        session.patches.set(low, "_prepare_trace", _prepare_trace)
        session.patches.set(low, "__exit__", __exit__)

    def _watch_modules(self) -> None:
        import torch
        from torch._C._profiler import _RecordFunctionFast

        from memtrace.snapshot.format import LAYER_PREFIX

        session, phases = self._session, self._session.phases
        module = torch.nn.Module
        call = module.__call__
        local = phases._local
        # In the profiled iteration: a range for each module's call, so that operators and the
        # allocations in them can be told by layer. Paths by id of the module, empty otherwise.
        layers: dict[int, str] = {}

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(local, "phase", None) is not None:
                path = layers.get(id(self))
                if path is None:
                    return call(self, *args, **kwargs)
                with _RecordFunctionFast(f"{LAYER_PREFIX}{path}"):
                    return call(self, *args, **kwargs)
            if type(self).__name__ in _COMPILED:
                session.compiler_used()
                return call(self, *args, **kwargs)
            phase = phases.begin("call", type(self).__name__, grad=bool(torch.is_grad_enabled()))
            if phase is not None and not session.inputs:
                session.note_call(args, kwargs)
            if phase is not None and session.profile.running:
                root = type(self).__name__
                layers.update((id(m), path or root) for path, m in self.named_modules())
            try:
                return __call__(self, *args, **kwargs) if layers else call(self, *args, **kwargs)
            finally:
                layers.clear()
                phases.end(phase)

        session.patches.set(module, "__call__", __call__)
        self._module_call = __call__

    def compiler_used(self) -> None:
        """The script calls something compiled: only such calls count from now on."""
        if self._module_call is not None:
            import torch

            self._module_call = None
            self._session.patches.undo(torch.nn.Module, "__call__")

    def pause(self, paused: bool) -> None:
        """A compiler begins or ends to work: it must find Module.__call__ as torch has it.

        So it does for a compiled helper that an eager model calls.
        """
        if self._module_call is None:
            return
        import torch

        self._paused += 1 if paused else -1
        if paused and self._paused == 1:
            self._session.patches.undo(torch.nn.Module, "__call__")
        elif not paused and self._paused == 0:
            self._session.patches.set(torch.nn.Module, "__call__", self._module_call)

    def remove(self) -> None:
        """Take the hooks out of torch.optim."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
