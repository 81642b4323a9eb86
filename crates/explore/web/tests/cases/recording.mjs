// A recording of a real program, and a run folder, where they were given.
import { check, equal } from "../bench.mjs";
import { crossings } from "./graph.mjs";

export default async (bench) => {
  const file = bench.options.recording;
  const folder = bench.options.run;
  const recorded = Boolean(bench.options.bin && file);
  await bench.test("recording: graph, tape, sweep, memory and program", async (page) => {
    const url = await bench.open(file);
    const p = await page();
    p.expected = /40[04]/;
    const graph = await bench.ask("/api/recording", undefined, url);
    await bench.view(p, "", url);
    await p.waitForSelector("canvas.graph-canvas");
    check((await p.locator("#main").textContent()).includes(graph.total.toLocaleString("en-US")), "the number of nodes");
    await p.waitForFunction(() => document.querySelector("canvas.graph-canvas").drawing?.scene);
    // What runs outside of modules, as the sum of a residual connection, is with those around it.
    const closed = p.locator(".outline .group-row[aria-expanded=false]:not(:has-text('after the result'))");
    for (let k = 0; k < 100 && (await closed.count()) > 0; k++) await closed.first().click();
    await bench.drawn(p);
    const { edges, found } = await crossings(p);
    check(edges > 100 && found.length === 0, `${edges} edges; those over boxes: ${found.join("; ")}`);
    await p.getByLabel("Find a node").fill(graph.ops[0]);
    await p.locator(".outline .leaf-row").first().click();
    await p.waitForSelector("text=Show on the tape");
    await p.getByRole("button", { name: "Show on the tape" }).click();
    await p.waitForSelector("tr.picked");
    await bench.view(p, "#/forward?of=file&forward=1", url);
    const tape = await bench.ask("/api/recording/tape?from=0&count=200", undefined, url);
    await p.waitForSelector("table.tape tbody tr");
    equal(await p.locator("table.tape tbody tr").count(), tape.nodes.length, "rows of the first page");
    await p.keyboard.press("End");
    await p.waitForSelector(`tr[data-node="${graph.total - 1}"].current`);
    await bench.view(p, "#/reverse?of=file", url);
    await p.waitForSelector("table.tape tbody tr, #main .note");
    const sweep = await bench.ask("/api/recording/sweep?from=0&count=200", undefined, url);
    if (sweep.total > 0) {
      equal(await p.locator("table.tape tbody tr").count(), sweep.visits.length, "visits of the first page");
      for (let k = 0; k < 5; k++) await p.keyboard.press("ArrowRight");
      await p.waitForSelector("tr.current.cot-now");
      await p.keyboard.press("End");
      await p.waitForFunction((n) => document.querySelector(".transport .count")?.textContent.replace(/\s/g, "") === `${n}/${n}`, sweep.total);
    }
    await bench.view(p, "#/memory?of=file", url);
    await p.waitForSelector("[data-run=recording]");
    await bench.view(p, "#/program?of=file", url);
    await p.waitForSelector(graph.program ? ".passes button" : "#main .note:has-text('has no program')");
  }, recorded);

  await bench.test("recording: one of a compiled function, and an empty one", async (page) => {
    const p = await page();
    p.expected = /40[04]/;
    const url = await bench.open(bench.options.compiled);
    const graph = await bench.ask("/api/recording", undefined, url);
    check(graph.parts.some((part) => part.path.includes("jit call 1")), "the call is a part");
    await bench.view(p, "#/graph?of=file", url);
    await p.waitForSelector(".outline .group-row:has-text('jit call 1')");
    await bench.show(p, "#/forward?of=file&forward=1");
    await p.waitForSelector("table.tape td:has-text('jit call 1')");
    check((await p.locator("td .absent").count()) > 0, "values inside it are not kept");
    await bench.show(p, "#/program?of=file");
    await p.waitForSelector(".equations li");
    await bench.view(p, "", await bench.open(bench.options.empty));
    await p.waitForSelector("#main .note:has-text('This recording is empty')");
    for (const view of ["forward", "reverse", "tangents", "memory", "program"]) {
      await bench.show(p, `#/${view}?of=file`);
      await p.waitForSelector("#main .note, #main [data-run]");
    }
  }, Boolean(bench.options.bin && bench.options.compiled && bench.options.empty));

  const trained = Boolean(bench.options.bin && folder);
  await bench.test("training: curves, layers and flags of a run folder", async (page) => {
    const runUrl = await bench.open(folder);
    const p = await page();
    const run = await bench.ask("/api/run", undefined, runUrl);
    await bench.view(p, "", runUrl);
    await p.waitForSelector(".uplot canvas");
    equal(await p.locator(".heat-row").count(), run.layers.length, "layers");
    equal(await p.locator("[data-flag]").count(), run.flags.length, "flags");
    if (run.layers.length > 0) {
      await p.locator(".heat-name .link").first().click();
      await p.waitForSelector(`h3:has-text("${run.layers[0].name}")`);
    }
  }, trained);
};
