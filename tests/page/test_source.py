"""The margin of the source says what each line holds; rows and lines lead to each other."""

import re

import numpy as np
import pytest

from memtrace.analysis import open_subject
from memtrace.render.units import format_bytes
from memtrace.snapshot import read
from memtrace.timeline import live
from tests.page.captures import NVFUSER, TORCHCOMPILE

TRACE = "thunder.computation_25"


@pytest.fixture
def two(browser, write):
    browser.open(write(TORCHCOMPILE, NVFUSER))
    return browser


def held_by_line(event):
    """Bytes alive after an event by the line of TRACE that made them, from the stacks alone."""
    subject = open_subject(read(str(NVFUSER)))
    run, stacks = subject.replay, subject.recording.stacks
    held: dict[int, int] = {}
    for k in live(run, event, run.accounting).tolist():
        frames = stacks.at(int(run.lifetimes.stack[k]))
        line = next((frame.line for frame in frames if frame.filename == TRACE), None)
        if line is not None:
            held[line] = held.get(line, 0) + int(run.lifetimes.requested[k])
    return held


def shown_lines(browser):
    """(line, amount, text, marked) of what is drawn of the source."""
    return browser.js(
        "return Array.from(document.querySelectorAll('.line'), (line) => ["
        " Number(line.dataset.line), line.querySelector('.amount').textContent,"
        " line.querySelector('code').textContent,"
        " line.classList.contains('marked')])"
    )


def test_a_row_leads_to_its_line_and_the_line_says_what_it_holds(two):
    assert two.text("#rows tbody tr .name").startswith("nvFusion2, 6, 10, 14")
    two.click("#rows tbody tr")
    lines = shown_lines(two)
    marked = [line for line in lines if line[3]]
    assert marked
    number, amount, text, _ = next(line for line in marked if "nvFusion2(" in line[2])
    assert re.match(r"\s*\[.*t1112, t1126\] = nvFusion2\(", text)
    peak = two.js("return memtrace.app.histories[1].peak")
    assert amount == format_bytes(held_by_line(peak)[number]) == "2.82 GB"
    seen = two.js(
        "const view = document.querySelector('.source-lines').getBoundingClientRect();"
        "const line = document.querySelector('.line.marked').getBoundingClientRect();"
        "return line.top >= view.top && line.bottom <= view.bottom && line.bottom <= innerHeight"
    )
    assert seen


def test_the_margin_follows_the_chosen_moment(two):
    two.press(1, 0.6, 0.2)
    event = two.js("return memtrace.app.state.chosen[1]")
    two.js(
        "const { source, histories } = memtrace.app;"
        "source.open(1, histories[1].files.findIndex((f) => f.name === arguments[0]))",
        TRACE,
    )
    expected = held_by_line(event)
    margin = two.js("return Array.from(memtrace.app.source.margin)")
    assert dict(map(tuple, margin)) == expected
    assert f"event {event:,}" in two.text(".source-note")
    assert format_bytes(sum(expected.values())) in two.text(".source-note")


def test_a_line_leads_to_its_row(two):
    two.click("#rows tbody tr")
    two.click("#rows tbody tr")
    assert two.js("return memtrace.app.state.selected") is None
    heaviest = two.js(
        "const held = Array.from(document.querySelectorAll('.line.holds'));"
        "held.find((line) => line.textContent.includes('nvFusion2(')).click();"
        "return memtrace.app.state.selected.row"
    )
    assert heaviest == 0
    assert two.all("#rows tbody tr")[0].get_attribute("aria-selected") == "true"


def test_only_the_lines_in_sight_exist(two):
    longest = two.js(
        "let best = null;"
        "memtrace.app.histories.forEach((h, side) => h.files.forEach((file, number) => {"
        "  if (!best || file.text.length > best[2]) best = [side, number, file.text.length];"
        "}));"
        "memtrace.app.source.open(best[0], best[1]); return memtrace.app.source.lines.length"
    )
    assert longest > 1000
    assert 10 < len(two.all(".line")) < 100
    two.js("document.querySelector('.source-lines').scrollTop = 1e9")
    two.frame()
    last = int(np.max([line[0] for line in shown_lines(two)]))
    assert last == longest


def test_buttons_step_from_one_holding_line_to_the_next(two):
    before = two.js("return document.querySelector('.source-lines').scrollTop")
    two.click("#source .next")
    after = two.js("return document.querySelector('.source-lines').scrollTop")
    assert after > before
    two.click("#source .previous")
    assert two.js("return document.querySelector('.source-lines').scrollTop") < after
