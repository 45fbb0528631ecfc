"""Heat: a delta of a gigabyte that everybody downloads grows by no more than its savings pay for, and shrinks again."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

from campaigns.sizes import size
from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import MIB, sha256
from outside.server import Server, until
from outside.storage import assert_accounts_balance, collect, stored

BUCKET = "delta-00"
RANGE = 8 * MIB
RANGES = max(32, size(128))
"""Together a gibibyte. A twentieth of what fewer save would not pay for a single range."""
DOWNLOADS = max(20, size(100))
"""At least as many as make a blob hot, which are sixteen."""
READERS = 4
COOLING_S = 45 * 60
"""It is cool about twenty minutes after the last read, and is then encoded while cores are idle."""


def piece(version: int, number: int) -> bytes:
    """A range of a release: noise, of which each release changes a thousand bytes."""
    content = numpy.frombuffer(numpy.random.default_rng(number).bytes(RANGE), dtype=numpy.uint8).copy()
    if version:
        rng = numpy.random.default_rng((version, number))
        content[rng.integers(0, RANGE, size=1000)] ^= 0x55
    return content.tobytes()


def upload(s3: S3Client, version: int, ranges: int = RANGES) -> list[str]:
    """Stores a release in parts; the digests of its ranges."""
    ids = {"Bucket": BUCKET, "Key": f"image-{version}"}
    ids["UploadId"] = s3.create_multipart_upload(**ids)["UploadId"]

    def send(number: int) -> tuple[dict[str, object], str]:
        body = piece(version, number)
        etag = s3.upload_part(**ids, PartNumber=number + 1, Body=body)["ETag"]
        return {"PartNumber": number + 1, "ETag": etag}, sha256(body)

    with ThreadPoolExecutor(READERS) as pool:
        sent = list(pool.map(send, range(ranges)))
    s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": [part for part, _ in sent]})
    return [digest for _, digest in sent]


def download(s3: S3Client, key: str, digests: list[str]) -> int:
    """Reads all of it range by range; how many were wrong."""

    def read(number: int) -> bool:
        wanted = f"bytes={number * RANGE}-{(number + 1) * RANGE - 1}"
        return sha256(s3.get_object(Bucket=BUCKET, Key=key, Range=wanted)["Body"].read()) != digests[number]

    with ThreadPoolExecutor(READERS) as pool:
        return sum(pool.map(read, range(RANGES)))


def stored_bytes(server: Server) -> int:
    """What lies on the backend, without what is dead."""
    collect(server)
    return int(server.admin("/api/v1/stats")["totals"]["stored"]["total"])


def saved_bytes(server: Server) -> int:
    """What deltas take less than their content."""
    coded = server.admin("/api/v1/stats")["totals"]["bytes_by_coding"]
    return int(coded["delta_plain"] - coded["delta_stored"])


@pytest.mark.long
def test_heat_without_a_bound_is_found(new_server: NewServer) -> None:
    """The mutant: what is read becomes whole, whatever it has saved."""
    server = new_server(convert={"free_bytes_min": 0}).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    for version in range(2):
        upload(s3, version, ranges=4)
    server.settle(300)
    before, saved = stored_bytes(server), saved_bytes(server)
    server.run("convert", f"s3://{BUCKET}", "--compression", "off", timeout_s=300)
    server.settle(300)
    grown = stored_bytes(server) - before
    print(json.dumps({"campaign": "heat without a bound", "grown": grown, "mutant_detected": grown > saved / 20}))
    assert grown > saved / 20 > 0


@pytest.mark.long
@pytest.mark.timeout(2 * 3600)
def test_a_hundred_downloads_of_a_gigabyte_cost_a_twentieth_of_what_it_saves(new_server: NewServer) -> None:
    server = new_server(convert={"free_bytes_min": 0}).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    upload(s3, 0)
    digests = upload(s3, 1)
    server.settle(300)
    assert stored(s3, BUCKET, "image-1").form == "delta"
    before, saved = stored_bytes(server), saved_bytes(server)
    assert saved > 0.9 * RANGE * RANGES
    wrong, most = 0, before
    for number in range(DOWNLOADS):
        wrong += download(s3, "image-1", digests)
        if number % 10 == 9:
            server.settle(300)
            most = max(most, stored_bytes(server))
    was_hot = server.metrics().total("deltaweir_heat_bytes")
    until(lambda: server.metrics().total("deltaweir_heat_bytes") == 0, COOLING_S, "it cools", interval_s=5)
    server.settle(300)
    after = stored_bytes(server)
    wrong += download(s3, "image-1", digests)
    line = {
        "campaign": "heat",
        "ops": DOWNLOADS,
        "ranges": DOWNLOADS * RANGES,
        "wrong": wrong,
        "saved": saved,
        "grown": most - before,
        "grown_share": round((most - before) / saved, 4),
        "heat_bytes": int(was_hot),
        "kept_when_cool": after - before,
    }
    print(json.dumps(line))
    assert wrong == 0
    assert 0 < most - before <= saved / 20
    assert abs(after - before) <= saved / 1000
    assert_accounts_balance(server)
