// What stands above the charts: the peaks, what they consist of, the gap, and the notes.

function showFigures(app, host) {
  const cards = app.histories.map((history, side) => peakCard(app, history, side));
  if (app.data.gap !== null) cards.push(gapCard(app));
  host.classList.toggle("two", cards.length > 1);
  host.replaceChildren(...cards);
}

function peakCard(app, history, side) {
  const { summary } = history;
  const card = element("article", "card");
  const head = element("h2", "card-head");
  if (history.letter) head.append(element("span", "letter", history.letter));
  head.append(nameElement(summary.label));
  const kind = summary.accounting === "allocated" ? "allocated" : "requested";
  const place = element("p", "card-place");
  place.append(
    "peak ",
    kind,
    " in ",
    nameElement(summary.window),
    summary.position ? ", at " : "",
    nameElement(summary.position),
  );
  card.append(
    head,
    element("p", "card-figure", formatBytes(summary.peak_bytes)),
    compositionBar(app, history, side),
    place,
    element("p", "card-exact", `${formatExact(summary.peak_bytes)}; ${driverWords(summary)}`),
  );
  const notes = summary.warnings.length;
  if (notes || !summary.complete) card.append(notesLink(summary, notes));
  return card;
}

// What must be known before the figure is believed is said beside it.
function notesLink(summary, count) {
  const link = element("a", "to-notes");
  link.href = "#about";
  const state = summary.complete ? "" : "incomplete recording, ";
  link.textContent = `${state}${count === 1 ? "1 note" : `${count} notes`} below`;
  const line = element("p", "card-exact");
  line.append(link);
  return line;
}

function driverWords(summary) {
  const driver = summary.driver_peak_bytes;
  if (driver === null) {
    return {
      true: "replay equals the driver's figures",
      false: "replay DIFFERS from the driver's figures",
      null: "no figures of the driver",
    }[summary.reconciled];
  }
  if (driver === summary.peak_bytes) return "the driver's peak is the same";
  return `the driver's peak is ${formatExact(driver)}`;
}

function gapCard(app) {
  const card = element("article", "card gap");
  const [a, b] = app.histories.map((history) => history.summary.peak_bytes);
  const head = element("h2", "card-head", "Gap, B − A");
  const share = a ? `${formatShare(Math.abs(b - a), a)} ${b >= a ? "more" : "less"} than A` : "";
  card.append(
    head,
    element("p", "card-figure", formatDelta(app.data.gap)),
    gapParts(app),
    element(
      "p",
      "card-place",
      app.data.gap
        ? `${formatExact(app.data.gap, true)}; B's peak is ${share}`
        : "both peaks are equal",
    ),
  );
  return card;
}

// The weightiest differences.
function gapParts(app) {
  const parts = element("ol", "parts");
  for (const [index, row] of app.data.rows[app.state.by].slice(0, 4).entries()) {
    if (!row.delta) continue;
    const part = element("li");
    const band = app.bandOfRow(index);
    const swatch = element("span", "swatch", band?.number ? String(band.number) : "");
    if (band) paint(swatch, bandColour(band, app.theme));
    part.append(swatch, element("span", "figure", formatDelta(row.delta)), nameElement(row.short));
    parts.append(part);
  }
  return parts;
}

function paint(swatch, colour) {
  swatch.style.background = colour;
  swatch.style.color = inkOn(colour);
}

// The peak's bands side by side, to the scale of the greater peak.
function compositionBar(app, history, side) {
  const bar = element("div", "composition");
  bar.setAttribute("aria-hidden", "true");
  const most = Math.max(...app.histories.map((one) => one.summary.peak_bytes), 1);
  const rows = app.data.rows[app.state.by];
  let rest = history.summary.peak_bytes;
  const add = (bytes, band, label) => {
    if (bytes <= 0) return;
    const number = band.number && bytes > most * 0.018 ? String(band.number) : "";
    const part = element("span", band.others ? "part others" : "part", number);
    part.style.width = `${(100 * bytes) / most}%`;
    if (!band.others) paint(part, bandColour(band, app.theme));
    part.title = `${label}: ${formatBytes(bytes)}`;
    bar.append(part);
  };
  for (const band of app.bands) {
    if (band.others || band.focus) continue;
    add(rows[band.row].bytes[side], band, band.label);
    rest -= rows[band.row].bytes[side];
  }
  add(rest, { others: true }, "everything else");
  return bar;
}

// What is incomplete or differs; what agrees is said as well.
function showNotes(app, host) {
  const notes = [];
  for (const line of app.data.differences) notes.push(["differs", line]);
  for (const history of app.histories) {
    const { summary, letter } = history;
    const who = letter ? `${letter}: ` : "";
    const checked = {
      true: "the replay equals all of the driver's figures",
      false: "the replay DIFFERS from the driver's figures",
      null: "no figures of the driver to compare with",
    };
    notes.push([
      summary.reconciled === false ? "warning" : "checked",
      who +
        checked[String(summary.reconciled)] +
        (summary.complete ? "" : "; the recording is incomplete"),
    ]);
    for (const line of summary.warnings) notes.push(["note", who + line]);
    if (history.from > 0)
      notes.push([
        "note",
        `${who}totals before event ${formatCount(history.from)} are not known and not drawn`,
      ]);
    if (!history.whole) {
      notes.push([
        "note",
        `${who}this recording is too long for one page: single lifetimes are those of ${history.window.name}; of the rest the page has the totals of its weightiest rows at ${formatCount(history.overview.moments.length)} moments, each the greatest of its stretch`,
      ]);
    }
    if (history.facts.length)
      notes.push([
        "run",
        who + history.facts.map(([name, value]) => `${name} ${value}`).join(" · "),
      ]);
  }
  for (const line of app.data.warnings) notes.push(["note", line]);
  host.replaceChildren(
    ...notes.map(([kind, text]) => {
      const item = element("li", kind);
      item.append(element("span", "kind", kind), nameElement(text, "text"));
      return item;
    }),
  );
}
