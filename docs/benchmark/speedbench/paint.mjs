// Opens pages of the console in Chromium, each anew several times, and prints how long each took: a JSON
// object of lists of milliseconds. `paint` is the browser's first contentful paint, `shown` when the page stands with
// its figures, `rows` what it shows and `entries` what the server listed for it.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const told = JSON.parse(readFileSync(0, "utf8"));
// The browser's driver is installed for the tests of the console.
const { chromium } = createRequire(told.modules)("playwright-core");
const browser = await chromium.launch({ executablePath: told.chromium, args: ["--no-sandbox", "--disable-gpu"] });
const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
const page = await context.newPage();
page.setDefaultTimeout(60_000);

await page.goto(told.base);
await page.waitForSelector("main[data-page=login]");
await page.fill("#token", told.token);
await page.keyboard.press("Enter");
await page.waitForSelector("main[data-page=overview]");
// When the page says that it stands, by the clock that paints are told by.
await page.addInitScript(() => {
  const watch = () => {
    const main = document.getElementById("main");
    if (main?.dataset.page && !globalThis.shownAt) globalThis.shownAt = performance.now();
    else requestAnimationFrame(watch);
  };
  watch();
});

let entries = 0;
page.on("response", async (answer) => {
  if (!answer.url().includes("/api/v1/objects?")) return;
  const body = await answer.json().catch(() => ({}));
  entries += body.entries?.length ?? 0;
});

const found = {};
for (const [name, address] of Object.entries(told.pages)) {
  found[name] = { paint: [], shown: [], rows: 0, entries: 0 };
  for (let round = 0; round < told.rounds; round += 1) {
    // Another address in between: the same one with another fragment is no new document.
    await page.goto("about:blank");
    entries = 0;
    await page.goto(`${told.base}${address}`);
    // The paint is told after it was done, which may be after the page says that it stands.
    await page.waitForFunction(() => globalThis.shownAt && performance.getEntriesByName("first-contentful-paint").length);
    found[name].paint.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
    found[name].shown.push(await page.evaluate(() => globalThis.shownAt));
    found[name].rows = await page.$$eval("main tbody tr", (rows) => rows.length);
    found[name].entries = entries;
  }
}
await browser.close();
console.log(JSON.stringify(found));
