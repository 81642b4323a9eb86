// What the tests share: browser, servers, pages that notice every error, and comparisons.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { delimiter, join } from "node:path";
import { chromium } from "playwright-core";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

function findChromium(given) {
  for (const path of [given, process.env.CHROMIUM]) if (path && existsSync(path)) return path;
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    for (const name of NAMES) if (existsSync(join(folder, name))) return join(folder, name);
  }
  return null;
}

const freePort = () =>
  new Promise((resolve) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

export class Bench {
  passed = 0;
  failed = 0;
  skipped = 0;
  servers = [];

  static async open(options, what = []) {
    const executablePath = findChromium(options.chromium);
    if (!executablePath) return null;
    const bench = new Bench();
    bench.options = options;
    bench.browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--allow-file-access-from-files"] });
    bench.url = (options.url ?? (await bench.serve(what))).replace(/\/$/, "");
    bench.start = await bench.ask("/api/start");
    return bench;
  }

  /** Starts `pullback explore …` on a free port and waits until it answers. */
  async serve(args) {
    const port = await freePort();
    const child = spawn(this.options.bin, ["explore", ...args, "--no-open", "--port", String(port)], { stdio: ["ignore", "pipe", "pipe"] });
    this.servers.push(child);
    let said = "";
    child.stdout.on("data", (d) => (said += d));
    child.stderr.on("data", (d) => (said += d));
    const url = `http://127.0.0.1:${port}`;
    for (let wait = 0; wait < 600; wait++) {
      if (child.exitCode !== null) throw new Error(`the server ended: ${said}`);
      const up = await fetch(`${url}/api/start`).then((r) => r.ok, () => false);
      if (up) return url;
      await new Promise((r) => setTimeout(r, 50));
    }
    throw new Error(`the server does not answer at ${url}: ${said}`);
  }

  /** A server of a recording or of a run folder, started when it is first asked for. */
  opened = new Map();
  open(what) {
    if (!this.opened.has(what)) this.opened.set(what, this.serve([what]));
    return this.opened.get(what);
  }

  async ask(path, body, url = this.url) {
    const response = await fetch(url + path, body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    return response.json();
  }

  async test(name, body, needs = true) {
    if (this.options.only && !name.includes(this.options.only)) return;
    if (!needs) {
      this.skipped++;
      console.log(`skip ${name}`);
      return;
    }
    const pages = [];
    const page = async (settings = {}) => {
      const context = await this.browser.newContext({ viewport: { width: 1360, height: 860 }, ...settings });
      const p = await context.newPage();
      p.problems = [];
      p.setDefaultTimeout(20_000);
      p.on("console", (m) => { if (m.type() === "error" && !p.expected?.test(m.text())) p.problems.push(m.text()); });
      p.on("pageerror", (e) => p.problems.push(e.stack ?? e.message));
      p.on("request", (r) => { if (!/^(data|blob|file|about):/.test(r.url()) && !r.url().startsWith("http://127.0.0.1")) p.problems.push(`request to ${r.url()}`); });
      pages.push(p);
      return p;
    };
    const begin = Date.now();
    try {
      await body(page);
      const problems = pages.flatMap((p) => p.problems);
      if (problems.length > 0) throw new Error(`the page reports: ${problems.join(" | ")}`);
      this.passed++;
      console.log(`ok   ${name} (${Date.now() - begin} ms)`);
    } catch (error) {
      this.failed++;
      console.log(`FAIL ${name}\n     ${(error.stack ?? String(error)).split("\n").slice(0, 6).join("\n     ")}`);
    } finally {
      for (const p of pages) await p.context().close();
    }
  }

  /** Opens a view and waits until it is there. */
  async view(page, hash = "#/forward", url = this.url) {
    await page.goto("about:blank");
    await page.goto(`${url}/${hash}`);
    await page.waitForSelector("#main h2, #main .note, #main .placeholder");
    return page;
  }

  /** Shows another view of the page that is open, without loading it again. */
  async show(page, hash) {
    await page.evaluate((to) => { location.hash = to; }, hash);
    const view = hash.slice(2).split("?")[0];
    await page.waitForFunction((v) => document.querySelector(".tabs a[aria-current]")?.getAttribute("href").startsWith(`#/${v}?`), view);
  }

  /** Waits until what changed is on the screen. */
  async drawn(page) {
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  }

  async close() {
    await this.browser.close();
    for (const s of this.servers) s.kill();
  }
}

export function check(condition, message) {
  if (!condition) throw new Error(message);
}

export const equal = (got, wanted, what) => check(got === wanted, `${what}: ${JSON.stringify(got)} instead of ${JSON.stringify(wanted)}`);

/** The numbers of an element as [all digits, text as shown]. */
export const numbersIn = (locator) =>
  locator.evaluate((e) => {
    const all = [...(e.matches("[data-num]") ? [e] : []), ...e.querySelectorAll("[data-num]")];
    return all.map((n) => [n.getAttribute("data-num"), n.textContent]);
  });

export const float = (x) => (x === "inf" ? Infinity : x === "-inf" ? -Infinity : x === "NaN" ? NaN : x);
export const flat = (x) => (Array.isArray(x) ? x.flatMap(flat) : [x]);

/** What is shown is the engine's number, rounded to the digits that are shown. */
export function sameNumber([digits, text], engine, what) {
  equal(digits, String(engine), `${what}, all digits`);
  const value = float(engine);
  if (!Number.isFinite(value)) {
    equal(text, Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞", what);
    return;
  }
  const shown = Number(text.replaceAll("−", "-"));
  check(Math.abs(shown - value) <= 5.1e-3 * Math.abs(value), `${what}: shows ${text} for ${engine}`);
  // Scalars have six digits; cells of a grid have three or four, which the first bound covers.
  const significant = text.replace(/^[−-]?0*\.?0*/, "").replace(/e.*$/, "").replace(".", "").length;
  const exact = Number(value.toPrecision(Math.max(significant, 1)));
  check(Math.abs(shown - exact) <= 1e-9 * Math.abs(exact), `${what}: shows ${text}, which is not ${engine} rounded`);
}

/** Every number shown in the element is, in order, a number of the engine's value. */
export async function sameValue(locator, value, what) {
  const shown = await numbersIn(locator);
  check(shown.length > 0 || value.data === null, `${what}: no number is shown`);
  if (value.data === null) return;
  const engine = flat(value.data);
  if (shown.length === engine.length) shown.forEach((s, i) => sameNumber(s, engine[i], `${what} [${i}]`));
  else {
    // A large grid shows its corner.
    const known = new Set(engine.map(String));
    for (const [digits] of shown) check(known.has(digits), `${what}: ${digits} is no number of the engine's`);
  }
}
