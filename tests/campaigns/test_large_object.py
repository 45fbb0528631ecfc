"""6 GiB by parts under a budget of 256 MiB: memory does not grow with the object."""

from __future__ import annotations

import concurrent.futures
import hashlib

import numpy
import pytest

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import MIB

GIB = 1024 * MIB
PART = 64 * MIB
PARTS = 96


def part(number: int) -> bytes:
    """A part: noise, and every fourth one the same but for scattered changes, so that all forms occur."""
    content = numpy.frombuffer(numpy.random.default_rng(number % 4).bytes(PART), dtype=numpy.uint8).copy()
    rng = numpy.random.default_rng((9, number))
    content[rng.integers(0, PART, size=1000)] ^= 0x55
    return content.tobytes()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bucket", ["delta-00", "delta-aes256-00"])
def test_six_gib_go_in_and_out_in_half_a_gib_of_memory(new_server: NewServer, bucket: str) -> None:
    server = new_server(limits={"memory_bytes_max": "256MiB"}).start()
    s3 = s3_client(server.endpoint, retries={"total_max_attempts": 30, "mode": "standard"}, read_timeout=600)
    s3.create_bucket(Bucket=bucket)
    ids = {"Bucket": bucket, "Key": "six-gib"}
    ids["UploadId"] = s3.create_multipart_upload(**ids)["UploadId"]

    def upload(number: int) -> dict[str, object]:
        return {"PartNumber": number, "ETag": s3.upload_part(**ids, PartNumber=number, Body=part(number))["ETag"]}

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(upload, range(1, PARTS + 1)))
    s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": parts})
    expected = hashlib.sha256()
    for number in range(1, PARTS + 1):
        expected.update(part(number))
    got = s3.get_object(Bucket=bucket, Key="six-gib")
    assert got["ContentLength"] == PART * PARTS == 6 * GIB
    received = hashlib.sha256()
    for piece in got["Body"].iter_chunks(MIB):
        received.update(piece)
    assert received.digest() == expected.digest()
    last = s3.get_object(Bucket=bucket, Key="six-gib", Range="bytes=-65536")["Body"].read()
    assert last == part(PARTS)[-65536:]
    peak = server.status_bytes("VmHWM")
    assert 64 * MIB < peak < 512 * MIB, f"peak {peak / MIB:.0f} MiB"
