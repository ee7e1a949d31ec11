"""Every kind of recording, hostile names, narrow windows, the dark, paper; and no network."""

import time

import pytest

from memtrace.analysis import open_subject
from memtrace.snapshot import read
from tests.page.captures import (
    ALLOCATORS,
    NVFUSER,
    PLAIN,
    SAMPLES,
    TORCHCOMPILE,
    empty_snapshot,
    hostile_capture,
)

KINDS = [
    *sorted(ALLOCATORS.glob("*.pkl.gz")),
    *sorted(PLAIN.glob("*.pkl.gz")),
    SAMPLES / "vit-nvfuser.pkl.gz",
    SAMPLES / "gpt2-inductor.pkl.gz",
]


def check_alone(browser, page):
    """It asked for nothing but itself and complained of nothing."""
    assert browser.requests() == [page.as_uri()]
    assert browser.logs("browser") == []


def use(browser):
    """A little of everything."""
    for side in range(len(browser.all(".u-over"))):
        browser.move(side, 0.4, 0.1)
        browser.press(side, 0.5, 0.1)
    for by in ("category", "layer", "symbol"):
        browser.click(f"input[name=by][value={by}] + span")
    browser.click("#zoom-whole")
    browser.click("#zoom-in")
    for row in browser.all("#rows tbody tr[data-index]")[:2]:
        row.click()
    browser.click("#theme")
    browser.away()


@pytest.mark.parametrize("path", KINDS, ids=lambda path: path.name.split(".")[0])
def test_every_kind_of_recording(browser, write, path):
    page = write(path)
    browser.open(page)
    subject = open_subject(read(str(path)))
    assert f"event {browser.js('return memtrace.app.histories[0].peak'):,}" in browser.text(
        "#about-rows"
    )
    for warning in subject.replay.warnings:
        assert warning in browser.text("#notes")
        assert browser.text(".to-notes").endswith("below")
    use(browser)
    check_alone(browser, page)


def test_nothing_recorded(browser, write, tmp_path_factory):
    page = write(empty_snapshot(tmp_path_factory.mktemp("empty")))
    browser.open(page)
    assert "0 B" in browser.text("#figures")
    assert "nothing is alive" in browser.text("#rows")
    assert browser.js("return document.querySelector('input[value=time]').disabled")
    use(browser)
    check_alone(browser, page)


@pytest.mark.parametrize(
    "pair",
    [
        (TORCHCOMPILE, NVFUSER),
        (PLAIN / "qwen2-L8-eager.snapshot.pkl.gz", SAMPLES / "gpt2-eager.pkl.gz"),
        (ALLOCATORS / "async.pkl.gz", ALLOCATORS / "native.pkl.gz"),
        (NVFUSER, NVFUSER),
    ],
    ids=["samples", "plain-capture", "requested-allocated", "same"],
)
def test_two_recordings(browser, write, pair):
    page = write(*pair)
    browser.open(page)
    assert len(browser.all("canvas")) == 2
    use(browser)
    check_alone(browser, page)


def test_hostile_names_stay_text(browser, write, tmp_path_factory):
    page = write(hostile_capture(tmp_path_factory.mktemp("hostile")))
    browser.open(page, width=1200)
    use(browser)
    check_alone(browser, page)
    assert browser.js("return document.title") != "owned"
    assert browser.all("img") == []
    assert len(browser.all("script")) == 4
    assert "</script><img src=x" in browser.text("#notes")
    assert "\\x202e" in browser.text("#notes")
    assert "\u202e" not in browser.text("body")
    # Each name is a world of its own to the direction of text, and none is wider than its place.
    outside = browser.js(
        """
        return [document.documentElement.scrollWidth <= innerWidth,
          Array.from(document.querySelectorAll("bdi, .name")).every(
            (name) => getComputedStyle(name).unicodeBidi === "isolate"),
          Array.from(document.querySelectorAll("#rows .name, .card .name")).every(
            (name) => name.offsetHeight < 260 && name.getBoundingClientRect().right <= innerWidth)];
        """
    )
    assert outside == [True, True, True]
    longest = browser.js(
        "const names = Array.from(document.querySelectorAll('#rows .name'));"
        "return Math.max(...names.map((name) => name.title.length));"
    )
    assert longest > 10_000  # all of it on hover


