// Charts by keyboard: the same as with a pointer.

const CHART_HELP =
  "Left and right move through the drawn moments (with Shift by 20), Home and End to the ends, P to the peak, " +
  "plus and minus zoom, Enter shows what is alive, up and down walk through the areas, Escape goes back.";

function bindChartKeys(app, chart) {
  const { host } = chart;
  host.tabIndex = 0;
  host.setAttribute("role", "group");
  host.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = event.shiftKey ? 20 : 1;
    const { frame } = chart;
    const at = chart.index < 0 ? frameIndex(frame, frame.xs.at(0)) : chart.index;
    const here = frame.xs[Math.max(at, 0)];
    const actions = {
      ArrowLeft: () => chart.go(at - step),
      ArrowRight: () => chart.go(at + step),
      Home: () => chart.go(0),
      End: () => chart.go(frame.xs.length - 1),
      ArrowUp: () => app.walkBands(1),
      ArrowDown: () => app.walkBands(-1),
      Enter: () => app.choose(chart, at),
      " ": () => app.choose(chart, at),
      "+": () => app.zoomAround(here, 0.5),
      "=": () => app.zoomAround(here, 0.5),
      "-": () => app.zoomAround(here, 2),
      0: () => app.resetView(),
      p: () => app.showPeak(chart),
      Escape: () => app.escape(),
    };
    const action = actions[event.key] || actions[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  });
  host.addEventListener("blur", () => app.leave(chart));
}
