"""torch.compile: calls of what it returned, and compilations."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memtrace.capture.unseen import skip_own_code

if TYPE_CHECKING:
    from memtrace.capture.session import Session


class DynamoHooks:
    """Calls of what torch.compile returned, and compilations."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._added: list[tuple[list[Any], Any]] = []
        self.compilers: list[str] = []

    def install(self) -> None:
        """After ``import torch._dynamo.eval_frame``."""
        from torch._dynamo import callback, eval_frame

        skip_own_code()
        session = self._session
        context = eval_frame._TorchDynamoContext
        init = context.__init__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            if isinstance(self, eval_frame.OptimizeContext):
                hooks.watch(self)

        hooks = self
        session.patches.set(context, "__init__", __init__)
        for existing in contexts():
            self.watch(existing)

        # The methods, not registered callbacks: torch._dynamo.reset() clears those.
        handler = callback.CompilationCallbackHandler
        run_start, run_end = handler.run_start_callbacks, handler.run_end_callbacks

        def run_start_callbacks(self: Any, args: Any) -> None:
            run_start(self, args)
            session.compilation("begin", _trigger(args))

        def run_end_callbacks(self: Any, args: Any) -> None:
            session.compilation("end", _trigger(args))
            run_end(self, args)

        session.patches.set(handler, "run_start_callbacks", run_start_callbacks)
        session.patches.set(handler, "run_end_callbacks", run_end_callbacks)

    def watch(self, context: Any) -> None:
        """Watch the calls that pass through one Dynamo context."""
        hook = self._entry(context)
        context.enter_exit_hooks.append(hook)
        self._added.append((context.enter_exit_hooks, hook))

    def _entry(self, context: Any) -> Callable[[], Callable[[], None]]:
        session, phases = self._session, self._session.phases
        known: list[tuple[str, str]] = []

        def nothing() -> None:
            return None

        def enter() -> Callable[[], None]:
            if not phases.active or phases.current() is not None:
                return nothing
            session.compiler_used()
            import torch

            frame = _wrapper_frame()
            if not known:
                known.append(_describe(frame))
                self.note_backend(context)
            kind, name = known[0]
            phase = phases.begin(kind, name, grad=bool(torch.is_grad_enabled()))
            if frame is not None and not session.inputs:
                found = frame.f_locals
                session.note_call(found.get("args", ()), found.get("kwargs", {}))
            return lambda: phases.end(phase)

        return enter

    def note_backend(self, context: Any) -> None:
        """Remember which backend the script itself compiles with; Thunder names itself."""
        from torch._dynamo import eval_frame

        backend = eval_frame.innermost_backend(context.callback)
        name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", None)
        name = str(name or type(backend).__name__)
        if name != "inductor":
            name = f"torch.compile({name})"
        if "ThunderCompiler" not in name and name not in self.compilers:
            self.compilers.append(name)

    def remove(self) -> None:
        """Take the hooks out of all contexts."""
        for hooks, hook in self._added:
            if hook in hooks:
                hooks.remove(hook)
        self._added.clear()


def _trigger(args: Any) -> str:
    # Not an enum's .name: that is a Python function, which Dynamo would look at.
    return str(getattr(getattr(args, "callback_trigger", None), "_name_", "DYNAMO"))


def _wrapper_frame() -> Any:
    """Dynamo's compile_wrapper that is entering, None if torch has changed."""
    frame: Any = sys._getframe(2)
    for _ in range(3):  # up to 3.11 a list comprehension has a frame of its own
        if frame is None or frame.f_code.co_name == "compile_wrapper":
            return frame
        frame = frame.f_back
    return None


def _describe(frame: Any) -> tuple[str, str]:
    """Kind and name of the call that a compile_wrapper frame makes."""
    from torch.optim import Optimizer

    function = None if frame is None else frame.f_locals.get("fn")
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Optimizer):
        return "optimizer", type(owner).__name__
    if owner is not None:
        return "call", type(owner).__name__
    return "call", getattr(function, "__qualname__", "compiled")


def contexts() -> list[Any]:
    """Dynamo contexts that were made before the recording."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    kind = getattr(eval_frame, "OptimizeContext", None)
    return [] if kind is None else [o for o in gc.get_objects() if type(o) is kind]
