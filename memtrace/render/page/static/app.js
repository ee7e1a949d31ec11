// The page: its state, and what follows when a person changes it.

class App {
  constructor({ data, buffer }) {
    this.data = data;
    this.histories = data.runs.map((run) => new History(run, buffer));
    const timed = this.histories.every((history) => history.times);
    this.state = {
      by: "symbol", axis: "event", view: null, range: null, tab: data.gap === null ? "live" : "gap",
      chosen: this.histories.map((history) => history.peak), side: this.histories.length - 1,
      hovered: null, selected: null,
    };
    this.printing = false;
    this.ordered = new Map(); // bands by what rows stand for, found once
    this.state.view = this.windowView();
    this.rowOfGroup = this.findRows();
    this.bands = this.makeBands();
    this.status = document.getElementById("status");
    this.tooltip = new Tooltip(document.body);
    this.charts = this.histories.map((history, side) => this.makeChart(history, side));
    this.table = new RowTable(this, document.getElementById("rows"), "Rows");
    this.source = new SourceView(this, document.getElementById("source"));
    bindControls(this, timed);
  }

  get theme() {
    if (this.printing) return "light";
    const set = document.documentElement.dataset.theme;
    return set || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }

  makeChart(history, side) {
    const host = element("div", "plot");
    const { summary, letter } = history;
    const name = `${letter ? `${letter}: ` : ""}${summary.label}`;
    const figure = element("figure", "chart");
    const caption = element("figcaption");
    if (letter) caption.append(element("span", "letter", letter));
    caption.append(nameElement(summary.label), element("span", "unit", `bytes ${summary.accounting}`));
    host.setAttribute("aria-label", `Timeline of ${name}: peak ${formatBytes(summary.peak_bytes)} at event ${formatCount(summary.event)}. ${CHART_HELP}`);
    figure.append(caption, host);
    document.getElementById("charts").append(figure);
    const chart = new Chart(this, history, side, host);
    bindChartKeys(this, chart);
    return chart;
  }

  // For each history, the peaks' row that each group belongs to, -1 where none.
  findRows() {
    const rows = this.data.rows[this.state.by];
    return this.histories.map((history, side) => {
      const of = new Int32Array(history.groups[this.state.by].length).fill(-1);
      rows.forEach((row, number) => row.groups[side].forEach((group) => { of[group] = number; }));
      return of;
    });
  }

  // The areas from the bottom up: chosen rows, a row that is pointed at, and all others.
  makeBands() {
    const { by } = this.state;
    const rows = this.data.rows[by];
    if (!this.ordered.has(by)) {
      const chosen = chooseBands(rows, this.histories.map((history) => history.summary.peak_bytes));
      for (const band of chosen) band.label = rows[band.row].short;
      this.ordered.set(by, orderBands(this.histories, by, chosen, rows));
    }
    const bands = [...this.ordered.get(by)];
    const focus = this.focus;
    if (focus && !bands.some((band) => band.row === focus.row)) {
      bands.push({ focus: true, row: focus.row, groups: focus.groups, label: focus.label });
    }
    return [...bands, { others: true, row: -1, label: "everything else" }];
  }

  get focus() {
    return this.state.hovered || this.state.selected;
  }

  bandOfRow(row) {
    return this.bands.find((band) => band.row === row && !band.focus) || null;
  }

  // Number of the band that is lit up, -1 for none.
  litBand() {
    const { focus } = this;
    if (!focus) return -1;
    return this.bands.findIndex((band) => (band.focus ? true : !band.others && focus.row >= 0 && band.row === focus.row));
  }

  windowView() {
    const ends = this.histories.flatMap((history) =>
      [history.window.begin, history.window.end].map((moment) => history.position(moment, this.state.axis)),
    );
    return this.pad(Math.min(0, ...ends.filter((end) => Number.isFinite(end) && end > -1)), Math.max(...ends));
  }

  wholeView() {
    const ends = this.histories.flatMap((history) =>
      [history.from, history.events].map((moment) => history.position(moment, this.state.axis)),
    );
    return this.pad(Math.min(...ends), Math.max(...ends));
  }

  pad(low, high) {
    const room = (high - low || 1) * 0.01;
    return [low - room, high + room];
  }

  yRange() {
    if (this.state.range) return this.state.range;
    const most = Math.max(...(this.charts || []).flatMap(({ frame }) => (frame ? [frame.totals.reduce((a, b) => Math.max(a, b), 0)] : [])), 1);
    return [0, Math.max(most, 8) * 1.12];
  }

