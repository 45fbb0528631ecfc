// Keys of a bucket, a page at a time: the server lists what the page shows and no more.
import { get } from "../api.js";
import { button, bytes, date, field, form, h, link, ratio, say, table } from "../dom.js";
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

/** Where a file of a chosen folder goes: below the folder's name. */
const keyOf = (prefix, file) => prefix + (file.webkitRelativePath || file.name);

function uploader(bucket, prefix, show) {
  const files = h("input", { type: "file", multiple: true, id: "files" });
  const folder = h("input", { type: "file", webkitdirectory: true, id: "folder" });
  const state = h("p", { class: "soft", role: "status" });
  const bar = h("progress", { "aria-label": words.upload, hidden: true });
  const start = async () => {
    const chosen = [...files.files, ...folder.files];
    const whole = chosen.reduce((sum, file) => sum + file.size, 0);
    let before = 0;
    bar.hidden = false;
    bar.max = Math.max(whole, 1);
    try {
      for (const file of chosen) {
        await s3.upload(bucket, keyOf(prefix, file), file, (done) => {
          bar.value = before + done;
          state.textContent = words.uploading(file.name, `${bytes(done)} / ${bytes(file.size)}`);
        });
        before += file.size;
      }
    } catch (error) {
      throw new Error(words.uploadCut(error.message));
    } finally {
      bar.hidden = true;
    }
    say(words.uploaded(chosen.length));
    await show();
  };
  return [form([field(words.uploadFiles, files), field(words.uploadFolder, folder)], words.upload, start), bar, state];
}

/** Uploads that were begun below this prefix and not completed. */
function unfinished(bucket, prefix) {
  const place = h("div", { "aria-live": "polite" });
  const draw = async () => {
    const found = await s3.openUploads(bucket, prefix, LIMIT);
    const rows = found.map((one) => [
      one.key,
      one.begun,
      button(words.abort, async () => (await s3.abort(bucket, one.key, one.id), await draw()), { class: "danger", "aria-label": `${words.abort}: ${one.key}` }),
    ]);
    place.replaceChildren(rows.length ? table(words.unfinished, [[words.key, "key"], [words.begun], [words.actions]], rows) : h("p", { class: "soft" }, words.noUnfinished));
  };
  return h("details", { id: "unfinished", ontoggle: (event) => event.target.open && draw().catch((error) => say(error.message)) }, h("summary", {}, words.unfinished), place);
}

/** Keys that were deleted, and whose versions are there still. */
function removed(bucket, prefix) {
  const place = h("div", { "aria-live": "polite" });
  const draw = async (marker) => {
    const { found, next } = await s3.deleted(bucket, prefix, marker, LIMIT);
    const rows = found.map((one) => [link("object", { bucket, key: one.key }, one.key), one.when]);
    place.replaceChildren(
      rows.length ? table(words.deleted, [[words.key, "key"], [words.changed]], rows) : h("p", { class: "soft" }, words.noDeleted),
      next ? button(words.next, () => draw(next)) : "",
    );
  };
  return h("details", { id: "deleted", ontoggle: (event) => event.target.open && draw().catch((error) => say(error.message)) }, h("summary", {}, words.deleted), place);
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
      s3.haveKeys() ? [uploader(bucket, prefix, show), unfinished(bucket, prefix), removed(bucket, prefix)] : await keysForm(show),
    ],
  };
}
