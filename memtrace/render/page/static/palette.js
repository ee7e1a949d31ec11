// Colours that people with any kind of colour vision can tell apart (Okabe and Ito's, lightened to
// serve as areas). Colour never stands alone: areas and rows bear the same numbers.

const HUES = [
  "#e69f00",
  "#56b4e9",
  "#2fb58c",
  "#d986b3",
  "#e8743b",
  "#6f9bd8",
  "#d8cf4a",
  "#a98bd6",
  "#8bc3a0",
];
const GREYS = {
  light: ["#c3c9d1", "#d3d8de", "#b4bbc5", "#dde1e6", "#a7afba"],
  dark: ["#59626e", "#454d58", "#687281", "#3b424c", "#747e8c"],
};
const FOCUS = "#f0569a"; // a row without an area of its own, while it is pointed at
const INK = {
  light: {
    surface: "#ffffff",
    text: "#1d2127",
    muted: "#5f6875",
    line: "#e4e7eb",
    strong: "#1d2127",
    others: "#eceef1",
    hatch: "#cfd4db",
    phase: "#f1f3f5",
    chip: "#ffffff",
  },
  dark: {
    surface: "#16191d",
    text: "#e8eaed",
    muted: "#9aa3af",
    line: "#2b3037",
    strong: "#f4f5f7",
    others: "#2a2f36",
    hatch: "#444c57",
    phase: "#20242a",
    chip: "#0f1114",
  },
};

function bandColour(band, theme) {
  if (band.focus) return FOCUS;
  if (band.others) return INK[theme].others;
  return band.grey === undefined ? HUES[band.hue % HUES.length] : GREYS[theme][band.grey % 5];
}

// Black or white, whichever reads better on a colour.
function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  return 0.299 * r + 0.587 * g + 0.114 * b > 0.5 ? "#15181c" : "#ffffff";
}

// The fill of a band; what has no name of its own is hatched.
function bandFill(context, band, theme, ratio) {
  const colour = bandColour(band, theme);
  if (!band.others) return colour;
  const size = Math.round(6 * ratio);
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = colour;
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = INK[theme].hatch;
  pen.lineWidth = ratio * 0.8;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}
