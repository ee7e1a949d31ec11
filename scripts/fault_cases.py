"""The faults that scripts/faults.py tries: small programs, each with one thing that goes wrong."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from textwrap import indent
from typing import Literal

# Whether a whole capture must be there afterwards, none, or one of the two.
Left = Literal["whole", "none", "either"]


@dataclass(frozen=True)
class Fault:
    """A program, and what must come of it beside the exit code and the output of a bare run."""

    name: str
    program: str
    left: Left = "whole"
    says: str = ""  # a pattern that a line of memtrace's, or a note in the capture, must match
    torch: bool = True  # the program imports torch: seconds, not tenths of one
    cuda: bool = False  # needs a GPU
    signal: int = 0  # sent when the program prints "ready"
    python: tuple[str, ...] = ()  # the interpreter's own flags
    options: tuple[str, ...] = ()  # of memtrace record
    output: str = "out.pkl"  # in the case's folder
    script: str = "script.py"
    module: bool = False
    before: str = ""  # shell commands in the case's folder, before each run
    limits: str = ""  # shell words in front of the recorded run's command
    closed: str = ""  # shell redirections of both runs
    environment: dict[str, str] = field(default_factory=dict)
    same_errors: bool = True  # stderr is that of the bare run, but for memtrace's own lines
    own: bool = False  # the program records itself; it prints OK where all is as it must be


def train(each: str = "", end: str = "", before: str = "", setup: str = "", steps: int = 5) -> str:
    """A training loop with other code in it: before torch, before the loop, in it, behind it."""
    return f"""\
import os, sys, time, threading, signal
{before}
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
model.to(device)
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(32, 64, device=device)
def step():
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
{setup}
for k in range({steps}):
{indent(each or "pass", "    ")}
    step()
print("done", k)
{end}
"""


READY = "if k == 3: print('ready', flush=True); time.sleep(60)"
# The recorder's own parts, where the program is recorded.
OWN = """
own = sys.modules.get("memtrace.capture.session")
session = own.current() if own else None
"""

ENDS = [
    Fault(f"sys.exit({text})", f"import sys\nprint('out')\nsys.exit({text})", torch=False)
    for text in ("None", "7", "256", "-1", "'too bad'", "2.5")
] + [
    Fault("sys.exit in the middle", train("if k == 3: sys.exit(5)")),
    Fault("an exception", train("if k == 3: 1 / 0")),
    Fault("os._exit", train("if k == 3: print('now', flush=True); os._exit(6)")),
    Fault("os.abort", train("if k == 3: print('now', flush=True); os.abort()")),
    Fault(
        "os.abort under faulthandler",
        "import faulthandler, os\nfaulthandler.enable()\nos.abort()",
        torch=False,
        same_errors=False,
    ),
    Fault(
        "os.execv: it starts itself anew",
        train(
            end="""
if "again" not in sys.argv:
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, __file__, "again"])
"""
        ),
        says="replaced",
    ),
    Fault(
        "os.execvp of what is not there",
        """
import os
try:
    os.execvp("no-such-program", ["no-such-program"])
except FileNotFoundError as error:
    print(error)
""",
        torch=False,
    ),
    Fault(
        "SystemExit in a thread",
        train(
            end="""
thread = threading.Thread(target=sys.exit, args=(3,))
thread.start()
thread.join()
"""
        ),
    ),
    Fault(
        "an exception in a thread",
        train(
            end="""
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
"""
        ),
    ),
    Fault(
        "os._exit in a thread",
        train(
            end="""
thread = threading.Thread(target=lambda: (print("there", flush=True), os._exit(4)))
thread.start()
thread.join()
"""
        ),
    ),
    Fault("a syntax error", "print('no')\nif True\n", torch=False),
    Fault("a script that is no text", "\x00\x01 = 3\n", torch=False, same_errors=False),
    Fault("too deep a recursion", "def f(): f()\nf()\n", torch=False, same_errors=False),
]

SIGNALS = [
    Fault(f"{name} in the loop", train(READY), signal=getattr(signal, name))
    for name in ("SIGTERM", "SIGINT", "SIGHUP")
] + [
    Fault("SIGKILL in the loop", train(READY), signal=signal.SIGKILL, left="none"),
    Fault(
        "SIGTERM with a finally: clause",
        """
