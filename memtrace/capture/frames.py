"""Takes memtrace's own frames out of stacks: a recording shows the script's, as without us."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Below this file's frames (further out) lies only what started the script: memtrace's command.
_RUNNER = _OWN + "runner.py"
_KEEP, _DROP, _CUT = 0, 1, 2


def is_own(filename: str) -> bool:
    """Whether a file is the recorder's."""
    return filename.startswith(_OWN)


def kind_of(filename: str) -> int:
    """0: keep the frame, 1: drop it, 2: drop it and all further out."""
    if filename == _RUNNER:
        return _CUT
    return _DROP if filename.startswith((_OWN, "<frozen importlib")) else _KEEP


def strip(stacks: Iterable[list[dict[str, Any]]]) -> None:
    """Strip stacks (frame dicts, innermost first) in place. Frame dicts are shared between them."""
    kinds: dict[int, int] = {}
    for frames in stacks:
        hit = False
        for frame in frames:
            key = id(frame)
            kind = kinds.get(key)
            if kind is None:
                kind = kinds[key] = kind_of(str(frame.get("filename", "")))
            if kind:
                hit = True
                break
        if hit:
            frames[:] = list(_kept(frames, kinds))


def _kept(frames: list[dict[str, Any]], kinds: dict[int, int]) -> Iterable[dict[str, Any]]:
    for frame in frames:
        kind = kinds.get(id(frame))
        if kind is None:
            kind = kinds[id(frame)] = kind_of(str(frame.get("filename", "")))
        if kind == _CUT:
            return
        if kind == _KEEP:
            yield frame
