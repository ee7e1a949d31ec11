"""Lines of generated code as ranges: the machine, and the ways to be told of lines."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtrace.capture import lines, watches
from memtrace.capture.patches import Notes, Patches
from memtrace.capture.ranges import Ranges


class Log:
    """Makes ranges that write down how they nest: '(name', and ')name' at their end."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.open: list[str] = []

    def __call__(self, name: str) -> Log.Range:
        return Log.Range(self, name)

    class Range:
        def __init__(self, log: Log, name: str) -> None:
            self.log, self.name = log, name

        def __enter__(self) -> None:
            self.log.texts.append(f"({self.name}")
            self.log.open.append(self.name)

        def __exit__(self, *_: object) -> None:
            assert self.log.open.pop() == self.name, "not the innermost"
            self.log.texts.append(f"){self.name}")

    def __str__(self) -> str:
        return " ".join(self.texts)


def function(filename: str, source: str, **names: Any) -> Callable[..., Any]:
    space: dict[str, Any] = dict(names)
    exec(compile(source, filename, "exec"), space)
    found: Callable[..., Any] = space["f"]
    return found


# Every line calls something: Python 3.12 tells of those alone.
OUTER = "def f(x):\n a = abs(x)\n b = inner(a)\n return abs(b)\n"
INNER = "def f(x):\n y = abs(x)\n return abs(y)\n"
CODES = [function(name, INNER).__code__ for name in "ab"]
A, B = CODES


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_line_lasts_until_the_next_or_the_return(log: Log) -> None:
    ranges = Ranges(log, "line ")
    ranges.enter(A)
    ranges.line(A, 2)
    ranges.line(A, 3)
    ranges.enter(B)
    ranges.line(B, 2)
    ranges.leave(B)
    ranges.line(A, 3)  # it goes on
    ranges.line(A, 2)  # a loop
    ranges.leave(A)
    assert str(log) == (
        "(line a:2 )line a:2 (line a:3 (line b:2 )line b:2 )line a:3 (line a:2 )line a:2"
    )


def test_what_was_not_told_has_ended_with_what_is_around_it(log: Log) -> None:
    ranges = Ranges(log, "")
    ranges.line(A, 2)  # it began before
    ranges.enter(B)
    ranges.line(B, 2)  # and its return is never told
    ranges.line(A, 3)
    ranges.enter(B)
    ranges.line(B, 2)
    ranges.leave(A)
    ranges.leave(B)
    assert str(log) == "(a:2 (b:2 )b:2 )a:2 (a:3 (b:2 )b:2 )a:3"


def test_recursion(log: Log) -> None:
    ranges = Ranges(log, "")
    for _ in range(2):
        ranges.enter(A)
        ranges.line(A, 2)
    ranges.leave(A)
    ranges.line(A, 3)
    ranges.leave(A)
    assert str(log) == "(a:2 (a:2 )a:2 )a:2 (a:3 )a:3"


def test_threads_have_their_own(log: Log) -> None:
    ranges = Ranges(log, "")
    ranges.enter(A)
    ranges.line(A, 2)

    def other() -> None:
        ranges.leave(A)  # that of the first thread goes on
        ranges.enter(B)
        ranges.line(B, 2)
        ranges.leave(B)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    ranges.leave(A)
    assert str(log) == "(a:2 (b:2 )b:2 )a:2"


def test_nothing_stays_open_at_the_end(log: Log) -> None:
    ranges = Ranges(log, "")
    ranges.line(A, 2)
    ranges.line(B, 2)
    ranges.close()
    ranges.leave(B)
    assert str(log) == "(a:2 (b:2 )b:2 )a:2"


@given(
    st.lists(
        st.tuples(st.sampled_from(["enter", "line", "leave"]), st.sampled_from(CODES)), max_size=40
    )
)
def test_whatever_is_told_ranges_nest_and_end(events: list[tuple[str, CodeType]]) -> None:
    log = Log()
    ranges = Ranges(log, "")
    for kind, code in events:
        if kind == "line":
            ranges.line(code, 2)
            assert log.open[-1] == f"{code.co_filename}:2"
        else:
            getattr(ranges, kind)(code)
    ranges.close()
    assert not log.open