import time
try:
    print("ready", flush=True)
    time.sleep(60)
finally:
    print("never reached without memtrace")
""",
        torch=False,
        signal=signal.SIGTERM,
    ),
    Fault(
        "SIGTERM with the script's own handler",
        """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("handled"), sys.exit(11)))
print("ready", flush=True)
time.sleep(60)
""",
        torch=False,
        signal=signal.SIGTERM,
    ),
    Fault(
        "SIGTERM asked about, and set back to its default",
        """
import signal, time
print(signal.getsignal(signal.SIGTERM), signal.signal(signal.SIGTERM, lambda *_: None))
print(signal.signal(signal.SIGTERM, signal.SIG_DFL).__name__, signal.getsignal(signal.SIGTERM))
print("ready", flush=True)
time.sleep(60)
""",
        torch=False,
        signal=signal.SIGTERM,
    ),
    Fault(
        "SIGINT that the script catches",
        """
import time
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("caught")
""",
        torch=False,
        signal=signal.SIGINT,
    ),
    Fault(
        "SIGTERM ignored",
        """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(0.5)
print("alive")
""",
        torch=False,
        signal=signal.SIGTERM,
    ),
    Fault("SIGTERM in a backward pass", train("""
if k == 3:
    y = x.clone().requires_grad_()
    y.register_hook(lambda g: (print("ready", flush=True), time.sleep(60)))
    (y * 2).sum().backward()
"""), signal=signal.SIGTERM),
    Fault("it sends SIGKILL to itself", train("if k == 3: os.kill(os.getpid(), signal.SIGKILL)"),
          left="none"),
]  # fmt: skip

FILES = [
    Fault("the target exists", "print('never runs')", torch=False, left="none",
          before="printf precious > out.pkl", says="out.pkl.*--force"),
    Fault("the target is /dev/full", "print('never runs')", torch=False, left="none",
          options=("--force",), output="/dev/full", says="/dev/full.*regular"),
    Fault("the folder is read-only", "print('never runs')", torch=False, left="none",
          output="/proc/out.pkl", says="/proc/out.pkl"),
    Fault("the folder is missing", "print('never runs')", torch=False, left="none",
          output="no/out.pkl", says="no/out.pkl.*create"),
    Fault("the name is too long", "print('never runs')", torch=False, left="none",
          output="n" * 300 + ".pkl", says="name"),
    Fault("the folder is removed meanwhile", train(end="""
import shutil
shutil.rmtree("gone", ignore_errors=True)
"""), left="none", before="mkdir -p gone", output="gone/out.pkl", says="gone/out.pkl.*folder"),
    Fault("somebody else writes the target meanwhile", train(end="""
open("out.pkl", "w").write("theirs")
"""), left="none", before="rm -f out.pkl", says="out.pkl.*exists"),
    Fault("the disk is full: RLIMIT_FSIZE of 8 KiB", train(), left="none",
          limits="ulimit -f 8;", says="out.pkl.*cannot be written"),
    Fault("the disk is full: a tiny tmpfs", train(), left="none", output="tiny/out.pkl",
          before="mkdir -p tiny; mountpoint -q tiny || mount -t tmpfs -o size=16k tiny tiny",
          says="space"),
    Fault("the temporary folder is full", train(),
          before="mkdir -p tiny; mountpoint -q tiny || mount -t tmpfs -o size=16k tiny tiny",
          environment={"TMPDIR": "tiny"}, says="is the disk full"),
    Fault("the working directory changes", train("if k == 3: os.chdir('/')")),
    Fault("the working directory is removed", train("""
if k == 3:
    os.makedirs("here", exist_ok=True); os.chdir("here"); os.rmdir("../here")
""")),
]  # fmt: skip

STREAMS = [
    Fault("sys.stdout closed", train(end="sys.stdout.close()")),
    Fault("sys.stderr closed", train(end="sys.stderr.close()")),
    Fault("both are None", train(end="sys.stdout = sys.stderr = None")),
    Fault("descriptors 1 and 2 closed", train(end="""
