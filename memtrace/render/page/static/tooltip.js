// What is under the pointer: the moment, its total, the area and the single lifetime.

// Rows of [label, value] that describe a moment of a history.
function describeMoment(history, moment) {
  const rows = [["event", formatCount(moment)]];
  if (history.times) {
    const time = history.position(moment, "time");
    const side = time < 0 ? "before" : "after";
    rows.push([
      "time",
      `${formatTime(Math.abs(time))} ${side} the start of ${history.window.name}`,
    ]);
  }
  return rows;
}

function describePosition(history, moment) {
  const window = history.windowAt(moment);
  const where = positionIn(window || history.window, moment);
  return window && window !== history.window ? `${window.name}, ${where}` : where;
}

// As position_in of memtrace's timeline: 'forward 63%', 'start of backward (2%)', 'optimizer'.
function positionIn(window, moment) {
  const phases = window.phases.map(([name, begin, end]) => ({ name, begin, end }));
  const inside = phases.filter((p) => p.begin <= moment && moment <= p.end);
  const percent = (begin, end) => Math.floor((100 * (moment - begin)) / Math.max(end - begin, 1));
  if (!inside.length) {
    const before = phases.filter((p) => p.end < moment).sort((a, b) => b.end - a.end)[0];
    const after = phases.filter((p) => p.begin > moment).sort((a, b) => a.begin - b.begin)[0];
    if (before && after) {
      return before.name === after.name
        ? `between two ${before.name}s`
        : `between ${before.name} and ${after.name}`;
    }
    if (before) return `after ${before.name}`;
    if (after) return `before ${after.name}`;
    return `${percent(window.begin, window.end)}% of ${window.iteration ? window.name : "the recording"}`;
  }
  const rank = (p) => [Number(moment === p.begin), p.end - p.begin];
  const phase = inside.reduce((best, p) =>
    (rank(p)[0] - rank(best)[0] || rank(p)[1] - rank(best)[1]) < 0 ? p : best,
  );
  if (phase.name === "optimizer") return phase.name;
  const share = percent(phase.begin, phase.end);
  const same = phases.filter((p) => p.name === phase.name);
  const name =
    same.length === 1 ? phase.name : `${phase.name} ${same.indexOf(phase) + 1}/${same.length}`;
  if (share < 5) return `start of ${name} (${share}%)`;
  if (share > 95) return `end of ${name} (${share}%)`;
  return `${name} ${share}%`;
}

// Everything known of one lifetime.
function describeLifetime(history, lifetime) {
  const kind = history.kind[lifetime];
  const slack = history.slack[kind];
  const at = (moment) => `event ${formatCount(moment)}, ${describePosition(history, moment)}`;
  const [born, end] = [history.born[lifetime], history.end[lifetime]];
  const rows = [
    ["tensor", history.about(lifetime).tensor],
    ["symbol", lifetimeName(history, lifetime)],
    ["layer", history.about(lifetime).layer],
    ["category", history.about(lifetime).category],
    [
      "bytes",
      formatExact(history.requested[kind]) +
        (slack > 0 ? `, block ${formatCount(slack)} more` : ""),
    ],
    ["born", born < 0 ? "before the recording" : at(born + 1)],
    ["made by", history.about(lifetime).made],
    ["freed", end >= history.events ? "not within the recording" : at(end)],
    ["freed by", history.about(lifetime).freed],
  ];
  if (history.times && born >= 0 && end < history.events) {
    rows.push(["lives", formatTime(history.times[end] - history.times[born])]);
  }
  return rows.filter(([, value]) => value);
}

const MOST_TEXT = 160; // characters of a value; a source line may be longer than the window

class Tooltip {
  constructor(host) {
    this.box = element("div", "tooltip");
    this.box.hidden = true;
    host.append(this.box);
  }

  // `head` is [text, figure]; `groups` are lists of [label, value].
  show(chart, left, head, groups) {
    this.box.replaceChildren();
    const title = element("div", "tooltip-head");
    title.append(nameElement(head[0]), element("span", "figure", head[1]));
    this.box.append(title);
    for (const rows of groups.filter((one) => one.length)) {
      const list = element("dl");
      for (const [label, value] of rows) {
        const text = value.length > MOST_TEXT ? `${value.slice(0, MOST_TEXT)}…` : value;
        list.append(element("dt", "", label), element("dd"));
        list.lastChild.append(element("bdi", "", text));
      }
      this.box.append(list);
    }
    this.box.hidden = false;
    const over = chart.plot.over.getBoundingClientRect();
    const room = document.documentElement.clientWidth;
    const width = this.box.offsetWidth;
    const x =
      over.left + left + 18 + width < room ? over.left + left + 18 : over.left + left - width - 18;
    this.box.style.left = `${Math.max(x, 8) + window.scrollX}px`;
    const height = this.box.offsetHeight;
    const y = Math.min(over.top + 8, window.innerHeight - height - 8);
    this.box.style.top = `${Math.max(y, 8) + window.scrollY}px`;
  }

  hide() {
    this.box.hidden = true;
  }
}