# -- being told by Python itself ---------------------------------------------------------------


class Failed(list[Exception]):
    def __call__(self, error: Exception) -> None:
        self.append(error)


@pytest.fixture
def watch(log: Log, request: pytest.FixtureRequest) -> Iterator[Callable[..., None]]:
    """Starts to watch functions, with what this Python has; it is stopped after the test."""
    failed = Failed()
    ranges = Ranges(log, "")
    watch: Any
    if hasattr(sys, "monitoring"):
        watch = watches.Monitoring(ranges, failed, sys.monitoring)
    else:
        pytest.importorskip("torch")
        watch = watches.Tracing(ranges, failed, Patches())

    def start(*functions: Any) -> None:
        watch.start([code for f in functions for code in lines._nested(f.__code__)])

    tracer = sys.gettrace()  # a coverage tool's
    sys.settrace(None)
    try:
        yield start
    finally:
        watch.stop()
        assert sys.gettrace() is None
        sys.settrace(tracer)
    ranges.close()
    assert not failed


def test_lines_of_a_function_and_of_what_it_calls(log: Log, watch: Callable[..., None]) -> None:
    inner = function("inner", INNER)
    unwatched = function("unwatched", OUTER, inner=inner)
    outer = function("outer", OUTER, inner=unwatched)
    watch(outer, inner)
    assert outer(7) == 7
    assert str(log) == (
        "(outer:2 )outer:2 (outer:3 (inner:2 )inner:2 (inner:3 )inner:3 )outer:3 (outer:4 )outer:4"
    )


def test_calls_with_many_arguments(log: Log, watch: Callable[..., None]) -> None:
    names = ", ".join(f"x{k}" for k in range(40))
    inner = function("inner", f"def f({names}):\n return abs(x1)\n")
    source = f"def f(inner, {names}):\n abs(1)\n inner({names})\n inner({names})\n abs(1)\n"
    outer = function("outer", source)
    watch(outer, inner)
    outer(inner, *range(40))
    assert str(log) == (
        "(outer:2 )outer:2 (outer:3 (inner:2 )inner:2 )outer:3 (outer:4 (inner:2 )inner:2 )outer:4"
        " (outer:5 )outer:5"
    )


def test_an_exception_ends_the_ranges_it_passes_through(
    log: Log, watch: Callable[..., None]
) -> None:
    inner = function("inner", "def f(x):\n return 1 / abs(x)\n")
    outer = function(
        "outer",
        "def f(x):\n abs(1)\n try:\n  inner(x)\n except ZeroDivisionError:\n  abs(x)\n",
        inner=inner,
    )
    failing = function("failing", "def f(x):\n return inner(x)\n", inner=inner)
    watch(outer, inner, failing)
    outer(0)
    with pytest.raises(ZeroDivisionError):
        failing(0)
    assert not log.open
    assert "(outer:4 (inner:2 )inner:2 )outer:4 (outer:" in str(log)
    assert " (outer:6 )outer:6 " in str(log)
    assert str(log).endswith("(failing:2 (inner:2 )inner:2 )failing:2")


def test_loops_and_functions_within(log: Log, watch: Callable[..., None]) -> None:
    source = "def f(n):\n while n > abs(0):\n  n = (lambda: abs(n))() - 1\n"
    looping = function("loop", source)
    watch(looping)
    looping(2)
    turn = "(loop:2 )loop:2 (loop:3 (loop:3 )loop:3 )loop:3"
    assert str(log) == f"{turn} {turn} (loop:2 )loop:2"


