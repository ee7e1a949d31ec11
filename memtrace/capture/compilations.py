"""What was compiled, again and why, and where compilers gave the program back to Python.

Dynamo and Thunder tell this to themselves (metrics of each compilation, reasons of graph breaks and
splits); we listen where they do. These places are private to them: where one is missing, the list
is shorter and a note says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memtrace.capture import fx
from memtrace.capture.marks import MarkLog
from memtrace.capture.patches import Notes, Patches

if TYPE_CHECKING:
    from memtrace.snapshot.format import Compilation

_MOST = 1000
_LINES, _WIDTH = 4, 300  # of a reason
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
_NODE = re.compile(r"node with name: (\S+) and target: ")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_CACHE_ENTRY = re.compile(r"^\d+/\d+(_\d+)?: ")  # '0/1: ', which entry of Dynamo's cache failed
_COMMENT = re.compile(r" {2,}# .*")  # behind a guard: the line that made it, in Dynamo's own words
# What follows a graph break's first lines is advice, the same in every program.
_ADVICE = ("Hint:", "Developer debug context:", "For more details", "***", "User stack trace:")


class Compilations:
    """The capture's ``compilations``; rows are in the order in which things ended."""

    def __init__(self, marks: MarkLog, notes: Notes) -> None:
        self.rows: list[Compilation] = []
        self._marks = marks
        self._notes = notes
        # Dynamo's compile_id → kind, name and place of the forward: a backward has only the id.
        self._forwards: dict[str, tuple[str, str, str]] = {}

    def add(
        self, kind: str, name: str, where: str = "", reason: str = "", duration_ns: int = -1
    ) -> Compilation | None:
        """A row as of now; None once there are too many."""
        from memtrace.snapshot.format import Compilation

        if len(self.rows) >= _MOST:
            self._notes.add(f"more than {_MOST} compilations and graph breaks: later ones left out")
            return None
        row = Compilation(
            kind=kind,
            name=name[:_WIDTH],
            where=where[-_WIDTH:],
            reason=brief(reason),
            mark=max(0, self._marks.next - 1),
            duration_ns=duration_ns,
        )
        self.rows.append(row)
        return row

    # -- Dynamo --------------------------------------------------------------------------------

    def watch_dynamo(self, patches: Patches) -> None:
        """After ``import torch._dynamo.output_graph``. Raises where torch has changed."""
        from torch._dynamo import output_graph, utils

        # Called with the metrics of every compilation, whatever the logging.
        tell = utils.add_compilation_metrics_to_chromium
        compiled = self._notes.guard("reading a compilation", self._compiled)

        def add_compilation_metrics_to_chromium(metrics: Any) -> None:
            compiled(metrics)
            tell(metrics)

        patches.set(
            utils, "add_compilation_metrics_to_chromium", add_compilation_metrics_to_chromium
        )
        reason = output_graph.GraphCompileReason
        init = reason.__post_init__
        broke = self._notes.guard("reading a graph break", self._broke)

        def __post_init__(self: Any) -> None:
            broke(self)
            init(self)

        patches.set(reason, "__post_init__", __post_init__)

    def _compiled(self, metrics: Any) -> None:
        if metrics.is_runtime:  # CUDA graphs, autotuning
            return
        duration = -1 if metrics.duration_us is None else int(metrics.duration_us) * 1000
        key = str(metrics.compile_id)
        if metrics.is_forward is False:
            kind, name, where = self._forwards.get(key, ("compile", "", ""))
            self.add(kind, f"{name} (backward)".strip(), where, duration_ns=duration)
            return
        where = f"{fx.short_file(str(metrics.co_filename))}:{metrics.co_firstlineno}"
        name = str(metrics.co_name or "")
        if metrics.has_guarded_code:
            why = str(metrics.recompile_reason or "")
            kind = "recompile" if why else "compile"
            self._forwards[key] = kind, name, where
            self.add(kind, name, _place(why) or where, _CACHE_ENTRY.sub("", why), duration)
        elif metrics.fail_type == "Unsupported":
            # The whole function is left to Python.
            if metrics.fail_user_frame_filename:
                file = fx.short_file(str(metrics.fail_user_frame_filename))
                where = f"{file}:{metrics.fail_user_frame_lineno}"
            self.add("graph break", name, where, str(metrics.fail_reason or ""), duration)

    def _broke(self, why: Any) -> None:
        if why.graph_break:
            frames = list(why.user_stack)
            inner = frames[-1] if frames else None
            where = f"{fx.short_file(inner.filename)}:{inner.lineno}" if inner is not None else ""
            self.add("graph break", inner.name if inner is not None else "", where, why.reason)

    # -- Thunder -------------------------------------------------------------------------------

    def watch_splits(self, patches: Patches) -> None:
        """After ``import thunder.dynamo.compiler``. Raises where Thunder has changed."""
        from thunder.dynamo import compiler

        split = compiler._splitter
        keep = self._notes.guard("reading why Thunder split a graph", self._split)

        def _splitter(graph: Any, *args: Any, **kwargs: Any) -> Any:
            places = {str(n.name): fx.source_of_node(n) for n in graph.graph.nodes}
            found = split(graph, *args, **kwargs)
            keep(found[1], places)
            return found

        patches.set(compiler, "_splitter", _splitter)

    def _split(self, info: Any, places: dict[str, str]) -> None:
        seen = set()  # the splitter looks at some nodes twice
        for reason in info.split_reasons or ():
            if (reason.info, reason.exception) in seen:
                continue
            seen.add((reason.info, reason.exception))
            text = _ADDRESS.sub("", str(reason.info or reason.reason_type))
            node = _NODE.search(text)
            name = node.group(1) if node else ""
            if reason.exception:
                text += f"\n{reason.exception}"
            self.add("split", name, places.get(name, ""), text)

    def missed(self, name: str, entries: int) -> Callable[[], None]:
        """Thunder's cache of ``entries`` programs has none that fits; call the result when done."""
        began = time.perf_counter_ns()
        row = (
            self.add("recompile", name, reason=f"none of {entries} cached programs fits the inputs")
            if entries
            else self.add("compile", name)
        )

        def done() -> None:
            if row is not None:
                row["duration_ns"] = time.perf_counter_ns() - began

        return done


def brief(reason: str) -> str:
    """The first lines of a reason without advice, each with its white space collapsed."""
    lines: list[str] = []
    for line in reason.splitlines():
        text = " ".join(_COMMENT.sub("", line).split())
        if text.startswith(_ADVICE) or len(lines) == _LINES:
            break
        if text:
            lines.append(text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…")
    return "\n".join(lines)


def _place(text: str) -> str:
    """The last place that a stack in ``text`` names, '' if none."""
    places = _PLACE.findall(text)
    return f"{fx.short_file(places[-1][0])}:{places[-1][1]}" if places else ""
