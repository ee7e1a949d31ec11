// The stacked areas of one chart: what they are at the chosen moments, and their drawing.

// Which band each group of a history goes to. `bands` are in order from the bottom; the last one
// takes what no other has.
function assignBands(history, by, bands, rows, side) {
  const others = bands.length - 1;
  const of = new Int16Array(history.groups[by].length).fill(others);
  const ofRow = new Int16Array(rows.length).fill(others);
  bands.forEach((band, number) => {
    const groups = band.focus
      ? band.groups[side]
      : band.row >= 0
        ? rows[band.row].groups[side]
        : [];
    for (const group of groups) of[group] = number;
    if (band.row >= 0) ofRow[band.row] = number;
  });
  return { by, of, ofRow, count: bands.length };
}

// Bytes of each band at ascending moments: a Float64Array, band by band at each moment.
function composeBands(history, assignment, moments) {
  const { by, of, ofRow, count } = assignment;
  const sums = new Float64Array(moments.length * count);
  const now = new Float64Array(count);
  const { born, end, deaths, kind, requested, slack, groupOf, late } = history;
  const group = groupOf[by];
  const turns = by === "category" ? history.turns : [];
  const slackBand = of[SLACK_GROUP];
  let births = 0;
  let gone = 0;
  let turned = 0;
  for (let k = 0; k < moments.length; k += 1) {
    const moment = moments[k];
    if (!history.detailed(moment)) {
      const { places, numbers, rows } = history.overview;
      const at = places.get(moment);
      rows[by].forEach((column, c) => {
        sums[k * count + (c < numbers[by].length ? ofRow[numbers[by][c]] : count - 1)] +=
          column[at];
      });
      continue;
    }
    for (; births < born.length && born[births] < moment; births += 1) {
      now[of[group[kind[births]]]] += requested[kind[births]];
      now[slackBand] += slack[kind[births]];
    }
    for (; turned < turns.length && turns[turned][0] < moment; turned += 1) {
      const which = kind[turns[turned][1]];
      now[of[group[which]]] -= requested[which];
      now[of[late[which]]] += requested[which];
    }
    for (; gone < deaths.length && end[deaths[gone]] < moment; gone += 1) {
      const which = kind[deaths[gone]];
      const last = turns.length && history.turnOf.has(deaths[gone]) ? late[which] : group[which];
      now[of[last]] -= requested[which];
      now[slackBand] -= slack[which];
    }
    sums.set(now, k * count);
  }
  return sums;
}

// What a chart draws: positions, moments and the bands' upper edges at each.
function makeFrame(history, assignment, view, axis, columns) {
  const moments = history.decimate(view, axis, columns);
  const xs = Float64Array.from(moments, (moment) => history.position(moment, axis));
  const sums = composeBands(history, assignment, moments);
  const { count } = assignment;
  const tops = new Float64Array(moments.length * (count + 1));
  for (let k = 0; k < moments.length; k += 1) {
    for (let band = 0; band < count; band += 1) {
      tops[k * (count + 1) + band + 1] = tops[k * (count + 1) + band] + sums[k * count + band];
    }
  }
  const totals = Float64Array.from(moments, (moment) => history.total[moment]);
  // Every moment of the view is here, none left out.
  const complete = moments.length > 0 && moments.at(-1) - moments[0] === moments.length - 1;
  return { moments, xs, tops, totals, bands: count, assignment, complete };
}

