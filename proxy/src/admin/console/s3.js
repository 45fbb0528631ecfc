// S3 requests signed in the page (AWS Signature Version 4). Keys stay in this tab's memory: a reload
// forgets them. Requests go through the console's door, /s3/…, and links to S3 itself are presigned.
import { sessionHeader } from "./api.js";
import { words } from "./words.js";

const encoder = new TextEncoder();
const PART_BYTES = 16 << 20;
const TRIES = 3;
let keys;

export const haveKeys = () => keys !== undefined;
export const canSign = () => globalThis.crypto?.subtle !== undefined;
export function useKeys(id, secret, place) {
  keys = { id, secret, ...place };
}
export function forgetKeys() {
  keys = undefined;
}

/** The text of an element without children in an answer of S3. Nothing of it becomes markup. */
export function textOf(xml, name) {
  const signs = { lt: "<", gt: ">", quot: '"', apos: "'", amp: "&" };
  const found = new RegExp(`<${name}(?:\\s[^>]*)?>([^<]*)</${name}>`).exec(xml);
  return found?.[1].replace(/&(\w+);/g, (entity, sign) => signs[sign] ?? entity);
}

const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const sha256 = async (text) => hex(await crypto.subtle.digest("SHA-256", encoder.encode(text)));
async function hmac(key, text) {
  const raw = typeof key === "string" ? encoder.encode(key) : key;
  const imported = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return crypto.subtle.sign("HMAC", imported, encoder.encode(text));
}

