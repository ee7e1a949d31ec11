"""What HolisticTraceAnalysis says of the profiled iteration (the extra ``hta``).

It reads the plain trace of kineto.py from a temporary folder, as it reads any other.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memtrace.render.kineto import write_profile
from memtrace.snapshot import Recording

# It rounds to microseconds unless told otherwise, and asks so when it reads.
_EXACT = "HTA_DISABLE_NS_ROUNDING"
_ALL_KERNELS = 1 << 30


@dataclass(frozen=True, slots=True)
class StreamIdle:
    """Nanoseconds that one stream waits between its kernels, and for what.

    ``host``: the next kernel had not been launched yet (host-bound); ``launch``: it had, and
    followed as fast as kernels do (launch-bound); ``other``: neither.
    """

    stream: int
    host: int
    launch: int
    other: int


@dataclass(frozen=True, slots=True)
class Breakdown:
    """HolisticTraceAnalysis's temporal, kernel and idle breakdown, in nanoseconds.

    ``span`` is from the first kernel's begin to the last one's end: ``compute`` in kernels that
    compute, ``other`` in copies and communication alone, ``idle``. ``kernels`` are the sums by
    kernel name; ``waits`` what each stream waits for.
    """

    span: int
    compute: int
    other: int
    idle: int
    kernels: dict[str, int]
    waits: tuple[StreamIdle, ...]

    @property
    def busy(self) -> int:
        return self.span - self.idle


def is_installed() -> bool:
    """Whether the extra is there; importing it takes more than a second."""
    return find_spec("hta") is not None and find_spec("hta.trace_analysis") is not None


def break_down(recording: Recording) -> Breakdown:
    """Asks HolisticTraceAnalysis about the profiled iteration, in which kernels were seen.

    MemtraceError where none was profiled.
    """
    with tempfile.TemporaryDirectory() as folder, _exact_and_quiet():
        path = Path(folder) / "profile.json"
        with path.open("wb") as stream:
            write_profile(recording, stream)
        from hta.trace_analysis import TraceAnalysis

        logging.getLogger("hta").setLevel(logging.CRITICAL)
        analysis = TraceAnalysis(trace_files={0: str(path)})
        time = analysis.get_temporal_breakdown(visualize=False).iloc[0]
        idle = analysis.get_idle_time_breakdown(visualize=False)[0]
        kernels = analysis.get_gpu_kernel_breakdown(
            visualize=False,
            include_memory_kernels=True,
            duration_ratio=1.0,
            num_kernels=_ALL_KERNELS,
        )[1]
    sums = zip(kernels["name"], kernels["sum (us)"], strict=True)
    return Breakdown(
        _ns(time["kernel_time(us)"]),
        _ns(time["compute_time(us)"]),
        _ns(time["non_compute_time(us)"]),
        _ns(time["idle_time(us)"]),
        {str(name): _ns(total) for name, total in sums},
        tuple(_waits(idle)),
    )


@contextlib.contextmanager
def _exact_and_quiet() -> Iterator[None]:
    """To the nanosecond, and without its log and its libraries' warnings on our stderr."""
    before = os.environ.get(_EXACT)
    os.environ[_EXACT] = "1"
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        if before is None:
            del os.environ[_EXACT]
        else:
            os.environ[_EXACT] = before


def _waits(idle: Any) -> Iterator[StreamIdle]:
    for stream in sorted(set(idle["stream"])):
        rows = idle[idle["stream"] == stream]
        by_kind = {
            str(kind): _ns(time)
            for kind, time in zip(rows["idle_category"], rows["idle_time"], strict=True)
        }
        yield StreamIdle(
            int(stream),
            by_kind.get("host_wait", 0),
            by_kind.get("kernel_wait", 0),
            by_kind.get("other", 0),
        )


def _ns(microseconds: Any) -> int:
    return round(float(microseconds) * 1000)
