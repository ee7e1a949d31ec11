// Switches and buttons, the theme, printing; and the start.

function bindControls(app) {
  const timed = app.histories.every((history) => history.times);
  const on = (id, event, act) => document.getElementById(id).addEventListener(event, act);
  for (const input of document.querySelectorAll("input[name=by]")) {
    input.addEventListener("change", () => {
      Object.assign(app.state, { by: input.value, hovered: null, selected: null });
      app.table.expanded = false;
      app.refreshAll();
    });
  }
  for (const input of document.querySelectorAll("input[name=axis]")) {
    if (input.value === "time" && !timed) {
      input.disabled = true;
      input.parentElement.title = "the recording has no times";
    }
    input.addEventListener("change", () => {
      app.state.axis = input.value;
      app.resetView();
    });
  }
  const middle = () => (app.state.view[0] + app.state.view[1]) / 2;
  on("zoom-in", "click", () => app.zoomAround(middle(), 0.5));
  on("zoom-out", "click", () => app.zoomAround(middle(), 2));
  on("zoom-window", "click", () => app.resetView());
  on("zoom-whole", "click", () => app.resetView(true));
  on("theme", "click", () => {
    document.documentElement.dataset.theme = app.theme === "dark" ? "light" : "dark";
    app.refreshAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => app.refreshAll());
  bindTabs(app);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.defaultPrevented && app.state.selected) app.escape();
  });
  window.addEventListener("beforeprint", () => preparePrint(app, true));
  window.addEventListener("afterprint", () => preparePrint(app, false));
}

function bindTabs(app) {
  const host = document.getElementById("tabs");
  const show = (tab) => {
    app.state.tab = tab;
    app.table.expanded = false;
    app.refreshTables();
  };
  for (const button of host.querySelectorAll("[role=tab]")) {
    button.addEventListener("click", () => show(button.dataset.tab));
    button.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      show(app.state.tab === "gap" ? "live" : "gap");
      host.querySelector("[aria-selected=true]").focus();
    });
  }
  document.getElementById("to-peak").addEventListener("click", () => {
    app.chooseMoment(app.state.side, app.histories[app.state.side].peak);
  });
  document.getElementById("other-run").addEventListener("click", () => {
    app.state.side = 1 - app.state.side;
    app.refreshTables();
  });
}

// The heading of the rows: which of both tables is shown, and of which moment.
function showTabs(app, history, moment) {
  const host = document.getElementById("tabs");
  host.hidden = app.data.gap === null;
  for (const button of host.querySelectorAll("[role=tab]")) {
    const shown = button.dataset.tab === app.state.tab;
    button.setAttribute("aria-selected", String(shown));
    button.tabIndex = shown ? 0 : -1;
  }
  const about = document.getElementById("about-rows");
  const atPeak = moment === history.peak;
  const live = app.state.tab === "live";
  const where = `event ${formatCount(moment)}, ${describePosition(history, moment)}`;
  about.replaceChildren();
  if (live) {
    if (history.letter) about.append(element("span", "letter", history.letter));
    about.append(
      element(
        "strong",
        "",
        `${formatBytes(history.total[moment])} alive ${atPeak ? "at the peak" : "then"}`,
      ),
      nameElement(where),
    );
  } else about.append(nameElement("what the peaks of A and B hold, by weight of the difference"));
  document.getElementById("to-peak").hidden = !live || atPeak;
  const other = document.getElementById("other-run");
  other.hidden = !live || app.histories.length < 2;
  if (!other.hidden) other.textContent = `show ${app.histories[1 - app.state.side].letter}`;
  app.table.label = live ? `Live set, ${where}` : "Rows of the gap between the peaks";
}

// On paper: light colours, and the lines that hold most in place of the scrolling source.
function preparePrint(app, printing) {
  app.printing = printing;
  const host = document.getElementById("print-source");
  host.replaceChildren();
  if (printing) app.source.listHeaviest(host);
  app.refreshAll();
}

unpackPage()
  .then((page) => {
    const app = new App(page);
    bindControls(app);
    app.refreshAll();
    showNotes(app, document.getElementById("notes"));
    app.say("");
    document.documentElement.classList.add("ready");
    window.memtrace = makeInterface(app);
    performance.mark("memtrace-ready");
  })
  .catch((error) => {
    document.getElementById("status").textContent =
      `This page could not be drawn: ${error.message}`;
    throw error;
  });

// For scripts: the figures that the page shows, and what it drew.
function makeInterface(app) {
  return {
    app,
    total: (side, moment) => app.histories[side].total[moment],
    position: (side, moment) => describePosition(app.histories[side], moment),
    moments: (side) => Array.from(app.charts[side].frame.moments),
    decimate: (side, view, columns) =>
      Array.from(app.histories[side].decimate(view, app.state.axis, columns)),
    lifetimes: (side, smallest = 0) => {
      const traced = [];
      traceLifetimes(app.histories[side], app.charts[side].frame, smallest, (...stretch) =>
        traced.push(stretch),
      );
      return traced;
    },
    liveSet: (side, moment, by) =>
      tallyLive(app.histories[side], by, moment).map(({ group, bytes, count }) => ({
        symbol: symbolText(app.histories[side].groups[by][group]),
        bytes,
        count,
      })),
  };
}
