"""The admin API, behind one adapter: the only place that knows what its JSON looks like."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

REQUEST_TIMEOUT_S = 30.0
COLLECT_TIMEOUT_S = 300.0

T = TypeVar("T", bound=BaseModel)


class AdminError(RuntimeError):
    """The admin API did not answer, or not with what it promises."""


class StoredParts(BaseModel):
    """Where stored bytes are, by cause. The parts must add up to `total` (the accounting identity of the design)."""

    model_config = ConfigDict(extra="ignore")

    exclusive: int = 0
    shared: int = 0
    base_only: int = 0
    overhead: int = 0
    tombstoned: int = 0
    inline: int = 0
    total: int = 0

    @property
    def parts_sum(self) -> int:
        return self.exclusive + self.shared + self.base_only + self.overhead + self.tombstoned + self.inline


class Account(BaseModel):
    """Objects and bytes of one bucket, or of the whole store."""

    model_config = ConfigDict(extra="ignore")

    name: str = ""
    objects: int = 0
    logical_bytes: int = 0
    stored: StoredParts = Field(default_factory=StoredParts)


class BackendAccount(BaseModel):
    """What the server believes one backend holds."""

    model_config = ConfigDict(extra="ignore")

    name: str
    stored_bytes: int
    blobs: int = 0


class Stats(BaseModel):
    """`GET /api/v1/stats`."""

    model_config = ConfigDict(extra="ignore")

    buckets: list[Account] = Field(default_factory=list)
    totals: Account = Field(default_factory=Account)
    backends: list[BackendAccount] = Field(default_factory=list)

    def bucket(self, name: str) -> Account:
        """The account of a bucket; an empty one when the store does not know it."""
        return next((b for b in self.buckets if b.name == name), Account(name=name))


class BucketMode(BaseModel):
    """What a bucket really does, as the admin API says it."""

    model_config = ConfigDict(extra="ignore")

    name: str
    compression: str = ""
    encryption: str = ""
    effort: str = ""


@dataclass(frozen=True, slots=True)
class AdminClient:
    """Calls the admin API. Every call is bounded in time."""

    url: str
    token: str = ""

    def stats(self) -> Stats:
        return _parse(Stats, self._json("GET", "/api/v1/stats"))

    def raw_stats(self) -> dict[str, Any]:
        """The answer as it came, for the record."""
        found = self._json("GET", "/api/v1/stats")
        return found if isinstance(found, dict) else {"answer": found}

    def buckets(self) -> list[BucketMode]:
        found = self._json("GET", "/api/v1/buckets")
        listed = found.get("buckets", []) if isinstance(found, dict) else found
        return [_bucket_mode(entry) for entry in listed]

    def settle(self, timeout_s: float) -> bool:
        """Waits for background work. `False` when it was not done in time; then results say so."""
        path = f"/api/v1/settle?timeout_s={max(1, round(timeout_s))}"
        try:
            found = self._json("POST", path, timeout_s=timeout_s + REQUEST_TIMEOUT_S)
        except AdminError as error:
            if "HTTP 408" in str(error) or "HTTP 503" in str(error) or "HTTP 504" in str(error):
                return False
            raise
        return bool(found.get("settled", True)) if isinstance(found, dict) else True

    def drop_caches(self) -> None:
        self._call("POST", "/api/v1/cache/drop", REQUEST_TIMEOUT_S)

    def collect(self, timeout_s: float = COLLECT_TIMEOUT_S) -> bool:
        """Asks for collection now, so that what was deleted is gone before the next cell. `False`: not offered."""
        try:
            self._call("POST", "/api/v1/gc?now=true", timeout_s)
        except AdminError as error:
            if "HTTP 404" in str(error):
                return False
            raise
        return True

    def run_job(self, name: str, timeout_s: float) -> dict[str, Any]:
        """Runs a background job and gives its state when it has ended.

        # Errors
        `AdminError` when it is not there, is refused, or has not ended in time.
        """
        run = self._json("POST", f"/api/v1/jobs/{name}")["run"]
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            job = self._json("GET", f"/api/v1/jobs/{name}")
            if isinstance(job, dict) and (job.get("run") != run or not job.get("running")):
                return job
            time.sleep(0.02)
        raise AdminError(f"job {name} had not ended after {timeout_s:.0f} s")

    def ready(self) -> bool:
        try:
            self._call("GET", "/readyz", 2.0)
        except AdminError:
            return False
        return True

    def metrics(self) -> str:
        return self._call("GET", "/metrics", REQUEST_TIMEOUT_S).decode("utf-8", "replace")

    def _json(self, method: str, path: str, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        body = self._call(method, path, timeout_s)
        if not body.strip():
            return {}
        try:
            return json.loads(body)
        except ValueError as error:
            raise AdminError(f"{method} {path}: not JSON: {body[:200]!r}") from error

    def _call(self, method: str, path: str, timeout_s: float) -> bytes:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(self.url.rstrip("/") + path, method=method, headers=headers)
        if request.type not in ("http", "https"):
            raise AdminError(f"{self.url}: only http and https are called")
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise AdminError(f"{method} {path}: HTTP {error.code}: {error.read(300)!r}") from error
        except OSError as error:
            raise AdminError(f"{method} {path}: {error}") from error


def fetch_text(url: str, token: str = "") -> str:
    """The body behind any URL of an operator's (`--metrics-url`, `--health-url`).

    # Errors
    `AdminError` when it does not answer.
    """
    split = urllib.parse.urlsplit(url)
    path = split.path + (f"?{split.query}" if split.query else "")
    client = AdminClient(f"{split.scheme}://{split.netloc}", token)
    return client._call("GET", path or "/", REQUEST_TIMEOUT_S).decode("utf-8", "replace")


def _bucket_mode(entry: Any) -> BucketMode:
    """Settings may stand beside the name or in an object of their own (`settings`, `config`)."""
    if not isinstance(entry, dict):
        raise AdminError(f"a bucket is not an object: {entry!r}")
    nested = entry.get("settings") or entry.get("config") or {}
    return _parse(BucketMode, {**entry, **nested})


def _parse(kind: type[T], value: Any) -> T:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise AdminError(f"unexpected {kind.__name__}: {error.errors()[:3]}") from error
