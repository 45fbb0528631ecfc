"""Where requests go and how they are signed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, urlsplit

Signing = Literal["sigv4", "none"]
PayloadHash = Literal["precomputed", "unsigned"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An HTTP(S) endpoint with path-style buckets.

    `payload_hash` `precomputed` sends the body's SHA-256 as SDKs do over plain HTTP, computed before the clock starts;
    `unsigned` sends UNSIGNED-PAYLOAD. `signing` `none` is for plain file servers. `retries` counts repeats of a request
    after 500, 502, 503, 504 or a connection that broke before an answer; they are timed and reported, never hidden.
    """

    url: str
    access_key_id: str = ""
    secret_access_key: str = ""
    region: str = "us-east-1"
    signing: Signing = "sigv4"
    payload_hash: PayloadHash = "precomputed"
    timeout_s: float = 120.0
    retries: int = 2
    ca_file: str = ""

    @property
    def tls(self) -> bool:
        return urlsplit(self.url).scheme == "https"

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or (443 if self.tls else 80)

    @property
    def authority(self) -> str:
        """The Host header: the port is left out when it is the scheme's own."""
        return self.host if self.port == (443 if self.tls else 80) else f"{self.host}:{self.port}"

    def path(self, bucket: str, key: str = "") -> str:
        """The percent-encoded path of a bucket or an object, below the endpoint's own path if it has one."""
        prefix = urlsplit(self.url).path.rstrip("/")
        return f"{prefix}/{quote(bucket)}" + (f"/{quote(key, safe='/~-._')}" if key else "")