  // What the axis counts, and from where.
  nameAxis() {
    const starts = this.histories.map(({ window, letter }) => ({ letter, name: window.iteration ? window.name : "the recording" }));
    const same = starts.every(({ name }) => name === starts[0].name);
    const start = same ? `the start of ${starts[0].name}` : `the starts of ${starts.map(({ letter, name }) => `${name} in ${letter}`).join(" and ")}`;
    const aligned = this.histories.length > 1 ? ", where both runs are aligned" : "";
    const what = this.state.axis === "event" ? "allocator events" : "time";
    const thinned = this.charts.some(({ frame }) => !frame.complete);
    const how = thinned ? "; each column of pixels is the moment of its greatest total" : "";
    document.getElementById("axis").textContent = `${what} since ${start}${aligned}${how}`;
  }

  // Composes and draws the charts anew.
  refresh() {
    const rows = this.data.rows[this.state.by];
    this.bands = this.makeBands();
    this.charts.forEach((chart) => chart.prepare(assignBands(chart.history, this.state.by, this.bands, rows, chart.side)));
    this.charts.forEach((chart) => chart.show());
    this.nameAxis();
  }

  refreshTables() {
    const { state } = this;
    const history = this.histories[state.side];
    const moment = state.chosen[state.side];
    if (state.tab === "gap") {
      this.table.show([...this.histories.map((one) => one.letter), "Δ bytes"], gapRows(this), [
        `gap ${formatExact(this.data.gap, true)}`, [...this.histories.map((one) => formatBytes(one.summary.peak_bytes)), formatDelta(this.data.gap)],
      ]);
    } else {
      const rows = liveRows(this, history, state.side, moment);
      const count = rows.reduce((sum, row) => sum + row.count, 0);
      this.table.show(["count", "bytes", "share"], rows, [
        `total ${formatExact(history.total[moment])}`,
        [formatCount(count), formatBytes(history.total[moment]), "100.0%"],
      ]);
    }
    showTabs(this, history, moment);
  }

  refreshAll() {
    this.rowOfGroup = this.findRows();
    this.refresh();
    showFigures(this, document.getElementById("figures"));
    this.refreshTables();
    this.source.refresh();
  }

  // A row or an area is pointed at; null: none any more.
  hover(focus) {
    if (focus === this.state.hovered || sameFocus(focus, this.state.hovered)) return;
    this.state.hovered = focus;
    this.refocus();
  }

  refocus() {
    const before = this.bands.find((band) => band.focus);
    const known = !this.focus || this.bands.some((band) => !band.focus && !band.others && band.row === this.focus.row);
    if (before || !known) this.refresh();
    else this.charts.forEach((chart) => chart.redraw());
    this.table.mark();
  }

  select(focus) {
    this.state.selected = sameFocus(focus, this.state.selected) ? null : focus;
    this.refocus();
    if (!this.state.selected) {
      this.source.marked = new Set();
      this.source.draw();
      return;
    }
    if (this.source.reveal(focus)) document.getElementById("source").scrollIntoView({ block: "nearest", behavior: "smooth" });
    else this.say(`${focus.label}: no source on this page says where it was made`);
  }

  // A line of source was clicked: the row that holds most of what it made.
  selectLine(side, file, line) {
    const history = this.histories[side];
    const moment = this.state.chosen[side];
    const tally = new Map();
    for (const lifetime of history.live(moment) || []) {
      if (!history.lines(history.kind[lifetime]).some(([f, l]) => f === file && l === line)) continue;
      const group = history.group(lifetime, this.state.by, moment);
      tally.set(group, (tally.get(group) || 0) + history.requested[history.kind[lifetime]]);
    }
    const [group] = [...tally].sort((a, b) => b[1] - a[1])[0] || [];
    if (group === undefined) return;
    this.state.selected = this.focusOf(side, group);
    this.source.marked = new Set([line]);
    this.source.draw();
    this.refocus();
    this.table.reveal();
  }

  focusOf(side, group) {
    const row = this.rowOfGroup[side][group];
    const rows = this.data.rows[this.state.by];
    if (row >= 0) return makeFocus(row, rows[row].groups, rows[row].short);
    const groups = this.histories.map((_, k) => (k === side ? [group] : []));
    return makeFocus(-1, groups, symbolText(this.histories[side].groups[this.state.by][group]));
  }

