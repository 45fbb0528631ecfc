"""A long history of one large file: what it takes, and what reading an old version costs."""

from __future__ import annotations

import os
import random
import time

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import noise, sha256
from outside.server import DELTA

FILE_BYTES = int(os.environ.get("DELTAWEIR_HISTORY_BYTES", 10_000_000))
VERSIONS = int(os.environ.get("DELTAWEIR_HISTORY_VERSIONS", 100))
PLACES = 20
PLACE_BYTES = 2
STORED_RATIO_MAX = float(os.environ.get("DELTAWEIR_HISTORY_RATIO_MAX", 2.5))
"""The file itself, a sixth of it for a hundred deltas, and a second copy of the base that all of them need."""
READS = 20


def next_version(content: bytearray, rng: random.Random) -> None:
    """Changes two bytes in each of twenty places."""
    for _ in range(PLACES):
        at = rng.randrange(len(content) - PLACE_BYTES)
        content[at : at + PLACE_BYTES] = rng.randbytes(PLACE_BYTES)


def test_a_hundred_versions_of_a_large_file_take_a_few_times_the_file(new_server: NewServer) -> None:
    with new_server() as server:
        s3 = s3_client(server.endpoint)
        bucket = f"{DELTA.name}-00"
        s3.create_bucket(Bucket=bucket)
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        rng = random.Random(1)
        content = bytearray(noise(1, FILE_BYTES))
        digests = {}
        for number in range(VERSIONS):
            version = s3.put_object(Bucket=bucket, Key="file", Body=bytes(content))["VersionId"]
            digests[version] = sha256(bytes(content))
            if number + 1 in {10, 30, 100, VERSIONS}:
                server.settle(600)
                (row,) = [row for row in server.admin("/api/v1/stats")["buckets"] if row["name"] == bucket]
                total, dying = row["stored"]["total"], row["stored"]["tombstoned"]
                print(f"{number + 1} versions: {(total - dying) / FILE_BYTES:.2f} times the file ({row['stored']})")
            next_version(content, rng)
        newest, *_ = reversed(digests)

        def read(version: str) -> float:
            began = time.perf_counter()
            body = s3.get_object(Bucket=bucket, Key="file", VersionId=version)["Body"].read()
            took = time.perf_counter() - began
            assert sha256(body) == digests[version]
            return took

        read(newest)
        plain = sorted(read(newest) for _ in range(READS))[READS // 2]
        old = sorted(read(version) for version in rng.sample(sorted(digests), READS))
        print(f"newest {plain * 1000:.0f} ms, old ones {old[READS // 2] * 1000:.0f} ms (worst {old[-1] * 1000:.0f} ms)")
        assert (total - dying) / FILE_BYTES <= STORED_RATIO_MAX
