"""A quota holds for all replicas together: not one byte goes beyond it, whoever commits first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from botocore.exceptions import ClientError

from cluster.replicas import Cluster
from outside.clients import S3Client, blunt_client
from outside.content import KIB, noise

BUCKET = "shared-quota"
ALLOWED, TRIED = 7, 36


def attempt(s3: S3Client, number: int) -> bool:
    """Whether an upload goes through; it is refused for its quota otherwise."""
    try:
        s3.put_object(Bucket=BUCKET, Key=f"k{number}", Body=noise(number, 8 * KIB))
    except ClientError as error:
        assert error.response["Error"]["Code"] == "QuotaExceeded", error
        return False
    return True


def test_replicas_together_do_not_go_beyond_a_quota(tmp_path: Path) -> None:
    cluster = Cluster.start(tmp_path)
    try:
        clients = [blunt_client(replica.endpoint) for replica in cluster.replicas]
        clients[0].create_bucket(Bucket=BUCKET)
        path = f"/api/v1/quota?bucket={BUCKET}"
        limits = {"bytes": ALLOWED * 8 * KIB + KIB}
        cluster.replicas[0].admin(path, "PUT", body=limits)
        with ThreadPoolExecutor(12) as pool:
            done = list(pool.map(lambda number: attempt(clients[number % len(clients)], number), range(TRIED)))
        assert done.count(True) == ALLOWED
        told = [replica.admin(path) for replica in cluster.replicas]
        assert {entry["held"]["bytes"] for entry in told} == {ALLOWED * 8 * KIB}
        clients[1].delete_object(Bucket=BUCKET, Key=f"k{done.index(True)}")
        assert attempt(clients[2], TRIED)
    finally:
        cluster.stop()
