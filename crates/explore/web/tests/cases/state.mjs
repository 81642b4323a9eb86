// The address holds what is seen; back and forward work; the theme is remembered.
import { check, equal } from "../bench.mjs";

export default async (bench) => {
  await bench.test("state: a copied link reproduces the page", async (page) => {
    const p = await page();
    await bench.view(p, "#/reverse");
    await p.locator("#slider-x").focus();
    for (let k = 0; k < 7; k++) await p.keyboard.press("ArrowRight");
    await p.locator("#main").focus();
    for (let k = 0; k < 4; k++) await p.keyboard.press("ArrowRight");
    await p.waitForFunction(() => location.hash.includes("reverse=4"));
    await p.waitForTimeout(300);
    const link = p.url();
    const text = (q) => q.locator(".happening").innerText();
    const wanted = await text(p);
    const other = await page();
    await other.goto(link);
    await other.waitForSelector(".happening [data-cell=product]");
    equal(await text(other), wanted, "the same contribution");
    equal(await other.locator("#slider-x").inputValue(), await p.locator("#slider-x").inputValue(), "the same slider");
  });

  await bench.test("state: what colours the graph is in the link", async (page) => {
    const p = await page();
    await bench.view(p, "#/graph");
    await p.getByRole("button", { name: "gradient", exact: true }).click();
    await p.waitForFunction(() => location.hash.includes("colour=gradient"));
    const other = await page();
    await other.goto(p.url());
    await other.waitForSelector("[aria-label='Colour by'] button[aria-pressed=true]:text('gradient')");
  });

  await bench.test("state: back and forward of the browser", async (page) => {
    const p = await page();
    await bench.view(p, "#/forward");
    await p.keyboard.press("2");
    await p.waitForSelector("h2:text('The reverse sweep')");
    await p.keyboard.press("4");
    await p.waitForSelector("h2:text('The cost shape')");
    await p.goBack();
    await p.waitForSelector("h2:text('The reverse sweep')");
    await p.goForward();
    await p.waitForSelector("h2:text('The cost shape')");
  });

  await bench.test("state: nonsense in the address does no harm", async (page) => {
    const p = await page();
    p.expected = /400/;
    for (const hash of ["#/nowhere?x", "#/reverse?reverse=1e99&node=-4&v.x=%7B%22a%22%3A1%7D", "#/forward?forward=NaN", "#/graph?node=999999&colour=nosuch", "#/training?what=nosuch&layer=nosuch", "#/program?stage=999&model=nosuch", "#/memory?layers=0&segment=-3", "#/%%%"]) {
      await bench.view(p, hash);
      check((await p.locator("header .brand").count()) === 1, `the page stands at ${hash}`);
    }
  });

  await bench.test("theme: follows the system, can be changed, is remembered", async (page) => {
    const p = await page({ colorScheme: "dark" });
    await bench.view(p, "#/forward");
    const theme = () => p.evaluate(() => document.documentElement.dataset.theme);
    equal(await theme(), "dark", "theme of the system");
    await p.keyboard.press("t");
    equal(await theme(), "light", "theme after t");
    await p.reload();
    await p.waitForSelector("table.tape");
    equal(await theme(), "light", "theme after a reload");
  });
};