def test_a_recording_that_is_too_long_says_so(browser, write):
    page = write(TORCHCOMPILE, NVFUSER, most_bytes=10)
    browser.open(page)
    assert "too long for one page" in browser.text("#notes")
    use(browser)
    browser.click("#zoom-whole")
    wrong = browser.js(
        """
        return memtrace.app.charts.map(({ frame, history }) => [
          frame.moments[0] < history.window.begin,
          Array.from(frame.moments).every((m, k) =>
            frame.tops[k * (frame.bands + 1) + frame.bands] === history.total[m])]);
        """
    )
    assert wrong == [[True, True], [True, True]]
    browser.press(0, 0.5, 0.3)
    moment, total = browser.js(
        "const h = memtrace.app.histories[0]; const m = memtrace.app.state.chosen[0];"
        "return [m, h.detailed(m) ? -1 : h.total[m]]"
    )
    run = open_subject(read(str(TORCHCOMPILE))).replay
    assert total == run.total(run.accounting)[moment]
    assert (
        browser.js("return memtrace.app.table.rows.reduce((s, row) => s + row.bytes, 0)") == total
    )
    check_alone(browser, page)


@pytest.mark.parametrize("width", [360, 768, 1100, 2200])
def test_no_window_is_too_narrow(browser, write, width):
    browser.open(write(TORCHCOMPILE, NVFUSER), width=width)
    assert browser.js("return document.documentElement.scrollWidth") <= width
    browser.move(0, 0.8, 0.2)
    box = browser.js("return document.querySelector('.tooltip').getBoundingClientRect().toJSON()")
    assert box["left"] >= 0
    assert box["right"] <= width


def test_dark_and_light(browser, write):
    page = write(NVFUSER)
    brightness = (
        "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    )
    browser.open(page, dark=True)
    assert browser.js(brightness) < 60
    dark = browser.js("return memtrace.app.theme")
    browser.click("#theme")
    assert browser.js(brightness) > 200
    assert (dark, browser.js("return memtrace.app.theme")) == ("dark", "light")
    browser.open(page)
    assert browser.js(brightness) > 200


def test_on_paper(browser, write):
    browser.open(write(TORCHCOMPILE, NVFUSER), dark=True)
    browser.js("dispatchEvent(new Event('beforeprint'))")
    browser.emulate("print", dark=True)
    assert browser.js("return memtrace.app.theme") == "light"
    shown = browser.js(
        """
        const shown = (s) => getComputedStyle(document.querySelector(s)).display !== "none";
        return ["#figures", ".plot canvas", "#rows", "#notes", "#print-source", ".controls",
          "#theme", ".source-lines"].map(shown);
        """
    )
    assert shown == [True, True, True, True, True, False, False, False]
    assert "nvFusion2(" in browser.text("#print-source")
    browser.emulate("screen", dark=True)
    browser.js("dispatchEvent(new Event('afterprint'))")
    assert browser.js("return memtrace.app.theme") == "dark"
    assert browser.pdf().startswith(b"%PDF")


def test_drawn_and_answering_soon(browser, write):
    """The largest sample; scripts/bench_page.py measures a million events."""
    browser.open(write(TORCHCOMPILE, NVFUSER))
    ready = browser.js("return performance.getEntriesByName('memtrace-ready')[0].startTime")
    began = time.perf_counter()
    browser.move(0, 0.5, 0.2)
    assert not browser.js("return document.querySelector('.tooltip').hidden")
    assert ready < 3000  # generous: other tests share the processor
    assert time.perf_counter() - began < 3
