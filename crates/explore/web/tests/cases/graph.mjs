// The graph: drawn, hit, grouped; and its rate of frames with 5,000 and 100,000 nodes. The large
// graphs are answers made up here, as only drawing is tested with them.
import { check, equal } from "../bench.mjs";

export function made(total, perModule) {
  const ops = ["dot", "add", "tanh", "sum", "reshape", "softmax"];
  const families = ["window", "pointwise", "pointwise", "reduction", "view", "fused"];
  const nodes = { op: [], kind: [], name: [], spec: [], line: [], part: [], operands: [], zero: [], nan: [], norm: [], gradient: [], gradient_nan: [], seconds: [], visit: [] };
  const parts = [];
  const blocks = perModule ? Math.ceil(total / perModule) : 0;
  for (let b = 0; b < blocks; b++) {
    parts.push({ path: `blocks.${b}`, parent: null });
    parts.push({ path: `blocks.${b}.attention`, parent: 2 * b });
  }
  for (let i = 0; i < total; i++) {
    const leaf = i % 5 === 0;
    nodes.op.push(leaf ? null : i % ops.length);
    nodes.kind.push(leaf ? "parameter" : "op");
    nodes.name.push(leaf ? `w${i}` : null);
    nodes.spec.push(0);
    nodes.line.push(null);
    nodes.part.push(perModule ? 2 * Math.floor(i / perModule) + (i % 2) : null);
    nodes.operands.push(leaf ? [] : [i - 1, ...(i % 3 === 0 && i > 40 ? [i - 37] : []), ...(i % 5 === 1 && i > 6 ? [i - 3] : [])]);
    nodes.zero.push(0);
    nodes.nan.push(i === total - 7 ? 0.5 : 0);
    nodes.norm.push(1);
    nodes.gradient.push(1 / (1 + i));
    nodes.gradient_nan.push(0);
    nodes.seconds.push(1e-6);
    nodes.visit.push(null);
  }
  return { schema: 1, title: `made-${total}`, bytes: 1, program: false, total, result: total - 1, seconds: 1, peak: 1, ops, families, specs: ["f32[8, 8]"], lines: [], parts, nodes, notes: [] };
}

async function openMade(bench, page, total, perModule) {
  const p = await page();
  const body = JSON.stringify(made(total, perModule));
  const start = { ...bench.start, opened: { kind: "recording", title: `made-${total}`, nodes: total, bytes: 1 } };
  // The page has its first answers in it: these are made up.
  const data = JSON.stringify({ schema: 1, answers: [{ method: "GET", path: "/api/start", answer: start }] }).replaceAll("<", "\\u003c");
  await p.route(`${bench.url}/`, async (r) => {
    const response = await r.fetch();
    const html = (await response.text()).replace(/(id="pullback-data">).*?(<\/script>)/s, (_, a, b) => a + data + b);
    await r.fulfill({ response, body: html });
  });
  await p.route("**/api/recording", (r) => r.fulfill({ contentType: "application/json", body }));
  await p.route("**/api/recording/node*", (r) => r.fulfill({ status: 404, json: { schema: 1, error: { kind: "request", message: "made up" } } }));
  p.expected = /404/;
  await bench.view(p, "#/graph?of=file");
  await p.waitForSelector("canvas.graph-canvas");
  await p.waitForFunction(() => document.querySelector("canvas.graph-canvas").drawing?.scene);
  await bench.drawn(p);
  return p;
}

