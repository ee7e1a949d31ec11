"""Outermost phases of a run (call, backward, optimizer): nested ones are counted, not marked."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any


@dataclass(slots=True)
class Phase:
    """A phase in progress.

    ``owner`` is (id of a frame, its code) where the phase is ended by a hook that an exception
    skips; None where its end is certain.
    """

    kind: str
    name: str
    owner: tuple[int, CodeType] | None
    exception: BaseException | None  # being handled when it began


class Phases:
    """Per thread at most one phase; whatever begins inside it belongs to it.

    A backward pass on a GPU runs on threads of autograd's engine: what these call (a compiled
    region, a checkpointed module) belongs to the backward pass, so while one is in progress it
    counts as the phase of every thread that has none of its own.
    """

    def __init__(
        self,
        begin: Callable[[str, str, bool], None],
        end: Callable[[str, str, bool], None],
    ) -> None:
        self._begin = begin
        self._end = end
        self._local = threading.local()
        self._backward: Phase | None = None
        self.active = True

    def current(self) -> Phase | None:
        """The phase in progress on this thread, or the backward pass that it may work for."""
        phase: Phase | None = getattr(self._local, "phase", None)
        if phase is not None and phase.owner is not None and not _on_stack(phase.owner):
            # An optimizer step that raised: its post hook never ran.
            self.end(phase, failed=True)
            return None
        return phase or self._backward

    def begin(
        self, kind: str, name: str, *, grad: bool = True, owner: tuple[int, CodeType] | None = None
    ) -> Phase | None:
        """Begin a phase; None (nothing to end) inside another one or when the recording is over."""
        if not self.active or self.current() is not None:
            return None
        phase = Phase(kind, name, owner, sys.exc_info()[1])
        # First, so that calls made while the boundary is worked on are not taken for the script's.
        self._local.phase = phase
        if kind == "backward":
            self._backward = phase
        self._begin(kind, name, grad)
        return phase

    def end(self, phase: Phase | None, *, failed: bool | None = None) -> None:
        """End what ``begin`` returned; by default it failed if a new exception is under way."""
        current: Phase | None = getattr(self._local, "phase", None)
        if phase is None or current is not phase:
            return
        if failed is None:
            failed = sys.exc_info()[1] is not phase.exception
        try:
            if self.active:
                self._end(phase.kind, phase.name, failed)
        finally:
            self._local.phase = None
            if self._backward is phase:
                self._backward = None


def _on_stack(owner: tuple[int, CodeType]) -> bool:
    frame: Any = sys._getframe(1)
    while frame is not None:
        if id(frame) == owner[0] and frame.f_code is owner[1]:
            return True
        frame = frame.f_back
    return False