// Number of the drawn moment that holds at x, -1 before the first.
function frameIndex(frame, x) {
  let low = -1;
  for (let high = frame.xs.length - 1; low < high;) {
    const middle = (low + high + 1) >> 1;
    if (frame.xs[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}

// Number of the band at a height of `bytes`, -1 where there is none.
function bandAt(frame, index, bytes) {
  const step = frame.bands + 1;
  for (let number = 0; number < frame.bands; number += 1) {
    if (bytes >= frame.tops[index * step + number] && bytes < frame.tops[index * step + number + 1])
      return number;
  }
  return -1;
}

// Screen positions of a frame: edges of every moment's column and a function for bytes.
function placeFrame(plot, frame) {
  const { left, top, width, height } = plot.bbox;
  const { min, max } = plot.scales.x;
  const low = plot.scales.y.min;
  const perByte = height / (plot.scales.y.max - low || 1);
  const edges = new Float64Array(frame.xs.length + 1);
  for (let k = 0; k < frame.xs.length; k += 1) {
    edges[k] = left + ((frame.xs[k] - min) / (max - min)) * width;
  }
  edges[frame.xs.length] = left + width;
  return {
    edges,
    y: (bytes) => top + height - (bytes - low) * perByte,
    perByte,
    left,
    top,
    width,
    height,
  };
}

function drawStack(plot, frame, bands, theme, lit) {
  const context = plot.ctx;
  const { edges, y } = placeFrame(plot, frame);
  const step = frame.bands + 1;
  bands.forEach((band, number) => {
    const path = new Path2D();
    const count = frame.xs.length;
    if (!count) return;
    for (let k = 0; k < count; k += 1) {
      const edge = y(frame.tops[k * step + number + 1]);
      if (k === 0) path.moveTo(edges[0], edge);
      path.lineTo(edges[k], edge);
      path.lineTo(edges[k + 1], edge);
    }
    for (let k = count - 1; k >= 0; k -= 1) {
      const edge = y(frame.tops[k * step + number]);
      path.lineTo(edges[k + 1], edge);
      path.lineTo(edges[k], edge);
    }
    context.globalAlpha = lit < 0 || lit === number ? 1 : 0.3;
    context.fillStyle = bandFill(context, band, theme, uPlot.pxRatio);
    context.fill(path);
  });
  context.globalAlpha = 1;
}

// Writes each band's name where it is thickest, if there is room.
function labelStack(plot, frame, bands, theme, lit) {
  const context = plot.ctx;
  const place = placeFrame(plot, frame);
  const step = frame.bands + 1;
  const ratio = uPlot.pxRatio;
  const line = 13 * ratio;
  context.font = `600 ${11 * ratio}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  bands.forEach((band, number) => {
    if (band.others || (lit >= 0 && lit !== number)) return;
    const span = widestSpan(frame, place, step, number, line);
    if (!span || span.right - span.left < 26 * ratio) return;
    const room = span.right - span.left - 12 * ratio;
    const whole = `${band.number ? `${band.number}  ` : ""}${band.label}`;
    const cut = fitText(context, whole, room);
    // A number alone says more than a name of three letters.
    const text = cut === whole || cut.length > 12 || !band.number ? cut : String(band.number);
    if (!text) return;
    context.fillStyle = inkOn(bandColour(band, theme));
    context.fillText(text, span.left + 6 * ratio, span.y);
  });
}

// The longest stretch within a band, a text line high, that holds a horizontal line.
function widestSpan(frame, { edges, y, left, width, top, height }, step, number, line) {
  let best = null;
  const count = frame.xs.length;
  let start = -1;
  let low = 0;
  let high = 0;
  const close = (k) => {
    if (start < 0) return;
    const from = Math.max(edges[start], left);
    const to = Math.min(edges[k], left + width);
    if (!best || to - from > best.right - best.left)
      best = { left: from, right: to, y: (low + high) / 2 };
  };
  for (let k = 0; k < count; k += 1) {
    const upper = Math.max(y(frame.tops[k * step + number + 1]), top);
    const lower = Math.min(y(frame.tops[k * step + number]), top + height);
    if (start >= 0 && Math.min(low, lower) - Math.max(high, upper) >= line) {
      low = Math.min(low, lower);
      high = Math.max(high, upper);
      continue;
    }
    close(k);
    start = lower - upper >= line ? k : -1;
    [low, high] = [lower, upper];
  }
  close(count);
  return best;
}

// A text cut to a width in pixels, '' where hardly anything of it would be left.
function fitText(context, text, room) {
  if (room < 8) return "";
  const whole = text.length > 400 ? text.slice(0, 400) : text;
  if (whole === text && context.measureText(text).width <= room) return text;
  let low = 0;
  for (let high = whole.length; low < high;) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${whole.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low < 3 ? "" : `${whole.slice(0, low)}…`;
}
