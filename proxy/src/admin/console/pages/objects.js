// Keys of a bucket, a page at a time: the server lists what the page shows and no more.
import { get } from "../api.js";
import { bytes, date, field, h, link, ratio, say, table } from "../dom.js";
import * as s3 from "../s3.js";
import { words } from "../words.js";
import { keysForm } from "./object.js";

const LIMIT = 100;

function crumbs(bucket, prefix) {
  const parts = prefix.split("/").slice(0, -1);
  const places = parts.map((part, at) => [part, parts.slice(0, at + 1).join("/") + "/"]);
  const item = ([name, place]) => h("li", {}, link("objects", { bucket, prefix: place }, name || "/"));
  return h("nav", { "aria-label": words.prefix }, h("ol", { class: "crumbs" }, [[bucket, ""], ...places].map(item)));
}

function row(bucket, entry) {
  if (entry.prefix !== undefined) {
    return [link("objects", { bucket, prefix: entry.prefix }, entry.prefix), "", "", "", "", "", ""];
  }
  const { key } = entry;
  const why = link("explain", { bucket, key }, words.why);
  why.setAttribute("aria-label", words.whyLabel(key));
  return [
    link("object", { bucket, key }, key),
    bytes(entry.size),
    bytes(entry.stored_bytes),
    ratio(entry.size, entry.stored_bytes),
    words.forms[entry.form] ?? entry.form,
    date(entry.last_modified_ms),
    why,
  ];
}

function uploader(bucket, prefix, show) {
  const files = h("input", { type: "file", multiple: true, id: "files" });
  const state = h("p", { class: "soft", role: "status" });
  const start = async (event) => {
    event.preventDefault();
    const chosen = [...files.files];
    for (const file of chosen) {
      await s3.upload(bucket, prefix + file.name, file, (done) => {
        state.textContent = words.uploading(file.name, `${bytes(done)} / ${bytes(file.size)}`);
      });
    }
    say(words.uploaded(chosen.length));
    await show();
  };
  const begin = (event) => start(event).catch((error) => (state.textContent = error.message));
  return [
    h("form", { class: "row", onsubmit: begin }, field(words.uploadFiles, files), h("button", {}, words.upload)),
    state,
  ];
}

export async function page(parameters, show) {
  const { buckets } = await get("buckets");
  const bucket = parameters.bucket ?? buckets[0]?.name;
  const { prefix = "", after } = parameters;
  if (!bucket) return { elements: [h("h1", {}, words.pages.objects), h("p", {}, words.noBuckets)] };
  const found = await get("objects", { bucket, prefix, after, delimiter: "/", limit: LIMIT });
  const choose = h("select", { name: "bucket" }, buckets.map(({ name }) => h("option", { selected: name === bucket }, name)));
  const typed = h("input", { type: "text", name: "prefix", value: prefix });
  const search = (event) => {
    event.preventDefault();
    location.hash = `#/objects?${new URLSearchParams({ bucket: choose.value, prefix: choose.value === bucket ? typed.value : "" })}`;
  };
  choose.addEventListener("change", search);
  const number = "number";
  const columns = [[words.key, "key"], [words.size, number], [words.stored, number], [words.ratio, number], [words.form], [words.changed], [words.why]];
  return {
    elements: [
      h("h1", {}, words.pages.objects),
      h("form", { class: "row", onsubmit: search, role: "search" }, field(words.bucket, choose), field(words.prefix, typed), h("button", {}, words.search)),
      crumbs(bucket, prefix),
      found.entries.length ? table(words.objects, columns, found.entries.map((entry) => row(bucket, entry))) : h("p", { class: "soft" }, words.emptyPage),
      h(
        "p",
        { class: "row" },
        after && link("objects", { bucket, prefix }, words.first),
        found.next && link("objects", { bucket, prefix, after: found.next }, words.next),
      ),
      h("h2", {}, words.upload),
      s3.haveKeys() ? uploader(bucket, prefix, show) : await keysForm(show),
    ],
  };
}