sys.stdout.flush()
os.close(1); os.close(2)
""")),
    Fault("started without stdout and stderr", train(), closed=">&- 2>&-"),
    Fault("started without stdin", train(), closed="<&-"),
    Fault("stderr goes to a full disk", train(), closed="2>/dev/full"),
    Fault("sys.excepthook replaced", train("if k == 3: 1 / 0", setup="""
sys.excepthook = lambda kind, error, where: print("mine:", kind.__name__)
""")),
    Fault("sys.excepthook exits", train("if k == 3: 1 / 0", setup="""
sys.excepthook = lambda *_: sys.exit(9)
""")),
    Fault("sys.excepthook fails", "import sys\nsys.excepthook = lambda *_: 1 / 0\n[][1]",
          torch=False, same_errors=False),
    Fault("os._exit replaced", train(end="""
leave = os._exit
os._exit = lambda code: leave(code + 1)
os._exit(3)
""")),
    Fault("atexit uses torch", train(end="""
import atexit
atexit.register(lambda: print("at exit", model(x).shape, flush=True))
""")),
    Fault("atexit fails", train(end="import atexit; atexit.register(lambda: 1 / 0)")),
]  # fmt: skip

WAYS = [
    Fault("python -O", "assert False\nprint(__debug__)", torch=False, python=("-O",)),
    Fault("python -X faulthandler", train(), python=("-X", "faulthandler")),
    Fault("python -W error", train(), python=("-W", "error")),
    Fault("a path with spaces", train("if k == 3: sys.exit(__file__)"),
          script="a folder/the script.py"),
    Fault("a module of a package", "from . import other\nprint(__package__, other.__name__)",
          torch=False, module=True, script="pack/thing.py", before="touch pack/other.py"),
    Fault("a module that is not there", "", torch=False, module=True, left="either",
          script="pack.nothing.py", same_errors=False),
    Fault("the script is a folder", "print(__name__, len(__file__) > 0)", torch=False,
          script="folder/__main__.py"),
    Fault("it reads stdin", "import sys\nprint(repr(sys.stdin.read()))", torch=False),
    Fault("it prints itself", "print(open(__file__).read(), __name__, __spec__, __package__)",
          torch=False),
]  # fmt: skip

CHILDREN = [
    Fault("DataLoader with workers", train(end="""
from torch.utils.data import DataLoader
for batch in DataLoader([torch.ones(64)] * 16, batch_size=4, num_workers=2):
    pass
print(batch.shape)
""")),
    Fault("os.fork; the child runs on", train(end="""
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    torch.ones(5).sum()
    raise SystemExit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")),
    Fault("os.fork; the parent goes first", train(end="""
sys.stdout.flush()
if os.fork() == 0:
    time.sleep(3)
    os._exit(0)
""")),
    Fault("multiprocessing by fork", train(end="""
import multiprocessing as mp
def work(q): q.put(float(torch.ones(5).sum()))
context = mp.get_context("fork"); q = context.Queue()
p = context.Process(target=work, args=(q,)); p.start(); print(q.get()); p.join(); print(p.exitcode)
""")),
    Fault("multiprocessing by spawn", """
import multiprocessing as mp
import torch
def work(q): q.put(float(torch.ones(5).sum()))
if __name__ == "__main__":
    context = mp.get_context("spawn"); q = context.Queue()
    p = context.Process(target=work, args=(q,)); p.start(); print(q.get()); p.join()
    print(p.exitcode)
"""),
    Fault("a forked child is killed by SIGTERM", train(end="""
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    time.sleep(60)
time.sleep(0.5); os.kill(pid, signal.SIGTERM); print(os.waitpid(pid, 0)[1])
""")),
    Fault("a forked child with an exception", train(end="""
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    1 / 0
print(os.waitpid(pid, 0)[1])
""")),
    Fault("subprocess and os.system", train(end="""
import subprocess
print(subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True).stdout)
print(os.system("exit 3"))
""")),
]  # fmt: skip

