// Tables of rows: the gap between two peaks, or what is alive at a moment.

const MOST_ROWS = 60; // shown at first; the rest are summed into one line

// A grid of rows that can be walked with the arrow keys. `columns` are headings of the figures.
// A row: {text, short, place, detail, badge, members, band, cells, share, focus}.
class RowTable {
  constructor(app, host, label) {
    Object.assign(this, { app, host, label, rows: [], expanded: false });
    host.addEventListener("keydown", (event) => this.walk(event));
    host.addEventListener("mouseleave", () => app.hover(null));
  }

  // `total` is [text, cells].
  show(columns, rows, total) {
    Object.assign(this, { columns, rows, total });
    const table = element("table", "rows");
    table.setAttribute("role", "grid");
    table.setAttribute("aria-label", this.label);
    const head = table.createTHead().insertRow();
    for (const name of ["what", ...columns]) {
      const cell = element("th", "", name);
      cell.scope = "col";
      head.append(cell);
    }
    const body = table.createTBody();
    if (!rows.length) body.append(this.makeEmpty());
    const shown = this.expanded ? rows : rows.slice(0, MOST_ROWS);
    shown.forEach((row, index) => body.append(this.makeRow(row, index)));
    if (shown.length < rows.length) body.append(this.makeRest(rows.slice(shown.length)));
    const foot = table.createTFoot().insertRow();
    foot.append(
      element("th", "", total[0]),
      ...total[1].map((text) => element("td", "figure", text)),
    );
    this.host.replaceChildren(table);
    this.body = body;
    this.mark();
  }

  makeRow(row, index) {
    const line = element("tr");
    line.tabIndex = index === 0 ? 0 : -1;
    line.dataset.index = index;
    const name = element("th");
    name.scope = "row";
    const swatch = element("span", "swatch", row.band?.number ? String(row.band.number) : "");
    if (row.band && !row.band.others) paint(swatch, bandColour(row.band, this.app.theme));
    const title = element("div", "title");
    title.append(brokenName(row.short));
    title.firstChild.title = row.text;
    if (row.members > 1) title.append(element("span", "times", `${row.members} ×`));
    const words = element("div", "words");
    const detail = [row.detail, row.place].filter(Boolean).join(" · ");
    words.append(title);
    const second = element("div", "second");
    if (row.badge) second.append(nameElement(row.badge, "badge"));
    if (detail) second.append(nameElement(detail, "name detail"));
    words.append(second);
    const both = element("div", "what");
    both.append(swatch, words);
    name.append(both);
    line.append(name, ...row.cells.map((text) => element("td", "figure", text)));
    if (row.share) line.lastChild.append(this.makeBar(row));
    line.addEventListener("mouseenter", () => this.app.hover(row.focus));
    line.addEventListener("focus", () => this.app.hover(row.focus));
    line.addEventListener("blur", () => this.app.hover(null));
    line.addEventListener("click", () => this.pick(index));
    return line;
  }

  // A bar from the middle for differences, from the left for amounts.
  makeBar({ share, band }) {
    const bar = element("span", share.signed ? "bar signed" : "bar");
    const fill = element("span", "fill");
    const size = Math.min(Math.abs(share.value), 1) * (share.signed ? 50 : 100);
    fill.style.width = `${size}%`;
    if (share.signed) fill.style.left = share.value < 0 ? `${50 - size}%` : "50%";
    if (band && !band.others) fill.style.background = bandColour(band, this.app.theme);
    bar.append(fill);
    return bar;
  }

  makeRest(rest) {
    const line = element("tr", "rest");
    const cell = element("td");
    cell.colSpan = this.columns.length + 1;
    const button = element("button", "", `Show ${formatCount(rest.length)} smaller rows`);
    button.addEventListener("click", () => {
      this.expanded = true;
      this.show(this.columns, this.rows, this.total);
    });
    cell.append(button);
    line.append(cell);
    return line;
  }

  makeEmpty() {
    const line = element("tr", "rest");
    const cell = element("td", "", "nothing is alive at this moment");
    cell.colSpan = this.columns.length + 1;
    line.append(cell);
    return line;
  }

  pick(index) {
    this.app.select(this.rows[index].focus);
  }

  // Marks the rows that are lit up or selected.
  mark() {
    const { hovered, selected } = this.app.state;
    for (const line of this.body?.rows || []) {
      const row = this.rows[line.dataset.index];
      if (!row) continue;
      line.classList.toggle("lit", sameFocus(row.focus, hovered));
      line.setAttribute("aria-selected", String(sameFocus(row.focus, selected)));
    }
  }

  // Scrolls, within the table alone, to the row that is lit up or selected.
  reveal() {
    const line =
      this.body?.querySelector("tr.lit") || this.body?.querySelector("[aria-selected=true]");
    if (!line) return;
    const top = line.offsetTop - this.host.offsetTop;
    const { scrollTop, clientHeight } = this.host;
    if (top < scrollTop + 40) this.host.scrollTop = Math.max(top - 60, 0);
    else if (top + line.offsetHeight > scrollTop + clientHeight - 40)
      this.host.scrollTop = top - clientHeight / 2;
  }

  walk(event) {
    const line = event.target.closest("tr");
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -1e9, End: 1e9 };
    if (!line || !this.body) return;
    if (event.key in steps) {
      const lines = [...this.body.rows].filter((one) => one.dataset.index);
      const next = Math.min(Math.max(lines.indexOf(line) + steps[event.key], 0), lines.length - 1);
      for (const one of lines) one.tabIndex = -1;
      lines[next].tabIndex = 0;
      lines[next].focus();
    } else if ((event.key === "Enter" || event.key === " ") && line.dataset.index)
      this.pick(Number(line.dataset.index));
    else return;
    event.preventDefault();
  }
}
