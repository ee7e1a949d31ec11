// The chart of one history: uPlot for axes, pointer and zoom; the areas are drawn by stack.js.

const AXIS_WIDTH = 74;

class Chart {
  // `app` is asked for state and told what a person does: point, choose, zoom, reset.
  constructor(app, history, side, host) {
    Object.assign(this, { app, history, side, host, frame: null, index: -1, named: false });
    this.plot = new uPlot(
      this.options(),
      [
        [0, 1],
        [0, 0],
      ],
      host,
    );
    const over = this.plot.over;
    over.addEventListener("mouseleave", () => app.leave(this));
    over.addEventListener("click", (event) => this.moved(event) || app.choose(this, this.index));
    over.addEventListener("mousedown", (event) => {
      this.pressed = [event.clientX, event.clientY];
    });
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
      series: [
        {},
        {
          stroke: () => this.ink.strong,
          width: 1.25,
          points: { show: false },
          paths: uPlot.paths.stepped({ align: 1 }),
        },
      ],
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
    return {
      width: Math.max(this.host.clientWidth, 240),
      height: Math.max(this.host.clientHeight, 140),
    };
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
    drawPhases(this);
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

  drawAbove() {
    if (!this.frame) return;
    const chosen = this.app.state.chosen[this.side];
    if (chosen !== this.history.peak) {
      drawMoment(this, chosen, `chosen: ${formatBytes(this.history.total[chosen])}`, false);
    }
    drawMoment(
      this,
      this.history.peak,
      `peak ${formatBytes(this.history.summary.peak_bytes)}`,
      true,
    );
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