  // The pointer is over a chart at a drawn moment, at a height of `bytes` (null: by keyboard).
  point(chart, index, bytes) {
    const { frame, history } = chart;
    for (const other of this.charts) {
      if (other !== chart) other.plot.setCursor({ left: chart.plot.cursor.left, top: -1 }, false);
    }
    if (index < 0) return this.tooltip.hide();
    const moment = frame.moments[index];
    const total = formatBytes(history.total[moment]);
    const facts = [...describeMoment(history, moment), ["where", describePosition(history, moment)]];
    this.say(`${history.letter} event ${formatCount(moment)}, ${describePosition(history, moment)}: ${total}`.trim());
    const number = bytes === null ? this.litBand() : bandAt(frame, index, bytes);
    const band = this.bands[number];
    const groups = [];
    let head = ["total", total];
    if (band) {
      const held = frame.tops[index * (frame.bands + 1) + number + 1] - frame.tops[index * (frame.bands + 1) + number];
      head = [band.label, formatBytes(held)];
      facts.unshift(["total", total]);
      const lifetime = bytes === null ? -1 : lifetimeAt(history, frame, index, bytes);
      if (lifetime >= 0) groups.push(describeLifetime(history, lifetime));
      if (bytes !== null) this.hover(this.focusUnder(chart.side, band, lifetime, moment));
    } else if (bytes !== null) this.hover(null);
    this.tooltip.show(chart, chart.plot.cursor.left, head, [facts, ...groups]);
    return undefined;
  }

  // What is lit up while an area is pointed at; of the unnamed rest nothing is.
  focusUnder(side, band, lifetime, moment) {
    if (band.others || (band.focus && lifetime < 0)) return null;
    if (band.focus) return this.focusOf(side, this.histories[side].group(lifetime, this.state.by, moment));
    const row = this.data.rows[this.state.by][band.row];
    return makeFocus(band.row, row.groups, row.short);
  }

  leave(chart) {
    this.tooltip.hide();
    this.hover(null);
    for (const other of this.charts) if (other !== chart) other.plot.setCursor({ left: -10, top: -10 }, false);
  }

  // Shows what is alive at a drawn moment.
  choose(chart, index) {
    if (index < 0) return;
    this.chooseMoment(chart.side, chart.frame.moments[index]);
  }

  chooseMoment(side, moment) {
    this.state.chosen[side] = moment;
    this.state.side = side;
    this.state.tab = "live";
    this.table.expanded = false;
    this.refreshTables();
    this.source.refresh();
    this.charts.forEach((chart) => chart.redraw());
    const history = this.histories[side];
    this.say(`${history.letter} alive at event ${formatCount(moment)}: ${formatBytes(history.total[moment])}`.trim());
  }

  showPeak(chart) {
    const x = chart.history.position(chart.history.peak, this.state.axis);
    const [low, high] = this.state.view;
    if (x < low || x > high) this.zoom([x - (high - low) / 2, x + (high - low) / 2], null);
    chart.go(chart.frame.moments.indexOf(chart.history.peak));
  }

  zoom(view, range) {
    const least = this.state.axis === "event" ? 4 : 0.002;
    const middle = (view[0] + view[1]) / 2;
    const half = Math.max(view[1] - view[0], least) / 2;
    const [low, high] = this.wholeView();
    this.state.view = [Math.max(middle - half, low), Math.min(middle + half, high)];
    if (this.state.view[1] <= this.state.view[0]) this.state.view = [low, high];
    this.state.range = range;
    this.tooltip.hide();
    this.refresh();
  }

  zoomAround(x, factor) {
    const [low, high] = this.state.view;
    this.zoom([x - (x - low) * factor, x + (high - x) * factor], this.state.range);
  }

  resetView(whole = false) {
    this.state.range = null;
    this.state.view = whole ? this.wholeView() : this.windowView();
    this.refresh();
  }

  // One step back: the selection, then the zoom.
  escape() {
    if (this.state.selected) this.select(this.state.selected);
    else this.resetView();
  }

  walkBands(step) {
    const rows = this.bands.filter((band) => !band.others && !band.focus);
    const at = rows.findIndex((band) => band.row === this.state.hovered?.row);
    const band = rows[(at + step + rows.length) % rows.length];
    if (!band) return;
    const row = this.data.rows[this.state.by][band.row];
    this.hover(makeFocus(band.row, row.groups, row.short));
    this.say(`${row.short}: ${row.bytes.map((bytes, k) => `${this.histories[k].letter} ${formatBytes(bytes)}`).join(", ")} at the peak`);
    this.table.reveal();
  }

  say(text) {
    this.status.textContent = text;
  }
}

function bandAt(frame, index, bytes) {
  const step = frame.bands + 1;
  for (let number = 0; number < frame.bands; number += 1) {
    if (bytes >= frame.tops[index * step + number] && bytes < frame.tops[index * step + number + 1]) return number;
  }
  return -1;
}
