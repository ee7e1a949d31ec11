// The data of the page: JSON as it is, columns out of one deflated buffer.

// Resolves to the object that page_data (memtrace/render/page/data.py) made, and the buffer.
async function unpackPage() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const packed = atob(document.getElementById("columns").textContent.trim());
  const bytes = new Uint8Array(packed.length);
  for (let k = 0; k < packed.length; k += 1) bytes[k] = packed.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = new Uint8Array(await new Response(stream).arrayBuffer());
  return { data, buffer };
}

// A column written by packing.py: byte planes, lowest first; differences where it rises.
function readColumn(buffer, { at, length, width, rising }, Kind = Int32Array) {
  const column = new Kind(length);
  for (let plane = width - 1; plane >= 0; plane -= 1) {
    const from = at + plane * length;
    for (let k = 0; k < length; k += 1) column[k] = column[k] * 256 + buffer[from + k];
  }
  if (rising) for (let k = 1; k < length; k += 1) column[k] += column[k - 1];
  return column;
}

function readText(buffer, { at, length }) {
  return new TextDecoder().decode(buffer.subarray(at, at + length));
}
