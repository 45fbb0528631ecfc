// Drives the console in Chromium and prints a JSON object: the checks that failed, and how many were
// made. Told by standard input where the server is and what it holds (test_console.py).
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const told = JSON.parse(readFileSync(0, "utf8"));
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const failures = [];
const requested = new Set();
let checks = 0;
let weighed;

function check(holds, what) {
  checks += 1;
  if (!holds) failures.push(what);
}

/** Answers that tell that something is not there yet, or that a test asks for. */
const EXPECTED = [
  /^GET 404 .*\/s3\/[\w-]+\?(cors|encryption|lifecycle|policy|tagging)=$/,
  /^GET 404 .*\/api\/v1\/policies\/readers$/,
  /^PUT 400 .*\/s3\/made-here\?cors=$/,
];

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
  logs: "#/logs",
  users: "#/users",
  user: `#/users?${query({ user: "ci" })}`,
  policy: `#/users?${query({ policy: "readers" })}`,
  audit: "#/audit",
  adopt: "#/adopt",
};
/** The module that draws a page, where it has another name. */
const MODULES = { user: "users", policy: "users" };

const browser = await chromium.launch({ executablePath: told.chromium, args: ["--no-sandbox", "--disable-gpu"] });

async function open(options) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on("console", (message) => message.type() === "error" && !message.text().startsWith("Failed to load resource") && failures.push(`the browser says: ${message.text()}`));
  page.on("response", (answer) => {
    const refused = `${answer.request().method()} ${answer.status()} ${answer.url()}`;
    if (answer.status() >= 400 && !EXPECTED.some((one) => one.test(refused))) failures.push(`refused: ${refused}`);
  });
  page.on("pageerror", (error) => failures.push(`a script failed: ${error.message}`));
  page.on("request", (request) => requested.add(new URL(request.url()).origin));
  return { context, page };
}

const shown = (page, name) => page.waitForSelector(`main[data-page=${name}]`);

async function enter(page, token = told.token) {
  await page.goto(told.base);
  await shown(page, "login");
  await page.fill("#token", token);
  await page.keyboard.press("Enter");
  await shown(page, "overview");
}

