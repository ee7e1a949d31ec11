"""The small parts of the recorder, without torch."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import memtrace
from memtrace.capture import fx
from memtrace.capture.frames import strip
from memtrace.capture.imports import ImportHook
from memtrace.capture.options import Options
from memtrace.capture.patches import Notes, Patches
from memtrace.capture.phases import Phases
from memtrace.capture.thunder_traces import filename_of
from memtrace.errors import MemtraceError


def test_importing_memtrace_imports_neither_torch_nor_numpy() -> None:
    import subprocess

    code = (
        "import sys, memtrace, memtrace.capture; memtrace.record; memtrace.step();"
        "assert not {'torch', 'thunder', 'numpy'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert memtrace.record.__name__ == "record"
    with pytest.raises(AttributeError):
        memtrace.nothing  # noqa: B018


def test_an_import_hook_runs_after_the_import_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "watched_one.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[int] = []
    hook = ImportHook({"watched_one": lambda: seen.append(sys.modules["watched_one"].value)})
    hook.install()
    try:
        module = importlib.import_module("watched_one")
        assert seen == [1]
        importlib.reload(module)
        assert seen == [1]
        assert "exec_module" not in vars(module.__spec__.loader)
    finally:
        hook.remove()
    assert hook not in sys.meta_path


def test_what_is_imported_already_is_reported_at_once() -> None:
    seen: list[str] = []
    hook = ImportHook({"json": lambda: seen.append("json")})
    importlib.import_module("json")
    hook.install()
    hook.remove()
    assert seen == ["json"]


def test_patches_are_taken_back_inherited_attributes_included() -> None:
    class Base:
        def method(self) -> int:
            return 1

    class Child(Base):
        pass

    patches = Patches()
    patches.set(Child, "method", lambda self: 2)
    patches.set(Child, "method", lambda self: 3)
    assert Child().method() == 3
    patches.undo()
    assert Child().method() == 1
    assert "method" not in vars(Child)


def test_a_patch_over_ours_stays() -> None:
    holder = SimpleNamespace(name=1)
    patches = Patches()
    patches.set(holder, "name", 2)
    holder.name = 3
    patches.undo()
    assert holder.name == 3


def test_a_failing_hook_is_a_note() -> None:
    notes = Notes()

    def hook() -> None:
        raise ValueError("no such thing")

    guarded = notes.guard("the hook", hook)
    assert guarded() is None
    assert guarded() is None
    (text,) = notes.texts
    assert text.startswith("the hook failed: ValueError: no such thing at test_hooks.py:")


def test_phases_nest_and_end_after_an_exception() -> None:
    seen: list[tuple[str, ...]] = []
    phases = Phases(
        lambda kind, name, grad: seen.append(("begin", kind)),
        lambda kind, name, failed: seen.append(("end", kind, str(failed))),
    )
    outer = phases.begin("call", "a")
    assert phases.begin("backward", "b") is None
    phases.end(outer)

    def fails() -> None:
        phase = phases.begin("call", "c")
        try:
            raise ValueError
        finally:
            phases.end(phase)

    with pytest.raises(ValueError):  # noqa: PT011
        fails()

    def step() -> None:  # an optimizer's step that raises never reaches its post hook
        frame = sys._getframe()
        phases.begin("optimizer", "d", owner=(id(frame), frame.f_code))
        raise KeyError

    with pytest.raises(KeyError):
        step()
    phases.end(phases.begin("call", "e"))
    assert seen == [
        ("begin", "call"),
        ("end", "call", "False"),
        ("begin", "call"),
        ("end", "call", "True"),
        ("begin", "optimizer"),
        ("end", "optimizer", "True"),
        ("begin", "call"),
        ("end", "call", "False"),
    ]


def test_what_the_engines_threads_call_belongs_to_the_backward_pass() -> None:
    seen: list[tuple[str, str]] = []
    phases = Phases(
        lambda kind, name, grad: seen.append(("begin", kind)),
        lambda kind, name, failed: seen.append(("end", kind)),
    )

    def call() -> None:
        phases.end(phases.begin("call", "region"))

    def on_another_thread() -> None:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    backward = phases.begin("backward", "b")
    on_another_thread()
    phases.end(backward)
    assert seen == [("begin", "backward"), ("end", "backward")]
    on_another_thread()
    assert seen[2:] == [("begin", "call"), ("end", "call")]


def test_own_frames_are_stripped_and_the_command_below_cut() -> None:
    from memtrace.capture import frames

    own, runner = frames._OWN + "hooks.py", frames._RUNNER
    stack = [{"filename": f} for f in ("a.py", own, "b.py", runner, "bin/memtrace")]
    other = [{"filename": "c.py"}]
    strip([stack, other])
    assert [f["filename"] for f in stack] == ["a.py", "b.py"]
    assert len(other) == 1


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("L['self']", ""),
        ("L['self'].model.layers[3].self_attn", "model.layers.3.self_attn"),
        ("L['self']._modules['model']._modules['layers']._modules['3']", "model.layers.3"),
        ("G['net']._orig_mod.head", "head"),
        ("model.layers.0", "model.layers.0"),
    ],
)
def test_paths_of_modules(path: str, expected: str) -> None:
    assert fx.clean_path(path) == expected


def test_the_name_of_a_graph_is_what_its_nodes_share() -> None:
    def graph(*paths: str) -> SimpleNamespace:
        nodes = [
            SimpleNamespace(op="call_function", meta={"nn_module_stack": {"k": (p, int)}})
            for p in paths
        ]
        return SimpleNamespace(graph=SimpleNamespace(nodes=nodes))

    assert fx.module_name(graph("L['self'].a.b", "L['self'].a.b.c"), "Net") == "a.b"
    assert fx.module_name(graph("L['self'].a", "L['self'].b"), "Net") == "Net"


def test_the_file_of_a_generated_function_is_found_through_wrappers() -> None:
    import functools

    space: dict[str, object] = {}
    exec(compile("def computation(): pass", "thunder.computation_7", "exec"), space)
    inner = space["computation"]

    @functools.wraps(inner)  # type: ignore[arg-type]
    def wrapped() -> None:
        inner()  # type: ignore[operator]

    def outer() -> None:
        wrapped()

    assert filename_of(outer) == "thunder.computation_7"
    assert filename_of(len) == ""
    assert filename_of(None) == ""


def test_options_are_checked_before_anything_runs(tmp_path: Path) -> None:
    existing = tmp_path / "a.pkl"
    existing.write_bytes(b"x")
    Options(tmp_path / "b.pkl").check()
    Options(existing, force=True).check()
    for path, word in (
        (existing, "--force"),
        (tmp_path, "is a directory"),
        (tmp_path / "no" / "a.pkl", "does not exist"),
    ):
        with pytest.raises(MemtraceError, match=word):
            Options(path).check()
    with pytest.raises(MemtraceError, match="device 'tpu'"):
        Options(tmp_path / "b.pkl", device="tpu").check()  # type: ignore[arg-type]
