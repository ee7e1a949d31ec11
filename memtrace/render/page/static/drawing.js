// What the page shows: its state, and the drawing of all parts from it.

class Drawing {
  constructor({ data, buffer }) {
    this.data = data;
    this.histories = data.runs.map((run) => new History(run, buffer));
    this.state = {
      by: "symbol",
      axis: "event",
      view: null,
      range: null,
      tab: data.gap === null ? "live" : "gap",
      chosen: this.histories.map((history) => history.peak),
      side: this.histories.length - 1,
      hovered: null,
      selected: null,
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
    caption.append(
      nameElement(summary.label),
      element("span", "unit", `bytes ${summary.accounting}`),
    );
    host.setAttribute(
      "aria-label",
      `Timeline of ${name}: peak ${formatBytes(summary.peak_bytes)} at event ${formatCount(summary.event)}. ${CHART_HELP}`,
    );
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
      rows.forEach((row, number) =>
        row.groups[side].forEach((group) => {
          of[group] = number;
        }),
      );
      return of;
    });
  }

  // The areas from the bottom up: chosen rows, a row that is pointed at, and all others.
  makeBands() {
    const { by } = this.state;
    const rows = this.data.rows[by];
    if (!this.ordered.has(by)) {
      const chosen = chooseBands(
        rows,
        this.histories.map((history) => history.summary.peak_bytes),
      );
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
    return this.bands.findIndex((band) =>
      band.focus ? true : !band.others && focus.row >= 0 && band.row === focus.row,
    );
  }

  windowView() {
    const ends = this.histories.flatMap((history) =>
      [history.window.begin, history.window.end].map((moment) =>
        history.position(moment, this.state.axis),
      ),
    );
    return this.pad(
      Math.min(0, ...ends.filter((end) => Number.isFinite(end) && end > -1)),
      Math.max(...ends),
    );
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
    const most = Math.max(
      ...(this.charts || []).flatMap(({ frame }) =>
        frame ? [frame.totals.reduce((a, b) => Math.max(a, b), 0)] : [],
      ),
      1,
    );
    return [0, Math.max(most, 8) * 1.12];
  }

  // What the axis counts, and from where.
  nameAxis() {
    const starts = this.histories.map(({ window, letter }) => ({
      letter,
      name: window.iteration ? window.name : "the recording",
    }));
    const same = starts.every(({ name }) => name === starts[0].name);
    const start = same
      ? `the start of ${starts[0].name}`
      : `the starts of ${starts.map(({ letter, name }) => `${name} in ${letter}`).join(" and ")}`;
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
    this.charts.forEach((chart) =>
      chart.prepare(assignBands(chart.history, this.state.by, this.bands, rows, chart.side)),
    );
    this.charts.forEach((chart) => chart.show());
    this.nameAxis();
  }

  refreshTables() {
    const { state } = this;
    const history = this.histories[state.side];
    const moment = state.chosen[state.side];
    if (state.tab === "gap") {
      this.table.show([...this.histories.map((one) => one.letter), "Δ bytes"], gapRows(this), [
        `gap ${formatExact(this.data.gap, true)}`,
        [
          ...this.histories.map((one) => formatBytes(one.summary.peak_bytes)),
          formatDelta(this.data.gap),
        ],
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
}
