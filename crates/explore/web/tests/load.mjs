// The first load, measured: from the start of the navigation until the first view is on the screen
// with its numbers, in a fresh profile each time, against the real server.
//
//   node tests/load.mjs --bin ../../../target/release/pullback [--runs 20] [WHAT]
//
// WHAT is what `pullback explore` opens: nothing (the default expression), a recording, a run
// folder. Printed are the times, the processor time of the page's main thread (which other programs
// on the machine hardly change), and the load of the machine.
import { loadavg, cpus } from "node:os";
import { parseArgs } from "node:util";
import { Bench } from "./bench.mjs";

/** What is on the screen when the first view of each kind of subject is usable. */
export const USABLE = { expression: "table.tape td [data-num]", recording: "canvas.graph-canvas", run: ".uplot canvas" };

/** One load of a fresh profile: milliseconds until usable, and of work on the main thread. */
export async function load(page, url, usable) {
  const devtools = await page.context().newCDPSession(page);
  // Processor time of the thread: what others use of the machine does not count.
  await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
  await page.addInitScript((selector) => {
    new MutationObserver((_, observer) => {
      if (!document.querySelector(selector)) return;
      observer.disconnect();
      // The frame that shows it has been drawn when the next task after it runs.
      requestAnimationFrame(() => setTimeout(() => (window.usable = performance.now())));
    }).observe(document, { childList: true, subtree: true });
  }, usable);
  const metrics = async () => Object.fromEntries((await devtools.send("Performance.getMetrics")).metrics.map((m) => [m.name, m.value]));
  const before = await metrics();
  await page.goto(url, { waitUntil: "commit" });
  await page.waitForFunction(() => window.usable, null, { polling: 50 });
  const after = await metrics();
  const times = await page.evaluate(() => {
    const n = performance.getEntriesByType("navigation")[0];
    return { usable: window.usable, html: n.responseEnd, parsed: n.domInteractive };
  });
  const spent = (name) => 1000 * (after[name] - before[name]);
  return { ...times, thread: spent("TaskDuration"), script: spent("ScriptDuration"), layout: spent("LayoutDuration") + spent("RecalcStyleDuration") };
}

export const sorted = (list) => [...list].sort((a, b) => a - b);
export const median = (list) => sorted(list)[list.length >> 1];

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { bin: { type: "string" }, runs: { type: "string", default: "20" }, chromium: { type: "string" } },
  });
  if (!values.bin) {
    console.error("usage: node tests/load.mjs --bin PULLBACK [--runs N] [RECORDING | FOLDER]");
    process.exit(1);
  }
  const bench = await Bench.open(values, positionals);
  if (!bench) {
    console.log("skipped: no Chromium");
    process.exit(2);
  }
  const all = [];
  try {
    for (let k = 0; k < Number(values.runs); k++) {
      const context = await bench.browser.newContext({ viewport: { width: 1360, height: 860 } });
      all.push(await load(await context.newPage(), `${bench.url}/`, USABLE[bench.start.opened.kind]));
      await context.close();
    }
  } finally {
    await bench.close();
  }
  const of = (name) => all.map((one) => one[name]);
  for (const [name, text] of [["usable", "until usable"], ["html", "the page has arrived"], ["parsed", "parsed"], ["thread", "main thread"], ["script", "of it scripts"], ["layout", "of it style and layout"]]) {
    console.log(`${text.padEnd(24)} median ${median(of(name)).toFixed(0)} ms, least ${Math.min(...of(name)).toFixed(0)} ms, most ${Math.max(...of(name)).toFixed(0)} ms`);
  }
  console.log(`${all.length} loads in fresh profiles; load of the machine ${loadavg()[0].toFixed(1)} on ${cpus().length} cores`);
}

if (process.argv[1]?.endsWith("load.mjs")) await main();
