"""What is drawn: exact moments, the peak among them; pointer, zoom and keys."""

import pytest

from memtrace.analysis import open_subject
from memtrace.snapshot import read
from memtrace.symbols import attribute
from tests.page.captures import NVFUSER, SAMPLES, TORCHCOMPILE

EAGER = SAMPLES / "gpt2-eager.pkl.gz"


@pytest.fixture
def one(browser, write):
    browser.open(write(NVFUSER))
    return browser


@pytest.fixture
def two(browser, write):
    browser.open(write(TORCHCOMPILE, NVFUSER))
    return browser


def view(browser):
    return browser.js("return memtrace.app.state.view")


def lit(browser):
    return browser.js("return memtrace.app.litBand()")


def test_the_canvas_is_drawn(one):
    colours = one.js(
        """
        const { ctx } = memtrace.app.charts[0].plot;
        const { data } = ctx.getImageData(0, 0, ctx.canvas.width, ctx.canvas.height);
        const seen = {};
        for (let k = 0; k < data.length; k += 4) {
          const colour = data.slice(k, k + 3).join();
          seen[colour] = (seen[colour] || 0) + 1;
        }
        return Object.values(seen).filter((count) => count > 500).length;
        """
    )
    assert colours >= 5


@pytest.mark.parametrize("columns", [7, 100, 1000])
def test_decimation_keeps_the_peak_of_any_view(one, columns):
    run = open_subject(read(str(NVFUSER))).replay
    total = run.total(run.accounting)
    begin = one.js("return memtrace.app.histories[0].window.begin")
    for low, high in [(0, run.n_events), (1000, 9000), (begin, run.n_events), (5000, 5003)]:
        chosen = one.js(
            "return memtrace.decimate(0, arguments[0], arguments[1])",
            [low - begin, high - begin], columns,
        )  # fmt: skip
        assert chosen == sorted(set(chosen))
        assert chosen[0] >= 0
        assert chosen[-1] <= run.n_events
        assert total[chosen].max() >= total[low : high + 1].max()
        assert len(chosen) <= 2 * columns + 4


def test_by_time_the_moments_after_an_idle_stretch_hold_what_was_left(one):
    """A column of pixels before a pause ends with its last moment, not with its greatest."""
    one.click("input[name=axis][value=time] + span")
    one.click("#zoom-whole")
    found = one.js(
        """
        const [history] = memtrace.app.histories;
        const { moments, xs } = memtrace.app.charts[0].frame;
        const wide = (xs.at(-1) - xs[0]) / 200;
        const idle = Array.from(moments, (m, k) => [m, k]).filter(
          ([m, k]) => k + 1 < xs.length && xs[k + 1] - xs[k] > wide);
        return idle.map(([m, k]) => history.position(m + 1, "time") - xs[k] > wide);
        """
    )
    assert found
    assert all(found)


@pytest.mark.parametrize("by", ["symbol", "category", "layer"])
def test_areas_sum_to_the_total_at_every_drawn_moment(two, by):
    two.click(f"input[name=by][value={by}] + span")
    for whole in (False, True):
        wrong = two.js(
            """
            memtrace.app.resetView(arguments[0]);
            const wrong = ({ frame, history }) => Array.from(frame.moments).filter((m, k) =>
              frame.tops[k * (frame.bands + 1) + frame.bands] !== history.total[m]).length;
            return memtrace.app.charts.map(wrong);
            """,
            whole,
        )
        assert wrong == [0, 0]


def test_both_charts_share_their_scales(two):
    scales = two.js(
        "return memtrace.app.charts.map(({ plot: { scales } }) =>"
        " ['x', 'y'].map((k) => [scales[k].min, scales[k].max]))"
    )
    assert scales[0] == scales[1]
    starts = two.js("return memtrace.app.histories.map((h) => h.position(h.window.begin, 'event'))")
    assert starts == [0, 0]


def test_hovering_tells_of_the_lifetime_under_the_pointer(one):
    one.move(0, 0.5, 0.2)
    shown = one.text(".tooltip")
    found = one.js(
        """
        const [chart] = memtrace.app.charts;
        const { left, top } = chart.plot.cursor;
        return [chart.frame.moments[chart.index], chart.plot.posToVal(top, "y")];
        """
    )
    subject = open_subject(read(str(NVFUSER)))
    lifetimes = subject.replay.lifetimes
    names = attribute(subject.recording, subject.replay)
    alive = (lifetimes.born < found[0]) & (lifetimes.freed >= found[0])
    told = [
        k
        for k in alive.nonzero()[0].tolist()
        if f"{lifetimes.requested[k]:,} bytes" in shown
        and names.of(k).symbol.text in shown
        and f"event {lifetimes.born[k] + 1:,}," in shown
        and f"event {lifetimes.freed[k]:,}," in shown
    ]
    assert len(told) == 1
    (naming,) = (names.of(k) for k in told)
    assert naming.where in shown
    assert naming.layer_of(int(lifetimes.requested[told[0]])) in shown
    assert f"event{found[0]:,}" in shown
    one.away()
    assert one.js("return document.querySelector('.tooltip').hidden")