/** Percent-encoding as signatures want it. */
export const encoded = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
const pathOf = (bucket, key) => (key === "" ? `/${encoded(bucket)}` : `/${encoded(bucket)}/${key.split("/").map(encoded).join("/")}`);
const queryOf = (parameters) =>
  Object.entries(parameters)
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`)
    .sort()
    .join("&");

async function signature(date, canonical) {
  const scope = `${date.slice(0, 8)}/${keys.region}/s3/aws4_request`;
  const text = ["AWS4-HMAC-SHA256", date, scope, await sha256(canonical)].join("\n");
  let key = `AWS4${keys.secret}`;
  for (const part of scope.split("/")) key = await hmac(key, part);
  return { scope, signed: hex(await hmac(key, text)) };
}

const now = () => new Date().toISOString().replace(/[-:]|\.\d+/g, "");

/** A failure of S3, with its code. */
class S3Refused extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

/** One signed request; an empty key is the bucket itself. */
export async function send(method, bucket, key, { parameters = {}, body, headers = {} } = {}) {
  const date = now();
  const sent = { host: location.host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": date, ...headers };
  const names = Object.keys(sent).sort();
  const [path, query] = [pathOf(bucket, key), queryOf(parameters)];
  const canonical = [method, path, query, ...names.map((name) => `${name}:${sent[name]}`), "", names.join(";"), "UNSIGNED-PAYLOAD"].join("\n");
  const { scope, signed } = await signature(date, canonical);
  delete sent.host;
  const answer = await fetch(`/s3${path}${query ? `?${query}` : ""}`, {
    method,
    body,
    headers: {
      ...sent,
      ...sessionHeader(),
      authorization: `AWS4-HMAC-SHA256 Credential=${keys.id}/${scope}, SignedHeaders=${names.join(";")}, Signature=${signed}`,
    },
  });
  if (answer.ok) return answer;
  const told = await answer.text();
  throw new S3Refused(answer.status, textOf(told, "Code"), textOf(told, "Message") ?? `HTTP ${answer.status}`);
}

const base64 = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)));
const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** Sends a document, with a checksum as S3 asks for one. */
async function sendDocument(bucket, key, parameters, body) {
  const sum = base64(await crypto.subtle.digest("SHA-256", encoder.encode(body)));
  const type = body.trimStart().startsWith("<") ? "application/xml" : "application/json";
  return send("PUT", bucket, key, { parameters, body, headers: { "content-type": type, "x-amz-checksum-sha256": sum } });
}

/** One of a bucket's documents, a line for each element; undefined where it is not set. */
export async function configuration(bucket, part) {
  try {
    const text = await (await send("GET", bucket, "", { parameters: { [part]: "" } })).text();
    return text.replace(/^<\?xml[^>]*\?>\s*/, "").replaceAll("><", ">\n<");
  } catch (error) {
    if (error.status === 404 && error.code !== "NoSuchBucket") return undefined;
    throw error;
  }
}
export const configure = (bucket, part, text) => sendDocument(bucket, "", { [part]: "" }, text);
export const unconfigure = (bucket, part) => send("DELETE", bucket, "", { parameters: { [part]: "" } });

const at = (version, more = {}) => ({ ...more, ...(version ? { versionId: version } : {}) });

export function setTags(bucket, key, version, tags) {
  const tag = ([name, value]) => `<Tag><Key>${escaped(name)}</Key><Value>${escaped(value)}</Value></Tag>`;
  return sendDocument(bucket, key, at(version, { tagging: "" }), `<Tagging><TagSet>${tags.map(tag).join("")}</TagSet></Tagging>`);
}
export const setRetention = (bucket, key, version, mode, until) =>
  sendDocument(bucket, key, at(version, { retention: "" }), `<Retention><Mode>${escaped(mode)}</Mode><RetainUntilDate>${escaped(until)}</RetainUntilDate></Retention>`);
export const setHold = (bucket, key, version, on) =>
  sendDocument(bucket, key, at(version, { "legal-hold": "" }), `<LegalHold><Status>${on ? "ON" : "OFF"}</Status></LegalHold>`);

/** The elements of a name in an answer of S3, as text. */
const elementsOf = (xml, name) => [...xml.matchAll(new RegExp(`<${name}>([\\s\\S]*?)</${name}>`, "g"))].map(([, inner]) => inner);

/** A page of keys whose newest version is a delete marker. The server lists as many versions as `most`. */
export async function deleted(bucket, prefix, marker, most) {
  const parameters = { versions: "", prefix, "max-keys": String(most), ...(marker ? { "key-marker": marker.key, "version-id-marker": marker.version } : {}) };
  const text = await (await send("GET", bucket, "", { parameters })).text();
  const markers = elementsOf(text, "DeleteMarker").filter((one) => textOf(one, "IsLatest") === "true");
  const found = markers.map((one) => ({ key: textOf(one, "Key"), version: textOf(one, "VersionId"), when: textOf(one, "LastModified") }));
  const more = textOf(text, "IsTruncated") === "true";
  return { found, next: more ? { key: textOf(text, "NextKeyMarker"), version: textOf(text, "NextVersionIdMarker") } : undefined };
}

/** Uploads below a prefix that were begun and not completed, the first so many. */
export async function openUploads(bucket, prefix, most) {
  const text = await (await send("GET", bucket, "", { parameters: { uploads: "", prefix, "max-uploads": String(most) } })).text();
  return elementsOf(text, "Upload").map((one) => ({ key: textOf(one, "Key"), id: textOf(one, "UploadId"), begun: textOf(one, "Initiated") }));
}
export const abort = (bucket, key, uploadId) => send("DELETE", bucket, key, { parameters: { uploadId } });

/** A link to S3 itself that anybody may use for a while. */
export async function presigned(bucket, key, seconds, version, parameters = {}) {
  const date = now();
  const host = [80, 443].includes(keys.port) ? location.hostname : `${location.hostname}:${keys.port}`;
  const scope = `${date.slice(0, 8)}/${keys.region}/s3/aws4_request`;
  const query = queryOf({
    "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
    "X-Amz-Credential": `${keys.id}/${scope}`,
    "X-Amz-Date": date,
    "X-Amz-Expires": String(seconds),
    "X-Amz-SignedHeaders": "host",
    ...(version ? { versionId: version } : {}),
    ...parameters,
  });
  const path = pathOf(bucket, key);
  const canonical = ["GET", path, query, `host:${host}`, "", "host", "UNSIGNED-PAYLOAD"].join("\n");
  const { signed } = await signature(date, canonical);
  return `${keys.scheme}://${host}${path}?${query}&X-Amz-Signature=${signed}`;
}

