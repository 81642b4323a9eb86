// A page written with --out, opened from the disk: the same numbers, and a sentence where it needs
// the server.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { check, equal, sameValue } from "../bench.mjs";

export default async (bench) => {
  const recording = bench.options.recording;
  await bench.test("written page of a recording: graph, tape and sweep", async (page) => {
    const folder = mkdtempSync(join(tmpdir(), "pullback-explore-"));
    try {
      const file = join(folder, "page.html");
      execFileSync(bench.options.bin, ["explore", recording, "--out", file], { stdio: "pipe" });
      const url = pathToFileURL(file).href;
      const p = await page();
      await p.goto(url);
      await p.waitForSelector("canvas.graph-canvas");
      await p.locator(".outline .leaf-row").first().click();
      await p.waitForSelector("text=Show on the tape");
      await p.goto(`${url}#/forward?of=file&forward=2`);
      await p.waitForSelector('tr[data-node="1"].current');
      await p.keyboard.press("End");
      await p.waitForFunction(() => /^(\d+)\/\1$/.test(document.querySelector(".transport .count")?.textContent.replace(/\s/g, "")) && document.querySelector("tr.current"));
      await p.goto(`${url}#/reverse?of=file`);
      await p.waitForSelector("table.tape tbody tr");
      await p.keyboard.press("End");
      await p.waitForSelector("tr.current.cot-now");
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }, Boolean(bench.options.bin && recording));

  await bench.test("written page: works from a file, and says what needs the server", async (page) => {
    const folder = mkdtempSync(join(tmpdir(), "pullback-explore-"));
    try {
      const file = join(folder, "page.html");
      execFileSync(bench.options.bin, ["explore", "--out", file], { stdio: "pipe" });
      const url = pathToFileURL(file).href;
      const p = await page();
      await p.goto(`${url}#/reverse?reverse=1000`);
      await p.waitForSelector(".finished");
      const { expression, values } = bench.start.examples[0];
      const tape = await bench.ask("/api/expression", { expression, values });
      for (const g of tape.sweep.gradient) await sameValue(p.locator(`[data-gradient="${tape.nodes[g.node].name}"]`), g.value, "gradient");
      const before = await p.locator("[data-gradient] [data-num]").first().getAttribute("data-num");
      await p.locator("#slider-x").focus();
      await p.keyboard.press("ArrowRight");
      await p.waitForFunction((b) => document.querySelector("[data-gradient] [data-num]").getAttribute("data-num") !== b, before);
      equal(await p.locator(".side [role=alert]").count(), 0, "complaints at a slider position that the file carries");
      for (const view of ["forward", "tangents", "cost", "memory", "graph", "program", "training"]) {
        await p.goto("about:blank");
        await p.goto(`${url}#/${view}`);
        await p.waitForSelector("#main h2");
        await p.waitForTimeout(150);
        equal(await p.locator("#main .note.bad").count(), 0, `errors in ${view}`);
      }
      await p.goto(`${url}#/forward`);
      await p.locator("#expression").fill("L = x*x*x");
      await p.locator("#expression").press("Control+Enter");
      await p.waitForSelector(".side [role=alert]");
      check((await p.locator(".side [role=alert]").textContent()).includes("needs the server"), "it says what needs the server");
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }, Boolean(bench.options.bin));
};
