"""A bucket that `keys reencrypt` goes through while it is used, killed and rebuilt."""

from __future__ import annotations

from outside.clients import S3Client, s3_client
from outside.content import MIB, noise, release
from outside.server import Server, Value, until

ALONE: dict[str, Value] = {"interval": "1h", "free_bytes_min": 0}
"""Nothing is converted beside it."""
SLOWLY: dict[str, Value] = {**ALONE, "bytes_per_second_max": "2MiB"}


def put_all_kinds(s3: S3Client, bucket: str) -> dict[str, bytes]:
    """Bases and deltas, noise, small objects and an empty one."""
    stored = {f"release-{n:02}": release(3, 600_000, n) for n in range(6)}
    stored |= {f"noise-{n:02}": noise(n, MIB) for n in range(6)}
    stored |= {f"small-{n:02}": noise(100 + n, 300) for n in range(6)}
    stored["empty"] = b""
    for key, content in sorted(stored.items()):
        s3.put_object(Bucket=bucket, Key=key, Body=content, Metadata={"of": key})
    return stored


def assert_whole(server: Server, bucket: str, stored: dict[str, bytes]) -> None:
    """Every object reads as it was written, metadata included."""
    server.drop_caches()
    s3 = s3_client(server.endpoint)
    for key, content in stored.items():
        got = s3.get_object(Bucket=bucket, Key=key)
        assert got["Body"].read() == content, key
        assert got["Metadata"] == {"of": key}
    assert len(s3.list_objects_v2(Bucket=bucket)["Contents"]) == len(stored)


def kill_half_way(server: Server, bucket: str) -> None:
    """Asks for the job, and kills the server when it has gone through some objects."""

    def done() -> int:
        progress = server.json("jobs", "reencrypt")["progress"]
        return int(progress["done"]) if progress else 0

    server.admin("/api/v1/jobs/reencrypt", "POST", body={"bucket": bucket})
    until(lambda: done() >= 4, 60, "the run has gone through a part of the bucket")
    server.kill()


def rebuild_half_way(server: Server) -> None:
    """The catalog of a run under way is lost and rebuilt."""
    server.run("jobs", "reencrypt", "pause")
    until(lambda: not server.json("jobs", "reencrypt")["running"], 60, "the run has paused")
    server.run("journal")
    server.kill()
    server.lose_catalog()
    server.run("rebuild")
    server.tables["convert"] = ALONE
    server.start()
