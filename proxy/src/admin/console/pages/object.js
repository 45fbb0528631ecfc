// One version: what it says of itself, its content, its other versions.
import { get } from "../api.js";
import { button, bytes, choice, confirmed, date, facts, field, form, h, input, link, percent, say, table } from "../dom.js";
import * as s3 from "../s3.js";
import { words } from "../words.js";

const PREVIEW_BYTES = 64 << 10;
const PICTURE_BYTES = 8 << 20;
// Pictures that hold no script. SVG does, so it is shown as text.
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"];

/** Asks for the keys that sign S3 requests. */
export async function keysForm(show) {
  if (!s3.canSign()) return h("p", { class: "soft" }, words.keys.insecure);
  const { s3: place } = await get("overview");
  const id = h("input", { type: "text", id: "key-id", autocomplete: "off", required: true });
  const secret = h("input", { type: "password", id: "key-secret", autocomplete: "off", required: true });
  const use = (event) => {
    event.preventDefault();
    s3.useKeys(id.value.trim(), secret.value.trim(), place);
    show();
  };
  return [
    h("p", { class: "soft" }, words.keys.help),
    h("form", { class: "row", onsubmit: use }, field(words.keys.id, id), field(words.keys.secret, secret), h("button", {}, words.keys.use)),
  ];
}

const pairs = (title, map) => [
  h("h2", {}, title),
  Object.keys(map ?? {}).length ? facts(Object.entries(map)) : h("p", { class: "soft" }, words.nothing),
];

/** Shows the beginning as text, or a picture. Nothing of the object is ever parsed as markup. */
async function preview(object, version, place) {
  const kind = (object.content_type ?? "").split(";")[0].trim().toLowerCase();
  const picture = PICTURES.includes(kind) && object.size <= PICTURE_BYTES;
  const most = picture ? PICTURE_BYTES : PREVIEW_BYTES;
  const content = object.size ? await s3.head(object.bucket, object.key, version, most) : new ArrayBuffer(0);
  if (picture) {
    const address = URL.createObjectURL(new Blob([content], { type: kind }));
    place.replaceChildren(h("img", { class: "preview", src: address, alt: words.previewOf(object.key), onload: () => URL.revokeObjectURL(address) }));
    return;
  }
  const text = new TextDecoder().decode(content).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "\ufffd");
  place.replaceChildren(
    h("pre", { tabindex: 0, "aria-label": words.previewOf(object.key), role: "region" }, text),
    object.size > most && h("p", { class: "soft" }, words.previewCut),
  );
}

async function content(object, version, show) {
  if (!s3.haveKeys()) return keysForm(show);
  const place = h("div", { id: "preview" });
  const failed = (error) => place.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message));
  const act = (name, work) => h("button", { type: "button", onclick: () => work().catch(failed) }, name);
  const attachment = { "response-content-disposition": "attachment" };
  const download = async () => {
    const address = await s3.presigned(object.bucket, object.key, 300, version, attachment);
    h("a", { href: address, rel: "noreferrer" }).click();
  };
  const times = h("select", {}, Object.entries(words.shareTimes).map(([seconds, name]) => h("option", { value: seconds }, name)));
  const share = async () => {
    const address = await s3.presigned(object.bucket, object.key, times.value, version, attachment);
    place.replaceChildren(h("p", {}, words.shareLink), h("pre", { tabindex: 0, id: "shared" }, address));
  };
  return [
    h(
      "div",
      { class: "row" },
      act(words.download, download),
      act(words.preview, () => preview(object, version, place)),
      field(words.shareFor, times),
      act(words.share, share),
      h("button", { type: "button", onclick: () => (s3.forgetKeys(), show()) }, words.keys.forget),
    ),
    place,
  ];
}

const told = words.changes;

/** Deletes a version for good, after it was asked. */
function deleteVersion(bucket, key, version, show) {
  const work = async () => {
    if (!(await confirmed(told.forGoodAsk(key, version), told.forGood))) return;
    await s3.remove(bucket, key, version);
    say(told.gone(version));
    await show();
  };
  return button(told.forGood, work, { class: "danger", "aria-label": `${told.forGood}: ${version}` });
}

/** Takes the newest delete marker away, so that the version below it is current again. */
function undelete(bucket, key, version, show) {
  const work = async () => {
    await s3.remove(bucket, key, version);
    say(told.undeleted(key));
    await show();
  };
  return button(told.undelete, work, { "aria-label": `${told.undelete} ${key}` });
}

function versionRow(bucket, key, version, show) {
  const id = version.version;
  const latest = version.latest ? words.latest : "";
  const acts = s3.haveKeys() && [version.delete_marker && version.latest ? undelete(bucket, key, id, show) : deleteVersion(bucket, key, id, show)];
  if (version.delete_marker) return [id, words.marker, "", date(version.last_modified_ms), latest, acts || ""];
  return [link("object", { bucket, key, version: id }, id), bytes(version.size), bytes(version.stored_bytes), date(version.last_modified_ms), latest, acts || ""];
}

