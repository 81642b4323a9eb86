// The first load: size, requests, policy, time.
import { gzipSync } from "node:zlib";
import { check, equal } from "../bench.mjs";
import { load, median, USABLE } from "../load.mjs";

export default async (bench) => {
  await bench.test("first load: small, local, under a strict policy", async (page) => {
    const p = await page();
    let sent = 0;
    const seen = [];
    p.on("response", async (r) => {
      if (r.url().startsWith("data:")) return;
      seen.push(r.url());
      const body = await r.body().catch(() => Buffer.alloc(0));
      sent += gzipSync(body).length;
    });
    const [response] = await Promise.all([p.waitForResponse((r) => r.url() === `${bench.url}/`), bench.view(p)]);
    await p.waitForSelector("table.tape");
    await bench.drawn(p);
    equal(seen.length, 3, "requests: the page, its style and its script");
    check(sent < 400 * 1024, `the first load is ${sent} bytes compressed`);
    const policy = response.headers()["content-security-policy"] ?? "";
    for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'"]) check(policy.includes(part), `the policy lacks ${part}: ${policy}`);
    check(!/unsafe/.test(policy), `the policy has an exception: ${policy}`);
    equal(await p.locator("[style*='expression'], script:not([src]):not([type='application/json'])").count(), 0, "inline scripts");
    console.log(`     ${seen.length} requests, ${(sent / 1024).toFixed(1)} KiB compressed`);
  });

  await bench.test("first load: time until the tape is there", async (page) => {
    const times = [];
    for (let k = 0; k < (bench.options.quick ? 3 : 9); k++) times.push(await load(await page(), `${bench.url}/`, USABLE[bench.start.opened.kind]));
    const usable = median(times.map((t) => t.usable));
    console.log(`     ${times.map((t) => t.usable.toFixed(0)).join(", ")} ms in fresh profiles, of which ${median(times.map((t) => t.thread)).toFixed(0)} ms of the main thread`);
    if (bench.options.strict) check(usable < 300, `the median is ${usable} ms`);
  });
};
