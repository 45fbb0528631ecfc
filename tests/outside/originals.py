"""A bucket of somebody else's that is adopted: plain objects with everything that can stand beside content."""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass

from outside.clients import S3Client
from outside.content import KIB, release, text
from outside.server import Value
from outside.store import Store

BUCKET = "old"


@dataclass(frozen=True)
class Original:
    """One object as it was written."""

    key: str
    content: bytes
    content_type: str
    metadata: dict[str, str]


def original(number: int, size: int) -> Original:
    """Series of twenty releases, and logs."""
    series, version = divmod(number, 20)
    if series % 2 == 0:
        content, key = release(series, size, version), f"builds/app-{series}/app-{version}.bin"
    else:
        content, key = text(number, size), f"logs/{series}/day-{version}.log"
    return Original(key, content, "application/x-test", {"number": str(number), "note": "a b"})


def table(store: Store, **more: Value) -> dict[str, Value]:
    """The configuration of the bucket as a store of plain objects."""
    return store.table() | {"bucket": BUCKET, "prefix": ""} | more


def fill(store: Store, count: int, size: int = 24 * KIB, bucket: str = BUCKET) -> dict[str, Original]:
    """Writes `count` objects, and gives them by key."""
    s3 = store.client()
    s3.create_bucket(Bucket=bucket)

    def put(number: int) -> Original:
        made = original(number, size)
        s3.put_object(
            Bucket=bucket,
            Key=made.key,
            Body=made.content,
            ContentType=made.content_type,
            CacheControl="max-age=60",
            Metadata=made.metadata,
        )
        return made

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return {made.key: made for made in pool.map(put, range(count))}


def listed(s3: S3Client, bucket: str) -> dict[str, tuple[int, str]]:
    """Size and ETag of every key of a bucket."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return {found["Key"]: (found["Size"], found["ETag"]) for page in pages for found in page.get("Contents", [])}
