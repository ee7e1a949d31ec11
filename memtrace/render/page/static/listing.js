// What tables list: the gap's rows, the live set at a moment.

// What a row stands for: its groups in each history. `row` is its number among the peaks' rows.
function makeFocus(row, groups, label) {
  return { row, groups, label };
}

function sameFocus(one, other) {
  if (!one || !other) return false;
  if (one.row >= 0 || other.row >= 0) return one.row === other.row;
  return one.groups.every(
    (groups, side) =>
      groups.length === other.groups[side].length &&
      groups.every((g, k) => g === other.groups[side][k]),
  );
}

// The rows of the peaks of two histories, as memtrace diff has them.
function gapRows(app) {
  const rows = app.data.rows[app.state.by];
  const greatest = Math.max(...rows.map((row) => Math.abs(row.delta)), 1);
  return rows.map((row, index) => ({
    ...describeRow(row),
    band: app.bandOfRow(index),
    cells: [
      ...row.bytes.map((bytes, side) => (row.counts[side] ? formatBytes(bytes) : "·")),
      formatDelta(row.delta),
    ],
    share: { value: row.delta / greatest, signed: true },
    focus: makeFocus(index, row.groups, row.short),
  }));
}

function describeRow(row) {
  const beside = row.beside.length ? ` beside ${row.beside.join(", ")}` : "";
  return {
    text: row.text,
    short: row.short,
    place: placeOf(row.text, row.short) + (row.renamed ? ` (${row.renamed} in A)` : ""),
    detail: row.detail,
    badge: row.status + (row.status ? beside : ""),
    members: row.members,
  };
}

// What a symbol's text says besides its short name.
function placeOf(text, short) {
  return text
    .split(short)
    .map((part) => part.trim())
    .filter(Boolean)
    .join(" ");
}

// The live set of a history at a moment; of a moment outside of the lifetimes on the page, its
// weightiest rows.
function liveRows(app, history, side, moment) {
  if (!history.detailed(moment)) return overviewRows(app, history, moment);
  const { by } = app.state;
  const total = history.total[moment];
  return foldLive(history, by, tallyLive(history, by, moment), app.rowOfGroup[side]).map((row) => {
    const symbol = foldedSymbol(row.groups.map((group) => history.groups[by][group]));
    const short = symbol.operation ? `${symbol.name} › ${symbol.operation}` : symbol.name;
    const groups = app.histories.map((_, k) => (k === side ? row.groups : []));
    return {
      text: row.text,
      short,
      place: placeOf(row.text, short),
      detail: by === "symbol" || by === "layer" ? shapesOf(history, row.lifetimes) : "",
      members: row.members,
      band: row.row >= 0 ? app.bandOfRow(row.row) : null,
      cells: [formatCount(row.count), formatBytes(row.bytes), formatShare(row.bytes, total)],
      share: { value: total ? row.bytes / total : 0 },
      focus:
        row.row >= 0
          ? makeFocus(row.row, app.data.rows[by][row.row].groups, short)
          : makeFocus(-1, groups, short),
      bytes: row.bytes,
      count: row.count,
    };
  });
}

function overviewRows(app, history, moment) {
  const rows = app.data.rows[app.state.by];
  const columns = history.overview.rows[app.state.by];
  const at = history.overview.places.get(moment);
  const total = history.total[moment];
  const found = columns.map((column, c) => {
    const number = history.overview.numbers[app.state.by][c];
    const row = rows[number];
    const rest = row === undefined;
    const what = rest
      ? { text: "", short: "everything else", place: "", detail: "", members: 0 }
      : { ...describeRow(row), badge: "", detail: "" };
    return {
      ...what,
      band: rest ? null : app.bandOfRow(number),
      cells: ["", formatBytes(column[at]), formatShare(column[at], total)],
      share: { value: total ? column[at] / total : 0 },
      focus: rest
        ? makeFocus(
            -1,
            app.histories.map(() => []),
            what.short,
          )
        : makeFocus(number, row.groups, row.short),
      bytes: column[at],
      count: 0,
    };
  });
  return found.filter((row) => row.bytes).sort((a, b) => b.bytes - a.bytes);
}
