// Tests of the page in a real Chromium, against the real server.
//
//   node tests/run.mjs --bin target/release/pullback [--recording FILE] [--run FOLDER]
//   node tests/run.mjs --url http://127.0.0.1:7777
//
// --bin starts servers itself (and writes a page); --url uses one that runs. --recording and --run
// add what needs a recording or a run folder (--compiled: a recording of a compiled function, --empty:
// of nothing). --only TEXT runs the tests whose name contains it;
// --quick compares the numbers of two examples instead of all, and leaves out the slowest others.
// --strict also asserts times (a load below 300 ms, 60 frames per second), which only a quiet
// machine can promise; without it they are printed. The last line is `N passed, N failed`; the exit
// status is 0 if nothing failed, 2 if there is no Chromium.
import { parseArgs } from "node:util";
import { Bench } from "./bench.mjs";
import first from "./cases/first.mjs";
import graph from "./cases/graph.mjs";
import numbers from "./cases/numbers.mjs";
import recording from "./cases/recording.mjs";
import reach from "./cases/reach.mjs";
import state from "./cases/state.mjs";
import views from "./cases/views.mjs";
import written from "./cases/written.mjs";

const { values: options } = parseArgs({
  options: {
    url: { type: "string" }, bin: { type: "string" }, recording: { type: "string" }, run: { type: "string" },
    compiled: { type: "string" }, empty: { type: "string" },
    only: { type: "string" }, quick: { type: "boolean", default: false }, strict: { type: "boolean", default: false }, chromium: { type: "string" },
  },
});
if (!options.url && !options.bin) {
  console.error("usage: node tests/run.mjs --bin PULLBACK [--recording FILE] [--run FOLDER] | --url URL");
  process.exit(1);
}
const bench = await Bench.open(options);
if (!bench) {
  console.log("skipped: no Chromium (looked for --chromium, $CHROMIUM, chromium, google-chrome on this machine)");
  process.exit(2);
}
try {
  // Times are measured alone; then two at a time, as a page mostly waits for the other side.
  await first(bench);
  const lanes = [[numbers, views, written], [reach, graph, state, recording]];
  await Promise.all(lanes.map(async (lane) => { for (const cases of lane) await cases(bench); }));
} finally {
  await bench.close();
}
console.log(`${bench.passed} passed, ${bench.failed} failed${bench.skipped ? `, ${bench.skipped} skipped` : ""}`);
process.exit(bench.failed === 0 ? 0 : 1);
