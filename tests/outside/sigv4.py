"""AWS Signature Version 4, written out so that a test can bend any part of it.

SDK signers only make good requests. Everything here is a plain function of its arguments, and `test_sigv4.py` holds the
good ones against botocore's signer.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, unquote_plus

from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

UNSIGNED = "UNSIGNED-PAYLOAD"
STREAMING = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
STREAMING_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
STREAMING_UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()

Header = tuple[str, str]


@dataclass(frozen=True)
class Scope:
    """Who signs, when, and for what."""

    key_id: str = ACCESS_KEY_ID
    secret: str = SECRET_ACCESS_KEY
    region: str = REGION
    service: str = "s3"
    terminator: str = "aws4_request"
    time: datetime | None = None
    date: str | None = None
    """The scope's date, when it is to differ from the time's."""

    def __post_init__(self) -> None:
        if self.time is None:
            object.__setattr__(self, "time", datetime.now(UTC))

    @property
    def amz_date(self) -> str:
        """`20261120T154259Z`."""
        assert self.time is not None
        return self.time.strftime("%Y%m%dT%H%M%SZ")

    @property
    def path(self) -> str:
        """`20261120/us-east-1/s3/aws4_request`."""
        return "/".join((self.date or self.amz_date[:8], self.region, self.service, self.terminator))

    def sign(self, text: str) -> str:
        """The hex signature of a string to sign."""
        key = f"AWS4{self.secret}".encode()
        for step in self.path.split("/"):
            key = hmac.digest(key, step.encode(), "sha256")
        return hmac.digest(key, text.encode(), "sha256").hex()


def canonical_query(query: str, without: str | None = None) -> str:
    """The query string sorted and encoded as the signature wants it."""
    pairs = [part.partition("=")[::2] for part in query.split("&") if part]
    decoded = [(unquote_plus(name), unquote_plus(value)) for name, value in pairs]
    encoded = sorted((quote(name, safe="~"), quote(value, safe="~")) for name, value in decoded if name != without)
    return "&".join(f"{name}={value}" for name, value in encoded)


def canonical_request(
    method: str, target: str, headers: Sequence[Header], signed: Sequence[str], payload: str, without: str | None = None
) -> str:
    """The canonical request over the raw path of `target`; `signed` are lower-case names in order."""
    path, _, query = target.partition("?")
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name.lower(), []).append(" ".join(value.split()))
    lines = [f"{name}:{','.join(values.get(name, ['']))}" for name in signed]
    return "\n".join((method, path, canonical_query(query, without), *lines, "", ";".join(signed), payload))


def string_to_sign(scope: Scope, canonical: str) -> str:
    """The string to sign of a request."""
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogateescape")).hexdigest()
    return f"AWS4-HMAC-SHA256\n{scope.amz_date}\n{scope.path}\n{digest}"


def authorize(
    scope: Scope,
    method: str,
    target: str,
    headers: Sequence[Header],
    payload: str,
    signed: Sequence[str] | None = None,
) -> tuple[list[Header], str]:
    """The headers with `X-Amz-Date`, `X-Amz-Content-Sha256` and `Authorization` added, and the signature (the seed of a
    chunked body). `signed`: the names to sign, by default every header there is."""
    present = [*headers, ("X-Amz-Date", scope.amz_date), ("X-Amz-Content-Sha256", payload)]
    names = sorted({name.lower() for name, _ in present}) if signed is None else list(signed)
    signature = scope.sign(string_to_sign(scope, canonical_request(method, target, present, names, payload)))
    fields = f"Credential={scope.key_id}/{scope.path}, SignedHeaders={';'.join(names)}, Signature={signature}"
    return [*present, ("Authorization", f"AWS4-HMAC-SHA256 {fields}")], signature


def presign(
    scope: Scope,
    method: str,
    target: str,
    headers: Sequence[Header],
    expires: str = "600",
    signed: Sequence[str] | None = None,
) -> str:
    """The target with the signature in its query. `headers` must hold `Host`; every one given is signed by default."""
    names = sorted(name.lower() for name, _ in headers) if signed is None else list(signed)
    fields = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{scope.key_id}/{scope.path}",
        "X-Amz-Date": scope.amz_date,
        "X-Amz-Expires": expires,
        "X-Amz-SignedHeaders": ";".join(names),
    }
    path, _, query = target.partition("?")
    added = "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items())
    unsigned = f"{path}?{query}&{added}" if query else f"{path}?{added}"
    canonical = canonical_request(method, unsigned, headers, names, UNSIGNED)
    return f"{unsigned}&X-Amz-Signature={scope.sign(string_to_sign(scope, canonical))}"


def chunk_signature(scope: Scope, previous: str, data: bytes) -> str:
    """The signature of one chunk, chained to the one before."""
    digest = hashlib.sha256(data).hexdigest()
    return scope.sign(f"AWS4-HMAC-SHA256-PAYLOAD\n{scope.amz_date}\n{scope.path}\n{previous}\n{EMPTY_SHA256}\n{digest}")


def trailer_signature(scope: Scope, previous: str, trailer: str) -> str:
    """The signature of the trailing headers, each `name:value` and a newline."""
    digest = hashlib.sha256(trailer.encode()).hexdigest()
    return scope.sign(f"AWS4-HMAC-SHA256-TRAILER\n{scope.amz_date}\n{scope.path}\n{previous}\n{digest}")


def chunked(scope: Scope, seed: str, chunks: Sequence[bytes], trailer: Header | None = None) -> bytes:
    """A signed aws-chunked body; the empty last chunk is added."""
    out: list[bytes] = []
    previous = seed
    for data in (*chunks, b""):
        previous = chunk_signature(scope, previous, data)
        out.append(b"%x;chunk-signature=%s\r\n%s" % (len(data), previous.encode(), data + b"\r\n" if data else b""))
    if trailer is None:
        return b"".join((*out, b"\r\n"))
    signature = trailer_signature(scope, previous, f"{trailer[0]}:{trailer[1]}\n")
    out.append(f"{trailer[0]}:{trailer[1]}\r\nx-amz-trailer-signature:{signature}\r\n\r\n".encode())
    return b"".join(out)


def chunked_unsigned(chunks: Sequence[bytes], trailer: Header | None) -> bytes:
    """An aws-chunked body without signatures."""
    framed = [b"%x\r\n%s\r\n" % (len(data), data) for data in chunks]
    end = b"" if trailer is None else f"{trailer[0]}:{trailer[1]}\r\n".encode()
    return b"".join((*framed, b"0\r\n", end, b"\r\n"))