def test_a_line_that_calls_nothing_is_none_of_its_own_at_most(
    log: Log, watch: Callable[..., None]
) -> None:
    work = function("work", "def f(x):\n y = abs(x)\n del x\n return abs(\n  y\n )\n")
    watch(work)
    work(1)
    deleting = "" if hasattr(sys, "monitoring") else "(work:3 )work:3 "
    assert str(log).startswith(f"(work:2 )work:2 {deleting}(work:4 )work:4")


def test_a_generator_is_left_where_it_yields(log: Log, watch: Callable[..., None]) -> None:
    inner = function("inner", "def f():\n yield abs(1)\n yield abs(2)\n")
    outer = function("outer", "def f():\n g = inner()\n next(g)\n next(g)\n abs(1)\n", inner=inner)
    watch(outer, inner)
    outer()
    assert str(log) == (
        "(outer:2 )outer:2 (outer:3 (inner:2 )inner:2 )outer:3 (outer:4 (inner:3 )inner:3 )outer:4"
        " (outer:5 )outer:5"
    )


def test_other_threads(log: Log, watch: Callable[..., None]) -> None:
    work = function("work", INNER)
    watch(work)
    if hasattr(sys, "monitoring"):
        entry: Callable[..., Any] = work
    else:  # autograd's threads enter Python here

        def entry(argument: int) -> None:
            from torch.autograd.function import BackwardCFunction

            node = SimpleNamespace(
                _forward_cls=SimpleNamespace(backward=lambda _, x: work(x), vjp=None)
            )
            from torch.autograd import Function

            node._forward_cls.vjp = Function.vjp
            BackwardCFunction.apply(node, argument)  # type: ignore[arg-type]

    thread = threading.Thread(target=entry, args=(3,))
    thread.start()
    thread.join()
    assert str(log) == "(work:2 )work:2 (work:3 )work:3"


def test_nothing_is_left_behind(log: Log) -> None:
    notes, patches = Notes(), Patches()
    made = lines.GeneratedLines(notes, patches)
    torch = pytest.importorskip("torch")
    apply = vars(torch.autograd.function.BackwardCFunction)["apply"]
    tracer = sys.gettrace()
    work = function("thunder.computation_7", INNER)
    sys.settrace(None)
    try:
        made.find()
        made.start()
        if hasattr(sys, "monitoring"):
            assert sys.monitoring.get_tool(3) == "memtrace"
            assert sys.monitoring.get_local_events(3, work.__code__)
        else:
            assert sys.gettrace() is not None
        made.stop()
        assert sys.gettrace() is None
        if hasattr(sys, "monitoring"):
            assert sys.monitoring.get_tool(3) is None
            assert not sys.monitoring.get_local_events(3, work.__code__)
        made.stop()
    finally:
        sys.settrace(tracer)
    assert vars(torch.autograd.function.BackwardCFunction)["apply"] is apply
    assert notes.texts == []


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="3.12 lets many tools listen")
def test_a_debugger_is_left_alone() -> None:
    pytest.importorskip("torch")
    notes = Notes()
    made = lines.GeneratedLines(notes, Patches())
    work = function("thunder.computation_8", INNER)

    def debugger(*_: Any) -> None:
        return None

    tracer = sys.gettrace()
    sys.settrace(debugger)
    try:
        made.find()
        made.start()
        assert sys.gettrace() is debugger
        work(1)
        made.stop()
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(tracer)
    (note,) = notes.texts
    assert note.startswith("lines of generated code were not timed: a debugger")


