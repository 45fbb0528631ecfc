"""The table of requests that must be refused: what is wrong with each, and what S3 says to it.

Numbers are those of the threat model's negative cases (docs/threat-model.md). Each entry makes the bytes that go on the
wire; `test_bad_input.py` sends them and checks the answer, that nothing was stored, and the state of the connection.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from typing import Any

from outside.content import md5
from outside.server import SECRET_ACCESS_KEY
from outside.sigv4 import (
    EMPTY_SHA256,
    STREAMING,
    STREAMING_TRAILER,
    STREAMING_UNSIGNED_TRAILER,
    UNSIGNED,
    Header,
    Scope,
    authorize,
    chunked,
    chunked_unsigned,
    presign,
)
from outside.wire import encode, signed

BODY = b"bytes that must not be stored"
SHA_BODY = hashlib.sha256(BODY).hexdigest()


@dataclass(frozen=True)
class Place:
    """Where a bad request goes: a bucket that holds `sentinel` and an open upload of `upload`."""

    host: str
    bucket: str
    upload_id: str

    @property
    def key(self) -> str:
        """The path of the key the bad PUTs aim at."""
        return f"/{self.bucket}/victim"


@dataclass(frozen=True)
class Bad:
    """One entry of the table."""

    case: str
    status: int
    code: str | None
    """`None` where the answer has no document: HEAD, or a request the HTTP layer refuses."""
    make: Callable[[Place], bytes]
    method: str = "PUT"
    closes: bool = False
    """Whether the connection must be closed after the answer, because nobody can know where the next request begins."""
    direct: bool = False
    """Whether a balancer in front would refuse it by itself, in its own words."""


TABLE: list[Bad] = []


def bad(
    case: str, status: int, code: str | None, method: str = "PUT", closes: bool = False, direct: bool = False
) -> Callable[[Callable[[Place], bytes]], None]:
    """Adds an entry whose bytes the decorated function makes."""

    def add(make: Callable[[Place], bytes]) -> None:
        TABLE.append(Bad(case, status, code, make, method, closes, direct))

    return add


def put(
    at: Place,
    *,
    headers: Sequence[Header] = (),
    body: bytes = BODY,
    payload: str | None = None,
    scope: Scope | None = None,
    **query: str,
) -> bytes:
    """A PUT of the victim that is right but for what the arguments make wrong."""
    target = at.key + ("?" + "&".join(f"{name}={value}" for name, value in query.items()) if query else "")
    return signed(at.host, "PUT", target, headers, body, payload, scope)


def unsigned_header(at: Place, method: str, target: str, extra: Sequence[Header], body: bytes = b"") -> bytes:
    """A signed request with headers added that the signature does not cover."""
    payload = hashlib.sha256(body).hexdigest()
    base = [("Host", at.host)]
    headers, _ = authorize(Scope(), method, target, base, payload)
    length = [("Content-Length", str(len(body)))] if method in ("PUT", "POST") else []
    return encode(method, target, [*headers, *extra, *length], body)


def streaming(
    at: Place,
    mode: str,
    make_body: Callable[[Scope, str], bytes],
    extra: Sequence[Header] = (),
    length: str | None = None,
) -> bytes:
    """An aws-chunked PUT whose body is made from the seed signature."""
    scope = Scope()
    announced = str(len(BODY)) if length is None else length
    headers: list[Header] = [("Host", at.host), ("Content-Encoding", "aws-chunked"), *extra]
    if announced:
        headers.append(("X-Amz-Decoded-Content-Length", announced))
    complete, seed = authorize(scope, "PUT", at.key, headers, mode)
    body = make_body(scope, seed)
    return encode("PUT", at.key, [*complete, ("Content-Length", str(len(body)))], body)


def presigned(at: Place, method: str, headers: Sequence[Header] = (), body: bytes = b"", **more: Any) -> bytes:
    """A request by presigned URL; `sent` replaces the method, `added` is put behind the signed query."""
    sent: str = more.pop("sent", method)
    added: str = more.pop("added", "")
    scope: Scope = more.pop("scope", Scope())
    target = presign(scope, method, at.key, [("Host", at.host)], **more) + added
    length = [("Content-Length", str(len(body)))] if body else []
    return encode(sent, target, [("Host", at.host), *headers, *length], body)


# Signatures (C1)


@bad("C1 a copy source added to a presigned PUT", 403, "AccessDenied")
def _(at: Place) -> bytes:
    return presigned(at, "PUT", [("x-amz-copy-source", f"/{at.bucket}/sentinel"), ("Content-Length", "0")])


@bad("C2 an unsigned x-amz-meta on a signed request", 403, "AccessDenied")
def _(at: Place) -> bytes:
    return unsigned_header(at, "PUT", at.key, [("x-amz-meta-a", "b")], BODY)


for header, value in (
    ("x-amz-tagging", "a=b"),
    ("x-amz-acl", "public-read"),
    ("x-amz-storage-class", "GLACIER"),
    ("x-amz-website-redirect-location", "/x"),
):

    @bad(f"C3 an unsigned {header} on a presigned PUT", 403, "AccessDenied")
    def _(at: Place, name: str = header, text: str = value) -> bytes:
        return presigned(at, "PUT", [(name, text)], BODY)


@bad("C4 an unsigned trailer body under a made-up signature", 403, "SignatureDoesNotMatch")
def _(at: Place) -> bytes:
    body = chunked_unsigned([BODY], ("x-amz-checksum-crc32", "AAAAAA=="))
    extra = [("X-Amz-Decoded-Content-Length", str(len(BODY))), ("X-Amz-Trailer", "x-amz-checksum-crc32")]
    return signed(at.host, "PUT", at.key, extra, body, STREAMING_UNSIGNED_TRAILER, Scope(secret="guessed"))


@bad("C5 an unsigned trailer body with a made-up query signature", 403, None)
def _(at: Place) -> bytes:
    headers = [("Host", at.host), ("X-Amz-Content-Sha256", STREAMING_UNSIGNED_TRAILER)]
    body = chunked_unsigned([BODY], None)
    target = presign(Scope(secret="guessed"), "PUT", at.key, headers)
    return encode(
        "PUT",
        target,
        [*headers, ("X-Amz-Decoded-Content-Length", str(len(BODY))), ("Content-Length", str(len(body)))],
        body,
    )


@bad("C8 a chunk that declares more bytes than follow", 400, "IncompleteBody")
def _(at: Place) -> bytes:
    def body(scope: Scope, seed: str) -> bytes:
        return chunked(scope, seed, [BODY]).replace(b"%x;" % len(BODY), b"%x;" % (len(BODY) + 400), 1)

    return streaming(at, STREAMING, body, length=str(len(BODY) + 400))


@bad("C9 a chunk with another chunk's signature", 403, "SignatureDoesNotMatch")
def _(at: Place) -> bytes:
    return streaming(at, STREAMING, lambda scope, seed: chunked(scope, seed[::-1], [BODY]))


@bad("C9 chunks in another order", 403, "SignatureDoesNotMatch")
def _(at: Place) -> bytes:
    half = len(BODY) // 2

    def body(scope: Scope, seed: str) -> bytes:
        whole = chunked(scope, seed, [BODY[:half], BODY[half:]])
        sizes = (b"%x;" % half, b"%x;" % (len(BODY) - half))
        at_second = whole.index(sizes[1], 10)
        at_last = whole.index(b"\r\n0;") + 2
        return whole[at_second:at_last] + whole[:at_second] + whole[at_last:]

    return streaming(at, STREAMING, body)


@bad("C9 a changed byte in a signed chunk", 403, "SignatureDoesNotMatch")
def _(at: Place) -> bytes:
    return streaming(at, STREAMING, lambda scope, seed: chunked(scope, seed, [BODY]).replace(b"bytes", b"Bytes"))


@bad("C10 no final chunk", 400, "IncompleteBody")
def _(at: Place) -> bytes:
    return streaming(at, STREAMING, lambda scope, seed: chunked(scope, seed, [BODY]).split(b"\r\n0;")[0] + b"\r\n")


@bad("C10 a trailer checksum of other bytes", 400, "BadDigest")
def _(at: Place) -> bytes:
    trailer = ("x-amz-checksum-crc32", base64.b64encode(b"\0\0\0\1").decode())
    extra = [("X-Amz-Trailer", trailer[0])]
    return streaming(at, STREAMING_UNSIGNED_TRAILER, lambda *_: chunked_unsigned([BODY], trailer), extra)


@bad("C10 a trailer that was announced and is missing", 400, "MalformedTrailerError")
def _(at: Place) -> bytes:
    extra = [("X-Amz-Trailer", "x-amz-checksum-crc32")]
    return streaming(at, STREAMING_UNSIGNED_TRAILER, lambda *_: chunked_unsigned([BODY], None), extra)


@bad("C10 a wrong trailer signature", 403, "SignatureDoesNotMatch")
def _(at: Place) -> bytes:
    trailer = ("x-amz-checksum-sha256", base64.b64encode(hashlib.sha256(BODY).digest()).decode())

    def body(scope: Scope, seed: str) -> bytes:
        whole = chunked(scope, seed, [BODY], trailer)
        start = whole.index(b"x-amz-trailer-signature:") + 24
        return whole[:start] + b"0" * 64 + whole[start + 64 :]

    return streaming(at, STREAMING_TRAILER, body, [("X-Amz-Trailer", trailer[0])])


for length, status, code in (
    ("", 411, "MissingContentLength"),
    ("-1", 411, "MissingContentLength"),
    ("99999999999999999999999", 411, "MissingContentLength"),
    ("1x", 411, "MissingContentLength"),
):

    @bad(f"C11 a decoded length of {length or 'nothing'}", status, code)
    def _(at: Place, text: str = length) -> bytes:
        return streaming(at, STREAMING, lambda scope, seed: chunked(scope, seed, [BODY]), length=text)


for difference in (-1, 1):

    @bad(f"C11 a decoded length {difference:+} from the truth", 400, "IncompleteBody")
    def _(at: Place, wrong: int = difference) -> bytes:
        return streaming(at, STREAMING, lambda scope, seed: chunked(scope, seed, [BODY]), length=str(len(BODY) + wrong))


@bad("C12 a body that is not the one whose hash was signed", 400, "XAmzContentSHA256Mismatch")
def _(at: Place) -> bytes:
    return put(at, payload=hashlib.sha256(b"another").hexdigest())


@bad("C13 a presigned URL one second past its end", 403, "AccessDenied", "GET")
def _(at: Place) -> bytes:
    return presigned(at, "GET", scope=Scope(time=datetime.now(UTC) - timedelta(seconds=61)), expires="60")


@bad("C13 a presigned URL that lives no second", 403, "AccessDenied", "GET")
def _(at: Place) -> bytes:
    return presigned(at, "GET", expires="0")


for expires in ("-1", "604801", "1.5", "x"):

    @bad(f"C13 X-Amz-Expires of {expires}", 400, "AuthorizationQueryParametersError", "GET")
    def _(at: Place, seconds: str = expires) -> bytes:
        return presigned(at, "GET", expires=seconds)


for minutes in (-16, 16):

    @bad(f"C14 a clock {minutes:+} minutes off", 403, "RequestTimeTooSkewed")
    def _(at: Place, off: int = minutes) -> bytes:
        return put(at, scope=Scope(time=datetime.now(UTC) + timedelta(minutes=off)))


for part, value in (("date", "20200101"), ("region", "eu-west-9"), ("service", "sts"), ("terminator", "aws3_request")):

    @bad(f"C15 a scope with the {part} {value}", 400, "AuthorizationHeaderMalformed")
    def _(at: Place, name: str = part, text: str = value) -> bytes:
        changed: dict[str, Any] = {name: text}
        return put(at, scope=replace(Scope(), **changed))


@bad("C16 a signature in the header and one in the query", 400, "InvalidArgument", "GET")
def _(at: Place) -> bytes:
    target = presign(Scope(), "GET", at.key, [("Host", at.host)])
    headers, _ = authorize(Scope(), "GET", target, [("Host", at.host)], EMPTY_SHA256)
    return encode("GET", target, headers)


@bad("C17 two Authorization headers", 400, None, "GET")
def _(at: Place) -> bytes:
    headers, _ = authorize(Scope(), "GET", at.key, [("Host", at.host)], EMPTY_SHA256)
    return encode("GET", at.key, [*headers, headers[-1]])


@bad("C17 two X-Amz-Date headers", 400, None, "GET")
def _(at: Place) -> bytes:
    headers, _ = authorize(Scope(), "GET", at.key, [("Host", at.host)], EMPTY_SHA256)
    return encode("GET", at.key, [*headers, ("X-Amz-Date", "20200101T000000Z")])


@bad("C17 two Host headers", 400, None, "GET")
def _(at: Place) -> bytes:
    headers, _ = authorize(Scope(), "GET", at.key, [("Host", at.host)], EMPTY_SHA256)
    return encode("GET", at.key, [*headers, ("Host", "elsewhere.example.com")])


for name in ("X-Amz-Signature", "X-Amz-Expires"):

    @bad(f"C18 {name} twice", 400, None, "GET")
    def _(at: Place, twice: str = name) -> bytes:
        return presigned(at, "GET", added=f"&{twice}=1")


@bad("C19 a signature that does not cover Host", 403, None, "GET")
def _(at: Place) -> bytes:
    headers, _ = authorize(
        Scope(), "GET", at.key, [("Host", at.host)], EMPTY_SHA256, ["x-amz-content-sha256", "x-amz-date"]
    )
    return encode("GET", at.key, headers)


@bad("C19 a presigned URL taken to another host", 403, "SignatureDoesNotMatch", "GET")
def _(at: Place) -> bytes:
    return encode("GET", presign(Scope(), "GET", at.key, [("Host", "elsewhere:9000")]), [("Host", at.host)])


@bad("C20 a signature over a header that is not there", 403, None, "GET")
def _(at: Place) -> bytes:
    names = ["host", "x-amz-content-sha256", "x-amz-date", "x-amz-meta-gone"]
    headers, _ = authorize(Scope(), "GET", at.key, [("Host", at.host)], EMPTY_SHA256, names)
    return encode("GET", at.key, headers)


for sent in ("PUT", "DELETE"):

    @bad(f"C21 a presigned GET sent as {sent}", 403, "SignatureDoesNotMatch", sent)
    def _(at: Place, method: str = sent) -> bytes:
        return presigned(at, "GET", body=BODY if method == "PUT" else b"", sent=method)


for query in ("&versionId=null", "&response-content-type=text/html", "&acl"):

    @bad(f"C21 {query} added to a presigned GET", 403, "SignatureDoesNotMatch", "GET")
    def _(at: Place, more: str = query) -> bytes:
        return presigned(at, "GET", added=more)


@bad("C22 a key nobody has", 403, "InvalidAccessKeyId")
def _(at: Place) -> bytes:
    return put(at, scope=Scope(key_id="AKIANOBODYHASTHIS000"))


@bad("C22 an empty secret", 403, "SignatureDoesNotMatch")
def _(at: Place) -> bytes:
    return put(at, scope=Scope(secret=""))


@bad("C23 a wrong signature of version 2 in the header", 403, "SignatureDoesNotMatch")
def _(at: Place) -> bytes:
    headers = [
        ("Host", at.host),
        ("Date", formatdate(usegmt=True)),
        ("Authorization", "AWS AKIATESTSOUTSIDE0001:c2lnbmF0dXJl"),
    ]
    return encode("PUT", at.key, [*headers, ("Content-Length", str(len(BODY)))], BODY)


@bad("C23 a wrong signature of version 2 in the query", 403, "SignatureDoesNotMatch", "GET")
def _(at: Place) -> bytes:
    query = "AWSAccessKeyId=AKIATESTSOUTSIDE0001&Signature=c2lnbmF0dXJl&Expires=1900000000"
    return encode("GET", f"{at.key}?{query}", [("Host", at.host)])


for token in ("AWS4-HMAC-SHA256x", "aws4-hmac-sha256", "AWS4-ECDSA-P256-SHA256"):

    @bad(f"C24 the algorithm {token}", 400, None, "GET")
    def _(at: Place, algorithm: str = token) -> bytes:
        headers, _ = authorize(Scope(), "GET", at.key, [("Host", at.host)], EMPTY_SHA256)
        return encode(
            "GET", at.key, [*headers[:-1], ("Authorization", headers[-1][1].replace("AWS4-HMAC-SHA256", algorithm))]
        )


@bad("C26 a session token nobody issued", 400, "InvalidToken")
def _(at: Place) -> bytes:
    return put(at, headers=[("X-Amz-Security-Token", "made-up")])


@bad("a signature whose secret is the right one with another last letter", 403, "SignatureDoesNotMatch")
def _(at: Place) -> bytes:
    return put(at, scope=Scope(secret=SECRET_ACCESS_KEY[:-1] + "e"))


@bad("a payload hash that is no hash", 400, "InvalidArgument")
def _(at: Place) -> bytes:
    return put(at, payload="not-a-hash")


@bad("no payload hash at all", 400, None)
def _(at: Place) -> bytes:
    scope = Scope()
    headers, _ = authorize(scope, "PUT", at.key, [("Host", at.host)], SHA_BODY, ["host", "x-amz-date"])
    kept = [(name, value) for name, value in headers if name != "X-Amz-Content-Sha256"]
    return encode("PUT", at.key, [*kept, ("Content-Length", str(len(BODY)))], BODY)


# Copies, paths, sub-resources (C2, C4)

for source in ("", "nobucket", "https://elsewhere/b/k", "arn:aws:s3:us-east-1:1:accesspoint/a/object/b"):

    @bad(f"C33 a copy from {source or 'nowhere'!r}", 400, "InvalidArgument")
    def _(at: Place, where: str = source) -> bytes:
        return put(at, headers=[("x-amz-copy-source", where)], body=b"")


@bad("C33 a copy from a bucket by way of ..", 404, "NoSuchKey")
def _(at: Place) -> bytes:
    return put(at, headers=[("x-amz-copy-source", f"{at.bucket}/../{at.bucket}/sentinel")], body=b"")


@bad("C36 a key with NUL", 400, "InvalidArgument", direct=True)
def _(at: Place) -> bytes:
    return signed(at.host, "PUT", f"/{at.bucket}/a%00b", body=BODY)


@bad("C69 two KiB and a byte of metadata", 400, "MetadataTooLarge")
def _(at: Place) -> bytes:
    return put(at, headers=[("x-amz-meta-a", "v" * 2048)])


@bad("C74 a key of 1025 bytes", 400, "KeyTooLongError")
def _(at: Place) -> bytes:
    return signed(at.host, "PUT", f"/{at.bucket}/{'k' * 1025}", body=BODY)


@bad("C74 a key that is not UTF-8", 400, "InvalidURI")
def _(at: Place) -> bytes:
    return signed(at.host, "PUT", f"/{at.bucket}/%ff%fe", body=BODY)


@bad("C74 half an escape", 400, "InvalidURI", direct=True)
def _(at: Place) -> bytes:
    return signed(at.host, "PUT", f"/{at.bucket}/%4", body=BODY)


for name in ("Upper", "a..b", "192.168.0.1", "ab", "xn--a", "-ab", "a" * 64, "a_b"):

    @bad(f"C75 the bucket name {name[:12]}", 400, "InvalidBucketName")
    def _(at: Place, bucket: str = name) -> bytes:
        return signed(at.host, "PUT", f"/{bucket}")


for query in ("torrent", "restore", "renameObject"):

    @bad(f"C83 PUT ?{query} is not a PUT", 501, "NotImplemented")
    def _(at: Place, sub: str = query) -> bytes:
        return signed(at.host, "PUT", f"{at.key}?{sub}", body=BODY)


for query in ("metadataTable", "session", "select", "torrent"):

    @bad(f"C83 GET bucket ?{query} is not a listing", 501, "NotImplemented", "GET")
    def _(at: Place, sub: str = query) -> bytes:
        return signed(at.host, "GET", f"/{at.bucket}?{sub}")


@bad("C83 DELETE ?restore does not delete", 501, "NotImplemented", "DELETE")
def _(at: Place) -> bytes:
    return signed(at.host, "DELETE", f"/{at.bucket}/sentinel?restore")


@bad("C103 an SSE-C algorithm without a key", 400, "InvalidArgument")
def _(at: Place) -> bytes:
    return put(at, headers=[("x-amz-server-side-encryption-customer-algorithm", "AES256")])


@bad("encryption by aws:kms:dsse", 501, "NotImplemented")
def _(at: Place) -> bytes:
    return put(at, headers=[("x-amz-server-side-encryption", "aws:kms:dsse")])


@bad("encryption by ROT13", 400, "InvalidArgument")
def _(at: Place) -> bytes:
    return put(at, headers=[("x-amz-server-side-encryption", "ROT13")])


@bad("C83 PUT ?acl is not a PUT", 400, "MalformedACLError")
def _(at: Place) -> bytes:
    return signed(at.host, "PUT", f"{at.key}?acl", body=BODY)


@bad("a canned ACL there is not", 400, "InvalidArgument")
def _(at: Place) -> bytes:
    return put(at, headers=[("x-amz-acl", "public-reed")])


@bad("a storage class there is not", 400, "InvalidStorageClass")
def _(at: Place) -> bytes:
    return put(at, headers=[("x-amz-storage-class", "SHINY")])


@bad("a tag in a header that stands twice", 400, "InvalidArgument")
def _(at: Place) -> bytes:
    return put(at, headers=[("x-amz-tagging", "a=b&a=c")])


# Digests and lengths


@bad("C78 a Content-MD5 of other bytes", 400, "BadDigest")
def _(at: Place) -> bytes:
    return put(at, headers=[("Content-MD5", base64.b64encode(bytes.fromhex(md5(b"other"))).decode())])


@bad("C78 a Content-MD5 that is none", 400, "InvalidDigest")
def _(at: Place) -> bytes:
    return put(at, headers=[("Content-MD5", "c2hvcnQ=")])


@bad("C78 two checksum headers", 400, "InvalidRequest")
def _(at: Place) -> bytes:
    return put(at, headers=[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-crc32c", "AAAAAA==")])


@bad("C78 a checksum of the wrong length", 400, "InvalidRequest")
def _(at: Place) -> bytes:
    return put(at, headers=[("x-amz-checksum-crc32", "AAAA")])


@bad("no length at all", 411, "MissingContentLength")
def _(at: Place) -> bytes:
    headers, _ = authorize(Scope(), "PUT", at.key, [("Host", at.host)], UNSIGNED)
    return encode("PUT", at.key, headers)


@bad("C77 If-None-Match with two tags on a PUT", 501, "NotImplemented")
def _(at: Place) -> bytes:
    return put(at, headers=[("If-None-Match", '"abc", "def"')])


# Documents

DOCUMENTS: list[tuple[str, bytes]] = [
    (
        "C70 an entity that reads a file",
        b'<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><Delete><Object><Key>&x;</Key></Object></Delete>',
    ),
    (
        "C70 a billion laughs",
        b'<!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><Delete><Object><Key>&b;</Key></Object></Delete>',
    ),
    ("C71 a depth of ten thousand", b"<Delete>" * 10_000 + b"</Delete>" * 10_000),
    ("C71 ten thousand attributes", b"<Delete " + b" ".join(b'a%d="1"' % number for number in range(10_000)) + b"/>"),
    ("C72 an empty list", b"<Delete></Delete>"),
    ("C72 1,001 keys", b"<Delete>" + b"<Object><Key>sentinel</Key></Object>" * 1001 + b"</Delete>"),
    ("no document", b"not xml"),
    ("a document cut in two", b"<Delete><Object><Key>sentinel</Key></Obj"),
    ("another document", b"<CompleteMultipartUpload/>"),
]

for case, document in DOCUMENTS:

    @bad(f"DeleteObjects: {case}", 400, "MalformedXML", "POST")
    def _(at: Place, body: bytes = document) -> bytes:
        digest = base64.b64encode(bytes.fromhex(md5(body))).decode()
        return signed(at.host, "POST", f"/{at.bucket}?delete", [("Content-MD5", digest)], body)


@bad("DeleteObjects without a digest of its document", 400, "InvalidRequest", "POST")
def _(at: Place) -> bytes:
    return signed(
        at.host, "POST", f"/{at.bucket}?delete", body=b"<Delete><Object><Key>sentinel</Key></Object></Delete>"
    )


# Multipart (C5)

for number in ("0", "-1", "10001", "4294967296", "x", "1&partNumber=2"):

    @bad(f"C84 part number {number}", 400, "InvalidArgument")
    def _(at: Place, text: str = number) -> bytes:
        return signed(at.host, "PUT", f"/{at.bucket}/upload?partNumber={text}&uploadId={at.upload_id}", body=BODY)


@bad("a part of an upload that does not exist", 404, "NoSuchUpload")
def _(at: Place) -> bytes:
    return signed(at.host, "PUT", f"/{at.bucket}/upload?partNumber=1&uploadId=made-up", body=BODY)


@bad("C43 a part of another key's upload", 404, "NoSuchUpload")
def _(at: Place) -> bytes:
    return signed(at.host, "PUT", f"{at.key}?partNumber=1&uploadId={at.upload_id}", body=BODY)


LISTS: list[tuple[str, str, bytes]] = [
    ("C72 no parts", "MalformedXML", b"<CompleteMultipartUpload></CompleteMultipartUpload>"),
    (
        "C72 10,001 parts",
        "MalformedXML",
        b"<CompleteMultipartUpload>"
        + b"".join(b"<Part><PartNumber>%d</PartNumber><ETag>a</ETag></Part>" % number for number in range(1, 10_002))
        + b"</CompleteMultipartUpload>",
    ),
    (
        "a part that is missing",
        "InvalidPart",
        b"<CompleteMultipartUpload><Part><PartNumber>7</PartNumber><ETag>a</ETag></Part></CompleteMultipartUpload>",
    ),
    (
        "a part without a number",
        "MalformedXML",
        b"<CompleteMultipartUpload><Part><ETag>a</ETag></Part></CompleteMultipartUpload>",
    ),
]

for case, code, document in LISTS:

    @bad(f"Complete: {case}", 400, code, "POST")
    def _(at: Place, body: bytes = document) -> bytes:
        return signed(at.host, "POST", f"/{at.bucket}/upload?uploadId={at.upload_id}", body=body)


# HTTP (C4)


def smuggled(at: Place, lines: Sequence[str]) -> bytes:
    """A signed PUT with header lines added as they are, and another request in what one parser takes for the body."""
    headers, _ = authorize(Scope(), "PUT", at.key, [("Host", at.host)], UNSIGNED)
    head = [f"PUT {at.key} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), *lines, "", ""]
    return "\r\n".join(head).encode() + b"0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"


for case, lines in (
    ("two Content-Lengths", ["Content-Length: 5", "Content-Length: 6"]),
    ("two equal Content-Lengths", ["Content-Length: 5", "Content-Length: 5"]),
    ("a list of equal Content-Lengths", ["Content-Length: 5, 5"]),
    ("two Transfer-Encodings", ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"]),
    ("a Transfer-Encoding before chunked", ["Transfer-Encoding: gzip, chunked"]),
    ("a Transfer-Encoding hidden by a blank", ["Content-Length: 5", "Transfer-Encoding : chunked"]),
    ("a carriage return alone", ["X-A: a\rContent-Length: 5"]),
    ("a Content-Length with a plus", ["Content-Length: +5"]),
    ("a Content-Length past 64 bits", ["Content-Length: 18446744073709551621"]),
    ("an unknown Transfer-Encoding", ["Transfer-Encoding: xchunked"]),
    ("a folded header", ["X-Folded: a", " b", "Content-Length: 5"]),
    ("a space before the colon", ["Content-Length : 5"]),
):

    @bad(f"C64 {case}", 400, None, closes=True, direct="Transfer-Encoding" in case)
    def _(at: Place, added: Sequence[str] = tuple(lines)) -> bytes:
        return smuggled(at, added)


for case, lines in (
    ("Content-Length and Transfer-Encoding", ["Content-Length: 5", "Transfer-Encoding: chunked"]),
    ("Transfer-Encoding and Content-Length", ["Transfer-Encoding: chunked", "Content-Length: 5"]),
    ("bare line feeds around a header", ["X-A: a\nContent-Length: 5"]),
    ("an empty line of a line feed alone", ["Content-Length: 5\n"]),
):

    @bad(f"C64 {case}", 400, None, closes=True, direct=True)
    def _(at: Place, added: Sequence[str] = tuple(lines)) -> bytes:
        return smuggled(at, added)


@bad("C67 a header with a bare line feed in it", 400, None, closes=True, direct=True)
def _(at: Place) -> bytes:
    return put(at, headers=[("x-amz-meta-a", "b")]).replace(
        b"x-amz-meta-a: b", b"x-amz-meta-a: b\nx-amz-acl: private", 1
    )


@bad("C80 a thousand headers", 431, None, "GET", direct=True)
def _(at: Place) -> bytes:
    return encode("GET", at.key, [("Host", at.host), *((f"X-H{number}", "v") for number in range(1000))])


@bad("no Host", 400, None, "GET")
def _(at: Place) -> bytes:
    return f"GET {at.key} HTTP/1.1\r\n\r\n".encode()


@bad("a method S3 does not have", 405, "MethodNotAllowed", "PATCH")
def _(at: Place) -> bytes:
    return signed(at.host, "PATCH", at.key)
