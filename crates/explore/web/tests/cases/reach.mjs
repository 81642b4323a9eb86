// Who can use it: keyboard alone, a narrow screen, both themes, a screen reader (axe-core).
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { check, equal } from "../bench.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const READY = { cost: ".race", memory: "[data-run]", graph: ".outline button", program: ".equations li, #main .note", training: "h2", tangents: "#main .card" };

/** What can be opened, and the views of it. */
const subjects = (bench) => {
  const { bin, recording, run } = bench.options;
  const all = [{ of: "an expression", url: () => bench.url, views: ["forward", "reverse?reverse=3", "tangents", "cost", "memory", "graph?node=2", "program", "training"] }];
  if (bin && recording) all.push({ of: "a recording", url: () => bench.open(recording), views: ["forward?of=file&forward=40", "reverse?of=file&reverse=5", "tangents?of=file", "memory?of=file", "graph?of=file&node=20", "program?of=file"] });
  if (bin && run) all.push({ of: "a run", url: () => bench.open(run), views: ["training?of=file", "forward?of=file"] });
  return all;
};

const settled = async (bench, p, view) => {
  await bench.show(p, `#/${view}`);
  const name = view.split("?")[0];
  await p.waitForSelector(READY[name] ?? "table.tape, #main .note");
  await p.waitForSelector("[aria-busy=true], .busy", { state: "detached" });
  await bench.drawn(p);
  // Colours that are still changing would be measured as they are half-way.
  await p.waitForFunction(() => !document.getAnimations().some((a) => a instanceof CSSTransition));
};

