"""Objects of gigabytes: memory does not grow with them, nor does what a range of one costs."""

from __future__ import annotations

import concurrent.futures
import hashlib
import http.client
import urllib.parse
from collections.abc import Iterator

import numpy
import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import KIB, MIB
from outside.server import DELTA, DELTA_SEALED, Mode, until
from outside.storage import stored

SEGMENT = 4 * MIB
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


def build(size: int, version: int) -> Iterator[bytes]:
    """A build's output in pieces of about 1 MiB: noise with a few changed bytes in each, behind a header whose growth
    shifts the rest from version to version."""
    header = b"%06d" % version * (1 + 13 * version)
    yield header
    left = size - len(header)
    for number in range(-(-left // MIB)):
        piece = numpy.frombuffer(numpy.random.default_rng((17, number)).bytes(MIB), dtype=numpy.uint8).copy()
        if version:
            rng = numpy.random.default_rng((version, number))
            piece[rng.integers(0, MIB, size=16)] ^= 0x55
        yield piece[: left - number * MIB].tobytes()


class Streamed:
    """Objects that go through a client in pieces, as no signature needs them whole."""

    def __init__(self, s3: S3Client, bucket: str, size: int) -> None:
        self.s3, self.bucket, self.size = s3, bucket, size

    def _connection(self, method: str, key: str) -> tuple[http.client.HTTPConnection, str]:
        """A connection, and the path and query of a presigned URL."""
        ids = {"Bucket": self.bucket, "Key": key}
        url = urllib.parse.urlsplit(self.s3.generate_presigned_url(method, Params=ids, ExpiresIn=3600))
        return http.client.HTTPConnection(url.netloc, timeout=600), f"{url.path}?{url.query}"

    def put(self, key: str, version: int) -> str:
        """Stores a build; its SHA-256. A server that asks to come back later is obeyed."""

        def attempt() -> str | None:
            connection, path = self._connection("put_object", key)
            digest = hashlib.sha256()

            def body() -> Iterator[bytes]:
                for piece in build(self.size, version):
                    digest.update(piece)
                    yield piece

            try:
                connection.request("PUT", path, body=body(), headers={"Content-Length": str(self.size)})
                status = connection.getresponse().status
            except ConnectionError:
                return None
            finally:
                connection.close()
            assert status in (200, 503), status
            return digest.hexdigest() if status == 200 else None

        done: str = until(attempt, 1800, f"{key} is stored", interval_s=1)
        return done

    def get(self, key: str) -> str:
        """Reads a build: its SHA-256."""

        def attempt() -> str | None:
            connection, path = self._connection("get_object", key)
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                assert response.status in (200, 503), response.status
                if response.status == 503:
                    return None
                digest, received = hashlib.sha256(), 0
                while piece := response.read(MIB):
                    digest.update(piece)
                    received += len(piece)
                assert received == self.size
                return digest.hexdigest()
            finally:
                connection.close()

        done: str = until(attempt, 1800, f"{key} is read", interval_s=1)
        return done


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", [DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
def test_a_range_of_a_delta_of_five_gib_reads_six_segments_in_34_requests(new_server: NewServer, mode: Mode) -> None:
    server = new_server(convert={"defer": False}).start()
    s3 = s3_client(server.endpoint)
    bucket = f"{mode.name}-00"
    s3.create_bucket(Bucket=bucket)
    size = 5 * GIB
    builds = Streamed(s3, bucket, size)
    builds.put("build-0", 0)
    builds.put("build-1", 1)
    assert stored(s3, bucket, "build-1").form == "delta"
    assert stored(s3, bucket, "build-1").stored_bytes < size // 20
    server.restart()
    server.drop_caches()
    s3 = s3_client(server.endpoint)
    costs = []
    for first in (size - 64 * KIB, size // 2 + 77_777, 3 * GIB + 3 * SEGMENT - 32 * KIB, 0):
        server.drop_caches()
        before = server.metrics()
        got = s3.get_object(Bucket=bucket, Key="build-1", Range=f"bytes={first}-{first + 64 * KIB - 1}")["Body"].read()
        after = server.metrics()
        assert got == piece_of(size, 1, first, 64 * KIB)
        spent = [
            after.total(name, **labels) - before.total(name, **labels)
            for name, labels in (
                ("deltaweir_backend_bytes_total", {"dir": "read"}),
                ("deltaweir_backend_requests_total", {"op": "get"}),
            )
        ]
        costs.append((first, *spent))
        assert 0 < spent[0] <= 6 * SEGMENT and 0 < spent[1] <= 34, costs
    print(costs)


def piece_of(size: int, version: int, first: int, length: int) -> bytes:
    """Some bytes of a build."""
    at, found = 0, b""
    for piece in build(size, version):
        if at + len(piece) > first:
            found += piece[max(0, first - at) :]
            if len(found) >= length:
                break
        at += len(piece)
    return found[:length]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_sixteen_deltas_of_a_gib_at_once_stay_within_the_budget_and_a_quarter_of_a_gib(new_server: NewServer) -> None:
    server = new_server(limits={"memory_bytes_max": "1GiB"}).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    builds = Streamed(s3, "delta-00", GIB)
    builds.put("base", 0)
    keys = [f"build-{version:02}" for version in range(1, 17)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        sent = list(pool.map(builds.put, keys, range(1, 17)))
        after_puts = server.status_bytes("VmHWM")
        # What was put off under so much load becomes a delta before it is read.
        server.settle(timeout_s=1800)
        received = list(pool.map(builds.get, keys))
    assert received == sent
    assert all(stored(s3, "delta-00", key).form == "delta" for key in keys)
    peak = server.status_bytes("VmHWM")
    print(f"peak {after_puts / MIB:.0f} MiB after 16 PUTs, {peak / MIB:.0f} MiB after 16 GETs")
    assert peak <= GIB + 256 * MIB, f"peak {peak / MIB:.0f} MiB"
