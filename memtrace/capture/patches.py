"""Changes to other people's objects, all taken back, and hooks that cannot hurt a script."""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

_ABSENT = object()
F = TypeVar("F", bound=Callable[..., Any])


class Notes:
    """What the recorder noticed and a reader must be told: each text once, in order."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, text: str) -> None:
        """Keep ``text`` unless it is there already. At most 100, so a failing hook cannot flood."""
        if text not in self.texts and len(self.texts) < 100:
            self.texts.append(text)

    def failure(self, what: str, error: BaseException) -> None:
        """Note that a part of the recorder failed, with the innermost place of the failure."""
        place = ""
        for frame in traceback.extract_tb(error.__traceback__)[-1:]:
            place = f" at {os.path.basename(frame.filename)}:{frame.lineno}"
        self.add(f"{what} failed: {type(error).__name__}: {error}{place}"[:500])

    def guard(self, what: str, function: F) -> F:
        """``function``, with its exceptions turned into a note: a hook must not break the script.

        KeyboardInterrupt and SystemExit pass: they belong to the person or the script.
        """

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                self.failure(what, error)
                return None

        return guarded  # type: ignore[return-value]


class Patches:
    """Attributes replaced for the time of a recording."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Replace ``owner.name`` and return what stood there (through inheritance, too)."""
        # The owner's own attribute, not an inherited one: restoring an inherited one as an own
        # attribute would be a change that stays. vars() also keeps staticmethods as they are.
        own = vars(owner).get(name, _ABSENT)
        before = getattr(owner, name, None)
        setattr(owner, name, value)
        self._undo.append((owner, name, own, value))
        return before

    def undo(self, owner: Any = None, name: str | None = None) -> None:
        """Take back all changes, or those of ``owner.name`` only, newest first.

        Where somebody patched over ours since, theirs stays: theirs calls ours, which passes
        through once the recording is over.
        """
        kept = []
        for entry in reversed(self._undo):
            target, attribute, own, value = entry
            if owner is not None and not (target is owner and attribute == name):
                kept.append(entry)
                continue
            if vars(target).get(attribute, _ABSENT) is not value:
                continue
            if own is _ABSENT:
                delattr(target, attribute)
            else:
                setattr(target, attribute, own)
        self._undo = kept[::-1]
