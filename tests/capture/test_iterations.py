"""Where iterations begin, from marks alone."""

from __future__ import annotations

import pytest

from memtrace.capture.iterations import begins_of, iterations_of
from memtrace.capture.marks import Entry


def marks(text: str) -> list[Entry]:
    """'C B O' → begin and end marks of a call, a backward pass and an optimizer step.

    E: a call without gradients. S: memtrace.step(). P: a profiler's step. *: a compilation.
    C!: a call that failed. C(: one that never ended. Time goes by one for each mark.
    """
    kinds = {"C": "call", "E": "call", "B": "backward", "O": "optimizer"}
    singles = {"S": "step", "P": "profiler_step", "*": "compile"}
    found: list[Entry] = []

    def add(kind: str, edge: str = "", grad: bool = True, failed: bool = False) -> None:
        found.append(Entry(kind, edge, "", len(found), grad, failed))

    add("start")
    for word in text.split():
        if word in singles:
            add(singles[word])
            continue
        add(kinds[word[0]], "begin", grad=word[0] != "E")
        if not word.endswith("("):
            add(kinds[word[0]], "end", failed=word.endswith("!"))
    add("end")
    return found


def begins(text: str) -> list[str]:
    """The words at which iterations begin, numbered."""
    entries = marks(text)
    words = text.split()
    at = 1
    word_of = {}
    for k, word in enumerate(words):
        word_of[at] = f"{word}{k}"
        at += 1 if word in "SP*" or word.endswith("(") else 2
    return [word_of[b] for b in begins_of(entries)[0]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("C", ["C0"]),
        ("E E E", ["E0", "E1", "E2"]),  # inference
        ("C C C", ["C0", "C1", "C2"]),  # inference that forgot no_grad
        ("C B C B C B", ["C0", "C2", "C4"]),
        ("C B O C B O", ["C0", "C3"]),
        ("C B C B O C B C B O", ["C0", "C5"]),  # gradient accumulation
        ("C C B O C C B O", ["C0", "C4"]),  # two calls in a step
        ("B O B O", ["B0", "B2"]),  # no call that we watch
        ("B B B", ["B0", "B1", "B2"]),
        ("C B O E E E C B O", ["C0", "E3", "E4", "E5", "C6"]),  # evaluation between epochs
        ("E E C B C B", ["E0", "E1", "C2", "C4"]),  # … and before
        ("E C B O E C B O", ["E0", "E4"]),  # a teacher's call
        ("E E C B O E E C B O", ["E0", "E5"]),  # two teachers, or a checkpoint's segments
        ("E C B O E E E C B O E C B O", ["E0", "E4", "E5", "E6", "E10"]),  # teacher, evaluation
        ("C B O C B O E E", ["C0", "C3", "E6", "E7"]),  # evaluation at the end
        ("C C B C C B C C", ["C0", "C3", "C6"]),  # broken off within a step
        ("S C B S C B S C B", ["S0", "S3", "S6"]),  # steps begin the loop's body
        ("C B S C B S C B S", ["C0", "S2", "S5"]),  # steps end it
        ("C C P C C P C C P", ["C0", "P2", "P5"]),
        ("C P C S C P C S", ["C0", "S3"]),  # memtrace.step() before a profiler's
    ],
)
def test_begins(text: str, expected: list[str]) -> None:
    assert begins(text) == expected


def test_an_iteration_ends_where_the_next_begins_and_the_last_at_its_last_mark() -> None:
    entries = marks("* C B C B")
    first, second = iterations_of(entries, {}, profiled=None, failed=False)
    assert (first["begin"], first["end"]) == (2, 6)
    assert (second["begin"], second["end"]) == (6, 9)
    assert entries[9].kind == "backward"
    assert entries[9].edge == "end"
    assert first["whole"]
    assert second["whole"]
    assert second["wall_ns"] == 3


def test_a_compilation_makes_its_iteration_unsteady() -> None:
    entries = marks("C B C B C B")
    entries.insert(2, Entry("compile", "begin", "dynamo", 0))
    assert [i["compiled"] for i in iterations_of(entries, {}, None, False)] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "failed", "whole"),
    [
        ("C B C B", False, [True, True]),
        ("C B C(", False, [True, False]),  # os._exit in a call
        ("C B C!", True, [True, False]),
        ("C B O C B", False, [True, False]),  # never got to its step
        ("C B C", True, [True, False]),
        ("C B O C B O", True, [True, True]),  # failed between iterations
        ("S C B S C B", True, [True, False]),  # by steps, nobody knows whether it was done
        ("C B S C B S", True, [True, True]),
    ],
)
def test_whole(text: str, failed: bool, whole: list[bool]) -> None:
    assert [i["whole"] for i in iterations_of(marks(text), {}, None, failed)] == whole


def test_the_recorders_own_work_at_a_boundary_is_no_part_of_the_wall_time() -> None:
    entries = marks("C B C B")
    begin = 5
    (first, _) = iterations_of(entries, {begin: entries[4].time_ns}, profiled=begin, failed=False)
    assert first["wall_ns"] == 3
    assert [i["profiled"] for i in iterations_of(entries, {}, begin, False)] == [False, True]