TORCH = [
    Fault("a profiler of its own, with a schedule", train(setup="""
from torch.profiler import profile, schedule
own_profiler = profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=1))
own_profiler.start()
""", each="own_profiler.step()", end="""
own_profiler.stop()
print(any(e.name == "aten::addmm" for e in own_profiler.events()))
""")),
    Fault("a profiler of its own around one step", train("""
if k == 2:
    with torch.profiler.profile() as own_profiler:
        step()
    print(any(e.name == "aten::addmm" for e in own_profiler.events()))
""")),
    Fault("a profiler of its own that never ends", train("""
if k == 2:
    own_profiler = torch.profiler.profile(); own_profiler.start()
""")),
    Fault("torch.autograd.profiler, old style", train("""
if k == 2:
    with torch.autograd.profiler.profile() as old: step()
    print(len(old.function_events) > 0)
""")),
    Fault("open record_function at the end", train(end="""
r = torch.profiler.record_function("open"); r.__enter__()
""")),
    Fault("the script's own forward hook fails", train("if k == 3: handle.x = 1", setup="""
handle = model[1].register_forward_hook(lambda *_: 1 / 0 if hasattr(handle, "x") else None)
"""), same_errors=False),
    Fault("its own backward hook fails", train(setup="""
count = []
def hook(gradient):
    count.append(1)
    if len(count) == 4: raise RuntimeError("mine")
model[0].weight.register_hook(hook)
""")),
    Fault("its own optimizer hook fails", train(setup="""
def hook(*_):
    if k == 3: raise RuntimeError("mine")
optimizer.register_step_pre_hook(hook)
""")),
    Fault("an error in every second step is caught", train("""
try:
    if k % 2: model(torch.ones(3, 3, device=device))
except RuntimeError: print("caught")
""")),
    Fault("threads that allocate", train(setup="""
def work():
    for _ in range(200): torch.ones(1000, device=device).sum()
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
""", end="for t in threads: t.join()")),
    Fault("a daemon thread that allocates for ever", train(setup="""
def work():
    while True: torch.ones(1000, device=device)
threading.Thread(target=work, daemon=True).start()
"""), same_errors=False),
    Fault("empty_cache in the loop", train("""
torch.cuda.empty_cache()
import gc; gc.collect()
""")),
    Fault("sys.settrace of its own", train(setup="""
seen = []
def trace(frame, event, argument):
    seen.append(event)
    return trace
sys.settrace(trace)
""", end="sys.settrace(None); print(len(seen) > 100)")),
    Fault("sys.settrace(None) and sys.setprofile(None)", train("""
sys.settrace(None); sys.setprofile(None)
""")),
    Fault("sys.monitoring's tools are taken", train(setup="""
m = getattr(sys, "monitoring", None)
if m: [m.use_tool_id(n, "mine") for n in (0, 1, 2, 3, 4, 5) if m.get_tool(n) is None]
""")),
    Fault("torch.compile", train(setup="model = torch.compile(model, backend='eager')")),
    Fault("out of host memory", train(end="torch.empty(1 << 50)"), same_errors=False),
    Fault("out of host memory, caught and tried again", train("""
try: torch.empty(1 << 50)
except RuntimeError: pass
""")),
]  # fmt: skip

