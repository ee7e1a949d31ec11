// Rows: what is alive at a moment, named and folded as memtrace prints it, and the bands drawn.

const NUMBERED = /^(\D.*?_?)(\d+)$/;
const LAYER_NUMBER = /(?<=\.)\d+(?=\.|$|:| )|^\d+(?=\.|$| )/g;
const SLACK_GROUP = 0;

function symbolText({ place, name, operation, line }) {
  const words = [place, name];
  if (operation) words.push(`› ${operation}`);
  if (line) words.push(`(${line})`);
  return words.filter(Boolean).join(" ");
}

// 'nvFusion2, 6, 10' for names that differ by their numbers.
function series(names) {
  const distinct = [...new Set(names)];
  const base = distinct[0].replace(/\d+$/, "");
  const rest = distinct
    .slice(1)
    .map((name) => (name.startsWith(base) ? name.slice(base.length) : name));
  return [distinct[0], ...rest].join(", ");
}

function foldedSymbol(symbols) {
  if (symbols.length === 1) return symbols[0];
  if (symbols[0].plain) return { ...symbols[0], name: symbols[0].name.replace(LAYER_NUMBER, "*") };
  return {
    ...symbols[0],
    name: series(symbols.map((s) => s.name)),
    operation: series(symbols.map((s) => s.operation)),
  };
}

function numbersOf(symbol) {
  return [symbol.name, symbol.operation].map((text) => Number(NUMBERED.exec(text)?.[2] ?? 0));
}

// The live set by group, unfolded: [{group, bytes, count, lifetimes}], the weightiest first.
function tallyLive(history, by, moment) {
  const tally = new Map();
  const add = (group, bytes, lifetime) => {
    let row = tally.get(group);
    if (!row) tally.set(group, (row = { group, bytes: 0, count: 0, lifetimes: [] }));
    row.bytes += bytes;
    row.count += 1;
    if (lifetime >= 0) row.lifetimes.push(lifetime);
  };
  for (const lifetime of history.live(moment)) {
    const kind = history.kind[lifetime];
    add(history.group(lifetime, by, moment), history.requested[kind], lifetime);
    if (history.slack[kind]) add(SLACK_GROUP, history.slack[kind], -1);
  }
  const rows = [...tally.values()].filter((row) => row.group !== SLACK_GROUP || row.bytes);
  return rows.sort((a, b) => b.bytes - a.bytes);
}

// Rows of repeated layers in one: the same kind of symbol with the same bytes, of one band.
function foldLive(history, by, rows, rowOfGroup) {
  const groups = history.groups[by];
  const folded = new Map();
  for (const row of rows) {
    const { fold } = groups[row.group];
    const of = rowOfGroup[row.group];
    const key = fold < 0 ? `=${row.group}` : `${fold} ${row.bytes} ${row.count} ${of}`;
    if (!folded.has(key)) folded.set(key, []);
    folded.get(key).push(row);
  }
  const result = [...folded.values()].map((members) => {
    const order = members
      .map((row) => ({ row, symbol: groups[row.group], numbers: numbersOf(groups[row.group]) }))
      .sort((a, b) => a.numbers[0] - b.numbers[0] || a.numbers[1] - b.numbers[1]);
    const symbol = foldedSymbol(order.map((one) => one.symbol));
    return {
      text: symbolText(symbol),
      members: members.length,
      groups: members.map((row) => row.group),
      row: rowOfGroup[members[0].group],
      bytes: members.reduce((sum, row) => sum + row.bytes, 0),
      count: members.reduce((sum, row) => sum + row.count, 0),
      lifetimes: members.flatMap((row) => row.lifetimes),
    };
  });
  return result.sort((a, b) => b.bytes - a.bytes || (a.text < b.text ? -1 : 1));
}

// '4 × float32[1, 28, 4096, 4096], …': what lifetimes hold.
function shapesOf(history, lifetimes, most = 4) {
  const counts = new Map();
  for (const lifetime of lifetimes) {
    const shape = history.about(lifetime).shape;
    if (shape) counts.set(shape, (counts.get(shape) || 0) + 1);
  }
  const parts = [...counts]
    .slice(0, most)
    .map(([shape, count]) => (count > 1 ? `${count} × ${shape}` : shape));
  if (counts.size > most) parts.push(`${counts.size - most} more shapes`);
  return parts.join(", ");
}

// Which rows the charts draw as areas of their own, from the bottom up. Of two runs those that
// differ get the colours and lie on top of what both hold alike.
function chooseBands(rows, peaks) {
  const most = Math.max(...peaks, 1);
  const numbered = rows.map((row, index) => ({ ...row, index, weight: Math.max(...row.bytes) }));
  const heavy = numbered.filter((row) => row.weight >= most * 0.008);
  const byWeight = (a, b) => b.weight - a.weight;
  if (peaks.length === 1) {
    return heavy
      .sort(byWeight)
      .slice(0, 9)
      .map((row, k) => ({ row: row.index, hue: k, number: k + 1 }));
  }
  const differing = heavy.filter((row) => row.delta).slice(0, 8);
  const taken = new Set(differing);
  const alike = heavy
    .filter((row) => !taken.has(row))
    .sort(byWeight)
    .slice(0, 5);
  return [
    ...alike.map((row, k) => ({ row: row.index, grey: k, number: differing.length + k + 1 })),
    ...differing.map((row, k) => ({ row: row.index, hue: k, number: k + 1 })),
  ];
}

// The same bands with those lowest that change least over the windows, so that what comes and goes
// does not shift the rest; greys stay below the colours.
function orderBands(histories, by, bands, rows) {
  const all = [...bands, { row: -1 }];
  const mean = new Float64Array(all.length);
  const most = new Float64Array(all.length);
  histories.forEach((history, side) => {
    const view = [history.window.begin, history.window.end].map((moment) =>
      history.position(moment, "event"),
    );
    const moments = history.decimate(view, "event", 200);
    const sums = composeBands(history, assignBands(history, by, all, rows, side), moments);
    sums.forEach((sum, k) => {
      mean[k % all.length] += sum / moments.length;
      most[k % all.length] = Math.max(most[k % all.length], sum);
    });
  });
  const steadiness = new Map(bands.map((band, k) => [band, mean[k] / (most[k] || 1)]));
  const coloured = (band) => Number(band.grey === undefined);
  return [...bands].sort(
    (a, b) => coloured(a) - coloured(b) || steadiness.get(b) - steadiness.get(a),
  );
}
