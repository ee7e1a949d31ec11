// The generated source of the runs with the bytes that each line holds in its margin.

const LINE_HEIGHT = 20;
const MARGIN_LINES = 12; // drawn beyond the part that is seen

// Bytes alive at a moment by the line that they came through: one map a file, line → bytes.
function bytesByLine(history, moment, chosen = null) {
  const files = history.files.map(() => new Map());
  const live = history.live(moment);
  for (const lifetime of live || []) {
    if (chosen && !chosen(lifetime)) continue;
    const kind = history.kind[lifetime];
    for (const [file, line] of history.lines(kind)) {
      files[file].set(line, (files[file].get(line) || 0) + history.requested[kind]);
    }
  }
  return files;
}

function sumOf(map) {
  let sum = 0;
  for (const bytes of map.values()) sum += bytes;
  return sum;
}

class SourceView {
  constructor(app, host) {
    Object.assign(this, { app, host, shown: null, lines: [], margins: [], marked: new Set() });
    this.picker = host.querySelector("select");
    this.viewport = host.querySelector(".source-lines");
    this.space = element("div", "source-space");
    this.page = element("div", "source-page");
    this.space.append(this.page);
    this.viewport.append(this.space);
    this.note = host.querySelector(".source-note");
    this.picker.addEventListener("change", () =>
      this.open(...this.picker.value.split(":").map(Number)),
    );
    this.viewport.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.viewport);
    for (const [name, step] of [
      ["previous", -1],
      ["next", 1],
    ]) {
      host.querySelector(`.${name}`).addEventListener("click", () => this.step(step));
    }
  }

  get empty() {
    return this.app.histories.every((history) => history.files.length === 0);
  }

  // Takes up the chosen moments: margins of all files, their sums in the list of files.
  refresh() {
    this.host.classList.toggle("none", this.empty);
    if (this.empty)
      this.note.textContent = "none: the recordings hold no generated code that allocated anything";
    if (this.empty) return;
    const { histories, state } = this.app;
    this.margins = histories.map((history, side) => bytesByLine(history, state.chosen[side]));
    const entries = histories.flatMap((history, side) =>
      history.files.map((file, number) => ({
        history,
        side,
        file,
        number,
        bytes: sumOf(this.margins[side][number]),
      })),
    );
    entries.sort((a, b) => b.bytes - a.bytes);
    this.picker.replaceChildren(
      ...entries.map(({ history, side, file, number, bytes }) => {
        const words = [history.letter, file.name, file.title].filter(Boolean).join("  ");
        const option = element("option", "", `${words}: ${formatBytes(bytes)}`);
        option.value = `${side}:${number}`;
        return option;
      }),
    );
    if (this.shown) this.open(...this.shown, true);
    else this.open(entries[0].side, entries[0].number);
  }

  open(side, number, stay = false) {
    const same = this.shown && this.shown[0] === side && this.shown[1] === number;
    this.shown = [side, number];
    this.picker.value = `${side}:${number}`;
    const history = this.app.histories[side];
    if (!same) {
      this.lines = readText(history.buffer, history.files[number].text).split("\n");
      this.longest = Math.min(
        this.lines.reduce((most, line) => Math.max(most, line.length), 0),
        4000,
      );
      this.space.style.height = `${this.lines.length * LINE_HEIGHT}px`;
      this.page.style.minWidth = `${this.longest + 24}ch`;
    }
    this.margin = this.margins[side][number];
    this.greatest = Math.max(...this.margin.values(), 1);
    this.holding = [...this.margin.keys()].sort((a, b) => a - b);
    const moment = this.app.state.chosen[side];
    const when = moment === history.peak ? "at the peak" : `at event ${formatCount(moment)}`;
    const letter = history.letter ? `${history.letter}, ` : "";
    this.note.textContent = history.detailed(moment)
      ? `${letter}${when}: ${formatBytes(sumOf(this.margin))} alive that this file made, at ${this.holding.length} of its ${formatCount(this.lines.length)} lines`
      : `${letter}${when}: what was alive then is not on this page, so the margin is empty`;
    if (!stay && !same) this.jump(this.heaviest());
    this.draw();
  }

  heaviest() {
    return this.holding.reduce(
      (best, line) => (this.margin.get(line) > (this.margin.get(best) || 0) ? line : best),
      1,
    );
  }

  // Scrolls so that a line is in the upper third.
  jump(line) {
    const top = Math.max((line - 1) * LINE_HEIGHT - this.viewport.clientHeight / 3, 0);
    this.viewport.scrollTo({ top, left: 0, behavior: "instant" });
    this.draw();
  }

  // To the next line that holds bytes.
  step(direction) {
    const middle =
      Math.round((this.viewport.scrollTop + this.viewport.clientHeight / 3) / LINE_HEIGHT) + 1;
    const lines =
      direction > 0
        ? this.holding.filter((line) => line > middle)
        : this.holding.filter((line) => line < middle).reverse();
    if (lines.length) this.jump(lines[0]);
  }

  // Only the lines that can be seen exist.
  draw() {
    const first = Math.max(Math.floor(this.viewport.scrollTop / LINE_HEIGHT) - MARGIN_LINES, 0);
    const count = Math.ceil(this.viewport.clientHeight / LINE_HEIGHT) + 2 * MARGIN_LINES;
    const lines = this.lines
      .slice(first, first + count)
      .map((text, k) => this.makeLine(first + k + 1, text));
    this.page.style.transform = `translateY(${first * LINE_HEIGHT}px)`;
    this.page.replaceChildren(...lines);
  }

  makeLine(number, text) {
    const bytes = this.margin.get(number) || 0;
    const line = element("div", bytes ? "line holds" : "line");
    if (this.marked.has(number)) line.classList.add("marked");
    const amount = element("span", "amount", bytes ? formatBytes(bytes) : "");
    if (bytes) {
      const fill = element("span", "fill");
      fill.style.width = `${Math.max((100 * bytes) / this.greatest, 1)}%`;
      amount.append(fill);
      line.addEventListener("click", () =>
        this.app.selectLine(this.shown[0], this.shown[1], number),
      );
    }
    line.dataset.line = number;
    line.append(amount, element("span", "number", String(number)), element("code", "", text));
    return line;
  }

  // The lines that hold most, of all runs, as a list that needs no scrolling.
  listHeaviest(host, most = 24) {
    this.app.histories.forEach((history, side) => {
      const innermost = bytesByLine(history, this.app.state.chosen[side]);
      const lines = innermost.flatMap((map, file) =>
        [...map].map(([line, bytes]) => ({ file, line, bytes })),
      );
      lines.sort((a, b) => b.bytes - a.bytes);
      for (const { file, line, bytes } of lines.slice(0, most)) {
        const text = readText(history.buffer, history.files[file].text).split("\n")[line - 1] || "";
        const item = element("div", "print-line");
        item.append(
          element("span", "amount", formatBytes(bytes)),
          element("span", "number", `${history.letter} ${history.files[file].name}:${line}`),
          element("code", "", text.trim().slice(0, 160)),
        );
        host.append(item);
      }
    });
  }

  // Shows where the rows of a focus were made; false where no source on the page tells.
  reveal(focus) {
    const sides = this.app.histories
      .map((_, side) => side)
      .filter((side) => focus.groups[side].length);
    let best = null;
    for (const side of sides) {
      const found = this.linesOf(side, focus.groups[side]);
      if (found && (!best || found.bytes > best.bytes)) best = { ...found, side };
    }
    this.marked = new Set(best ? best.lines : []);
    if (!best) {
      this.draw();
      return false;
    }
    this.open(best.side, best.file, true);
    this.jump(best.line);
    return true;
  }

  // The innermost lines that some groups came through: alive now, or else at any time.
  linesOf(side, groups) {
    const history = this.app.histories[side];
    const { by, chosen } = this.app.state;
    const wanted = new Set(groups);
    const tally = new Map();
    const add = (kind, bytes) => {
      const innermost = history.lines(kind)[0];
      if (!innermost) return;
      const key = innermost.join(":");
      tally.set(key, (tally.get(key) || 0) + bytes);
    };
    for (const lifetime of history.live(chosen[side]) || []) {
      if (wanted.has(history.group(lifetime, by, chosen[side])))
        add(history.kind[lifetime], history.requested[history.kind[lifetime]]);
    }
    if (!tally.size)
      history.groupOf[by].forEach((group, kind) => wanted.has(group) && add(kind, 0));
    if (!tally.size) return null;
    const [key, bytes] = [...tally].sort((a, b) => b[1] - a[1])[0];
    const [file, line] = key.split(":").map(Number);
    const lines = [...tally.keys()]
      .map((one) => one.split(":").map(Number))
      .filter(([f]) => f === file);
    return { file, line, bytes, lines: lines.map(([, number]) => number) };
  }
}
