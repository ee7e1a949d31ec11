// What is marked on a chart: passes and iterations, the peak, the chosen moment.

const PHASE_HEIGHT = 18; // css pixels above the areas

// Iterations and passes, in a strip above the areas.
function drawPhases(chart) {
  const { ctx } = chart.plot;
  const { pxRatio } = uPlot;
  const { left, top, width, height } = chart.plot.bbox;
  const strip = PHASE_HEIGHT * pxRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top - strip, width, height + strip);
  ctx.clip();
  ctx.font = `${11 * pxRatio}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const x = (moment) =>
    chart.plot.valToPos(chart.history.position(moment, chart.app.state.axis), "x", true);
  for (const window of chart.history.windows) {
    if (!window.iteration) continue;
    const [from, to] = [x(window.begin), x(window.end)];
    if (to < left || from > left + width || to - from < 3 * pxRatio) continue;
    ctx.fillStyle = chart.ink.line;
    ctx.fillRect(from, top - strip, pxRatio, height + strip);
    const parts = window.phases.filter((phase) => x(phase[2]) - x(phase[1]) > 4 * pxRatio);
    const wide = parts.length && to - from > 90 * pxRatio;
    for (const [name, begin, end] of wide ? parts : [[window.name, window.begin, window.end]]) {
      drawPhase(chart, name, Math.max(x(begin), left), Math.min(x(end), left + width), top - strip);
    }
  }
  ctx.restore();
}

function drawPhase(chart, name, from, to, top) {
  const { ctx } = chart.plot;
  const { pxRatio } = uPlot;
  ctx.fillStyle = chart.ink.phase;
  ctx.fillRect(from + pxRatio, top, to - from - 2 * pxRatio, (PHASE_HEIGHT - 3) * pxRatio);
  // Where 'iteration 11' has no room, '11' may.
  const room = to - from - 8 * pxRatio;
  const text = [name, name.split(/[ #]/).at(-1)].find(
    (one) => one.length < 80 && ctx.measureText(one).width <= room,
  );
  ctx.fillStyle = chart.ink.muted;
  if (text) ctx.fillText(text, from + 5 * pxRatio, top + ((PHASE_HEIGHT - 2) / 2) * pxRatio);
}

// A line at a moment, a dot at its total and a label beside it.
function drawMoment(chart, moment, text, strong) {
  const { ctx } = chart.plot;
  const { pxRatio } = uPlot;
  const { left, top, width, height } = chart.plot.bbox;
  const x = chart.plot.valToPos(chart.history.position(moment, chart.app.state.axis), "x", true);
  if (x < left || x > left + width) return;
  const y = Math.min(
    Math.max(chart.plot.valToPos(chart.history.total[moment], "y", true), top),
    top + height,
  );
  ctx.save();
  ctx.strokeStyle = chart.ink.strong;
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
  ctx.fillStyle = chart.ink.chip;
  ctx.globalAlpha = 0.92;
  ctx.beginPath();
  ctx.roundRect(from, at - 9 * pxRatio, room, 18 * pxRatio, 4 * pxRatio);
  ctx.fill();
  ctx.globalAlpha = 1;
  ctx.fillStyle = chart.ink.strong;
  ctx.textAlign = "left";
  ctx.fillText(text, from + 5 * pxRatio, at);
  ctx.beginPath();
  ctx.arc(x, y, (strong ? 4 : 3.5) * pxRatio, 0, 2 * Math.PI);
  ctx.fill();
  ctx.lineWidth = 1.5 * pxRatio;
  ctx.strokeStyle = chart.ink.chip;
  ctx.stroke();
  ctx.restore();
}
