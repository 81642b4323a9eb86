// Cost, memory, program, predictions, errors: each view shows what the engine answers.
import { check, equal, sameNumber, numbersIn } from "../bench.mjs";

export default async (bench) => {
  await bench.test("cost: measured, and n and m can be changed by key and by dragging", async (page) => {
    const p = await page();
    const answers = [];
    p.on("response", async (r) => { if (r.url().endsWith("/api/cost")) answers.push(await r.json()); });
    await bench.view(p, "#/cost?n=8&m=2");
    await p.waitForSelector(".race");
    const point = answers[0].points.find((q) => q.n === 8 && q.m === 2);
    check(point, "the answer has the point that is shown");
    check((await p.locator(".race").textContent()).includes(`${point.forward.passes} passes`), "passes of forward mode");
    check(point.forward.seconds > 0 && point.reverse.seconds > 0 && point.ratio > 0, "times are measured");
    await p.locator("#level-n").focus();
    await p.keyboard.press("ArrowRight");
    await p.waitForFunction(() => location.hash.includes("n=16"));
    const grip = await p.locator(".jac-grip").boundingBox();
    await p.mouse.move(grip.x + grip.width / 2, grip.y + grip.height / 2);
    await p.mouse.down();
    await p.mouse.move(grip.x - 60, grip.y + 80, { steps: 5 });
    await p.mouse.up();
    await p.waitForFunction(() => !location.hash.includes("n=16"));
    await p.waitForSelector(".uplot canvas");
  });

  await bench.test("memory: three runs, recomputed stretches, the valley", async (page) => {
    const p = await page();
    await bench.view(p, "#/memory?segment=4");
    await p.waitForSelector("[data-run=plain]");
    const memory = await bench.ask("/api/memory", { ...bench.start.defaults.memory, segment: 4 });
    for (const run of memory.runs) {
      const card = p.locator(`[data-run=${run.name}]`);
      equal(await card.locator(".big .num").getAttribute("title"), `${run.peak} bytes`, `peak of ${run.name}`);
      const text = await card.textContent();
      check(run.recomputed === 0 ? text.includes("nothing computed again") : text.includes(`${run.recomputed} op`), `recomputed ops of ${run.name}`);
    }
    const best = memory.segments.reduce((a, b) => (b.peak < a.peak ? b : a));
    check((await p.locator("section:has(> header > h3:text('Peak by segment'))").textContent()).includes(`at length ${best.segment} `), "the best segment length");
    await p.locator("#segment").focus();
    await p.keyboard.press("ArrowRight");
    await p.waitForFunction(() => document.querySelector("[data-run=checkpointed] h3")?.textContent.includes("segments of 5"));
  });

  await bench.test("program: passes, equations, regions, arena", async (page) => {
    const p = await page();
    const subject = { expression: bench.start.examples[0].expression, values: bench.start.examples[0].values };
    await bench.view(p, "#/program");
    await p.waitForSelector(".passes button");
    const program = await bench.ask("/api/program", subject);
    equal(await p.locator(".passes button").count(), program.stages.length, "passes");
    const changed = program.stages.findIndex((s) => !s.unchanged);
    await p.locator(`[data-stage="${changed}"]`).click();
    const stage = program.stages[changed];
    await p.waitForFunction((n) => document.querySelectorAll(".equations li code").length === n, stage.equations.length);
    equal(await p.locator(".equations li code").first().textContent(), stage.equations[0].text, "the first equation");
    const fuse = program.stages.findIndex((s) => s.fused > 0);
    if (fuse >= 0) {
      await p.locator(`[data-stage="${fuse}"]`).click();
      await p.waitForSelector(`.pass-text:has-text("fused ${program.stages[fuse].fused} equation")`);
    }
    equal(await p.locator(".region").count(), Math.min(program.regions.length, 200), "regions");
    if (program.regions.length > 0) {
      equal(await p.locator(".region pre").first().textContent(), program.regions[0].code, "instructions of the first region");
      if (program.regions[0].native) equal(await p.locator(".region pre.native").textContent(), program.regions[0].native, "its machine code");
    }
    if (program.arena) equal(await p.locator(".arena .slot").count(), program.arena.intervals.length, "buffers of the arena");
    for (const model of bench.start.defaults.models) {
      await p.getByRole("button", { name: new RegExp(`^${model}:`) }).click();
      await p.waitForFunction((m) => location.hash.includes(`model=${m}`), model);
    }
    await p.waitForFunction(() => document.querySelectorAll(".arena .slot").length > 5);
  });

  await bench.test("predictions: nothing is told before one is committed", async (page) => {
    const p = await page();
    for (const preset of bench.start.presets.slice(0, bench.options.quick ? 2 : undefined)) {
      await bench.view(p, "#/forward");
      await p.locator(".example", { hasText: preset.title }).last().click();
      await p.waitForSelector(".predict");
      await p.keyboard.press("2");
      await p.waitForSelector("text=Commit to a prediction first");
      equal(await p.locator("[data-cell=register]").count(), 0, "registers before the commitment");
      equal(await p.locator(".right-choice, .predict .badge.good").count(), 0, "an answer before the commitment");
      await p.locator(".choice").first().click();
      await p.getByRole("button", { name: /Commit/ }).click();
      await p.waitForSelector(".right-choice");
      const revealed = await bench.ask("/api/preset", { id: preset.id });
      equal(await p.locator(".choice").evaluateAll((all) => all.findIndex((c) => c.classList.contains("right-choice"))), revealed.answer, "the engine's choice");
      const shown = await numbersIn(p.locator(".predict"));
      revealed.numbers.forEach((n, i) => sameNumber(shown[i], n.value, n.name));
      await p.getByRole("button", { name: "Watch it happen" }).click();
      await p.waitForFunction((v) => location.hash.startsWith(`#/${v}`), preset.view);
    }
  });

  await bench.test("errors: a bad expression gets a sentence and a place, and the page goes on", async (page) => {
    const p = await page();
    p.expected = /400/;
    await bench.view(p, "#/forward");
    const area = p.locator("#expression");
    for (const bad of ["a = x *", "L = nosuch(x)", "(((", "L = x ++* y", "x = ", "💥"]) {
      await area.fill(bad);
      await area.press("Control+Enter");
      await p.waitForSelector(".side [role=alert]");
      check((await p.locator(".side [role=alert]").textContent()).length > 8, `a sentence for ${bad}`);
    }
    await area.fill("u = x*x\nL = u + 3*u");
    await area.press("Control+Enter");
    await p.waitForSelector(".side [role=alert]", { state: "detached" });
    await p.waitForFunction(() => document.querySelector("table.tape")?.textContent.includes("u"));
  });

  await bench.test("extremes: NaN, infinities, huge numbers and 200 steps are shown, and nothing breaks", async (page) => {
    const p = await page();
    const hash = (view, e, values) => `#/${view}?${new URLSearchParams({ e, ...values })}`;
    const steps = ["t0 = x*y", ...Array.from({ length: 199 }, (_, i) => `t${i + 1} = sin(t${i}) + x`)].join("; ");
    await bench.view(p, hash("reverse", "L = log(x)/y", { "v.x": -1, "v.y": 0, reverse: 1000 }));
    await p.waitForSelector(".finished:has-text('not a number')");
    for (const [e, values] of [["L = exp(x)*x", { "v.x": 1e308 }], ["L = x*y", { "v.x": "123456789012345678901234567890", "v.y": 1e-300 }], ["L = x*y", { "v.x": '"NaN"', "v.y": '"-inf"' }], [steps, { "v.x": 2, "v.y": 3 }]]) {
      for (const view of ["forward", "reverse", "tangents", "graph"]) {
        await bench.show(p, hash(view, e, { ...values, reverse: 3 }));
        await p.waitForSelector(view === "graph" ? ".outline button" : "table.tape");
        await p.waitForSelector("[aria-busy=true], .busy", { state: "detached" });
        equal(await p.locator("[role=alert]").count(), 0, `complaints about ${e.slice(0, 30)} in ${view}`);
      }
    }
    // A slider at its end leaves the domain.
    await bench.show(p, hash("reverse", "L = sqrt(x)", { "v.x": 2, reverse: 1000 }));
    await p.locator("#slider-x").focus();
    await p.keyboard.press("Home");
    await p.waitForSelector(".finished:has-text('not a number')");
    // What a link says out of range is brought back into it.
    await bench.show(p, "#/cost?n=99999&m=0");
    await p.waitForSelector(".race");
    p.expected = /400/;
    await bench.view(p, hash("graph", "L = x +", { "v.x": 1 }));
    await p.waitForSelector("#main .placeholder:has-text('expected')");
  });

  await bench.test("the guide leads through every stop", async (page) => {
    const p = await page();
    await bench.view(p, "#/forward");
    await p.getByRole("button", { name: "Guide", exact: true }).click();
    for (let k = 1; ; k++) {
      await p.waitForSelector(`.guide >> text=${k} of`);
      await p.waitForSelector("#main h2");
      const next = p.locator(".guide").getByRole("button", { name: "Next" });
      if ((await next.count()) === 0) break;
      await next.click();
    }
    await p.locator(".guide").getByRole("button", { name: "Finish" }).click();
    equal(await p.locator(".guide").count(), 0, "the guide after its end");
  });
};
