// The AWS SDK for JavaScript v3 as it comes, pointed at an endpoint by its environment alone.
// Usage: node check.mjs CHECK BUCKET. Ends with 0 when everything was as the SDK expects it.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import {
  AbortMultipartUploadCommand,
  DeleteObjectsCommand,
  GetObjectCommand,
  GetObjectTaggingCommand,
  HeadObjectCommand,
  ListMultipartUploadsCommand,
  PutObjectCommand,
  S3Client,
  paginateListObjectsV2,
  waitUntilObjectExists,
} from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { createPresignedPost } from "@aws-sdk/s3-presigned-post";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";

const [check, bucket] = process.argv.slice(2);
const s3 = new S3Client();
const MIB = 1 << 20;

const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
const bytesOf = async (Key) => {
  const answer = await s3.send(new GetObjectCommand({ Bucket: bucket, Key }));
  return Buffer.from(await answer.Body.transformToByteArray());
};

const checks = {
  // PUT with the default CRC32 in a trailer, metadata, HEAD, ranges, conditions, pages, batch deletion, errors by name.
  async objects() {
    const Body = randomBytes(300_000);
    await s3.send(
      new PutObjectCommand({ Bucket: bucket, Key: "größe & more+.bin", Body, Metadata: { colour: "blue" }, Tagging: "a=b" }),
    );
    await waitUntilObjectExists({ client: s3, maxWaitTime: 20 }, { Bucket: bucket, Key: "größe & more+.bin" });
    assert.deepEqual(await bytesOf("größe & more+.bin"), Body);
    const head = await s3.send(new HeadObjectCommand({ Bucket: bucket, Key: "größe & more+.bin", ChecksumMode: "ENABLED" }));
    assert.equal(head.Metadata.colour, "blue");
    assert.ok(head.ChecksumCRC32);
    const tags = await s3.send(new GetObjectTaggingCommand({ Bucket: bucket, Key: "größe & more+.bin" }));
    assert.deepEqual(tags.TagSet, [{ Key: "a", Value: "b" }]);
    const part = await s3.send(new GetObjectCommand({ Bucket: bucket, Key: "größe & more+.bin", Range: "bytes=10-19" }));
    assert.deepEqual(Buffer.from(await part.Body.transformToByteArray()), Body.subarray(10, 20));
    const again = new PutObjectCommand({ Bucket: bucket, Key: "größe & more+.bin", Body: "x", IfNoneMatch: "*" });
    await assert.rejects(s3.send(again), { name: "PreconditionFailed" });
    await assert.rejects(s3.send(new GetObjectCommand({ Bucket: bucket, Key: "none" })), { name: "NoSuchKey" });
    for (let n = 0; n < 7; n += 1) {
      await s3.send(new PutObjectCommand({ Bucket: bucket, Key: `page/${n}`, Body: `${n}` }));
    }
    const keys = [];
    for await (const page of paginateListObjectsV2({ client: s3, pageSize: 3 }, { Bucket: bucket, Prefix: "page/" })) {
      keys.push(...page.Contents.map((entry) => entry.Key));
    }
    assert.deepEqual(keys, [0, 1, 2, 3, 4, 5, 6].map((n) => `page/${n}`));
    const gone = await s3.send(new DeleteObjectsCommand({ Bucket: bucket, Delete: { Objects: keys.map((Key) => ({ Key })) } }));
    assert.equal(gone.Deleted.length, 7);
  },

  // URLs that anybody can use: PUT with a type, GET with another name for the file; what was changed is refused.
  async presigned() {
    const Body = randomBytes(100_000);
    const put = new PutObjectCommand({ Bucket: bucket, Key: "by-url", ContentType: "image/png" });
    const putUrl = await getSignedUrl(s3, put, { expiresIn: 60 });
    const sent = await fetch(putUrl, { method: "PUT", body: Body, headers: { "content-type": "image/png" } });
    assert.equal(sent.status, 200, await sent.text());
    const get = new GetObjectCommand({ Bucket: bucket, Key: "by-url", ResponseContentDisposition: "attachment" });
    const getUrl = await getSignedUrl(s3, get, { expiresIn: 60 });
    const got = await fetch(getUrl);
    assert.equal(got.headers.get("content-disposition"), "attachment");
    assert.equal(sha256(Buffer.from(await got.arrayBuffer())), sha256(Body));
    const changed = await fetch(getUrl.replace("by-url", "another"));
    assert.equal(changed.status, 403);
    assert.match(await changed.text(), /<Code>SignatureDoesNotMatch<\/Code>/);
  },

  // lib-storage: a stream of unknown length in parts side by side, with progress; one that is given up leaves nothing.
  async upload() {
    const Body = randomBytes(17 * MIB);
    let progressed = 0;
    const pieces = Array.from({ length: 17 }, (_, n) => Body.subarray(n * MIB, (n + 1) * MIB));
    const upload = new Upload({ client: s3, params: { Bucket: bucket, Key: "by-upload", Body: Readable.from(pieces) } });
    upload.on("httpUploadProgress", ({ loaded }) => {
      progressed = Math.max(progressed, loaded);
    });
    const done = await upload.done();
    assert.match(done.ETag, /-4"$/);
    assert.equal(progressed, Body.length);
    assert.equal(sha256(await bytesOf("by-upload")), sha256(Body));
    const small = new Upload({ client: s3, params: { Bucket: bucket, Key: "small", Body: "small" } });
    await small.done();
    assert.equal((await bytesOf("small")).toString(), "small");
    async function* endless() {
      for (;;) yield randomBytes(MIB);
    }
    const given = new Upload({ client: s3, params: { Bucket: bucket, Key: "given-up", Body: Readable.from(endless()) } });
    given.on("httpUploadProgress", () => void given.abort());
    await assert.rejects(given.done(), { name: "AbortError" });
    const open = await s3.send(new ListMultipartUploadsCommand({ Bucket: bucket }));
    for (const { Key, UploadId } of open.Uploads ?? []) {
      // The library's own abort may come first.
      await s3.send(new AbortMultipartUploadCommand({ Bucket: bucket, Key, UploadId })).catch((error) => {
        assert.equal(error.name, "NoSuchUpload");
      });
    }
    await assert.rejects(s3.send(new HeadObjectCommand({ Bucket: bucket, Key: "given-up" })), { name: "NotFound" });
  },

  // The browser's form: what its policy allows goes up, what it does not is refused.
  async form() {
    const { url, fields } = await createPresignedPost(s3, {
      Bucket: bucket,
      Key: "forms/${filename}",
      Conditions: [
        ["content-length-range", 1, 1000],
        ["starts-with", "$key", "forms/"],
      ],
      Fields: { success_action_status: "201" },
      Expires: 60,
    });
    const post = async (content) => {
      const form = new FormData();
      for (const [name, value] of Object.entries(fields)) form.append(name, value);
      form.append("file", new Blob([content]), "posted.txt");
      return fetch(url, { method: "POST", body: form });
    };
    const created = await post("posted");
    assert.equal(created.status, 201, await created.text());
    assert.equal((await bytesOf("forms/posted.txt")).toString(), "posted");
    const large = await post("x".repeat(1001));
    assert.equal(large.status, 400);
    assert.match(await large.text(), /<Code>EntityTooLarge<\/Code>/);
  },
};

await checks[check]();