/** Pans and zooms with the mouse for two seconds; the times between frames. */
async function gesture(p, quick) {
  const box = await p.locator("canvas.graph-canvas").boundingBox();
  await p.evaluate(() => {
    window.frames_ = [];
    window.busy_ = [];
    const d = document.querySelector("canvas.graph-canvas").drawing;
    const frame = d.frame.bind(d);
    d.frame = () => {
      const t = performance.now();
      frame();
      window.busy_.push(performance.now() - t);
    };
    let last = performance.now();
    const tick = (t) => {
      window.frames_.push(t - last);
      last = t;
      window.raf_ = requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  });
  const cx = box.x + box.width / 2;
  const cy = box.y + box.height / 2;
  await p.mouse.move(cx, cy);
  await p.mouse.down();
  for (let k = 0; k < (quick ? 30 : 60); k++) await p.mouse.move(cx + 160 * Math.sin(k / 8), cy + 90 * Math.sin(k / 5));
  await p.mouse.up();
  const turns = quick ? 10 : 20;
  for (let k = 0; k < 2 * turns; k++) await p.mouse.wheel(0, k < turns ? -60 : 60);
  const [frames, busy] = await p.evaluate(() => {
    cancelAnimationFrame(window.raf_);
    return [window.frames_.slice(2), window.busy_];
  });
  const sorted = (list) => [...list].sort((a, b) => a - b);
  const middle = (list) => sorted(list)[Math.floor(list.length / 2)] ?? 0;
  const late = (list) => sorted(list)[Math.floor(list.length * 0.95)] ?? 0;
  return { frames: frames.length, median: middle(frames), p95: late(frames), drawing: middle(busy), drawing95: late(busy) };
}

const painted = (p) =>
  p.evaluate(() => {
    const c = document.querySelector("canvas.graph-canvas");
    const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
    const colours = new Set();
    for (let i = 0; i < data.length; i += 4 * 97) colours.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    return colours.size;
  });

/**
 * Edges that pass over a box, or through a group that neither of their ends is in: of the curves as
 * `canvas.ts` draws them.
 */
export const crossings = (p) =>
  p.evaluate(() => {
    const { boxes, edges, via } = document.querySelector("canvas.graph-canvas").drawing.scene;
    const inside = (b, x, y) => x > b.x + 1 && x < b.x + b.w - 1 && y > b.y + 1 && y < b.y + b.h - 1;
    const around = (b, c) => inside(b, c.x + c.w / 2, c.y + c.h / 2);
    const found = [];
    for (let e = 0; e < edges.length; e += 2) {
      const [a, b] = [boxes[edges[e]], boxes[edges[e + 1]]];
      const way = via.get(e) ?? [];
      let [x, y] = [a.x + a.w / 2, a.y + a.h];
      const passed = new Set();
      for (const to of [...way, { x: b.x + b.w / 2, y: b.y }]) {
        const bend = Math.min(Math.max(way.length > 0 ? 0 : 18, Math.abs(to.y - y) * 0.42), 160);
        for (let t = 0.05; t < 1; t += 0.05) {
          const [u, v] = [(1 - t) ** 3 + 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t * t + t ** 3];
          const px = u * x + v * to.x;
          const py = u * y + v * to.y + 3 * (1 - t) * t * bend * (1 - 2 * t);
          boxes.forEach((c, i) => { if (c !== a && c !== b && inside(c, px, py) && !(c.group?.open && (around(c, a) || around(c, b)))) passed.add(i); });
        }
        [x, y] = [to.x, to.y];
      }
      if (passed.size > 0) found.push(`${edges[e]} to ${edges[e + 1]} over ${[...passed].join(", ")}`);
    }
    return { edges: edges.length / 2, found };
  });

const drawn = async (bench, p) => {
  await p.waitForFunction(() => document.querySelector("canvas.graph-canvas")?.drawing?.scene);
  await bench.drawn(p);
};

export default async (bench) => {
  await bench.test("graph: edges pass around boxes, within groups and between them", async (page) => {
    const p = await page();
    for (const e of bench.start.examples) {
      const values = Object.entries(e.values).map(([k, v]) => `&v.${k}=${encodeURIComponent(JSON.stringify(v))}`).join("");
      await bench.view(p, `#/graph?e=${encodeURIComponent(e.expression)}${values}`);
      await drawn(bench, p);
      const { edges, found } = await crossings(p);
      check(edges > 0 && found.length === 0, `${e.id}, ${edges} edges: ${found.join("; ")}`);
    }
  });

  await bench.test("graph: what is too tall begins at its top, with the whole in a corner to move by", async (page) => {
    const p = await page();
    const chain = bench.start.examples.find((e) => e.id === "checkpointed");
    await bench.view(p, `#/graph?e=${encodeURIComponent(chain.expression)}`);
    await drawn(bench, p);
    const state = () => p.evaluate(() => {
      const d = document.querySelector("canvas.graph-canvas").drawing;
      return { k: d.k, y: d.y, map: d.map(), height: d.scene.height };
    });
    const before = await state();
    check(before.k >= 0.6 && before.map, `labels can be read: ${JSON.stringify(before)}`);
    const box = await p.locator("canvas.graph-canvas").boundingBox();
    await p.mouse.move(box.x + before.map.x + before.map.w / 2, box.y + before.map.y + 3);
    await p.mouse.down();
    await p.mouse.move(box.x + before.map.x + before.map.w / 2, box.y + before.map.y + before.map.h - 2);
    await p.mouse.up();
    const after = await state();
    check(after.k === before.k && after.y < before.y - 0.5 * before.height * before.k, `the foot is shown: ${JSON.stringify(after)}`);
    await p.getByRole("button", { name: "Fit" }).click();
    await bench.drawn(p);
    equal((await state()).map, null, "all is shown, so nothing is in the corner");
  });

  await bench.test("graph: an expression is drawn; a click on a node leads to its line of the tape", async (page) => {
    const p = await page();
    await bench.view(p, "#/graph");
    await p.waitForSelector(".outline .leaf-row");
    await p.waitForFunction(() => document.querySelector("canvas.graph-canvas").drawing?.scene);
    await bench.drawn(p);
    check((await painted(p)) > 4, "the canvas shows more than its ground");
    const tape = await bench.ask("/api/expression", { expression: bench.start.opened.expression ?? bench.start.examples[0].expression, values: bench.start.opened.values ?? bench.start.examples[0].values });
    equal(await p.locator(".outline .leaf-row").count() > 0, true, "nodes in the outline");
    const target = tape.nodes.find((n) => n.kind === "op").id;
    await p.locator(".outline .leaf-row", { has: p.locator(`.num:text-is("${target}")`) }).click();
    await p.waitForFunction((id) => location.hash.includes(`node=${id}`), target);
    await p.waitForTimeout(500);
    const at = await p.evaluate(() => {
      const c = document.querySelector("canvas.graph-canvas");
      const d = c.drawing;
      const b = d.scene.boxes[d.selected];
      return { x: c.getBoundingClientRect().left + d.x + (b.x + b.w / 2) * d.k, y: c.getBoundingClientRect().top + d.y + (b.y + b.h / 2) * d.k };
    });
    await p.mouse.move(at.x, at.y);
    await p.waitForSelector(".hover");
    await p.mouse.click(at.x, at.y);
    await p.getByRole("button", { name: "Show on the tape" }).click();
    await p.waitForSelector(`tr[data-node="${target}"].picked`);
  });

  await bench.test("graph: 5,000 nodes in one piece, panned and zoomed", async (page) => {
    const p = await openMade(bench, page, 5000, 0);
    check((await painted(p)) > 4, "something is drawn");
    equal(await p.evaluate(() => document.querySelector("canvas.graph-canvas").drawing.scene.boxes.length), 5000, "boxes");
    const g = await gesture(p, bench.options.quick);
    console.log(`     ${g.frames} frames, ${g.median.toFixed(1)} ms between frames (95%: ${g.p95.toFixed(1)}), ${g.drawing.toFixed(2)} ms of drawing each (95%: ${g.drawing95.toFixed(2)})`);
    check(g.frames > 20, "frames were drawn");
    if (bench.options.strict) check(g.median < 17.5, `${(1000 / g.median).toFixed(0)} frames per second`);
  });

  await bench.test("graph: 100,000 nodes by groups, opened, and without modules by stretches", async (page) => {
    let p = await openMade(bench, page, 100_000, 500);
    const boxes = () => p.evaluate(() => document.querySelector("canvas.graph-canvas").drawing.scene.boxes.length);
    const before = await boxes();
    check(before > 0 && before < 2000, `${before} boxes for 100,000 nodes`);
    const g = await gesture(p, bench.options.quick);
    console.log(`     ${before} boxes, ${g.median.toFixed(1)} ms between frames (95%: ${g.p95.toFixed(1)})`);
    await p.getByRole("button", { name: /with NaN/ }).click();
    await p.waitForFunction(() => location.hash.includes("node=99993"));
    check((await boxes()) > before, "the group around the NaN opened");
    p = await openMade(bench, page, 100_000, 0);
    const stretches = await p.locator(".outline .group-row").count();
    check(stretches >= 50, `${stretches} stretches`);
    await p.locator(".outline .group-row").nth(3).click();
    await p.waitForFunction(() => document.querySelector("canvas.graph-canvas").drawing.scene.boxes.length > 1000);
  });
};
