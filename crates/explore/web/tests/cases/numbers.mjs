// Every number on the page is the engine's: forward, reverse step by step, forward mode.
import { check, equal, numbersIn, sameNumber, sameValue } from "../bench.mjs";

const hash = (view, e, more = "") => `#/${view}?${new URLSearchParams({ e: e.expression, ...Object.fromEntries(Object.entries(e.values).map(([k, v]) => [`v.${k}`, JSON.stringify(v)])) })}${more}`;

export default async (bench) => {
  const some = bench.options.quick ? ["default", "two-layer"] : null;
  for (const example of bench.start.examples.filter((e) => !some || some.includes(e.id))) {
    await bench.test(`numbers: forward tape of ${example.id}, node by node`, async (page) => {
      const p = await page();
      const tape = await bench.ask("/api/expression", { expression: example.expression, values: example.values });
      check(!tape.error, `the engine refuses its own example: ${JSON.stringify(tape.error)}`);
      await bench.view(p, hash("forward", example, "&forward=0"));
      await p.waitForSelector("table.tape");
      equal(await p.locator("tr.later").count(), tape.total, "rows that have not run");
      for (const node of tape.nodes) {
        await p.keyboard.press("ArrowRight");
        await p.waitForSelector(`tr[data-node="${node.id}"].current`);
        await sameValue(p.locator(`tr[data-node="${node.id}"] [data-cell=value]`), node.value, `${node.name}`);
      }
      equal(await p.locator("tr.later").count(), 0, "rows left");
    });

    await bench.test(`numbers: reverse sweep of ${example.id}, contribution by contribution`, async (page) => {
      const p = await page();
      const tape = await bench.ask("/api/expression", { expression: example.expression, values: example.values });
      await bench.view(p, hash("reverse", example));
      await p.waitForSelector("table.tape");
      for (const [digits] of (await Promise.all((await p.locator("[data-cell=register]").all()).map(numbersIn))).flat()) equal(digits, "0", "a register at the start");
      await p.keyboard.press("ArrowRight");
      await sameValue(p.locator(`tr[data-node="${tape.sweep.seed.node}"] [data-cell=register]`), tape.sweep.seed.cotangent, "seed");
      let steps = 1;
      for (const visit of tape.sweep.visits) {
        if (visit.contributions.length === 0) {
          await p.keyboard.press("ArrowRight");
          steps++;
        }
        for (const c of visit.contributions) {
          await p.keyboard.press("ArrowRight");
          steps++;
          const box = p.locator(`[data-contribution="${visit.node}-${c.to}-${c.operand}"]`);
          await box.waitFor();
          const what = `${visit.node} → ${c.to} (operand ${c.operand})`;
          await sameValue(box.locator("[data-cell=upstream]"), c.upstream, `upstream ${what}`);
          if (c.local.value) await sameValue(box.locator("[data-cell=local]"), c.local.value, `slope ${what}`);
          await sameValue(box.locator("[data-cell=product]"), c.product, `share ${what}`);
          await sameValue(box.locator("[data-cell=before]"), c.before, `before ${what}`);
          await sameValue(box.locator("[data-cell=after]"), c.after, `after ${what}`);
          await sameValue(p.locator(`tr[data-node="${c.to}"] [data-cell=register]`), c.after, `register ${what}`);
        }
      }
      equal((await p.locator(".transport .count").textContent()).replace(/\s/g, ""), `${steps}/${steps}`, "the end of the sweep");
      // The list of contributions has them all: a slope of few entries as numbers.
      for (const visit of tape.sweep.visits) {
        for (const c of visit.contributions) {
          const cell = (k) => p.locator(`tr[data-ledger="${visit.node}-${c.to}-${c.operand}"] td:nth-child(${k})`);
          const what = `${visit.node} → ${c.to} (operand ${c.operand}) in the list`;
          await sameValue(cell(2), c.upstream, `upstream ${what}`);
          if (c.local.value && (c.local.value.shape ?? []).reduce((n, d) => n * d, 1) <= 8) await sameValue(cell(3), c.local.value, `slope ${what}`);
          await sameValue(cell(4), c.product, `share ${what}`);
        }
      }
      for (const g of tape.sweep.gradient) {
        const name = tape.nodes[g.node].name;
        await sameValue(p.locator(`[data-gradient="${name}"]`), g.value, `gradient of ${name}`);
        await sameValue(p.locator(`tr[data-node="${g.node}"] [data-cell=register]`), g.value, `register of ${name} at the end`);
      }
    });
  }

  await bench.test("numbers: a moved slider asks the engine", async (page) => {
    const p = await page();
    const example = bench.start.examples[0];
    await bench.view(p, hash("reverse", example, "&reverse=1000"));
    const slider = p.locator("#slider-x");
    await slider.focus();
    const [request] = await Promise.all([
      p.waitForRequest((r) => r.url().endsWith("/api/expression") && r.method() === "POST"),
      p.keyboard.press("ArrowRight"),
    ]);
    check(request.postDataJSON().values.x !== example.values.x, "the slider moved");
    for (let k = 0; k < 20; k++) await p.keyboard.press("ArrowLeft");
    const x = await slider.evaluate((e) => e.valueAsNumber);
    const values = { ...example.values, x };
    const tape = await bench.ask("/api/expression", { expression: example.expression, values });
    for (const g of tape.sweep.gradient) {
      const name = tape.nodes[g.node].name;
      await p.waitForFunction(([n, v]) => document.querySelector(`[data-gradient="${n}"] [data-num]`)?.getAttribute("data-num") === v, [name, String(g.value.data)]);
      await sameValue(p.locator(`[data-gradient="${name}"]`), g.value, `gradient of ${name} at x = ${x}`);
    }
  });

  await bench.test("numbers: forward mode along each input, and J·v = ∇·v", async (page) => {
    const p = await page();
    const example = bench.start.examples[0];
    await bench.view(p, hash("tangents", example));
    const names = Object.keys(example.values);
    for (const name of names) {
      await p.getByRole("button", { name: `along ${name}` }).click();
      const direction = Object.fromEntries(names.map((n) => [n, n === name ? 1 : 0]));
      const tape = await bench.ask("/api/expression", { expression: example.expression, values: example.values, direction });
      await p.waitForFunction(([id, v]) => document.querySelector(`tr[data-node="${id}"] [data-cell=tangent] [data-num]`)?.getAttribute("data-num") === v, [tape.result, String(tape.forward.result.data)]);
      for (const t of tape.forward.tangents) await sameValue(p.locator(`tr[data-node="${t.node}"] [data-cell=tangent]`), t.tangent, `tangent of ${tape.nodes[t.node].name} along ${name}`);
      const shown = await numbersIn(p.locator("section:has(> header > h3:text('The same number'))"));
      sameNumber(shown[0], tape.forward.check.forward, "J·v");
      sameNumber(shown[1], tape.forward.check.reverse, "∇·v");
    }
  });

  await bench.test("numbers: one op both ways", async (page) => {
    const p = await page();
    const example = bench.start.examples[0];
    await bench.view(p, hash("tangents", example));
    const tape = await bench.ask("/api/expression", { expression: example.expression, values: example.values });
    for (const node of tape.nodes.filter((n) => n.kind === "op")) {
      await p.locator("select").selectOption(String(node.id));
      const op = await bench.ask("/api/op", { expression: example.expression, values: example.values, node: node.id });
      const card = p.locator("section:has(> header > h3:text('One op'))");
      await card.locator(`p:has-text("${node.name} = ${op.formula}")`).first().waitFor();
      const shown = await numbersIn(card.locator(".note"));
      sameNumber(shown[0], op.inner.jvp_with_cotangent, "⟨w, J·v⟩");
      sameNumber(shown[1], op.inner.tangent_with_vjp, "⟨Jᵀ·w, v⟩");
    }
  });
};
