// Numbers as text: the same words as memtrace prints on a terminal.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

// As Python's format does: a tie goes to the even digit.
function fixed(value, digits) {
  const scaled = value * 10 ** digits;
  if (scaled % 1 !== 0.5) return value.toFixed(digits);
  const low = Math.floor(scaled);
  return ((low % 2 ? low + 1 : low) / 10 ** digits).toFixed(digits);
}

// '939.5 MB', '2.82 GB', '512 B': decimal units, as torch's users quote them.
function formatBytes(size) {
  let value = Math.abs(size);
  let unit = 0;
  while (value >= 999.95 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 ? 0 : value < 10 && unit >= 3 ? 2 : 1;
  return `${size < 0 ? "−" : ""}${fixed(value, digits)} ${UNITS[unit]}`;
}

function formatDelta(size) {
  return size > 0 ? `+${formatBytes(size)}` : formatBytes(size);
}

// '1,234'; '' for what is no count, such as a tick between two events.
function formatCount(count) {
  if (!Number.isInteger(count)) return "";

  return Math.abs(count)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ",")
    .replace(/^/, count < 0 ? "−" : "");
}

function formatExact(size, signed = false) {
  return `${signed && size > 0 ? "+" : ""}${formatCount(size)} bytes`;
}

function formatShare(part, whole) {
  return whole ? `${fixed((100 * part) / whole, 1)}%` : "0.0%";
}

// Milliseconds, with as many digits as tell moments within `span` milliseconds apart.
function formatTime(ms, span = Math.abs(ms)) {
  const sign = ms < 0 ? "−" : "";
  const value = Math.abs(ms);
  if (span >= 20000) return `${sign}${(value / 1000).toFixed(span >= 200000 ? 0 : 1)} s`;
  if (span >= 2) return `${sign}${value.toFixed(span >= 200 ? 0 : span >= 20 ? 1 : 2)} ms`;
  return `${sign}${(value * 1000).toFixed(span >= 0.02 ? 0 : 1)} µs`;
}

// Ticks of an axis of bytes share one unit, so that they can be compared at a glance.
function formatTicks(values) {
  const greatest = Math.max(...values.map(Math.abs), 1);
  const unit = Math.min(Math.max(Math.floor(Math.log10(greatest) / 3), 0), UNITS.length - 1);
  const scaled = values.map((value) => value / 1000 ** unit);
  let digits = 0;
  while (digits < 6 && scaled.some((v) => Math.abs(v - Number(v.toFixed(digits))) > 1e-9))
    digits += 1;
  return scaled.map((v) => (v === 0 ? "0" : `${v.toFixed(digits)} ${UNITS[unit]}`));
}

function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

const LONGEST_BROKEN = 300; // longer names are cut anyway

// Text from a recording: set apart from the direction of what is around it, whole on hover.
function nameElement(text, className = "name") {
  const made = element("bdi", className, text);
  made.title = text;
  return made;
}

// The same for a name that may take several lines, broken after its parts.
function brokenName(text) {
  const made = nameElement("");
  made.title = text;
  const parts = text.length > LONGEST_BROKEN ? [text] : text.split(/(?<=[a-z][._/](?=\w))/i);
  parts.forEach((part, k) => made.append(...(k ? [document.createElement("wbr"), part] : [part])));
  return made;
}
