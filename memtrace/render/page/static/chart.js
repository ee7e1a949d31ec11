// The chart of one history: uPlot for axes, pointer and zoom; the areas are drawn by stack.js.

const PHASE_HEIGHT = 18; // css pixels above the areas
const AXIS_WIDTH = 74;

class Chart {
  // `app` is asked for state and told what a person does: point, choose, zoom, reset.
  constructor(app, history, side, host) {
    Object.assign(this, { app, history, side, host, frame: null, index: -1, named: false });
    this.plot = new uPlot(this.options(), [[0, 1], [0, 0]], host);
    const over = this.plot.over;
    over.addEventListener("mouseleave", () => app.leave(this));
    over.addEventListener("click", (event) => this.moved(event) || app.choose(this, this.index));
    over.addEventListener("mousedown", (event) => { this.pressed = [event.clientX, event.clientY]; });
    over.addEventListener("wheel", (event) => this.turnWheel(event), { passive: false });
    new ResizeObserver(() => this.resize()).observe(host);
  }

  options() {
    const axis = {
      stroke: () => this.ink.muted,
      font: "12px system-ui, sans-serif",
      grid: { stroke: () => this.ink.line, width: 1 },
      ticks: { show: false },
    };
    return {
      ...this.size(),
      padding: [PHASE_HEIGHT + 4, 14, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, range: () => this.app.state.view },
        y: { range: () => this.app.yRange() },
      },
      axes: [
        { ...axis, size: 30, gap: 6, space: 90, values: (_, ticks) => this.nameTicks(ticks) },
        { ...axis, size: AXIS_WIDTH, gap: 6, space: 44, values: (_, ticks) => formatTicks(ticks) },
      ],
      series: [{}, { stroke: () => this.ink.strong, width: 1.25, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) }],
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: true, y: true, uni: 40, setScale: false },
        bind: { dblclick: () => () => this.app.resetView() },
      },
      hooks: {
        drawAxes: [() => this.drawBelow()],
        draw: [() => this.drawAbove()],
        setCursor: [() => this.point()],
        setSelect: [() => this.zoomSelection()],
      },
    };
  }

  get ink() {
    return INK[this.app.theme];
  }

  size() {
    return { width: Math.max(this.host.clientWidth, 240), height: Math.max(this.host.clientHeight, 140) };
  }

  resize() {
    const size = this.size();
    if (size.width === this.plot.width && size.height === this.plot.height) return;
    this.plot.setSize(size);
    this.app.refresh();
  }

  nameTicks(ticks) {
    if (this.app.state.axis === "event") return ticks.map(formatCount);
    const span = this.app.state.view[1] - this.app.state.view[0];
    return ticks.map((tick) => (tick === 0 ? "0" : formatTime(tick, span)));
  }

  // Takes up a new view or new bands; `show` draws them.
  prepare(assignment) {
    const { view, axis } = this.app.state;
    const columns = Math.max(Math.round(this.plot.bbox.width / uPlot.pxRatio), 100);
    this.frame = makeFrame(this.history, assignment, view, axis, columns);
  }

  show() {
    this.plot.setData([this.frame.xs, this.frame.totals], true);
  }

  redraw() {
    this.plot.redraw(false);
  }

  drawBelow() {
    if (!this.frame) return;
    const { ctx } = this.plot;
    const { left, top, width, height } = this.plot.bbox;
    this.drawPhases();
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    const { bands } = this.app;
    const lit = this.app.litBand();
    drawStack(this.plot, this.frame, bands, this.app.theme, lit);
    const named = drawLifetimes(this.plot, this.history, this.frame, bands, this.app.theme, lit);
    if (!named) labelStack(this.plot, this.frame, bands, this.app.theme, lit);
    ctx.restore();
  }

  // Iterations and passes, in a strip above the areas.
  drawPhases() {
    const { ctx } = this.plot;
    const { pxRatio } = uPlot;
    const { left, top, width, height } = this.plot.bbox;
    const strip = PHASE_HEIGHT * pxRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top - strip, width, height + strip);
    ctx.clip();
    ctx.font = `${11 * pxRatio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    const x = (moment) => this.plot.valToPos(this.history.position(moment, this.app.state.axis), "x", true);
    for (const window of this.history.windows) {
      if (!window.iteration) continue;
      const [from, to] = [x(window.begin), x(window.end)];
      if (to < left || from > left + width || to - from < 3 * pxRatio) continue;
      ctx.fillStyle = this.ink.line;
      ctx.fillRect(from, top - strip, pxRatio, height + strip);
      const parts = window.phases.filter((phase) => x(phase[2]) - x(phase[1]) > 4 * pxRatio);
      const wide = parts.length && to - from > 90 * pxRatio;
      for (const [name, begin, end] of wide ? parts : [[window.name, window.begin, window.end]]) {
        this.drawPhase(name, Math.max(x(begin), left), Math.min(x(end), left + width), top - strip);
      }
    }
    ctx.restore();
  }

  drawPhase(name, from, to, top) {
    const { ctx } = this.plot;
    const { pxRatio } = uPlot;
    ctx.fillStyle = this.ink.phase;
    ctx.fillRect(from + pxRatio, top, to - from - 2 * pxRatio, (PHASE_HEIGHT - 3) * pxRatio);
    // Where 'iteration 11' has no room, '11' may.
    const room = to - from - 8 * pxRatio;
    const text = [name, name.split(/[ #]/).at(-1)].find((one) => one.length < 80 && ctx.measureText(one).width <= room);
    ctx.fillStyle = this.ink.muted;
    if (text) ctx.fillText(text, from + 5 * pxRatio, top + ((PHASE_HEIGHT - 2) / 2) * pxRatio);
  }

  drawAbove() {
    if (!this.frame) return;
    const chosen = this.app.state.chosen[this.side];
    if (chosen !== this.history.peak) {
      this.drawMoment(chosen, `chosen: ${formatBytes(this.history.total[chosen])}`, false);
    }
    this.drawMoment(this.history.peak, `peak ${formatBytes(this.history.summary.peak_bytes)}`, true);
  }

  // A line at a moment, a dot at its total and a label beside it.
  drawMoment(moment, text, strong) {
    const { ctx } = this.plot;
    const { pxRatio } = uPlot;
    const { left, top, width, height } = this.plot.bbox;
    const x = this.plot.valToPos(this.history.position(moment, this.app.state.axis), "x", true);
    if (x < left || x > left + width) return;
    const y = Math.min(Math.max(this.plot.valToPos(this.history.total[moment], "y", true), top), top + height);
    ctx.save();
    ctx.strokeStyle = this.ink.strong;
    ctx.lineWidth = pxRatio;
    if (strong) ctx.setLineDash([2 * pxRatio, 3 * pxRatio]);
    ctx.beginPath();
    ctx.moveTo(x, strong ? y : top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.font = `600 ${12 * pxRatio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    const room = ctx.measureText(text).width + 10 * pxRatio;
    const atRight = x + room + 8 * pxRatio < left + width;
    const from = atRight ? x + 7 * pxRatio : x - 7 * pxRatio - room;
    const beside = Math.max(Math.min(y, top + height - 10 * pxRatio), top + 10 * pxRatio);
    // Apart from the peak's label, which may be near.
    const at = strong ? beside : beside + (beside + 34 * pxRatio < top + height ? 22 : -22) * pxRatio;
    ctx.fillStyle = this.ink.chip;
    ctx.globalAlpha = 0.92;
    ctx.beginPath();
    ctx.roundRect(from, at - 9 * pxRatio, room, 18 * pxRatio, 4 * pxRatio);
    ctx.fill();
    ctx.globalAlpha = 1;
    ctx.fillStyle = this.ink.strong;
    ctx.textAlign = "left";
    ctx.fillText(text, from + 5 * pxRatio, at);
    ctx.beginPath();
    ctx.arc(x, y, (strong ? 4 : 3.5) * pxRatio, 0, 2 * Math.PI);
    ctx.fill();
    ctx.lineWidth = 1.5 * pxRatio;
    ctx.strokeStyle = this.ink.chip;
    ctx.stroke();
    ctx.restore();
  }

  // The pointer moved, or the keyboard did.
  point() {
    const { left, top } = this.plot.cursor;
    if (!this.frame || left === undefined || left < 0) return;
    this.index = frameIndex(this.frame, this.plot.posToVal(left, "x"));
    this.app.point(this, this.index, top >= 0 ? this.plot.posToVal(top, "y") : null);
  }

  moved({ clientX, clientY }) {
    const [x, y] = this.pressed || [clientX, clientY];
    return Math.abs(clientX - x) + Math.abs(clientY - y) > 4;
  }

  zoomSelection() {
    const { left, top, width, height } = this.plot.select;
    if (width < 4 && height < 4) return;
    const view = width >= 4 ? [left, left + width].map((at) => this.plot.posToVal(at, "x")) : null;
    const tall = height > 4 && height < this.plot.over.clientHeight - 1;
    const range = tall ? [top + height, top].map((at) => this.plot.posToVal(at, "y")) : null;
    this.plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.app.zoom(view || this.app.state.view, range);
  }

  // The wheel alone scrolls the page.
  turnWheel(event) {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    event.preventDefault();
    const turn = event.deltaY || event.deltaX;
    this.app.zoomAround(this.plot.posToVal(this.plot.cursor.left, "x"), turn > 0 ? 1.25 : 0.8);
  }

  // Moves the cross hair to a drawn moment, by keyboard.
  go(index) {
    if (!this.frame.xs.length) return;
    this.index = Math.min(Math.max(index, 0), this.frame.xs.length - 1);
    const left = this.plot.valToPos(this.frame.xs[this.index], "x") + 0.01;
    this.plot.setCursor({ left, top: -1 }, false);
    this.app.point(this, this.index, null);
  }
}
