"""What the server says about how things are stored, by headers and by its statistics."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from outside.clients import S3Client
from outside.server import Server, until

PARTS_OF_STORED = ("exclusive", "shared", "base_only", "overhead", "tombstoned", "inline")
"""Every stored byte is in exactly one of these."""


@dataclass(frozen=True)
class Stored:
    """The `x-deltaweir-*` headers of an object."""

    form: str
    stored_bytes: int
    bases: tuple[str, ...]
    reason: str


def stored(s3: S3Client, bucket: str, key: str) -> Stored:
    """How an object is stored, as HEAD tells."""
    headers: dict[str, str] = s3.head_object(Bucket=bucket, Key=key)["ResponseMetadata"]["HTTPHeaders"]
    return Stored(
        headers["x-deltaweir-form"],
        int(headers["x-deltaweir-stored-bytes"]),
        tuple(base for base in headers.get("x-deltaweir-base", "").split(",") if base),
        headers["x-deltaweir-reason"],
    )


def bucket_stats(server: Server, bucket: str) -> dict[str, Any]:
    """A bucket's entry in `GET /api/v1/stats`."""
    (found,) = (entry for entry in server.admin("/api/v1/stats")["buckets"] if entry["name"] == bucket)
    return dict(found)


def kept_bytes(server: Server, bucket: str) -> int:
    """What a bucket will take after the next collection."""
    taken: dict[str, int] = bucket_stats(server, bucket)["stored"]
    return taken["total"] - taken["tombstoned"]


def collect(server: Server) -> None:
    """Until nothing dead is left: a delta that is purged may free its base."""
    for _ in range(3):
        server.run("gc", "--now")


def assert_accounts_balance(server: Server) -> None:
    """Σ stored = exclusive + shared + kept-only-as-base + overhead + tombstoned + inline, in each bucket and in all;
    and what the catalog says lies on the backend is what lies there, once no job is between the two."""
    stats = server.admin("/api/v1/stats")
    for entry in (*stats["buckets"], stats["totals"]):
        assert entry["stored"]["total"] == sum(entry["stored"][part] for part in PARTS_OF_STORED), entry
    for part in ("objects", "logical_bytes"):
        assert stats["totals"][part] == sum(entry[part] for entry in stats["buckets"])
    on_backends = sum(entry["stored_bytes"] for entry in stats["backends"])
    assert on_backends == stats["totals"]["stored"]["total"] - stats["totals"]["stored"]["inline"]
    with contextlib.suppress(AssertionError):
        until(lambda: counted_bytes(server) == sum(lying(server).values()), 30, "as many bytes on disk as are counted")
    files = lying(server)
    assert counted_bytes(server) == sum(files.values()), f"files: {files}"


def counted_bytes(server: Server) -> int:
    """What the catalog says lies on the backends."""
    return sum(entry["stored_bytes"] for entry in server.admin("/api/v1/stats")["backends"])


def lying(server: Server) -> dict[str, int]:
    """The files of the local backend, and how long each is. One that a job takes away meanwhile counts nothing."""
    sizes = {}
    for path in server.blob_files():
        with contextlib.suppress(FileNotFoundError):
            sizes[str(path.relative_to(server.blobs))] = path.stat().st_size
    return sizes
