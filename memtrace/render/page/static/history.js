// One recording: its lifetimes, its total at every moment, and what was alive at any of them.
//
// Moments are event numbers: moment m is the state after the first m events. A lifetime counts at
// moment m if born < m ≤ end, as in memtrace's timeline.

class History {
  constructor(run, buffer) {
    Object.assign(this, {
      letter: run.letter,
      summary: run.summary,
      facts: run.facts,
      events: run.events,
      from: run.from,
      whole: !run.overview,
      windows: run.windows,
      window: run.windows[run.window],
      groups: run.groups,
      whats: run.whats,
      categories: run.categories,
      lineSets: run.lineSets,
      freeLines: run.freeLines,
      files: run.files,
      buffer,
    });
    this.readKinds(run.kinds);
    this.kind = readColumn(buffer, run.kind);
    this.born = readColumn(buffer, run.born);
    this.end = readColumn(buffer, run.life);
    for (let k = 0; k < this.born.length; k += 1) {
      this.born[k] -= 1;
      this.end[k] += this.born[k];
    }
    this.deaths = this.sortDeaths();
    this.turns = this.findTurns();
    this.total = this.sumTotals();
    this.overview = run.overview && this.readOverview(run.overview);
    // Moments whose totals are known; null: all from `from` on.
    this.moments = this.overview ? this.knownMoments() : null;
    this.times = run.times ? this.spreadTimes(readColumn(buffer, run.times, Float64Array)) : null;
  }

  // Columns over kinds: what lifetimes of one kind have in common.
  readKinds(kinds) {
    const { buffer } = this;
    this.requested = readColumn(buffer, kinds.requested, Float64Array);
    this.slack = readColumn(buffer, kinds.held, Float64Array).map(
      (held, kind) => held - this.requested[kind],
    );
    for (const name of ["what", "category", "lines", "freed"])
      this[`${name}Of`] = readColumn(buffer, kinds[name]);
    this.late = readColumn(buffer, kinds.late);
    this.groupOf = {};
    for (const by of Object.keys(kinds.groups))
      this.groupOf[by] = readColumn(buffer, kinds.groups[by]);
  }

  get peak() {
    return this.summary.event;
  }

  // Lifetimes in order of their ends, by counting.
  sortDeaths() {
    const counts = new Int32Array(this.events + 3);
    for (const end of this.end) counts[end + 2] += 1;
    for (let k = 1; k < counts.length; k += 1) counts[k] += counts[k - 1];
    const order = new Int32Array(this.end.length);
    for (let k = 0; k < this.end.length; k += 1) order[counts[this.end[k] + 1]++] = k;
    return order;
  }

  // When a lifetime's late category begins: as its iteration ends. [moment, lifetime], ascending.
  findTurns() {
    const steps = this.windows
      .filter((w) => w.iteration)
      .sort((a, b) => a.begin - b.begin || a.end - b.end);
    this.turnOf = new Map();
    if (!steps.length) return [];
    const changes = this.groupOf.category.map((group, kind) => Number(group !== this.late[kind]));
    const found = [];
    for (let k = 0; k < this.born.length; k += 1) {
      if (!changes[this.kind[k]]) continue;
      let at = 0;
      for (let low = 0, high = steps.length - 1; low <= high;) {
        const middle = (low + high) >> 1;
        if (steps[middle].begin <= this.born[k]) {
          at = middle;
          low = middle + 1;
        } else high = middle - 1;
      }
      if (steps[at].end < this.end[k]) {
        found.push([steps[at].end, k]);
        this.turnOf.set(k, steps[at].end);
      }
    }
    return found.sort((a, b) => a[0] - b[0]);
  }

  sumTotals() {
    const total = new Float64Array(this.events + 2);
    for (let k = 0; k < this.born.length; k += 1) {
      const size = this.requested[this.kind[k]] + this.slack[this.kind[k]];
      total[this.born[k] + 1] += size;
      total[this.end[k] + 1] -= size;
    }
    for (let k = 1; k <= this.events; k += 1) total[k] += total[k - 1];
    return total.subarray(0, this.events + 1);
  }

  readOverview(overview) {
    const moments = readColumn(this.buffer, overview.moments);
    const total = readColumn(this.buffer, overview.total, Float64Array);
    const rows = {};
    for (const by of Object.keys(overview.rows)) {
      rows[by] = overview.rows[by].map((column) => readColumn(this.buffer, column, Float64Array));
    }
    moments.forEach((moment, k) => {
      if (!this.detailed(moment)) this.total[moment] = total[k];
    });
    const places = new Map(Array.from(moments, (moment, k) => [moment, k]));
    return { moments, places, numbers: overview.numbers, rows };
  }