export default async (bench) => {
  for (const { of, url, views } of subjects(bench)) {
    for (const colorScheme of ["light", "dark"]) {
      await bench.test(`axe-core: no serious violation in ${of}, ${colorScheme}`, async (page) => {
        // axe-core is injected for the test, which the page's own policy forbids.
        const p = await page({ colorScheme, bypassCSP: true, reducedMotion: "reduce" });
        // Not every op of a recording can be run alone: the engine says why.
        p.expected = /400/;
        const found = [];
        await bench.view(p, "", await url());
        await p.evaluate(axe);
        equal(await p.evaluate(() => document.documentElement.dataset.theme), colorScheme, "the theme");
        for (const view of views) {
          await settled(bench, p, view);
          found.push(...(await violations(p, view, colorScheme)));
        }
        if (of === "an expression") {
          await bench.show(p, "#/forward?guide=0");
          await p.keyboard.press("?");
          await p.waitForSelector("dialog[open]");
          found.push(...(await violations(p, "help and guide", colorScheme)));
        }
        check(found.length === 0, found.join("\n     "));
      });
    }

    for (const width of bench.options.quick ? [360] : [390, 320]) {
      await bench.test(`narrow: ${of}, ${width} px without sideways scrolling`, async (page) => {
        const p = await page({ viewport: { width, height: 780 }, hasTouch: true, isMobile: true });
        p.expected = /400/;
        await bench.view(p, "", await url());
        for (const view of views) {
          await settled(bench, p, view);
          const over = await p.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          check(over <= 0, `${view} is ${over} px too wide`);
          const small = await p.evaluate(() => [...document.querySelectorAll(".transport button, .tools button")].filter((b) => b.getBoundingClientRect().height < 34).length);
          equal(small, 0, `controls too small to touch in ${view}`);
        }
      });
    }
  }

  await bench.test("keyboard only: a recording", async (page) => {
    const p = await page();
    p.expected = /400/;
    const url = await bench.open(bench.options.recording);
    await bench.view(p, "", url);
    await p.keyboard.press("1");
    await p.waitForSelector("table.tape tbody tr");
    await p.keyboard.press("Home");
    for (let k = 0; k < 3; k++) await p.keyboard.press("ArrowRight");
    await p.waitForSelector('tr[data-node="2"].current');
    await p.keyboard.press("2");
    await p.waitForSelector("h2:has-text('The reverse sweep of')");
    await p.waitForSelector("table.tape tbody tr");
    await p.keyboard.press("ArrowRight");
    await p.waitForSelector("tr.current.cot-now");
    await p.keyboard.press("End");
    await p.waitForFunction(() => /^(\d[\d,]*)\/\1$/.test(document.querySelector(".transport .count")?.textContent.replace(/\s/g, "")));
    await p.keyboard.press("6");
    await p.waitForSelector(".outline button");
    for (let k = 0; k < 60 && !(await p.evaluate(() => document.activeElement.closest(".outline button"))); k++) await p.keyboard.press("Tab");
    check(await p.evaluate(() => Boolean(document.activeElement.closest(".outline button"))), "the outline is reached by Tab");
    const open = () => p.locator(".outline [aria-expanded=true]").count();
    const before = await open();
    await p.keyboard.press("Enter");
    await bench.drawn(p);
    check((await open()) !== before || (await p.evaluate(() => location.hash.includes("node="))), "Enter opens a group or chooses a node");
  }, Boolean(bench.options.bin && bench.options.recording));

  await bench.test("keyboard only: from the address to the last contribution", async (page) => {
    const p = await page();
    await bench.view(p, "#/forward");
    await p.waitForSelector("table.tape");
    await p.keyboard.press("Tab");
    equal(await p.evaluate(() => document.activeElement.textContent), "Skip to the view", "the first stop");
    await p.keyboard.press("Enter");
    equal(await p.evaluate(() => document.activeElement.id), "main", "skipped to the view");
    await p.keyboard.press("?");
    await p.waitForSelector("dialog[open]");
    await p.keyboard.press("Escape");
    await p.waitForSelector("dialog[open]", { state: "detached" });
    await p.keyboard.press("/");
    equal(await p.evaluate(() => document.activeElement.id), "expression", "/ goes to the expression");
    await p.keyboard.press("Control+A");
    await p.keyboard.type("s = x*x + x*y");
    await p.keyboard.press("Control+Enter");
    await p.keyboard.press("Escape");
    await p.waitForFunction(() => document.querySelector("table.tape")?.textContent.includes("s ="));
    await p.keyboard.press("2");
    await p.waitForSelector("h2:text('The reverse sweep')");
    await p.keyboard.press("End");
    await p.waitForSelector(".finished");
    await p.keyboard.press("Home");
    await p.waitForSelector(".finished", { state: "detached" });
    await p.keyboard.press("ArrowRight");
    await p.keyboard.press("Space");
    await p.waitForFunction(() => Number(document.querySelector(".transport .count").textContent.split("/")[0]) > 2, null, { timeout: 15_000 });
    await p.keyboard.press("Space");
    for (let view = 1; view <= 8; view++) {
      await p.keyboard.press(String(view));
      await p.waitForFunction((k) => document.querySelectorAll(".tabs a")[k]?.getAttribute("aria-current") === "page", view - 1);
    }
    await p.keyboard.press("6");
    await p.waitForSelector("canvas.graph-canvas");
    for (let k = 0; k < 40; k++) {
      await p.keyboard.press("Tab");
      if (await p.evaluate(() => document.activeElement.classList.contains("graph-canvas"))) break;
    }
    check(await p.evaluate(() => document.activeElement.classList.contains("graph-canvas")), "the canvas is reached by Tab");
    const zoom = () => p.evaluate(() => document.querySelector("canvas.graph-canvas").drawing.k);
    const before = await zoom();
    await p.keyboard.press("+");
    check((await zoom()) > before, "+ zooms in");
    await p.keyboard.press("0");
    check(Math.abs((await zoom()) - before) < 1e-6, "0 fits");
  });

  await bench.test("reduced motion: nothing moves by itself", async (page) => {
    const p = await page({ reducedMotion: "reduce" });
    await bench.view(p, "#/reverse?reverse=3");
    await p.waitForSelector("table.tape");
    const running = await p.evaluate(() => document.getAnimations().filter((a) => a.playState === "running" && (a.effect?.getTiming().iterations === Infinity)).length);
    equal(running, 0, "endless animations");
  });
};

/** Everything in one theme; in the other, what colours can change. */
async function violations(p, view, theme) {
  const rules = theme === "dark" ? { runOnly: ["color-contrast", "link-in-text-block"] } : {};
  const result = await p.evaluate((only) => window.axe.run(document, { resultTypes: ["violations"], ...only }), rules);
  return result.violations
    .filter((v) => v.impact === "serious" || v.impact === "critical")
    .map((v) => `${view}: ${v.id} (${v.impact}): ${v.nodes.slice(0, 3).map((n) => `${n.target.join(" ")} ${n.any[0]?.message ?? ""}`).join("; ")}`);
}