def test_a_row_and_its_area_light_up_together(two):
    band = two.js("return memtrace.app.bands.findIndex((band) => band.row === 0)")
    other = two.js("return memtrace.app.bands.findIndex((band) => band.grey === 0)")
    # A point within another area of B: it fades while the row is pointed at.
    x, y = two.js(
        """
        const { frame } = memtrace.app.charts[1];
        const k = Math.floor(frame.xs.length * 0.6);
        const at = k * (frame.bands + 1) + arguments[0];
        return [(frame.xs[k] + frame.xs[k + 1]) / 2, (frame.tops[at] + frame.tops[at + 1]) / 2];
        """,
        other,
    )
    before = two.colour(1, x, y)
    row = two.all("#rows tbody tr")[0]
    two.actions().move_to_element(row).perform()
    two.frame()
    assert lit(two) == band
    faded = two.colour(1, x, y)
    assert sum(faded) > sum(before) + 20
    two.away()
    assert lit(two) == -1
    assert two.colour(1, x, y) == before
    two.move(1, 0.5, 0.2)
    assert lit(two) == band
    assert "lit" in two.all("#rows tbody tr")[0].get_attribute("class")


def test_a_row_without_an_area_gets_one_while_it_is_pointed_at(one):
    rows = one.js("return memtrace.app.table.rows.map((row) => row.band !== null)")
    small = rows.index(False)
    two_bands = one.js("return memtrace.app.bands.length")
    one.js("document.querySelectorAll('#rows tbody tr')[arguments[0]].focus()", small)
    one.frame()
    assert one.js("return memtrace.app.bands.length") == two_bands + 1
    assert one.js("return memtrace.app.bands[memtrace.app.litBand()].focus")
    one.away()
    one.js("document.activeElement.blur()")
    assert one.js("return memtrace.app.bands.length") == two_bands


def test_dragging_zooms_and_a_double_click_goes_back(one):
    before = view(one)
    one.drag(0, (0.3, 0.5), (0.4, 0.5))
    after = view(one)
    assert after[1] - after[0] == pytest.approx((before[1] - before[0]) * 0.1, rel=0.05)
    one.pointer(0, 0.5, 0.5).double_click().perform()
    one.frame()
    assert view(one) == before
    one.drag(0, (0.3, 0.3), (0.5, 0.6))
    low, high = one.js("return memtrace.app.yRange()")
    assert 0 < low < high
    one.click("#zoom-window")
    assert view(one) == before
    assert one.js("return memtrace.app.yRange()")[0] == 0


def test_zoomed_in_every_moment_and_single_lifetimes_are_drawn(one):
    one.js(
        """
        const { app } = memtrace;
        const x = app.histories[0].position(app.histories[0].peak, "event");
        app.zoom([x - 10, x + 10], null);
        """
    )
    one.frame()
    assert one.js("return memtrace.app.charts[0].frame.complete")
    traced = one.js(
        """
        const { frame, history } = memtrace.app.charts[0];
        return memtrace.lifetimes(0).map(([k, first, last, low, high]) => [
          history.born[k], history.end[k], frame.moments[first], frame.moments[last] ?? null,
          high - low === history.requested[history.kind[k]]]);
        """
    )
    assert traced
    for born, end, first, after, exact in traced:
        assert exact
        assert born < first <= end
        assert after is None or after <= end + 1


def test_time_and_events_are_two_axes_of_the_same(two):
    two.click("input[name=axis][value=time] + span")
    low, high = view(two)
    assert "time" in two.text("#axis")
    spans = two.js("return memtrace.app.histories.map((h) => h.position(h.window.end, 'time'))")
    assert low <= 0
    assert high == pytest.approx(max(spans), rel=0.05)
    for side in (0, 1):
        xs = two.js("return Array.from(memtrace.app.charts[arguments[0]].frame.xs)", side)
        assert xs == sorted(xs)


def test_charts_by_keyboard(one):
    peak = one.js("return memtrace.app.histories[0].peak")
    one.js("document.querySelector('.plot').focus()")
    one.keys("p")
    assert (
        one.js("return memtrace.app.charts[0].frame.moments[memtrace.app.charts[0].index]") == peak
    )
    assert f"event {peak:,}" in one.text("#status")
    one.keys("\ue014", "\ue014")  # right
    one.keys("\ue007")  # Enter
    assert one.js("return memtrace.app.state.chosen[0]") == peak + 2
    before = view(one)
    one.keys("+")
    assert view(one)[1] - view(one)[0] == pytest.approx((before[1] - before[0]) / 2, rel=0.02)
    one.keys("\ue00c")  # Escape
    assert view(one) == before
    one.keys("\ue013")  # up
    assert lit(one) >= 0


def test_everything_is_reached_by_tab(two):
    two.js("document.activeElement.blur()")
    reached = set()
    for _ in range(30):
        two.keys("\ue004")
        name, visible = two.js(
            """
            const e = document.activeElement;
            const { tab, index } = e.dataset;
            const name = e.id || e.name || tab || index || e.className || e.tagName;
            const { outlineStyle } = getComputedStyle(e.name ? e.nextElementSibling : e);
            return [name, outlineStyle !== "none"];
            """
        )
        reached.add(name)
        assert visible or name == "BODY", name  # where the focus is can be seen
    wanted = {"theme", "by", "axis", "zoom-in", "zoom-whole", "plot", "gap", "0", "source-lines"}
    assert wanted <= reached, reached


def test_rows_by_keyboard(two):
    two.js("document.querySelector('#rows tbody tr').focus()")
    two.keys("\ue015")  # down
    assert two.js("return document.activeElement.dataset.index") == "1"
    assert two.js("return memtrace.app.state.hovered.row") == 1
    two.keys("\ue007")
    assert two.js("return document.activeElement.getAttribute('aria-selected')") == "true"
    two.keys("\ue00c")
    assert two.js("return memtrace.app.state.selected") is None


def test_an_area_of_an_eager_run_has_no_source_and_the_page_says_so(browser, write):
    browser.open(write(EAGER))
    assert "none" in browser.text(".source-note")
    browser.click("#rows tbody tr")
    assert "no source" in browser.text("#status")
