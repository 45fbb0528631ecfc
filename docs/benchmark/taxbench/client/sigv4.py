"""SigV4 signatures, made by botocore's signer so that they are the ones an SDK would send."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from taxbench.client.endpoint import Endpoint

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
SIGNATURE_AGE_MAX_S = 300.0
"""S3 refuses signatures older than 15 minutes; ours are renewed long before that."""


class _HashGiven(S3SigV4Auth):  # type: ignore[misc]
    """botocore's S3 signer, with the payload hash handed in instead of computed from a body."""

    def __init__(self, credentials: Credentials, region: str, payload_hash: str) -> None:
        super().__init__(credentials, "s3", region)
        self._payload_hash = payload_hash

    def payload(self, request: Any) -> str:
        del request  # its body is not here: it goes from the file to the socket
        return self._payload_hash


@dataclass(slots=True)
class SignedHead:
    """A request head ready to be sent: method, target and headers in order. Costs nothing at send time."""

    method: str
    target: str
    head: bytes
    signed_at_s: float = field(default_factory=time.monotonic)

    @property
    def stale(self) -> bool:
        return time.monotonic() - self.signed_at_s > SIGNATURE_AGE_MAX_S


def sign(
    endpoint: Endpoint,
    method: str,
    path: str,
    query: str = "",
    headers: dict[str, str] | None = None,
    body_len: int = 0,
    body_sha256: str = EMPTY_SHA256,
) -> SignedHead:
    """Builds and signs a request head.

    `query` must be percent-encoded and sorted already. `body_sha256` is used as it is unless the endpoint asks for
    unsigned payloads.
    """
    target = path + (f"?{query}" if query else "")
    wanted = {"Host": endpoint.authority, **(headers or {})}
    if method in ("PUT", "POST") or body_len:
        wanted["Content-Length"] = str(body_len)
    if endpoint.signing == "sigv4":
        payload_hash = body_sha256 if endpoint.payload_hash == "precomputed" or not body_len else UNSIGNED_PAYLOAD
        scheme = "https" if endpoint.tls else "http"
        request = AWSRequest(method=method, url=f"{scheme}://{endpoint.authority}{target}", headers=wanted)
        credentials = Credentials(endpoint.access_key_id, endpoint.secret_access_key)
        _HashGiven(credentials, endpoint.region, payload_hash).add_auth(request)
        wanted = dict(request.headers.items())
        wanted.setdefault("Host", endpoint.authority)
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in wanted.items())]
    return SignedHead(method=method, target=target, head=("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
