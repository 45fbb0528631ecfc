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
function textOf(xml, name) {
  const signs = { lt: "<", gt: ">", quot: '"', apos: "'", amp: "&" };
  const found = new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml);
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
const pathOf = (bucket, key) => `/${encoded(bucket)}/${key.split("/").map(encoded).join("/")}`;
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

async function send(method, bucket, key, { parameters = {}, body, headers = {} } = {}) {
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
  throw new Error(textOf(await answer.text(), "Message") ?? `HTTP ${answer.status}`);
}

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

/** Uploads a file, in parts when it is long. `progress` is told how many bytes are there. */
export async function upload(bucket, key, file, progress) {
  const headers = { "content-type": file.type || "application/octet-stream" };
  if (file.size <= PART_BYTES) {
    await tried(() => send("PUT", bucket, key, { body: file, headers }));
    return progress(file.size);
  }
  const begun = await send("POST", bucket, key, { parameters: { uploads: "" }, headers });
  const uploadId = textOf(await begun.text(), "UploadId");
  try {
    const parts = [];
    for (let number = 1; (number - 1) * PART_BYTES < file.size; number += 1) {
      const body = file.slice((number - 1) * PART_BYTES, number * PART_BYTES);
      const answer = await tried(() => send("PUT", bucket, key, { parameters: { partNumber: String(number), uploadId }, body }));
      parts.push(`<Part><PartNumber>${number}</PartNumber><ETag>${answer.headers.get("etag")}</ETag></Part>`);
      progress(Math.min(file.size, number * PART_BYTES));
    }
    const body = `<CompleteMultipartUpload>${parts.join("")}</CompleteMultipartUpload>`;
    const ended = await send("POST", bucket, key, { parameters: { uploadId }, body, headers: { "content-type": "application/xml" } });
    if ((await ended.text()).includes("<Error>")) throw new Error(words.uploadFailed);
  } catch (error) {
    await send("DELETE", bucket, key, { parameters: { uploadId } }).catch(() => undefined);
    throw error;
  }
}
