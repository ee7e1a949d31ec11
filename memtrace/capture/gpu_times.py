"""When the GPU reached the bounds of iterations, told by events on the streams of the script.

Nothing waits for the GPU before the end of the recording, and nothing is asked of an event before:
that could break the capture of a CUDA graph that is in progress elsewhere.
"""

from __future__ import annotations

from typing import Any

# Bounds that are kept, the last ones: an event is a small object of the driver's.
_MOST = 20_000


class GpuTimes:
    """Events by the mark at which they were recorded; there are none unless ``active``."""

    def __init__(self) -> None:
        self.active = False
        self._begins: dict[int, Any] = {}
        self._ends: dict[int, Any] = {}
        self._last: Any = None  # recorded anew whenever a phase ends
        self._last_mark = -1

    def now(self) -> Any:
        """An event recorded on the current stream, None where there is none to be had."""
        if not self.active:
            return None
        import torch

        if not torch.cuda.is_initialized():
            return None
        if not torch._C._cuda_hasPrimaryContext(torch.cuda.current_device()):
            return None  # it would make one, which takes memory on the device
        if torch.cuda.is_current_stream_capturing():
            return None  # it would become a part of the graph
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def boundary(self, mark: int, ended: Any, begun: Any) -> None:
        """At ``mark`` an iteration ended and another one began, with these events of ``now``."""
        for events, event in ((self._ends, ended), (self._begins, begun)):
            if event is not None:
                events[mark] = event
                if len(events) > _MOST:
                    del events[next(iter(events))]

    def phase_ended(self, mark: int) -> None:
        """A phase ended: the last one will be the end of the last iteration."""
        self._last, self._last_mark = self.now(), mark

    def between(self, begin: int, end: int) -> int:
        """Nanoseconds of the GPU from one bound to another, -1 where not known.

        Waits for the GPU. Raises torch's errors where the GPU has failed.
        """
        first = self._begins.get(begin)
        last = self._ends.get(end)
        if last is None and end == self._last_mark:
            last = self._last
        if first is None or last is None or first.device != last.device:
            return -1
        last.synchronize()
        first.synchronize()  # on another stream, perhaps
        milliseconds: float = first.elapsed_time(last)
        return max(0, round(milliseconds * 1e6))
