// Single lifetimes within the areas: in each band they lie in order of birth, the oldest lowest.

const MOST_STEPS = 6e6; // lifetimes times moments that are looked at for one drawing

// The lifetime drawn at a height of `bytes` at moment `k` of a frame; -1 for slack or nothing.
function lifetimeAt(history, frame, k, bytes) {
  const moment = frame.moments[k];
  const live = history.live(moment);
  if (!live) return -1;
  const { by, of, count } = frame.assignment;
  const edge = frame.tops.slice(k * (count + 1), (k + 1) * (count + 1));
  for (const lifetime of live) {
    const band = of[history.group(lifetime, by, moment)];
    const low = edge[band];
    edge[band] = low + history.requested[history.kind[lifetime]];
    if (bytes >= low && bytes < edge[band]) return lifetime;
  }
  return -1;
}

// Calls `draw(lifetime, first, last, bottom, top)` for stretches of the frame's moments (last not
// included) over which a lifetime of at least `smallest` bytes stays at one height.
function traceLifetimes(history, frame, smallest, draw) {
  const { moments, assignment, tops } = frame;
  if (!moments.length || !history.detailed(moments[0]) || !history.detailed(moments.at(-1))) return;
  const { by, of, count } = assignment;
  let alive = history.live(moments[0]);
  if (alive.length * moments.length > MOST_STEPS) return;
  const open = new Map();
  const close = (lifetime, stretch, k) =>
    draw(lifetime, stretch.first, k, stretch.low, stretch.high);
  let births = alive.length ? alive.at(-1) + 1 : 0;
  while (births < history.born.length && history.born[births] < moments[0]) births += 1;
  const edge = new Float64Array(count + 1);
  for (let k = 0; k < moments.length; k += 1) {
    const moment = moments[k];
    for (; births < history.born.length && history.born[births] < moment; births += 1)
      alive.push(births);
    edge.set(tops.subarray(k * (count + 1), (k + 1) * (count + 1)));
    let kept = 0;
    for (const lifetime of alive) {
      const stretch = open.get(lifetime);
      if (history.end[lifetime] < moment) {
        if (stretch) close(lifetime, stretch, k);
        open.delete(lifetime);
        continue;
      }
      alive[kept++] = lifetime;
      const size = history.requested[history.kind[lifetime]];
      const band = of[history.group(lifetime, by, moment)];
      const low = edge[band];
      edge[band] = low + size;
      if (size < smallest) continue;
      if (stretch && stretch.low === low) continue;
      if (stretch) close(lifetime, stretch, k);
      open.set(lifetime, { first: k, low, high: low + size });
    }
    alive.length = kept;
  }
  for (const [lifetime, stretch] of open) close(lifetime, stretch, moments.length);
}

// Outlines of lifetimes that are large enough to be seen, with names where there is room.
function drawLifetimes(plot, history, frame, bands, theme, lit, pointed) {
  const context = plot.ctx;
  const place = placeFrame(plot, frame);
  const ratio = uPlot.pxRatio;
  const path = new Path2D();
  const names = [];
  // Names of single lifetimes need more room than there is for a whole iteration.
  const closeUp = frame.complete && frame.moments.length * 5 < place.width / ratio;
  const right = place.left + place.width;
  traceLifetimes(
    history,
    frame,
    (3 * ratio) / place.perByte,
    (lifetime, first, last, low, high) => {
      const x0 = Math.max(place.edges[first], place.left);
      const x1 = Math.min(place.edges[last], right);
      if (x1 - x0 < 2 * ratio) return;
      const bottom = place.y(low);
      const top = place.y(high);
      path.moveTo(x0, top);
      path.lineTo(x1, top);
      // Its beginning and its end; where it only moves because another one went, no line.
      for (const [x, seen] of [
        [x0, frame.moments[first] === history.born[lifetime] + 1],
        [x1, history.end[lifetime] < frame.moments[last]],
      ]) {
        if (!seen) continue;
        path.moveTo(x, top);
        path.lineTo(x, bottom);
      }
      if (closeUp && x1 - x0 > 60 * ratio && bottom - top > 15 * ratio) {
        names.push({
          lifetime,
          x0,
          x1,
          top: Math.max(top, place.top),
          bottom: Math.min(bottom, place.top + place.height),
        });
      }
    },
  );
  context.strokeStyle = INK[theme].surface;
  context.globalAlpha = closeUp ? 0.9 : 0.35;
  context.lineWidth = Math.max(1, 0.75 * ratio);
  context.stroke(path);
  context.globalAlpha = 1;
  if (closeUp) nameLifetimes(context, history, frame, names, bands, theme, lit, ratio);
  return names.length > 0;
}

function nameLifetimes(context, history, frame, names, bands, theme, lit, ratio) {
  context.font = `${11 * ratio}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const { lifetime, x0, x1, top, bottom } of names) {
    const moment = frame.moments[Math.max(frameIndex(frame, frame.xs[0]), 0)];
    const number =
      frame.assignment.of[
        history.group(lifetime, frame.assignment.by, Math.max(moment, history.born[lifetime] + 1))
      ];
    if ((lit >= 0 && lit !== number) || bottom - top < 13 * ratio) continue;
    const name = history.about(lifetime).tensor || lifetimeName(history, lifetime);
    const text = fitText(
      context,
      `${name}  ${formatBytes(history.requested[history.kind[lifetime]])}`,
      x1 - x0 - 8 * ratio,
    );
    context.fillStyle = inkOn(bandColour(bands[number], theme));
    if (text) context.fillText(text, x0 + 4 * ratio, (top + bottom) / 2);
  }
}

function lifetimeName(history, lifetime) {
  return symbolText(history.groups.symbol[history.groupOf.symbol[history.kind[lifetime]]]);
}