/** Goes to an address, and waits for its page. */
async function go(page, address, name) {
  await page.evaluate((hash) => {
    document.getElementById("main").dataset.page = "";
    location.hash = hash;
    dispatchEvent(new Event("hashchange"));
  }, address);
  await shown(page, name);
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
        await go(page, address, MODULES[name] ?? name);
        await accessible(page, `${name}, ${colorScheme}, ${width}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        check(wide <= 0, `${name} at ${width} is ${wide} pixels too wide`);
        const trouble = await page.$$eval("main > h1 + p[role=alert]:last-child", (all) => all.map((one) => one.textContent));
        check(trouble.length === 0, `${name} stands: ${trouble}`);
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
  check(text.includes("Reads and conversions over time") && text.includes("Clients read it by 0 GETs"), "and what happened to it since");
  check(text.includes("Read from it") && !text.includes("=>"), "its bases have their columns");
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

/** Answers the question of a dialog with yes. */
async function agree(page) {
  await page.click("dialog button[value=yes]");
  await page.waitForFunction(() => document.querySelector("dialog") === null);
}

const answers = (page, button, text) =>
  Promise.all([page.waitForSelector(`#said:has-text(${JSON.stringify(text)})`), page.click(button)]);

/** A user with two keys, a policy of its own, a quota; one key is revoked. Each step is also asked of the API. */
async function users() {
  const { context, page } = await open({});
  await enter(page);
  const api = (path) => page.evaluate(async (path) => (await fetch(`/api/v1/${path}`, { headers: { "x-deltaweir-session": sessionStorage.getItem("deltaweir-session") } })).json(), path);
  await go(page, "#/users?policy=readers", "users");
  await page.click('main button:text-is("Save")');
  await page.waitForSelector("text=Takes effect for everyone");
  await go(page, "#/users", "users");
  await page.fill("#new-user", "ci");
  await page.fill('input[name="policies"]', "readers");
  await page.click('main button:text-is("Add")');
  await page.waitForSelector("#fresh");
  const secret = await page.textContent("#fresh dd:last-of-type");
  check(secret.length >= 40, "the secret of a new key is shown once");
  await page.click('main a:text-is("ci")');
  await page.waitForSelector('h1:text-is("ci")');
  check((await page.$("#fresh")) === null, "and not again");
  await page.click("#add-key");
  await page.waitForSelector("#fresh");
  await page.waitForSelector('button[aria-label^="Disable"] >> nth=1');
  const [first, second] = (await api("users/ci")).keys.map((key) => key.id);
  const ask = async (action) => {
    await page.fill('input[name="action"]', action);
    await page.click('button:text-is("Ask")');
    return page.waitForSelector('main [aria-live] p:text-matches("Allowed|Denied")').then((found) => found.textContent());
  };
  check((await ask("s3:GetObject")) === "Allowed", "the engine says what a user may");
  check((await ask("s3:DeleteObject")) === "Denied", "and what it may not");
  await page.click(`button[aria-label="Disable ${first}"]`);
  await page.waitForSelector(`button[aria-label="Enable ${first}"]`);
  await page.click(`button[aria-label="Revoke ${second}"]`);
  await agree(page);
  await page.waitForFunction((id) => !document.querySelector("main").textContent.includes(id), second);
  const now = await api("users/ci");
  check(now.keys.length === 1 && now.keys[0].id === first && !now.keys[0].enabled, `one key is revoked, one disabled: ${JSON.stringify(now.keys)}`);
  await page.fill('input[name="bytes"]', "10 GiB");
  await page.click('button:text-is("Set the quota")');
  await page.waitForSelector("#held:has-text('10.0 GiB')");
  check((await api("quota?user=ci")).limits.bytes === 10 * 2 ** 30, "the quota is set");
  await go(page, "#/audit?user=token", "audit");
  check((await page.textContent("main")).includes("policies/readers"), "the audit log has the changes");
  await go(page, "#/audit?user=nobody-at-all", "audit");
  await page.waitForSelector("text=No line matches.");
  await context.close();
}

/** A bucket is made and configured, and an object in it deleted, brought back, tagged. */
async function changes() {
  const { context, page } = await open({});
  await enter(page);
  await go(page, "#/buckets", "buckets");
  await giveKeys(page);
  await page.waitForSelector("#new-bucket");
  await page.fill("#new-bucket", "made-here");
  await page.click('button:text-is("Make the bucket")');
  await page.waitForSelector('h2:text-is("Settings: made-here")');
  await page.click("#part-versioning summary");
  await page.click('#part-versioning button:text-is("Enable")');
  await page.waitForSelector("text=Versioning: Enabled");
  for (const part of ["policy", "lifecycle", "cors", "tagging", "notification", "encryption"]) {
    await page.click(`#part-${part} summary`);
    await page.waitForSelector(`#part-${part} p:text-matches("example|in force")`);
    await page.click(`#part-${part} button:text-is("Save")`);
    await page.waitForSelector("#said:text-matches('saved')");
    const trouble = await page.textContent(`#part-${part} [role=alert]`);
    check(trouble === "", `${part} is saved: ${trouble}`);
  }
  await accessible(page, "buckets with every document open");
  await page.fill("#part-cors textarea", "no document");
  await page.click('#part-cors button:text-is("Save")');
  await page.waitForFunction(() => document.querySelector("#part-cors [role=alert]").textContent !== "");
  check(true, "a document that is none is refused beside it");
  await page.click("#dry-run");
  await page.waitForSelector("text=1 rules");
  await page.selectOption('#rules select[name="isolation"]', "strict");
  await page.click('#rules button:text-is("Save")');
  await page.waitForSelector("#said:text-matches('isolation strict')");
  await go(page, "#/buckets?bucket=made-here", "buckets");
  await page.waitForSelector('h2:text-is("Default encryption: AES256")');
  await page.click("#encrypt-old");
  await agree(page);
  await page.waitForSelector("#said:text-matches('reencrypt')");
  check(true, "objects of before the default can be encrypted");
  await go(page, "#/buckets", "buckets");
  await page.waitForSelector("#new-bucket");
  await page.fill("#new-bucket", "made-sealed");
  await page.selectOption('select[name="encryption"]', "aes256");
  await page.click('button:text-is("Make the bucket")');
  await page.waitForSelector('h2:text-is("Settings: made-sealed")');
  const row = await page.textContent('main tr:has(a:text-is("made-sealed"))');
  check(row.includes("aes256"), `an encrypted bucket is made: ${row}`);
  await go(page, "#/objects?bucket=made-here", "objects");
  await page.setInputFiles("#files", [{ name: "kept.txt", mimeType: "text/plain", buffer: Buffer.from("kept") }]);
  await page.click('button:text-is("Upload")');
  await page.click('main a:text-is("kept.txt")');
  await shown(page, "object");
  await page.click("#tags summary");
  await page.fill("#tags textarea", "team=builds\nwhy=a=b + c:d/e@f");
  await page.click('button:text-is("Set tags")');
  await page.waitForSelector('dd:text-is("a=b + c:d/e@f")');
  check(true, "tags are set as they were typed");
  await page.click('main button:text-is("Delete")');
  await accessible(page, "a dialog");
  await agree(page);
  await page.waitForSelector("text=This key is deleted");
  await go(page, "#/objects?bucket=made-here", "objects");
  await page.click("#deleted summary");
  await page.click('#deleted a:text-is("kept.txt")');
  await page.click('button[aria-label="Undelete kept.txt"]');
  await page.waitForSelector('button:text-is("Preview")');
  check(true, "a deleted key comes back");
  await context.close();
}

/** An upload that is cut off goes on where it ended, and one that nobody wants is taken away. */
async function resuming() {
  const { context, page } = await open({});
  await enter(page);
  await go(page, PAGES.objects, "objects");
  await giveKeys(page);
  await page.waitForSelector("#files");
  const path = `${told.scratch}/long-upload.bin`;
  writeFileSync(path, Buffer.alloc(50 << 20, "a line of a file that is long\n"));
  const parts = [];
  let cut = true;
  await page.route("**/s3/**partNumber=*", (route) => {
    const number = Number(new URL(route.request().url()).searchParams.get("partNumber"));
    if (cut && number === 3) return route.abort();
    parts.push(number);
    return route.continue();
  });
  const ignored = failures.length;
  await page.setInputFiles("#files", path);
  await page.click('button:text-is("Upload")');
  await page.waitForSelector('[role=alert]:has-text("Choose the same files again")');
  failures.length = ignored; // Chromium tells of the requests that were cut off.
  cut = false;
  await page.click("#unfinished summary");
  await page.waitForSelector('#unfinished td:text-is("long-upload.bin")');
  await page.setInputFiles("#files", path);
  await page.click('button:text-is("Upload")');
  await page.waitForSelector('main a:text-is("long-upload.bin")');
  check(JSON.stringify(parts) === "[1,2,3,4]", `each part is sent once: ${parts}`);
  await page.setInputFiles("#folder", told.folder);
  await page.click('button:text-is("Upload")');
  await page.waitForSelector('main a:text-is("tree/")');
  await page.click('main a:text-is("tree/")');
  await page.waitForSelector('main a:text-is("tree/branch/")');
  check(true, "a folder keeps its shape");
  await context.close();
}

/** Both wizards from their first step to the job's end. */
async function wizards() {
  const { context, page } = await open({});
  await enter(page);
  await go(page, "#/adopt", "adopt");
  const next = (title) => Promise.all([page.waitForSelector(`#moving h2:has-text(${JSON.stringify(title)})`), page.click('#moving button:text-is("Next")')]);
  await page.click('main button:text-is("Import")');
  await accessible(page, "the import's first step");
  await page.selectOption('select[name="source"]', "old");
  await next("Into");
  await page.selectOption('select[name="bucket"]', bucket);
  await page.fill('input[name="prefix"]', "from-old/");
  await next("How");
  await page.check('input[name="verify"]');
  await next("Is this right?");
  check((await page.textContent("#moving dl")).includes("from-old/"), "the last step tells all of it");
  await page.click('#moving button:text-is("Start")');
  await page.waitForSelector("text=import has ended");
  const text = await page.textContent("#moving");
  check(/listed\s*3/.test(text) && /failed\s*0/.test(text), `three objects are registered: ${text}`);
  await page.click('main button:text-is("Eject")');
  await page.selectOption('select[name="bucket"]', bucket);
  await page.fill('input[name="prefix"]', "app/");
  await next("Kind of target");
  await page.selectOption('select[name="kind"]', "A directory");
  await next("Into");
  await page.fill('input[name="directory"]', `${told.ejectRoot}/out`);
  await next("Is this right?");
  await page.click('#moving button:text-is("Start")');
  await page.waitForSelector("text=eject has ended");
  check(readdirSync(`${told.ejectRoot}/out`).length > 0, "the bucket is written out");
  await context.close();
}

/** What a browser fetches to show every page once. */
async function weight() {
  const { context, page } = await open({});
  const session = await context.newCDPSession(page);
  await session.send("Network.enable");
  let bytes = 0;
  const files = new Set();
  session.on("Network.responseReceived", ({ requestId, response }) => /\/(console\/.*)?$/.test(new URL(response.url).pathname) && files.add(requestId));
  session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => (bytes += files.has(requestId) ? encodedDataLength : 0));
  await enter(page);
  for (const [name, address] of Object.entries(PAGES)) await go(page, address, MODULES[name] ?? name);
  check(files.size >= 20, `the console's files are counted: ${files.size}`);
  check(bytes > 50_000 && bytes < told.bytesMax, `the console is ${bytes} bytes in ${files.size} files`);
  weighed = { bytes, files: files.size };
  await context.close();
}

/** What the other pages can do. */
async function actions() {
  const { context, page } = await open({});
  await enter(page);
  const overview = await page.textContent("main");
  check(overview.includes("Capacity") && overview.includes("Too early to say"), "the overview has a forecast, or says why not");
  await page.evaluate((hash) => (location.hash = hash), PAGES.buckets);
  await shown(page, "buckets");
  await page.click("#preview button");
  await page.waitForSelector("#previews tbody tr:nth-child(3)");
  const previews = await page.textContent("#previews");
  check(/On these objects delta would store [\d.]+ % and cost [\d.]+ CPU s\/GB/.test(previews), `a preview says what a setting would take: ${previews}`);
  await accessible(page, "buckets with a preview");
  await page.click('#previews button[aria-label="Use this setting: zstd"]');
  await page.waitForSelector("dialog");
  await page.click('dialog button:text-is("Cancel")');
  check(true, "a setting is changed only after a question");
  await page.click("#dry-run");
  await page.waitForSelector("text=0 rules");
  await page.click('button:text-is("Ask")');
  await page.waitForSelector('p:text-is("Denied")');
  check(true, "the policy tester answers");
  await page.evaluate((hash) => (location.hash = hash), PAGES.jobs);
  await shown(page, "jobs");
  await page.click('button[aria-label="Start gc"]');
  await page.waitForSelector("text=Start: gc");
  await page.click('button:text-is("Wait until background work is done")');
  await page.waitForSelector("text=Nothing is under way");
  await page.check('#collect input[name="now"]');
  await page.click('button:text-is("Collect now")');
  await page.waitForSelector('pre[aria-label="Report"]');
  await page.click('button:text-is("Drop every cache")');
  await page.waitForSelector("text=The caches are empty");
  await page.click('a[aria-label="History of gc"]');
  await shown(page, "audit");
  await page.waitForSelector('td:text-is("job")');
  check(true, "the history of a job is in the audit log");
  await go(page, PAGES.overview, "overview");
  await page.click("#count-now");
  await page.waitForSelector('td:text-is("EUR")');
  await go(page, PAGES.overview, "overview");
  const saved = await page.textContent('main [aria-label="Saved over time"]');
  check(/EUR saved a month.*\d\.\d\d$/.test(saved), `what is saved is told over time, in money too: ${saved}`);
  await go(page, PAGES.explain, "explain");
  await page.click("#look-inside");
  await page.waitForSelector("text=It has no deflate streams.");
  await go(page, `#/explain?${query({ bucket, key: "app/docs.tar.gz" })}`, "explain");
  await page.click("#look-inside");
  await page.waitForSelector('[aria-label="By container"] td:text-is("gzip")');
  await accessible(page, "explain with its streams");
  await go(page, PAGES.explain, "explain");
  await page.click("main td a:has(code)");
  await shown(page, "blob");
  await accessible(page, "a blob");
  await page.evaluate((hash) => (location.hash = hash), PAGES.recovery);
  await shown(page, "recovery");
  await page.click('button:text-is("Back up now")');
  await page.waitForSelector("text=Start: backup");
  await page.click('button:text-is("Ship the journal now")');
  await page.waitForSelector("#said:has-text('changes are shipped')");
  await page.evaluate((hash) => (location.hash = hash), PAGES.requests);
  await shown(page, "requests");
  await page.fill('input[name="op"]', "PutObject");
  await page.keyboard.press("Enter");
  await page.waitForSelector('td:text-is("releases/app/build-5.tar"), td:has-text("releases/logs/")');
  await page.click("main td a:has(code)");
  await page.waitForSelector('h2:text-is("Step by step")');
  check((await page.textContent("main")).includes("signature verified"), "a request is told step by step");
  await go(page, "#/logs?text=catalog%20is%20verified", "logs");
  check((await page.textContent("main tbody")).includes("engine::background::soundness"), "the log is shown, and filtered");
  await page.selectOption('select[name="level"]', "error");
  await page.click('form[role=search] button');
  await page.waitForSelector("text=No line matches.");
  await page.click('button:text-is("Log out")');
  await shown(page, "login");
  check((await page.evaluate(() => sessionStorage.length)) === 0, "logging out forgets the session");
  await context.close();
}

/** A session that only reads is not offered what it may not do. */
async function reading() {
  const { context, page } = await open({});
  await enter(page, told.readToken);
  await go(page, PAGES.buckets, "buckets");
  check((await page.textContent("#no-preview")).includes("only reads"), "a preview says why a session that reads has none");
  check((await page.$("#preview")) === null, "and has no form");
  await go(page, PAGES.explain, "explain");
  check((await page.$("#look-inside")) === null, "nor a look inside an object");
  await context.close();
}

for (const part of [threeClicks, keyboardOnly, content, users, changes, resuming, wizards, actions, reading, weight, everyPage]) {
  try {
    await part();
  } catch (error) {
    failures.push(`${part.name}: ${error.message.split("\n").slice(0, 4).join(" ")}`);
  }
}
const foreign = [...requested].filter((origin) => ![told.base, told.s3].includes(origin) && !origin.startsWith("blob") && origin !== "null");
check(foreign.length === 0, `requests to elsewhere: ${foreign}`);
await browser.close();
console.log(JSON.stringify({ checks, failures, weighed }));
