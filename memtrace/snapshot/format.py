"""The ``memtrace`` key of a capture, format 1: what the recorder writes and the reader expects.

A capture is a torch memory snapshot (pickle protocol 4, plain containers, numbers and strings)
with its own keys untouched and one key ``memtrace`` more, so that pytorch.org/memory_viz opens it
too. The TypedDicts below are the contract between capture/ and everything that reads.
Columns are plain lists of equal length (numpy arrays would need globals to unpickle).
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from memtrace.snapshot.part import Part

FORMAT = 1


class TensorInfo(TypedDict):
    """A tensor proxy of a Thunder trace, or a tensor argument of a call."""

    name: str
    shape: list[int]
    dtype: str  # "bfloat16", "float32", "int64", …
    device: str  # "cuda:0", "cpu"


class Marks(TypedDict):
    """Moments the recorder saw, oldest first, as columns.

    ``kind``: "call" (outermost call of a compiled or watched module), "backward", "optimizer",
    "step" (memtrace.step()), "profiler_step", "compile", "peak_reset" (the script or
    --check-driver reset the driver's peak statistics), "gap" (allocations in between were not
    seen), "start", "end".
    ``edge``: "begin", "end", or "" for a moment without length.
    ``event[k]``: for each device, the mark lies just before event number event[k][d] of its
    history as it lies in the file (``device_traces[d]``); -1 where that is not known, or where the
    ring dropped the events around it.
    ``stats[k]``: for each device the driver's figures at that moment, in the order of
    STAT_FIELDS; an empty list where they were not read.
    """

    kind: list[str]
    edge: list[str]
    name: list[str]
    time_ns: list[int]  # epoch nanoseconds
    event: list[list[int]]
    stats: list[list[list[int]]]


# Driver's figures at a mark, in bytes (torch.cuda.memory_stats keys "<name>.all.<current|peak>").
STAT_FIELDS = (
    "allocated_bytes.current",
    "allocated_bytes.peak",
    "reserved_bytes.current",
    "reserved_bytes.peak",
    "requested_bytes.current",
    "requested_bytes.peak",
)


class Iteration(TypedDict):
    """One repetition of the workload: marks ``begin`` (included) to ``end`` (excluded events)."""

    index: int
    begin: int  # number of the mark at which it begins
    end: int  # number of the mark at which it ends
    compiled: bool  # something was compiled within it: not a steady iteration
    profiled: bool  # ran under torch.profiler
    whole: bool  # False: the script ended or failed inside it
    wall_ns: int
    # On CUDA: from when the GPU reached the begin to when it reached the end, by events on the
    # streams that were current there; the GPU's idle time counts. -1 not known.
    gpu_ns: NotRequired[int]


class Operation(TypedDict):
    """One operation inside a fusion (a subsymbol of a Thunder bound symbol)."""

    text: str  # as Thunder prints it: 't1286 = prims.transpose(t651, (0, 1, 3, 2))'
    name: str  # 'prims.transpose'
    origin: str  # the traced line: '<eval_with_key>.12:82', '' where unknown
    args: list[str]  # names of tensor arguments
    outputs: list[TensorInfo]


class ThunderSymbol(TypedDict):
    """One bound symbol of an execution trace."""

    name: str  # 'nvFusion0', 'torch_nll_loss_backward_impl', 'TorchCompile1', 'python_del'
    line: int  # line in the source of the trace, 0 where it could not be found
    origin: str  # as Operation.origin; fusions have none of their own
    args: list[str]
    outputs: list[TensorInfo]
    inside: list[Operation]  # empty unless it is a fusion


class ThunderTrace(TypedDict):
    phase: str  # "prologue", "forward", "backward"
    filename: str  # 'thunder.computation_25': the name frames carry, and a key of ``sources``
    symbols: list[ThunderSymbol]
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]


class ThunderModule(TypedDict):
    """One program that Thunder compiled: one cache entry of one thunder.jit'ed callable."""

    name: str  # stable from run to run: 'Qwen2ForCausalLM', 'model.layers.3', second one '…#2'
    kind: str  # "module" or "function"
    executors: list[str]
    traces: list[ThunderTrace]
    fx_filename: str  # '<eval_with_key>.12', '' when there was no FX graph


class FxNode(TypedDict):
    """A line of an FX graph that Dynamo made."""

    line: int
    node: str
    module: str  # 'model.layers.3.self_attn', '' where unknown
    module_class: str
    source: str  # 'transformers/models/qwen2/modeling_qwen2.py:150', '' where unknown
    target: str


# Operators of this name are the recorder's own: the call of a module, whose path follows.
LAYER_PREFIX = "memtrace layer "
# Those of this name, too (kind "user_annotation"): a line of generated code while it runs, until
# another line that calls anything begins or the function is left (a ``del`` may count as a part of
# the line before it). 'FILENAME:LINE' follows; the file name is that of frames and of ``sources``.
# The ranges of generated code that a line calls lie within the line's.
LINE_PREFIX = "memtrace line "


class ProfileOps(TypedDict):
    """CPU-side events of the profiled iteration as columns, ordered by start."""

    name: list[str]
    kind: list[str]  # "cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "python"
    thread: list[int]
    start_ns: list[int]
    duration_ns: list[int]
    sequence: list[int]  # autograd sequence number, -1 none
    forward_thread: list[int]  # the forward thread of a backward op, -1 none
    correlation: list[int]  # launch correlation id, -1 none
    shapes: list[str]  # input shapes as text, "" none


