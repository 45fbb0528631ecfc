// One version: what it says of itself, its content, its other versions.
import { get } from "../api.js";
import { bytes, date, facts, field, h, link, percent, table } from "../dom.js";
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
  const button = (name, work) => h("button", { type: "button", onclick: () => work().catch(failed) }, name);
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
      button(words.download, download),
      button(words.preview, () => preview(object, version, place)),
      field(words.shareFor, times),
      button(words.share, share),
      h("button", { type: "button", onclick: () => (s3.forgetKeys(), show()) }, words.keys.forget),
    ),
    place,
  ];
}

function versionRow(bucket, key, version) {
  if (version.delete_marker) return [version.version, words.marker, "", date(version.last_modified_ms), version.latest ? words.latest : ""];
  const named = link("object", { bucket, key, version: version.version }, version.version);
  return [named, bytes(version.size), bytes(version.stored_bytes), date(version.last_modified_ms), version.latest ? words.latest : ""];
}

export async function page({ bucket, key, version }, show) {
  const [object, { versions, more }] = await Promise.all([get("object", { bucket, key, version }), get("versions", { bucket, key })]);
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
      h("h2", {}, words.versions),
      table(words.versions, [[named.version], [words.size, "number"], [words.stored, "number"], [words.changed], [words.latest]], versions.map((one) => versionRow(bucket, key, one))),
      more && h("p", { class: "soft" }, words.moreVersions),
    ],
  };
}
