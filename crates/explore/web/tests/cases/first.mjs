// The first load: size, requests, policy, time.
import { gzipSync } from "node:zlib";
import { check, equal } from "../bench.mjs";

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
    await p.waitForTimeout(200);
    check(sent < 400 * 1024, `the first load is ${sent} bytes compressed`);
    const policy = response.headers()["content-security-policy"] ?? "";
    for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'"]) check(policy.includes(part), `the policy lacks ${part}: ${policy}`);
    check(!/unsafe/.test(policy), `the policy has an exception: ${policy}`);
    equal(await p.locator("[style*='expression'], script:not([src]):not([type='application/json'])").count(), 0, "inline scripts");
    console.log(`     ${seen.length} requests, ${(sent / 1024).toFixed(1)} KiB compressed`);
  });

  await bench.test("first load: time until the tape is there", async (page) => {
    const times = [];
    for (let k = 0; k < (bench.options.quick ? 1 : 5); k++) {
      const p = await page();
      await p.addInitScript(() => {
        new MutationObserver((_, o) => {
          if (!document.querySelector("table.tape td")) return;
          o.disconnect();
          requestAnimationFrame(() => { window.ready = performance.now(); });
        }).observe(document, { childList: true, subtree: true });
      });
      await p.goto(`${bench.url}/`);
      await p.waitForFunction(() => window.ready);
      times.push(await p.evaluate(() => window.ready));
    }
    times.sort((a, b) => a - b);
    console.log(`     ${times.map((t) => t.toFixed(0)).join(", ")} ms, fresh browser profiles`);
    if (bench.options.strict) check(times[times.length >> 1] < 300, `the median is ${times[times.length >> 1]} ms`);
  });
};
