// Serves page.html with the uploaders' own files, has Chromium open it, and calls one function of it after the other.
// Standard input: { chromium, origin's port, calls: [[function, argument], …] }; standard output: what each returned.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { chromium } from "playwright-core";

const FILES = {
  "/": ["page.html", "text/html"],
  "/uppy.min.js": ["node_modules/uppy/dist/uppy.min.js", "text/javascript"],
  "/filepond.min.js": ["node_modules/filepond/dist/filepond.min.js", "text/javascript"],
};

const told = JSON.parse(await text(process.stdin));
const server = createServer((request, answer) => {
  const [file, type] = FILES[request.url] ?? [];
  if (!file) return answer.writeHead(404).end();
  answer.writeHead(200, { "content-type": type }).end(readFileSync(new URL(file, import.meta.url)));
});
await new Promise((resolve) => server.listen(told.port, "127.0.0.1", resolve));
const browser = await chromium.launch({ executablePath: told.chromium, args: ["--no-sandbox"] });
const page = await browser.newPage();
page.on("console", (message) => console.error(message.text()));
await page.goto(`http://127.0.0.1:${told.port}/`);
const found = [];
for (const [name, argument] of told.calls) {
  found.push(await page.evaluate(([name, argument]) => window.uploaders[name](argument), [name, argument]));
}
console.log(JSON.stringify(found));
await browser.close();
server.close();