function versionTable(bucket, key, { versions, more }, show) {
  const columns = [[words.facts.version], [words.size, "number"], [words.stored, "number"], [words.changed], [words.latest], [words.actions]];
  return [
    h("h2", {}, words.versions),
    table(words.versions, columns, versions.map((one) => versionRow(bucket, key, one, show))),
    more && h("p", { class: "soft" }, words.moreVersions),
  ];
}

const hours = (ms) => new Date(ms).toISOString().slice(0, 16);

/** Tags, lock and deletion of one version, through S3. */
function changing(object, version, show) {
  if (!s3.haveKeys()) return [];
  const { bucket, key } = object;
  const area = h("textarea", { name: "tags", rows: 4, spellcheck: "false" }, Object.entries(object.tags ?? {}).map(([name, value]) => `${name}=${value}`).join("\n"));
  const done = async (text) => {
    say(text);
    await show();
  };
  const setTags = async () => {
    const lines = area.value.split("\n").filter((line) => line.trim());
    const tags = lines.map((line) => [line.split("=")[0].trim(), line.split("=").slice(1).join("=").trim()]);
    await s3.setTags(bucket, key, version, tags);
    await done(told.tagged);
  };
  const retain = async (data) => {
    await s3.setRetention(bucket, key, version, data.get("mode"), new Date(`${data.get("until")}Z`).toISOString());
    await done(told.retained);
  };
  const hold = async () => {
    await s3.setHold(bucket, key, version, !object.lock.legal_hold);
    await done(object.lock.legal_hold ? told.released : told.held);
  };
  const away = async () => {
    if (!(await confirmed(told.removeAsk(key), told.remove))) return;
    await s3.remove(bucket, key);
    await done(told.removed(key));
  };
  return [
    h("h2", {}, told.title),
    h("p", {}, button(told.remove, away, { class: "danger" })),
    h("details", { id: "tags" }, h("summary", {}, words.tags), form(field(told.tagLines, area), told.setTags, setTags)),
    h(
      "details",
      { id: "lock" },
      h("summary", {}, words.facts.lock),
      h("p", { class: "soft" }, told.lockHelp),
      form([field(told.mode, choice("mode", ["GOVERNANCE", "COMPLIANCE"])), field(told.until, input("until", { type: "datetime-local", value: hours(Date.now() + 86_400_000), required: true }))], told.retain, retain),
      button(object.lock.legal_hold ? told.releaseHold : told.setHold, hold),
    ),
  ];
}

/** A key whose newest version is a delete marker: nothing to read, and maybe something to bring back. */
function ofDeleted(bucket, key, listed, content, show) {
  return {
    elements: [
      h("h1", {}, key),
      h("p", { class: "lead" }, told.isDeleted),
      facts([[words.bucket, link("objects", { bucket }, bucket)]]),
      content,
      versionTable(bucket, key, listed, show),
    ],
  };
}

export async function page({ bucket, key, version }, show) {
  const listed = await get("versions", { bucket, key });
  if (!listed.versions.length) return { elements: [h("h1", {}, key), h("p", { class: "lead" }, told.isGone), link("objects", { bucket }, bucket)] };
  const newest = listed.versions.find((one) => one.latest);
  if (!version && newest?.delete_marker) return ofDeleted(bucket, key, listed, s3.haveKeys() ? "" : await keysForm(show), show);
  const object = await get("object", { bucket, key, version });
  const named = words.facts;
  return {
    elements: [
      h("h1", {}, key),
      h("p", { class: "lead" }, words.explain.takes(key, bytes(object.stored_bytes), bytes(object.size), percent(object.stored_bytes, object.size)), " ", link("explain", { bucket, key, ...(version ? { version } : {}) }, words.whyLong)),
      facts([
        [words.bucket, link("objects", { bucket }, bucket)],
        [named.form, words.forms[object.form] ?? object.form],
        [named.reason, object.reason],
        [named.changed, date(object.last_modified_ms)],
        [named.etag, object.etag],
        [named.version, object.version],
        [named.parts, object.parts || undefined],
        [named.storageClass, object.storage_class ?? undefined],
        [named.encryption, object.encryption ?? undefined],
        [named.lock, object.lock.retention ? JSON.stringify(object.lock.retention) : undefined],
        [named.hold, object.lock.legal_hold ? words.explain.yes : undefined],
      ]),
      h("h2", {}, words.content),
      await content(object, version, show),
      pairs(words.headers, object.headers),
      pairs(words.metadata, object.metadata),
      pairs(words.tags, object.tags),
      changing(object, version, show),
      versionTable(bucket, key, listed, show),
    ],
  };
}