class ProfileKernels(TypedDict):
    """Device-side events of the profiled iteration as columns, ordered by start."""

    name: list[str]
    kind: list[str]  # "kernel", "gpu_memcpy", "gpu_memset"
    device: list[int]
    stream: list[int]
    start_ns: list[int]
    duration_ns: list[int]
    correlation: list[int]
    bytes: list[int]  # of a copy or set, -1 else


class ProfileMemory(TypedDict):
    """The profiler's [memory] events as columns, in the order they happened.

    ``bytes`` are block sizes on CUDA (rounded; slack included), positive for an allocation and
    negative for a free. ``op`` is the row in ProfileOps of the innermost cpu_op around it, -1 none.
    """

    addr: list[int]
    bytes: list[int]
    device: list[int]  # -1: host memory
    thread: list[int]
    time_ns: list[int]
    op: list[int]


class Profile(TypedDict):
    iteration: int  # index in ``iterations``
    ops: ProfileOps
    kernels: ProfileKernels
    memory: ProfileMemory


class Owner(TypedDict):
    """A tensor that the program holds by name at a mark: what its allocation is, told by itself.

    ``kind``: "parameter", "buffer", "gradient" (``.grad``, or a tensor that the program keeps as an
    attribute of a parameter under a name with "grad" in it, as Megatron's ``main_grad``),
    "optimizer" (a state tensor of an optimizer).
    ``name``: 'model.layers.0.mlp.up_proj.weight', for optimizer state with the state's name behind
    a colon: 'lm_head.weight:exp_avg'. ``address`` and ``bytes`` are those of its storage.
    """

    mark: int
    kind: str
    name: str
    device: int  # -1: host memory
    address: int
    bytes: int
    shape: list[int]
    strides: NotRequired[list[int]]  # in elements; early captures lack it
    dtype: str


class Peak(TypedDict):
    """The driver's peaks over one stretch of one device's history, between two resets."""

    device: int
    begin: int  # event numbers, as in Marks.event; -1 unknown
    end: int
    allocated: int
    requested: int
    reserved: int
    why: str  # "run" (no reset before it), "script" (the script's reset), "check" (--check-driver)


class Compilation(TypedDict):
    """A compiler began anew, or gave a part of the program back to Python, and why.

    ``kind``: "compile" (a piece of code for the first time), "recompile" (it was compiled already,
    but a guard failed), "graph break" (Dynamo leaves a part to Python), "split" (Thunder leaves a
    part of an FX graph to another compiler).
    ``mark``: the last mark when it was noted, by which it belongs to an iteration.
    """

    kind: str
    name: str  # of the code or module: 'forward', 'thunder_1'
    where: str  # 'modeling_qwen2.py:150' with its path, '' unknown
    reason: str  # a few lines at most, '' for a "compile"
    mark: int
    duration_ns: int  # -1 not known


class Device(TypedDict):
    index: int
    name: str
    total_bytes: int
    outside_bytes: int  # in use on the device outside the allocator at the end, -1 unknown
    start_events: int  # events that preceded the recording: 0 when history began before the first
    dropped_events: int  # events the ring dropped, 0 none
    # torch's segment dicts at the start; [] = none existed. Of a part of a recording on the CPU,
    # which has no segments, a segment for each block, to hold it.
    start_segments: list[dict[str, Any]]
    peaks: list[Peak]


class Steps(TypedDict):
    """Steady iterations that ran without the profiler and have no row in ``iterations``: columns.

    Of a recording that was told to keep its last iterations only. They lay between ``mark`` and the
    mark before it.
    """

    mark: int
    trains: list[int]  # 1: with a backward pass
    wall_ns: list[int]  # as in Iteration
    gpu_ns: list[int]


class Meta(TypedDict):
    """The whole key. ``facts`` is for people and comparisons: flat, JSON-like values only.

    facts: tool, torch, thunder, nvfuser, transformers, python, cuda, gpu, device ("cuda"|"cpu"),
    allocator_conf, allocator_backend, stacks, max_events, window, command (list), module (bool),
    cwd, git_commit, started (epoch s), rank, world_size, local_rank (of several processes),
    compilers (list: 'thunder(sdpa, torchcompile)', 'inductor', 'eager'), copy_bytes_per_second
    (what a copy on the GPU read and wrote at the recording's end; absent where it was not
    measured), inputs (list of TensorInfo of the outermost call), exit
    ({"kind": "ok"|"exception"|"exit"|"interrupt"|"oom", "code": int, "message": str}),
    matmul/amp settings as they matter for memory, profiler_error,
    notes (list of str: things the recorder noticed and a reader must be told).
    """

    format: int
    label: str
    facts: dict[str, Any]
    devices: list[Device]
    marks: Marks
    iterations: list[Iteration]
    profile: Profile | None
    owners: list[Owner]  # as of the profiled iteration's end, and of the end of the recording
    sources: dict[str, str]  # file name → text: Thunder traces, Inductor output, FX graph code
    thunder: list[ThunderModule]
    compilations: NotRequired[list[Compilation]]  # in the order they happened
    fx: dict[str, list[FxNode]]  # '<eval_with_key>.12' → nodes
    steps: NotRequired[Steps]
    part: NotRequired[Part]  # of a capture that was cut out of a longer recording
