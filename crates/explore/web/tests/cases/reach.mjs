// Who can use it: keyboard alone, a narrow screen, both themes, a screen reader (axe-core).
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { check, equal } from "../bench.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const VIEWS = ["forward", "reverse?reverse=3", "tangents", "cost", "memory", "graph?node=2", "program", "training"];
const READY = { cost: ".race", memory: "[data-run]", graph: ".outline button", program: ".equations li", training: "h2" };

const settled = async (bench, p, view) => {
  await bench.view(p, `#/${view}`);
  await p.waitForSelector(READY[view.split("?")[0]] ?? "table.tape");
  await p.waitForTimeout(150);
};

export default async (bench) => {
  for (const colorScheme of ["light", "dark"]) {
    await bench.test(`axe-core: no serious violation, ${colorScheme}`, async (page) => {
      // axe-core is injected for the test, which the page's own policy forbids.
      const p = await page({ colorScheme, bypassCSP: true, reducedMotion: "reduce" });
      const found = [];
      for (const view of VIEWS) {
        await settled(bench, p, view);
        found.push(...(await violations(p, view)));
      }
      await bench.view(p, "#/forward?guide=0");
      await p.keyboard.press("?");
      await p.waitForSelector("dialog[open]");
      found.push(...(await violations(p, "help and guide")));
      check(found.length === 0, found.join("\n     "));
    });
  }

  for (const width of bench.options.quick ? [390] : [390, 320]) {
    await bench.test(`narrow: ${width} px without sideways scrolling`, async (page) => {
      const p = await page({ viewport: { width, height: 780 }, hasTouch: true, isMobile: true });
      for (const view of VIEWS) {
        await settled(bench, p, view);
        const over = await p.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        check(over <= 0, `${view} is ${over} px too wide`);
        const small = await p.evaluate(() => [...document.querySelectorAll(".transport button, .tools button")].filter((b) => b.getBoundingClientRect().height < 34).length);
        equal(small, 0, `controls too small to touch in ${view}`);
      }
    });
  }

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
    await settled(bench, p, "reverse?reverse=3");
    const running = await p.evaluate(() => document.getAnimations().filter((a) => a.playState === "running" && (a.effect?.getTiming().iterations === Infinity)).length);
    equal(running, 0, "endless animations");
  });
};

async function violations(p, view) {
  await p.evaluate(axe);
  const result = await p.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return result.violations
    .filter((v) => v.impact === "serious" || v.impact === "critical")
    .map((v) => `${view}: ${v.id} (${v.impact}): ${v.nodes.slice(0, 3).map((n) => `${n.target.join(" ")} ${n.any[0]?.message ?? ""}`).join("; ")}`);
}