class FakeMonitoring:
    """``sys.monitoring`` as far as it is used, driven by hand."""

    events = SimpleNamespace(
        PY_START=1, PY_RESUME=2, CALL=4, PY_RETURN=8, PY_YIELD=16, PY_UNWIND=32, INSTRUCTION=64
    )
    DISABLE = "disable"

    def __init__(self, *taken: int) -> None:
        self.tools = dict.fromkeys(taken, "coverage")
        self.callbacks: dict[int, Any] = {}
        self.local: dict[int, int] = {}  # by id: codes of two files can be equal
        self.everywhere = 0

    def get_tool(self, tool: int) -> str | None:
        return self.tools.get(tool)

    def use_tool_id(self, tool: int, name: str) -> None:
        assert tool not in self.tools
        self.tools[tool] = name

    def free_tool_id(self, tool: int) -> None:
        assert self.tools.pop(tool) == "memtrace"

    def register_callback(self, tool: int, event: int, callback: Any) -> None:
        assert self.tools[tool] == "memtrace"
        self.callbacks[event] = callback

    def set_local_events(self, tool: int, code: CodeType, events: int) -> None:
        assert self.tools[tool] == "memtrace"
        assert not events & self.events.PY_UNWIND, "Python refuses that"
        self.local[id(code)] = events

    def set_events(self, tool: int, events: int) -> None:
        assert self.tools[tool] == "memtrace"
        self.everywhere = events

    def tell(self, event: int, code: CodeType, *arguments: Any) -> None:
        wanted = self.everywhere | self.local.get(id(code), 0)
        if wanted & event:
            self.callbacks[event](code, *arguments)


def offset(code: CodeType, line: int) -> int:
    """Where the bytes of a line begin."""
    return next(begin for begin, _, number in code.co_lines() if number == line)


def test_monitoring_tells_of_watched_code_alone(log: Log) -> None:
    failed, api = Failed(), FakeMonitoring(3)
    e = api.events
    watch = watches.Monitoring(Ranges(log, ""), failed, api)
    watch.start([A])
    assert api.tools == {3: "coverage", 4: "memtrace"}
    for code in (A, B):
        api.tell(e.PY_START, code, 0)
        api.tell(e.CALL, code, offset(code, 2), abs, 1)
    api.tell(e.PY_UNWIND, B, 0, ValueError())
    api.tell(e.CALL, A, offset(A, 3) + 2, abs, 1)
    api.tell(e.PY_RETURN, A, 0, None)
    api.tell(e.PY_RESUME, A, 0)
    api.tell(e.CALL, A, offset(A, 2), abs, 1)
    api.tell(e.PY_UNWIND, A, 0, ValueError())
    watch.stop()
    assert str(log) == "(a:2 )a:2 (a:3 )a:3 (a:2 )a:2"
    assert api.tools == {3: "coverage"}
    assert (api.everywhere, set(api.local.values()), set(api.callbacks.values())) == (
        0,
        {0},
        {None},
    )
    assert not failed


def test_no_tool_number_is_left() -> None:
    api = FakeMonitoring(3, 4)
    watch = watches.Monitoring(Ranges(Log(), ""), Failed(), api)
    with pytest.raises(watches.Busy):
        watch.start([A])
    watch.stop()
    assert api.tools == {3: "coverage", 4: "coverage"}
    assert not api.callbacks


def test_a_failure_of_ours_does_not_reach_the_program() -> None:
    failed, api = Failed(), FakeMonitoring()

    def broken(name: str) -> Any:
        raise ValueError(name)

    watch = watches.Monitoring(Ranges(broken, ""), failed, api)
    watch.start([A])
    api.tell(api.events.PY_START, A, 0)
    api.tell(api.events.CALL, A, offset(A, 2), abs, 1)
    api.tell(api.events.PY_RETURN, A, 0, None)
    assert [str(error) for error in failed] == ["a:2"]


def test_generated_functions_are_found_with_those_within() -> None:
    made = function("thunder.computation_9", "def f():\n return lambda: 1\n")
    output = "/tmp/torchinductor_me/ab/cabxyz.py"
    method = function(output, "class R:\n def call(self): pass\nf = R\n")
    other = function("/site-packages/thunder/core.py", INNER)
    gc.collect()
    found = lines.generated_codes()
    assert {code.co_name for code in found if code.co_filename == "thunder.computation_9"} == {
        "f",
        "<lambda>",
    }
    assert [code.co_name for code in found if code.co_filename == output] == ["call"]
    assert not any(code is other.__code__ for code in found)
    assert made is not None
    assert method is not None
