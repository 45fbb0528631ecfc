"""Many small similar objects: what they take together, and what reading one of them costs."""

from __future__ import annotations

import concurrent.futures
import functools
import hashlib
import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client
from outside.server import Server

WRITERS = 8
DEPENDENCIES = 400
WORDS = ("fast", "small", "typed", "parser", "client", "server", "for", "the")


def manifest(number: int) -> bytes:
    """A manifest, 1 to 8 KiB of JSON. Forty releases of a package differ by a few lines and new hashes."""
    package, release = divmod(number, 40)
    rng = random.Random(package)
    names = rng.sample(range(DEPENDENCIES), rng.randint(6, 60))
    changed = random.Random(f"{package}-{release // 5}")
    digest = hashlib.sha512(str(number).encode()).hexdigest()
    document: dict[str, Any] = {
        "name": f"package-{package:05}",
        "version": f"{1 + release // 10}.{release % 10}.0",
        "license": rng.choice(["MIT", "Apache-2.0", "BSD-3-Clause"]),
        "description": " ".join(
            rng.choices(["fast", "small", "typed", "parser", "client", "server", "for", "the"], k=12)
        ),
        "dependencies": {f"dependency-{name:03}": f"^{changed.randint(1, 9)}.{rng.randint(0, 20)}.0" for name in names},
        "scripts": {"build": "tsc --project .", "test": "vitest run", "lint": "eslint --max-warnings 0 src"},
        "engines": {"node": f">={rng.choice([18, 20, 22])}"},
        "dist": {
            "integrity": f"sha512-{digest[:88]}",
            "size": rng.randint(10**4, 10**6) + release,
            "files": len(names),
        },
        "maintainers": [{"name": f"maintainer-{rng.randint(1, 99)}", "email": f"m{rng.randint(1, 99)}@example.org"}],
        "readme": "\n".join(
            f"- {rng.getrandbits(40):010x}: since {rng.randint(1, 9)}.0" for _ in range(rng.randint(12, 90))
        ),
    }
    return json.dumps(document, indent=1).encode()


def key(number: int) -> str:
    """Where a manifest is kept."""
    return f"packages/{number // 40:05}/{number % 40:02}.json"


def put(s3: S3Client, bucket: str, number: int) -> None:
    """Stores a manifest."""
    s3.put_object(Bucket=bucket, Key=key(number), Body=manifest(number))


def everywhere(numbers: range, work: Callable[[int], object]) -> None:
    """Does something for every number, several at a time."""
    with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
        for _ in pool.map(work, numbers, chunksize=32):
            pass


def bucket_stats(server: Server, name: str) -> dict[str, Any]:
    """What the admin listener says of a bucket."""
    return next(bucket for bucket in server.admin("/api/v1/stats")["buckets"] if bucket["name"] == name)


def single_reads(s3: S3Client, bucket: str, numbers: list[int]) -> list[float]:
    """Reads objects one after another: how long each took, in seconds."""
    took = []
    for number in numbers:
        started = time.perf_counter()
        got = s3.get_object(Bucket=bucket, Key=key(number))["Body"].read()
        took.append(time.perf_counter() - started)
        assert got == manifest(number), number
    return took


@pytest.mark.parametrize("count", [1200, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_small_similar_objects_take_a_quarter_of_zstd_each_and_are_read_alone(
    new_server: NewServer, count: int
) -> None:
    server = new_server(storage={"second_copies": "none"}).start()
    s3 = blunt_client(server.endpoint)
    sizes = [len(manifest(number)) for number in range(0, count, 97)]
    assert min(sizes) >= 1024 and max(sizes) <= 8192, (min(sizes), max(sizes))
    for bucket in ("off-00", "zstd-00", "delta-00"):
        s3.create_bucket(Bucket=bucket)
        everywhere(range(count), functools.partial(put, s3, bucket))
    alone = bucket_stats(server, "delta-00")["stored"]["total"]
    server.settle(timeout_s=1800)
    server.run("gc", "--now", timeout_s=1800)

    coded = bucket_stats(server, "zstd-00")["bytes_by_coding"]
    zstd_each = coded["zstd_stored"] + coded["raw_plain"]
    stats = bucket_stats(server, "delta-00")
    stored = stats["stored"]["total"]
    assert stats["objects"] == count
    assert stored <= zstd_each / 4, f"{stored} bytes; zstd alone {zstd_each}; before packing {alone}"
    metrics = server.metrics()
    assert metrics.total("deltaweir_packed_objects_total") >= 0.99 * count

    # One of them is read alone: at most one request to the backend, whatever its pack holds.
    chosen = random.Random(count).sample(range(count), min(count, 3000) // 10)
    server.drop_caches()
    before = server.metrics().total("deltaweir_backend_requests_total", op="get")
    packed_s = single_reads(s3, "delta-00", chosen)
    requests = server.metrics().total("deltaweir_backend_requests_total", op="get") - before
    assert 0 < requests <= len(chosen)
    raw_s = single_reads(s3, "off-00", chosen)

    # And deleted alone.
    for number in chosen:
        s3.delete_object(Bucket="delta-00", Key=key(number))
    left = [number for number in range(0, count, max(1, count // 200)) if number not in set(chosen)]
    single_reads(s3, "delta-00", left)
    assert bucket_stats(server, "delta-00")["objects"] == count - len(chosen)

    def p99_ms(took: list[float]) -> float:
        return round(sorted(took)[len(took) * 99 // 100] * 1000, 2)

    outcome = {
        "objects": count,
        "logical_bytes": stats["logical_bytes"],
        "zstd_each_bytes": zstd_each,
        "before_packing_bytes": alone,
        "stored_bytes": stored,
        "share_of_zstd_each": round(stored / zstd_each, 4),
        "get_p99_ms": {"raw": p99_ms(raw_s), "packed_cold": p99_ms(packed_s)},
        "backend_reads_per_get": round(requests / len(chosen), 3),
    }
    print(json.dumps(outcome))