HOOKS = [
    Fault(f"an exception in memtrace: {what}", train(setup=OWN + f"""
def fail(*_, **__): raise ValueError("planted")
if session: {target} = fail
"""), left=left, says=says)
    for what, target, left, says in (
        ("reading what the program holds", "session.owners.look", "whole", "planted"),
        ("a mark", "type(session.marks).add", "none", "planted"),
        ("a boundary", "session._boundary", "whole", "planted"),
        ("the profiled iteration", "session.profile.boundary", "whole", "planted"),
        ("the compilations", "session.compilations.add", "whole", ""),
        ("the profile", "sys.modules['memtrace.capture.assemble'].read_profile", "whole",
         "planted"),
        ("the end of the session", "session.thunder_hooks.harvest", "whole", "planted"),
    )
] + [
    Fault("MemoryError while the capture is made", train(setup=OWN + """
def fail(*_, **__): raise MemoryError
if session: sys.modules["memtrace.capture.assemble"]._sources = fail
"""), left="none", says="memory"),
    Fault("MemoryError while it is written", train(setup=OWN + """
def fail(*_, **__): raise MemoryError
if session:
    import memtrace.snapshot.plain
    memtrace.snapshot.files.PlainPickler.dump = fail
"""), left="none", says="memory"),
    Fault("RLIMIT_AS at what is in use, at the end", train(steps=60, end="""
import resource
with open("/proc/self/statm") as f: used = int(f.read().split()[0]) * 4096
if "memtrace" in sys.modules:
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), -1))
"""), left="either"),
]  # fmt: skip

STATE = """
import importlib, os, sys, torch, memtrace
from torch.optim import optimizer as optim
device = "cuda" if torch.cuda.is_available() else "cpu"
def state():
    found = [
        torch.nn.Module.__dict__["__call__"], torch.autograd._engine_run_backward, os._exit,
        os.abort, os.execv, os.execve, torch.optim.Optimizer.__init__,
        torch.profiler.profile.step, torch.autograd.profiler.profile.__exit__,
        torch.autograd.profiler.profile._prepare_trace,
        torch.autograd.profiler.record_function.__enter__, importlib._bootstrap._find_and_load,
        list(sys.meta_path), len(optim._global_optimizer_pre_hooks),
        len(optim._global_optimizer_post_hooks), sys.getprofile(), sys.gettrace(),
        torch.cuda.reset_peak_memory_stats, torch.cuda.memory._record_memory_history,
        torch._C._autograd._profiler_enabled(), sys.excepthook, sys.displayhook,
    ]
    if device == "cuda":
        torch.cuda.init()
        found.append(torch._C._cuda_isHistoryEnabled())
    return found
model = torch.nn.Linear(100, 10).to(device)
def step(): model(torch.ones(5, 100, device=device)).sum().backward()
before = state()
PROGRAM
after = state()
changed = [(a, b) for a, b in zip(before, after) if a != b]
print("OK" if not changed else changed)
"""


def block(name: str, program: str, left: Left = "whole", says: str = "", **more: object) -> Fault:
    """A program that records a part of itself."""
    return Fault(f"record(): {name}", STATE.replace("PROGRAM", program), left, says, own=True,
                 **more)  # type: ignore[arg-type]  # fmt: skip


BLOCKS = [
    block("as it should be", """
with memtrace.record("out.pkl"):
    for _ in range(4): step()
"""),
    block("an exception", """
try:
    with memtrace.record("out.pkl"):
        step(); 1 / 0
except ZeroDivisionError: pass
"""),
    block("SystemExit and KeyboardInterrupt", """
for error in (SystemExit, KeyboardInterrupt):
    try:
        with memtrace.record("out.pkl", force=True):
            step(); raise error
    except error: pass
"""),
    block("the folder is gone", """
with memtrace.record("gone/out.pkl"):
    step(); os.rmdir("gone")
""", "none", "gone/out.pkl", before="mkdir -p gone", output="gone/out.pkl"),
    block("a profiler runs already", """
with torch.profiler.profile() as own:
    step()
    with memtrace.record("out.pkl"):
        step(); step()
    step()
assert sum(e.name == "aten::addmm" for e in own.events()) == 4
"""),
    block("a profiler of its own begins in it and goes on", """
own = torch.profiler.profile()
with memtrace.record("out.pkl"):
    step(); own.start(); step()
step(); own.stop()
assert sum(e.name == "aten::addmm" for e in own.events()) == 2
"""),
    block("one within another", """
with memtrace.record("out.pkl"):
    step()
    try:
        with memtrace.record("other.pkl"): pass
    except RuntimeError as error: assert "already" in str(error)
    step()
"""),
    block("on a thread", """
import threading
def work():
    with memtrace.record("out.pkl"):
        for _ in range(3): step()
t = threading.Thread(target=work); t.start(); t.join()
"""),
    block("one after another", """
for _ in range(3):
    with memtrace.record("out.pkl", force=True):
        for _ in range(3): step()
"""),
    block("an exception in a hook", """
from memtrace.capture.session import current
def fail(*_, **__): raise ValueError("planted")
with memtrace.record("out.pkl") as recording:
    current().owners.look = current().profile.boundary = fail
    for _ in range(3): step()
assert any("planted" in note for note in recording.outcome.notes)
"""),
    block("an exception at the end", """
from memtrace.capture.session import current
def fail(*_, **__): raise ValueError("planted")
with memtrace.record("out.pkl") as recording:
    for _ in range(3): step()
    marks = type(current().marks)
    keep, marks.add = marks.add, fail
marks.add = keep
assert "planted" in recording.outcome.error
""", "none", "planted"),
    block("an exception at the start", """
from memtrace.capture.session import Session
keep = Session._torch_imported
def fail(self): keep(self); raise ValueError("planted")
Session._torch_imported = fail
with memtrace.record("out.pkl") as recording:
    for _ in range(3): step()
Session._torch_imported = keep
assert any("planted" in note for note in recording.outcome.notes)
"""),
]  # fmt: skip

