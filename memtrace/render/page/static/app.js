// The page: what follows when a person points, chooses, zooms and goes back.

class App extends Drawing {
  // A row or an area is pointed at; null: none any more.
  hover(focus) {
    if (focus === this.state.hovered || sameFocus(focus, this.state.hovered)) return;
    this.state.hovered = focus;
    this.refocus();
  }

  refocus() {
    const before = this.bands.find((band) => band.focus);
    const known =
      !this.focus ||
      this.bands.some((band) => !band.focus && !band.others && band.row === this.focus.row);
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
    if (this.source.reveal(focus))
      document.getElementById("source").scrollIntoView({ block: "nearest", behavior: "smooth" });
    else this.say(`${focus.label}: no source on this page says where it was made`);
  }

  // A line of source was clicked: the row that holds most of what it made.
  selectLine(side, file, line) {
    const history = this.histories[side];
    const moment = this.state.chosen[side];
    const tally = new Map();
    for (const lifetime of history.live(moment) || []) {
      if (!history.lines(history.kind[lifetime]).some(([f, l]) => f === file && l === line))
        continue;
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
    const facts = [
      ...describeMoment(history, moment),
      ["where", describePosition(history, moment)],
    ];
    this.say(
      `${history.letter} event ${formatCount(moment)}, ${describePosition(history, moment)}: ${total}`.trim(),
    );
    const number = bytes === null ? this.litBand() : bandAt(frame, index, bytes);
    const band = this.bands[number];
    const groups = [];
    let head = ["total", total];
    if (band) {
      const held =
        frame.tops[index * (frame.bands + 1) + number + 1] -
        frame.tops[index * (frame.bands + 1) + number];
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
    if (band.focus)
      return this.focusOf(side, this.histories[side].group(lifetime, this.state.by, moment));
    const row = this.data.rows[this.state.by][band.row];
    return makeFocus(band.row, row.groups, row.short);
  }

  leave(chart) {
    this.tooltip.hide();
    this.hover(null);
    for (const other of this.charts)
      if (other !== chart) other.plot.setCursor({ left: -10, top: -10 }, false);
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
    this.say(
      `${history.letter} alive at event ${formatCount(moment)}: ${formatBytes(history.total[moment])}`.trim(),
    );
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
    this.say(
      `${row.short}: ${row.bytes.map((bytes, k) => `${this.histories[k].letter} ${formatBytes(bytes)}`).join(", ")} at the peak`,
    );
    this.table.reveal();
  }

  say(text) {
    this.status.textContent = text;
  }
}
