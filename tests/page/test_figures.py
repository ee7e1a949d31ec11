"""The page says what the commands say, at the peak and at every other moment."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from memtrace.analysis import fold_rows, open_subject, report_diff
from memtrace.cli import app
from memtrace.render.units import format_bytes, format_delta, format_time, format_time_delta
from memtrace.render.wording import detail_text
from memtrace.snapshot import read
from memtrace.timeline import find_windows, position_in
from tests.page.captures import ALLOCATORS, NVFUSER, PLAIN, SAMPLES, TORCHCOMPILE

DIMENSIONS = ("symbol", "category", "layer")
RECORDINGS = [
    NVFUSER,
    SAMPLES / "gpt2-eager.pkl.gz",
    ALLOCATORS / "oom.pkl.gz",
    ALLOCATORS / "async.pkl.gz",
    ALLOCATORS / "late.pkl.gz",
    PLAIN / "qwen2-L8-eager.snapshot.pkl.gz",
]


def ask(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    return json.loads(done.stdout)


def live_set(browser, side, event, by):
    rows = browser.js("return memtrace.liveSet(...arguments)", side, event, by)
    return {row["symbol"]: (row["bytes"], row["count"]) for row in rows}


def rows_of(found):
    """What is alive; symbols that only take time then are no part of a live set."""
    held = (row for row in found["rows"] if row["count"])
    return {row["symbol"]: (row["bytes"], row["count"]) for row in held}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_figures_and_live_sets_are_those_of_peak(browser, write, path):
    browser.open(write(path))
    expected = ask("peak", path)
    assert format_bytes(expected["peak_bytes"]) in browser.text("#figures")
    assert f"{expected['peak_bytes']:,} bytes" in browser.text("#figures")
    run = open_subject(read(str(path))).replay
    moments = [expected["event"], *np.linspace(0, run.n_events, 4, dtype=int).tolist()]
    for by in DIMENSIONS:
        for event in moments:
            there = ask("peak", path, "--by", by, "--at", event)
            assert live_set(browser, 0, event, by) == rows_of(there)
            assert (
                browser.js("return memtrace.total(0, arguments[0])", event) == there["peak_bytes"]
            )


def test_totals_and_positions_are_those_of_the_replay(browser, write):
    browser.open(write(NVFUSER))
    subject = open_subject(read(str(NVFUSER)))
    run, window = subject.replay, subject.window
    moments = list(range(0, run.n_events + 1, 41))
    totals = browser.js("return arguments[0].map((m) => memtrace.total(0, m))", moments)
    assert totals == run.total(run.accounting)[moments].tolist()
    inside = list(range(window.begin, window.end + 1, 7))
    said = browser.js("return arguments[0].map((m) => memtrace.position(0, m))", inside)
    assert said == [position_in(window, moment) for moment in inside]
    others = [w for w in find_windows(subject.recording, run) if w.kind == "iteration"][:-1]
    for other in others:
        middle = (other.begin + other.end) // 2
        said = browser.js("return memtrace.position(0, arguments[0])", middle)
        assert said == f"{other.name}, {position_in(other, middle)}"


def test_what_is_clicked_on_is_what_peak_says_of_that_event(browser, write):
    browser.open(write(NVFUSER))
    browser.press(0, 0.7, 0.3)
    event = browser.js("return memtrace.app.state.chosen[0]")
    total = ask("peak", NVFUSER, "--at", event)
    assert event != ask("peak", NVFUSER)["event"]
    assert format_bytes(total["peak_bytes"]) in browser.text("#about-rows")
    assert f"total {total['peak_bytes']:,} bytes" in browser.text("#rows tfoot")
    shown = browser.js(
        "return memtrace.app.table.rows.map(({ text, bytes, count }) => [text, bytes, count])"
    )
    assert sum(row[1] for row in shown) == total["peak_bytes"]
    assert sum(row[2] for row in shown) == sum(row["count"] for row in total["rows"])
    by_text = {row["symbol"]: row["bytes"] for row in total["rows"]}
    assert all(by_text.get(text, size) == size for text, size, _ in shown)


@pytest.mark.parametrize("by", DIMENSIONS)
def test_the_gap_has_the_rows_of_diff(browser, write, by):
    browser.open(write(TORCHCOMPILE, NVFUSER))
    browser.click(f"input[name=by][value={by}] + span")
    report = report_diff(*(open_subject(read(str(p))) for p in (TORCHCOMPILE, NVFUSER)), by=by)
    found = ask("diff", TORCHCOMPILE, NVFUSER, "--by", by)
    assert f"{found['gap_bytes']:+,} bytes" in browser.text("#rows tfoot")
    held = [row for row in report.rows if any(side.count for side in row.sides)]
    rows = fold_rows(held)
    shown = browser.js("return memtrace.app.data.rows[arguments[0]]", by)
    assert [(row["delta"], row["bytes"]) for row in shown] == [
        (row.delta, [side.bytes for side in row.sides]) for row in rows
    ]
    assert sum(row["delta"] for row in shown) == found["gap_bytes"]
    assert sum(row.delta for row in rows) == sum(row["delta_bytes"] for row in found["rows"])
    cells = browser.js(
        "return Array.from(document.querySelectorAll('#rows tbody tr[data-index]'),"
        " (row) => [row.querySelector('.name').textContent, row.cells[3].firstChild.textContent])"
    )
    assert cells == [[row["short"], format_delta(row["delta"])] for row in shown[: len(cells)]]
    assert len(cells) == min(len(shown), 60)


def test_live_sets_of_both_runs_of_a_pair(browser, write):
    browser.open(write(TORCHCOMPILE, NVFUSER))
    for side, path in enumerate((TORCHCOMPILE, NVFUSER)):
        expected = ask("peak", path)
        assert live_set(browser, side, expected["event"], "symbol") == rows_of(expected)


def test_rows_and_runs_have_the_gpus_time(browser, write):
    browser.open(write(TORCHCOMPILE, NVFUSER))
    expected = ask("diff", TORCHCOMPILE, NVFUSER)
    subjects = [open_subject(read(str(path))) for path in (TORCHCOMPILE, NVFUSER)]
    folded = fold_rows(report_diff(*subjects).rows)
    shown = browser.text("#rows tbody tr:first-child .detail")
    time = format_time_delta(folded[0].delta_ns)
    assert shown.startswith(f"GPU {time} · {detail_text(folded[0])} · ")
    assert folded[0].delta_ns > 0.9 * expected["time_gap_ns"]
    for run in (expected["baseline"], expected["candidate"]):
        assert f"busy {format_time(run['gpu']['busy_ns'])}" in browser.text("body")
        assert format_time(run["steps"]["gpu"]["median_ns"]) in browser.text("body")
