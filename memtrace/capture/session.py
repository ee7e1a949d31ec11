"""One recording from start to written capture: ties hooks, backend, marks and profile together."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memtrace.capture import fx
from memtrace.capture.compilations import Compilations
from memtrace.capture.cpu import CpuRecorder
from memtrace.capture.devices import choose_device
from memtrace.capture.dynamo import DynamoHooks
from memtrace.capture.facts import describe_inputs
from memtrace.capture.gpu_times import GpuTimes
from memtrace.capture.history import CudaHistory
from memtrace.capture.hooks import TorchHooks
from memtrace.capture.imports import ImportHook
from memtrace.capture.iterations import Structure
from memtrace.capture.late import States
from memtrace.capture.marks import MarkLog
from memtrace.capture.options import Options
from memtrace.capture.owners import OwnerLog
from memtrace.capture.patches import Notes, Patches
from memtrace.capture.phases import Phases
from memtrace.capture.profiled import ProfiledIteration
from memtrace.capture.thunder import ThunderHooks
from memtrace.capture.window import KeptWindow, count_of

if TYPE_CHECKING:
    from memtrace.snapshot.format import TensorInfo

# What Dynamo calls a compilation and makes an iteration unsteady. Autotuning of Triton kernels
# happens in runs that are steady otherwise.
_COMPILATIONS = {"DYNAMO", "LAZY_BACKWARD", "CUDAGRAPH_RECORDING", "THUNDER"}

_current: Session | None = None


_watching_forks = False


def _watch_forks() -> None:
    """Once per process: Python cannot take such a hook back, so it must not hold a recording."""
    global _watching_forks

    def before() -> None:
        if _current is not None and _current.cpu is not None:
            _current.guard("stopping for a fork", _current.cpu.before_fork)()

    def in_parent() -> None:
        if _current is not None and _current.cpu is not None:
            _current.guard("going on after a fork", _current.cpu.after_fork)()

    def in_child() -> None:
        if _current is not None:
            _current.leave_child()

    if not _watching_forks:
        _watching_forks = True
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def current() -> Session | None:
    """The recording in progress in this process."""
    return _current


class Session:
    """A recording. ``start`` before the script imports torch (or later), ``finish`` once."""

    def __init__(self, options: Options, command: list[str], *, module: bool = False) -> None:
        self.options = options
        self.command = command
        self.module = module
        # The program's. Now: the script may change the working directory, or remove it.
        self.folder = "."
        with contextlib.suppress(OSError):  # it is removed already
            here = os.getcwd()
            self.folder = here if module else os.path.dirname(os.path.join(here, *command[:1]))
        self.started = time.time()
        self.pid = os.getpid()
        self.notes = Notes()
        self.patches = Patches()
        self.marks = MarkLog()
        self.compilations = Compilations(self.marks, self.notes)
        self.structure = Structure()
        self.window: KeptWindow | None = None
        self.states: States | None = None
        if options.window is not None:
            self.window = KeptWindow(count_of(options.window), self.marks)
            self.states = States(self.window.stay, self.notes)
        self.phases = Phases(
            self.guard("a mark", self._phase_begins), self.guard("a mark", self._phase_ends)
        )
        self.inputs: list[TensorInfo] = []
        self.owners = OwnerLog()
        self.arrivals: dict[int, int] = {}
        self.gpu = GpuTimes()
        self.device = ""  # "cuda" or "cpu", once torch is there
        self.late = False  # torch was in use before the recording
        self.history: CudaHistory | None = None
        self.cpu: CpuRecorder | None = None
        self.profile = ProfiledIteration(self)
        self.fx = fx.FxGraphs()
        self.torch_hooks = TorchHooks(self)
        self.dynamo_hooks = DynamoHooks(self)
        self.thunder_hooks = ThunderHooks(self)
        self.active = True
        self._stepped = ""  # "step" or "profiler_step" once the script marked one
        self._thunder_open = False
        self._foreign = 0
        self._imports = ImportHook(
            {
                "torch": self.guard("watching torch", self._torch_imported),
                "torch._dynamo.eval_frame": self.guard(
                    "watching torch.compile", self.dynamo_hooks.install
                ),
                "torch._dynamo.output_graph": self.guard(
                    "watching what Dynamo compiles and why", self._watch_dynamo
                ),
                "torch._inductor.compile_fx": self.guard("watching Inductor", self._watch_inductor),
                "thunder": self.guard("watching thunder", self.thunder_hooks.install),
                "thunder.dynamo.compiler": self.guard(
                    "watching Thunder's splits", self._watch_splits
                ),
            }
        )

    def guard(self, what: str, function: Any) -> Any:
        """``function`` with failures turned into notes."""
        return self.notes.guard(what, function)

    # -- start ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Arm the recording. Raises RuntimeError if another one is in progress."""
        global _current
        if _current is not None:
            raise RuntimeError("memtrace is recording already; end that recording first")
        _current = self
        self.late = "torch" in sys.modules
        _watch_forks()
        self.marks.add("start")
        self._imports.install()

    def _torch_imported(self) -> None:
        self.device = self.options.device
        if self.device == "auto":
            self.device = choose_device()
        if self.device == "cuda":
            self.history = CudaHistory(
                self.notes, self.options.stacks, self.options.max_events, self.pid
            )
            self.history.on_script_reset = self._script_resets
            self.history.install(self.patches)
            self.gpu.active = True
            self.marks.backend = self.history
        else:
            self.cpu = CpuRecorder(self.notes, self.options.max_events)
            self.cpu.start(self.patches, late=self.late)
            self.marks.backend = self.cpu
            if self.cpu.suspended:
                self._foreign = 1
                self.marks.add("gap", "begin", "profiler")
        self.torch_hooks.install()

    def _watch_inductor(self) -> None:
        from torch._inductor import compile_fx as module

        compile_fx = module.compile_fx
        keep = self.guard("reading an FX graph", self.fx.add_inductor)

        def watched_compile_fx(model: Any, *args: Any, **kwargs: Any) -> Any:
            keep(model)
            return compile_fx(model, *args, **kwargs)

        self.patches.set(module, "compile_fx", watched_compile_fx)

    def _watch_dynamo(self) -> None:
        self.compilations.watch_dynamo(self.patches)

    def _watch_splits(self) -> None:
        self.compilations.watch_splits(self.patches)

    # -- what the hooks report -------------------------------------------------------------------

    def _phase_begins(self, kind: str, name: str, grad: bool) -> None:
        arrival = time.time_ns()
        trained = self.structure.trained
        boundary = not self._stepped and self.structure.begins(kind, grad)
        events = None, None
        if self.structure.trained and not trained and not self._stepped:
            # Until now each call passed for an iteration; they were parts of a training step.
            self.profile.restart()
            if self.window is not None:
                self.window.restart()
        if boundary:
            events = self._boundary()
        number = self.marks.add(kind, "begin", name, grad=grad)
        if boundary:
            self._began(number, arrival, events)

    def _phase_ends(self, kind: str, name: str, failed: bool) -> None:
        number = self.marks.add(kind, "end", name, failed=failed)
        self.guard("timing the GPU", self.gpu.phase_ended)(number)
        if kind == "backward":
            self.quietly("reading gradients", self.owners.backward_ended, number)
        if self._thunder_open:  # it raised while compiling
            self.compilation("end", "THUNDER")
        if self.cpu is not None:
            # One that raised while compiling leaves it muted.
            self.cpu.quiet.unmute(force=True)
        if self.thunder_hooks.pending:
            self.quietly("reading what Thunder compiled", self.thunder_hooks.harvest)

    def quietly(self, what: str, function: Callable[..., Any], *args: Any) -> None:
        """Guarded, and unseen by the profiler: our own work can be a million calls, 1.6 KB each."""
        if self.cpu is not None:
            self.cpu.quiet.mute()
        try:
            self.guard(what, function)(*args)
        finally:
            if self.cpu is not None:
                self.cpu.quiet.unmute()

    def step(self, kind: str = "step") -> None:
        """The script says that an iteration begins (and the one before it ends)."""
        if not self.active or os.getpid() != self.pid:
            return
        self.guard("a step", self._step)(kind)

    def _step(self, kind: str) -> None:
        arrival = time.time_ns()
        events = None, None
        # memtrace.step() is the script's word to us; a profiler's step gives way to it.
        counts = kind == "step" or self._stepped != "step"
        # Inside a call no iteration begins, whatever a script says.
        counts = counts and self.phases.current() is None
        if counts:
            self._stepped = kind
            events = self._boundary()
        number = self.marks.add(kind)
        if counts:
            self._began(number, arrival, events)

    def _boundary(self) -> tuple[Any, Any]:
        """Between iterations: the profiler starts or stops, the CPU recorder is emptied.

        Returns the GPU's events before and after that; one and the same where nothing was done.
        """
        ended = self.guard("timing the GPU", self.gpu.now)()
        unprofiled, running = self.profile.result is None, self.profile.running
        self.profile.boundary()
        if unprofiled and self.profile.result is not None:
            self.find_owners(self.marks.next)  # as of the mark that comes next
        if self.cpu is None or self.cpu.rotate() is not None:
            self.guard("forgetting old iterations", self._forget)()
        if self.cpu is not None:
            self.guard("giving memory back", self.cpu.settle)()
        if running == self.profile.running:
            return ended, ended
        return ended, self.guard("timing the GPU", self.gpu.now)()

    def _forget(self) -> None:
        """Let go of what is not to be kept of a long run."""
        if self.window is None:
            return
        begin = None if self.profile.result is None else self.profile.begin
        gone = self.window.forget(begin, self.arrivals)
        if gone is None:
            return
        if self.cpu is not None:
            # From the first mark that is gone to the first that stays.
            self.cpu.tree.forget(*gone)
        readings = {} if self.history is None else self.history.readings
        for known in (readings, self.arrivals):
            for number in [n for n in known if gone[0] <= n < gone[1]]:
                del known[number]

    def find_owners(self, mark: int) -> None:
        """Note what the program holds by name, as of a mark."""
        self.quietly("reading what the program holds", self.owners.look, mark)

    def _began(self, number: int, arrival: int, events: tuple[Any, Any]) -> None:
        self.arrivals[number] = arrival
        if self.window is not None:
            self.window.began(number)
        if self.states is not None and self.history is not None and self.history.started:
            self.guard("reading the allocator's segments", self.states.note)(number, self.history)
        self.gpu.boundary(number, *events)
        self.profile.began(number)
        if self.options.check_driver and self.history is not None:
            self.history.reset_peaks()
            self.marks.add("peak_reset", name="check")

    def compilation(self, edge: str, trigger: str) -> None:
        """A compiler began or ended to work; hooks call this from within the compiler."""
        if not self.active or trigger not in _COMPILATIONS:
            return
        if trigger == "THUNDER":
            # Its end is told at every call.
            if (edge == "begin") == self._thunder_open:
                return
            self._thunder_open = edge == "begin"
        self.profile.compiled = True
        self.profile.end_lines()  # a compiler must find the program as it is
        self.guard("a hook", self.torch_hooks.pause)(edge == "begin")
        if edge == "begin":
            self.marks.add("compile", edge, trigger.lower())
            if self.cpu is not None:
                self.cpu.quiet.mute()
        else:
            if self.cpu is not None:
                self.cpu.quiet.unmute()
            self.marks.add("compile", edge, trigger.lower())

    def compiler_used(self) -> None:
        """The script calls something compiled: eager module calls are no longer of interest."""
        self.torch_hooks.compiler_used()

    def call_name(self) -> str:
        """Name of the outermost call in progress, '' if none."""
        phase = self.phases.current()
        return phase.name if phase is not None and phase.kind == "call" else ""

    def note_call(self, args: Any, kwargs: Any) -> None:
        """Remember dtype and shapes of the first outermost call."""
        self.inputs = self.guard("reading a call's inputs", describe_inputs)(args, kwargs) or []

    def foreign_profiler(self, begins: bool) -> None:
        """A profiler of the script's own is about to start, or has ended."""
        if self.active and os.getpid() == self.pid:
            self.guard("making way for a profiler", self._foreign_profiler)(begins)

    def _foreign_profiler(self, begins: bool) -> None:
        self._foreign = max(0, self._foreign + (1 if begins else -1))
        if begins:
            self.profile.abandon("the script ran a profiler of its own")
        if self.cpu is not None:
            if begins:
                self.marks.add("gap", "begin", "profiler")
                self.cpu.suspend()
            elif not self._foreign:
                self.cpu.resume()
                self.marks.add("gap", "end", "profiler")

    @property
    def profiler_allowed(self) -> bool:
        """Whether the recorder may start its own profiler now."""
        return not self._foreign and threading.current_thread() is threading.main_thread()

    def _script_resets(self, device: int) -> None:
        self.marks.add("peak_reset", name="script")

    # -- end -----------------------------------------------------------------------------------

    def leave_child(self) -> None:
        """In a forked child (a DataLoader's worker): record nothing, write nothing."""
        global _current
        self.active = self.phases.active = self.gpu.active = False
        _current = None
        self.profile.end_lines()
        if self.history is not None:
            self.history.active = False
        if self.cpu is not None:
            self.cpu.leave_child()

    def release(self) -> None:
        """Undo everything that was changed in torch and thunder; the hooks do nothing any more."""
        global _current
        self.active = self.phases.active = self.gpu.active = False
        _current = None if _current is self else _current
        for undo in (
            self._imports.remove,
            self.torch_hooks.remove,
            self.dynamo_hooks.remove,
            self.patches.undo,
            self._stop,
        ):
            self.guard("taking back a change", undo)()

    def _stop(self) -> None:
        """Switch torch's recording and profiler off, where the collecting broke off before that."""
        self.profile.finish(None)
        if self.history is not None:
            self.history.stop()
        if self.cpu is not None:
            self.cpu.finish()