  // Whether all lifetimes alive at a moment are here.
  detailed(moment) {
    return this.whole || (moment >= this.window.begin && moment <= this.window.end);
  }

  knownMoments() {
    const { begin, end } = this.window;
    const inside = Int32Array.from({ length: end - begin + 1 }, (_, k) => begin + k);
    const outside = this.overview.moments.filter((moment) => !this.detailed(moment));
    return Int32Array.from([
      ...outside.filter((m) => m < begin),
      ...inside,
      ...outside.filter((m) => m > end),
    ]);
  }

  // Milliseconds of each event since the window's first one. Events within one microsecond are
  // spread over it: their order is known, the rest of their time is not.
  spreadTimes(times) {
    const first = times[Math.min(this.window.begin, times.length - 1)];
    const spread = new Float64Array(times.length);
    for (let k = 0; k < times.length;) {
      let next = k + 1;
      while (next < times.length && times[next] === times[k]) next += 1;
      for (let j = k; j < next; j += 1)
        spread[j] = (times[k] - first + (j - k) / (next - k)) / 1000;
      k = next;
    }
    return spread;
  }

  get count() {
    return this.moments ? this.moments.length : this.events + 1 - this.from;
  }

  // The k-th known moment.
  momentAt(k) {
    return this.moments ? this.moments[k] : this.from + k;
  }

  // Where a moment lies on the axis: events or milliseconds since the window began.
  position(moment, axis) {
    if (axis === "event" || !this.times) return moment - this.window.begin;
    return moment ? this.times[Math.min(moment, this.events) - 1] : this.times[0];
  }

  // Number of the last known moment at or before x, at least 0.
  findKnown(x, axis) {
    let low = 0;
    for (let high = this.count - 1; low < high;) {
      const middle = (low + high + 1) >> 1;
      if (this.position(this.momentAt(middle), axis) <= x) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // The moments that stand for a view of `columns` pixels: all of them where they fit. Else in each
  // column the first moment of the greatest total, and its last one where no event follows for a
  // while: what holds then is not the column's greatest.
  decimate(view, axis, columns) {
    const first = this.findKnown(view[0], axis);
    const last = Math.min(this.findKnown(view[1], axis) + 1, this.count - 1);
    const chosen = [];
    if (last - first < 2 * columns) {
      for (let k = first; k <= last; k += 1) chosen.push(this.momentAt(k));
      return Int32Array.from(chosen);
    }
    const scale = columns / (view[1] - view[0]);
    let column = -Infinity;
    let best = -1;
    let previous = -1;
    for (let k = first; k <= last; k += 1) {
      const moment = this.momentAt(k);
      const here = Math.floor((this.position(moment, axis) - view[0]) * scale);
      if (here !== column) {
        if (best >= 0) chosen.push(best);
        if (previous > best && here > column + 1) chosen.push(previous);
        column = here;
        best = moment;
      } else if (this.total[moment] > this.total[best]) best = moment;
      previous = moment;
    }
    chosen.push(best);
    if (previous > best) chosen.push(previous);
    return Int32Array.from(chosen);
  }

  // Lifetimes that count at a moment, in order of birth; null where they are not all here.
  live(moment) {
    if (!this.detailed(moment)) return null;
    const found = [];
    for (let k = 0; k < this.born.length && this.born[k] < moment; k += 1) {
      if (this.end[k] >= moment) found.push(k);
    }
    return found;
  }

  // The group of a lifetime at a moment.
  group(lifetime, by, moment) {
    const kind = this.kind[lifetime];
    const turned = by === "category" && this.turnOf.get(lifetime) < moment;
    return turned ? this.late[kind] : this.groupOf[by][kind];
  }

  // What is known of a lifetime: {tensor, shape, layer, made, category, freed}.
  about(lifetime) {
    const kind = this.kind[lifetime];
    const [tensor, shape, layer, made] = this.whats[this.whatOf[kind]];
    const category = this.categories[this.categoryOf[kind]];
    return { tensor, shape, layer, made, category, freed: this.freeLines[this.freedOf[kind]] };
  }

  // The lines of generated files that a kind came through, innermost first: [file, line].
  lines(kind) {
    return this.lineSets[this.linesOf[kind]];
  }

  // The iteration that a moment lies in, preferring the compared one; null outside of all.
  windowAt(moment) {
    const inside = (w) => w.begin <= moment && moment <= w.end;
    if (this.window.iteration && inside(this.window)) return this.window;
    return this.windows.find((w) => w.iteration && inside(w)) || null;
  }
}