CUDA = [
    Fault("out of memory", train(end="""
torch.cuda.set_per_process_memory_fraction(0.01)
kept = []
while True: kept.append(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
"""), cuda=True, same_errors=False),
    Fault("out of memory, caught and tried again", train("""
torch.cuda.set_per_process_memory_fraction(0.01)
try: torch.empty(1 << 40, device="cuda")
except torch.OutOfMemoryError: print("caught")
"""), cuda=True),
    Fault("_record_memory_history: start and stop", train("""
if k == 1: torch.cuda.memory._record_memory_history(max_entries=50)
if k == 3: torch.cuda.memory._record_memory_history(enabled=None)
"""), cuda=True, says="_record_memory_history"),
    Fault("_record_memory_history: other settings", train("""
torch.cuda.memory._record_memory_history(enabled="state", stacks="python", clear_history=True)
"""), cuda=True, says="_record_memory_history"),
    Fault("torch._C switches the history off behind our back", train("""
if k == 2: torch._C._cuda_record_memory_history(None, None, "python", 1, 0, 0, 0, [])
"""), cuda=True),
    Fault("_dump_snapshot", train(end="""
torch.cuda.memory._record_memory_history()
step()
torch.cuda.memory._dump_snapshot("own.pickle")
import pickle
print(len(pickle.load(open("own.pickle", "rb"))["device_traces"][0]) > 0)
"""), cuda=True),
    Fault("_set_allocator_settings in the loop", train("""
if k == 2: torch.cuda.memory._set_allocator_settings("expandable_segments:True")
kept = torch.empty(30 << 20, device="cuda")
"""), cuda=True, same_errors=False),
    Fault("_set_allocator_settings: a limit to splitting", train("""
if k == 2: torch.cuda.memory._set_allocator_settings("max_split_size_mb:32")
kept = torch.empty((20 + 10 * k) << 20, dtype=torch.uint8, device="cuda")
"""), cuda=True, same_errors=False),
    Fault("settings from the environment", train(), cuda=True,
          environment={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:32,expandable_segments:True"}),
    Fault("an error of the device", train(end="""
torch.zeros(4, device="cuda")[torch.tensor([10], device="cuda")] = 1
torch.cuda.synchronize()
"""), cuda=True, left="either", same_errors=False),
    Fault("CUDA graphs", train(setup="""
static = torch.randn(32, 64, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3): model(static)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph): model(static)
""", each="graph.replay()"), cuda=True),
    Fault("the counters are reset", train("""
torch.cuda.reset_peak_memory_stats(); torch.cuda.reset_accumulated_memory_stats()
"""), cuda=True),
]  # fmt: skip

FAULTS = [
    *ENDS, *SIGNALS, *FILES, *STREAMS, *WAYS, *CHILDREN, *TORCH, *HOOKS, *BLOCKS, *CUDA,
]  # fmt: skip
