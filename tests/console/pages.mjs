// Drives the console in Chromium and prints a JSON object: the checks that failed, and how many were
// made. Told by standard input where the server is and what it holds (test_console.py).
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const told = JSON.parse(readFileSync(0, "utf8"));
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const failures = [];
const requested = new Set();
let checks = 0;

function check(holds, what) {
  checks += 1;
  if (!holds) failures.push(what);
}

const query = (values) => new URLSearchParams(values);
const { bucket, key } = told;
const PAGES = {
  overview: "#/overview",
  objects: `#/objects?${query({ bucket })}`,
  object: `#/object?${query({ bucket, key })}`,
  explain: `#/explain?${query({ bucket, key })}`,
  buckets: `#/buckets?${query({ bucket })}`,
  jobs: "#/jobs",
  recovery: "#/recovery",
  requests: "#/requests",
};

const browser = await chromium.launch({ executablePath: told.chromium, args: ["--no-sandbox", "--disable-gpu"] });

async function open(options) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on("console", (message) => message.type() === "error" && !message.text().includes("401") && failures.push(`the browser says: ${message.text()}`));
  page.on("pageerror", (error) => failures.push(`a script failed: ${error.message}`));
  page.on("request", (request) => requested.add(new URL(request.url()).origin));
  return { context, page };
}

const shown = (page, name) => page.waitForSelector(`main[data-page=${name}]`);

async function enter(page) {
  await page.goto(told.base);
  await shown(page, "login");
  await page.fill("#token", told.token);
  await page.keyboard.press("Enter");
  await shown(page, "overview");
}

/** axe's verdict. The page's policy lets no script in but its own; the browser's own door is used. */
async function accessible(page, where) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const told = violations.map((one) => `${one.id} (${one.nodes.map((node) => node.target.join(" ")).slice(0, 3).join("; ")})`);
  check(violations.length === 0, `${where}: ${told.join(", ")}`);
}

