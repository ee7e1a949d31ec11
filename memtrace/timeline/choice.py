"""Choosing a window by the words a person uses for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from memtrace.errors import MemtraceError
from memtrace.timeline.windows import Window


def choose_window(windows: Iterable[Window], spec: str | None = None) -> Window:
    """The window a person asks for.

    None: the last whole steady iteration that was not profiled, else the last steady one, else
    "all"; where some iterations train, one of these (a script often ends with an evaluation).
    Otherwise "all", "last" (the last whole iteration), "last:3" (the last three, or as many as
    there are, with what lies between them), a number ("3", "iteration:3"; "-1" counts from the
    end), a range of numbers ("3-5") or a name. MemtraceError for one that is not there lists those
    that are.
    """
    there = tuple(windows)
    steps = [w for w in there if w.kind == "iteration"]
    everything = next(w for w in there if w.kind == "all")
    if spec is None or not spec.strip():
        steady = [w for w in steps if w.steady and w.whole]
        steady = [w for w in steady if w.backward_begin is not None] or steady
        bare = [w for w in steady if not w.profiled]
        return (bare or steady or [everything])[-1]
    text = spec.strip()
    if text.lower() == "all":
        return everything
    if text.lower() == "last":
        if steps:
            return ([w for w in steps if w.whole] or steps)[-1]
        raise MemtraceError(_unknown(text, there))
    for w in there:
        if w.name == text:
            return w
    some = _several(steps, text)
    if some:
        return _join(some)
    number = re.fullmatch(r"(?:iteration[: ])?(-?[0-9]{1,15})", text, flags=re.IGNORECASE)
    if number:
        wanted = int(number[1])
        if wanted < 0 and -wanted <= len(steps):
            return steps[wanted]
        for w in steps:
            if w.index == wanted:
                return w
    raise MemtraceError(_unknown(text, there))


def _unknown(spec: str, windows: tuple[Window, ...]) -> str:
    names = [w.name for w in windows]
    if len(names) > 12:
        names = [*names[:5], "…", *names[-6:]]
    return f"there is no window {spec!r} in this recording; there are: {', '.join(names)}"


def _several(steps: Sequence[Window], text: str) -> Sequence[Window]:
    """The iterations from the first to the last of those asked for; empty where it is no such."""
    if last := re.fullmatch(r"last:([1-9]\d{0,8})", text, flags=re.IGNORECASE):
        wanted = [k for k, w in enumerate(steps) if w.whole][-int(last[1]) :]
    elif numbers := re.fullmatch(
        r"(?:iterations?[: ])?([0-9]{1,15})-([0-9]{1,15})", text, flags=re.IGNORECASE
    ):
        wanted = [
            next((k for k, w in enumerate(steps) if w.index == int(number)), -1)
            for number in numbers.groups()
        ]
        if -1 in wanted or wanted[0] > wanted[1]:
            return ()
    else:
        return ()
    return steps[wanted[0] : wanted[-1] + 1] if wanted else ()


def _join(steps: Sequence[Window]) -> Window:
    """Several iterations as one window."""
    first, last = steps[0], steps[-1]
    if len(steps) == 1:
        return first
    return Window(
        name=f"iterations {first.index}-{last.index}",
        kind="iterations",
        begin=first.begin,
        end=max(w.end for w in steps),
        steady=all(w.steady for w in steps),
        profiled=any(w.profiled for w in steps),
        whole=all(w.whole for w in steps),
        compiled=any(w.compiled for w in steps),
        phases=tuple(phase for w in steps for phase in w.phases),
        begin_ns=first.begin_ns,
        end_ns=last.end_ns,
        first_mark=first.first_mark,
        last_mark=last.last_mark,
    )