/** The first bytes of an object. */
export async function head(bucket, key, version, most) {
  const parameters = version ? { versionId: version } : {};
  const answer = await send("GET", bucket, key, { parameters, headers: { range: `bytes=0-${most - 1}` } });
  return answer.arrayBuffer();
}

export const remove = (bucket, key, version) => send("DELETE", bucket, key, { parameters: version ? { versionId: version } : {} });

async function tried(work) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      if (attempt === TRIES) throw error;
    }
  }
}

/** How a file is known again, so that its upload goes on where it ended: the browser shows no path and no inode. */
const nameOf = (bucket, key, file) => `deltaweir-upload ${bucket}/${key} ${file.size} ${file.lastModified}`;

/** The parts of an upload that are there: their ETags by number. Undefined when the upload is gone. */
async function partsOf(bucket, key, uploadId) {
  const parts = new Map();
  try {
    for (let marker = "0"; marker !== undefined; ) {
      const text = await (await send("GET", bucket, key, { parameters: { uploadId, "part-number-marker": marker } })).text();
      for (const part of elementsOf(text, "Part")) {
        parts.set(Number(textOf(part, "PartNumber")), { etag: textOf(part, "ETag"), size: Number(textOf(part, "Size")) });
      }
      marker = textOf(text, "IsTruncated") === "true" ? textOf(text, "NextPartNumberMarker") : undefined;
    }
    return parts;
  } catch (error) {
    if (error.code === "NoSuchUpload") return undefined;
    throw error;
  }
}

async function begun(bucket, key, file, headers) {
  const name = nameOf(bucket, key, file);
  const known = localStorage.getItem(name);
  const parts = known && (await partsOf(bucket, key, known));
  if (parts) return { uploadId: known, parts };
  const answer = await send("POST", bucket, key, { parameters: { uploads: "" }, headers });
  const uploadId = textOf(await answer.text(), "UploadId");
  localStorage.setItem(name, uploadId);
  return { uploadId, parts: new Map() };
}

/** Uploads a file, in parts when it is long. `progress` is told how many bytes are there. One that
 * fails stays begun: the same file goes on with the parts that are missing. */
export async function upload(bucket, key, file, progress) {
  const headers = { "content-type": file.type || "application/octet-stream" };
  if (file.size <= PART_BYTES) {
    await tried(() => send("PUT", bucket, key, { body: file, headers }));
    return progress(file.size);
  }
  const { uploadId, parts } = await begun(bucket, key, file, headers);
  const listed = [];
  for (let number = 1; (number - 1) * PART_BYTES < file.size; number += 1) {
    const body = file.slice((number - 1) * PART_BYTES, number * PART_BYTES);
    let etag = parts.get(number)?.size === body.size ? parts.get(number).etag : undefined;
    if (!etag) {
      const answer = await tried(() => send("PUT", bucket, key, { parameters: { partNumber: String(number), uploadId }, body }));
      etag = answer.headers.get("etag");
    }
    listed.push(`<Part><PartNumber>${number}</PartNumber><ETag>${escaped(etag)}</ETag></Part>`);
    progress(Math.min(file.size, number * PART_BYTES));
  }
  const body = `<CompleteMultipartUpload>${listed.join("")}</CompleteMultipartUpload>`;
  const ended = await send("POST", bucket, key, { parameters: { uploadId }, body, headers: { "content-type": "application/xml" } });
  if ((await ended.text()).includes("<Error>")) throw new Error(words.uploadFailed);
  localStorage.removeItem(nameOf(bucket, key, file));
}