async function everyPage() {
  for (const colorScheme of ["light", "dark"]) {
    const { context, page } = await open({ colorScheme });
    await page.goto(told.base);
    await shown(page, "login");
    await accessible(page, `login, ${colorScheme}`);
    await enter(page);
    for (const width of [390, 1280, 1920]) {
      await page.setViewportSize({ width, height: 900 });
      for (const [name, address] of Object.entries(PAGES)) {
        await page.evaluate((hash) => (location.hash = hash), address);
        await shown(page, name);
        await accessible(page, `${name}, ${colorScheme}, ${width}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        check(wide <= 0, `${name} at ${width} is ${wide} pixels too wide`);
        check((await page.title()).endsWith("· deltaweir"), `${name} has a title`);
        const wanted = (colorScheme === "light" && width === 1280) || (name === "explain" && width !== 1920);
        if (told.shots && wanted) await page.screenshot({ path: `${told.shots}/${name}-${colorScheme}-${width}.png` });
      }
    }
    await context.close();
  }
}

/** From the overview to the answer: bucket, object, why. */
async function threeClicks() {
  const { context, page } = await open({});
  await enter(page);
  await page.click(`main a:text-is("${bucket}")`);
  await shown(page, "objects");
  await page.click('main a:text-is("app/")');
  await page.click(`main a[aria-label="Why ${key} costs this much"]`);
  await shown(page, "explain");
  const text = await page.textContent("main");
  check(text.includes(`${key} takes`), "the third click says what the object takes");
  check(text.includes("copied from a base") && text.includes(told.baseKey), "and from which base it is copied");
  const drawn = await page.$$eval("svg.strip rect.copied", (rects) => rects.length);
  check(drawn > 10, "the picture shows what is copied");
  await context.close();
}

/** The main path without a mouse. */
async function keyboardOnly() {
  const { context, page } = await open({});
  await page.goto(told.base);
  await shown(page, "login");
  const tabTo = async (matches) => {
    for (let presses = 0; presses < 80; presses += 1) {
      await page.keyboard.press("Tab");
      if (await page.evaluate(matches.test, matches.value)) return true;
    }
    return false;
  };
  const link = (text) => ({ value: text, test: (wanted) => document.activeElement.textContent.trim() === wanted });
  check(await tabTo({ value: "token", test: (id) => document.activeElement.id === id }), "Tab reaches the token");
  await page.keyboard.type(told.token);
  await page.keyboard.press("Enter");
  await shown(page, "overview");
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  check(ring !== undefined, "focus goes with the page");
  check(await tabTo(link(bucket)), "Tab reaches the bucket");
  await page.keyboard.press("Enter");
  await shown(page, "objects");
  check(await tabTo(link("app/")), "Tab reaches the prefix");
  await page.keyboard.press("Enter");
  await page.waitForSelector(`main a:text-is("${key}")`);
  check(await tabTo(link(key)), "Tab reaches the object");
  await page.keyboard.press("Enter");
  await shown(page, "object");
  check(await tabTo(link("Why does it cost this much?")), "Tab reaches the question");
  await page.keyboard.press("Enter");
  await shown(page, "explain");
  check((await page.evaluate(() => document.activeElement.id)) === "main", "focus is at the page's start");
  await context.close();
}

async function giveKeys(page) {
  await page.fill("#key-id", told.accessKeyId);
  await page.fill("#key-secret", told.secretAccessKey);
  await page.keyboard.press("Enter");
}

/** Upload, preview, share and download, signed in the page. */
async function content() {
  const { context, page } = await open({ acceptDownloads: true });
  await enter(page);
  await page.evaluate((hash) => (location.hash = hash), PAGES.objects);
  await page.waitForSelector("#key-id");
  await giveKeys(page);
  await page.waitForSelector("#files");
  const html = "<script>document.title = 'ran'</script><b>bold</b>";
  const long = Buffer.alloc(20 << 20, "a part of a long file. ");
  await page.setInputFiles("#files", [
    { name: "page é (1).html", mimeType: "text/html", buffer: Buffer.from(html) },
    { name: "long.bin", mimeType: "application/octet-stream", buffer: long },
  ]);
  await page.click('button:text-is("Upload")');
  await page.waitForSelector('main a:text-is("long.bin")');
  check(true, "a long file is uploaded in parts");
  await page.click('main a:text-is("page é (1).html")');
  await shown(page, "object");
  await page.click('button:text-is("Preview")');
  await page.waitForSelector("#preview pre");
  check((await page.textContent("#preview pre")) === html, "HTML is shown as text");
  check(!(await page.title()).includes("ran") && (await page.$("#preview b")) === null, "and never runs");
  await page.click('button:text-is("Share")');
  await page.waitForSelector("#shared");
  const address = await page.textContent("#shared");
  const answer = await fetch(address);
  check(answer.status === 200 && (await answer.text()) === html, `a shared link works: ${answer.status}`);
  check(answer.headers.get("content-disposition") === "attachment", "and its content is an attachment");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click('button:text-is("Download")')]);
  check(readFileSync(await download.path(), "utf8") === html, "a download gives the bytes");
  await context.close();
}

/** What the other pages can do. */
async function actions() {
  const { context, page } = await open({});
  await enter(page);
  await page.evaluate((hash) => (location.hash = hash), PAGES.buckets);
  await shown(page, "buckets");
  await page.click("#dry-run");
  await page.waitForSelector("text=0 rules");
  await page.click('button:text-is("Ask")');
  await page.waitForSelector('p:text-is("Denied")');
  check(true, "the policy tester answers");
  await page.evaluate((hash) => (location.hash = hash), PAGES.jobs);
  await shown(page, "jobs");
  await page.click('button[aria-label="Start gc"]');
  await page.waitForSelector("text=Start: gc");
  await page.evaluate((hash) => (location.hash = hash), PAGES.recovery);
  await shown(page, "recovery");
  await page.click('button:text-is("Back up now")');
  await page.waitForSelector("text=Start: backup");
  await page.evaluate((hash) => (location.hash = hash), PAGES.requests);
  await shown(page, "requests");
  await page.fill('input[name="op"]', "PutObject");
  await page.keyboard.press("Enter");
  await page.waitForSelector('td:text-is("releases/app/build-5.tar"), td:has-text("releases/logs/")');
  await page.click("main td a:has(code)");
  await page.waitForSelector('h2:text-is("Step by step")');
  check((await page.textContent("main")).includes("signature verified"), "a request is told step by step");
  await page.click('button:text-is("Log out")');
  await shown(page, "login");
  check((await page.evaluate(() => sessionStorage.length)) === 0, "logging out forgets the session");
  await context.close();
}

for (const part of [threeClicks, keyboardOnly, content, actions, everyPage]) {
  try {
    await part();
  } catch (error) {
    failures.push(`${part.name}: ${error.message.split("\n")[0]}`);
  }
}
const foreign = [...requested].filter((origin) => ![told.base, told.s3].includes(origin) && !origin.startsWith("blob") && origin !== "null");
check(foreign.length === 0, `requests to elsewhere: ${foreign}`);
await browser.close();
console.log(JSON.stringify({ checks, failures }));
