"""What reads and writes cost: stored bytes per range, memory per client."""

from __future__ import annotations

import concurrent.futures

import pytest

from outside.buckets import NewServer
from outside.clients import s3_client, upload_parts
from outside.content import KIB, MIB, release
from outside.server import DELTA, DELTA_SEALED, Mode, Server
from outside.storage import stored

SEGMENT = 4 * MIB
SIZE = 48 * MIB + 77777


def read_bytes(server: Server) -> float:
    """Bytes that came from backends until now."""
    return server.metrics().total("deltaweir_backend_bytes_total", dir="read")


@pytest.mark.parametrize("how", ["put", "parts"])
@pytest.mark.parametrize("mode", [DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
def test_a_range_at_the_end_of_a_delta_reads_a_bounded_number_of_bytes(
    new_server: NewServer, mode: Mode, how: str
) -> None:
    """At most two segments of the object and, bases included, six segments' worth in all."""
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    bucket = f"{mode.name}-00"
    s3.create_bucket(Bucket=bucket)
    for version in range(2):
        content = release(71, SIZE, version)
        if how == "put":
            s3.put_object(Bucket=bucket, Key=f"app-{version}", Body=content)
        else:
            upload_parts(s3, bucket, f"app-{version}", content)
    assert stored(s3, bucket, "app-1").form == "delta"
    server.restart()
    s3 = s3_client(server.endpoint)
    for first in (SIZE - 64 * KIB, SIZE // 2, 3 * SEGMENT - 32 * KIB, 0):
        server.drop_caches()
        before = read_bytes(server)
        got = s3.get_object(Bucket=bucket, Key="app-1", Range=f"bytes={first}-{first + 64 * KIB - 1}")["Body"].read()
        cost = read_bytes(server) - before
        assert got == content[first : first + 64 * KIB]
        assert 0 < cost <= 6 * SEGMENT, f"{cost / MIB:.1f} MiB for 64 KiB at {first}"


def test_a_range_of_a_raw_object_reads_little_more_than_the_range(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="off-00")
    s3.put_object(Bucket="off-00", Key="k", Body=release(72, SIZE, 0))
    server.restart()
    server.drop_caches()
    s3 = s3_client(server.endpoint)
    before = read_bytes(server)
    s3.get_object(Bucket="off-00", Key="k", Range=f"bytes={SIZE - 64 * KIB}-")["Body"].read()
    assert 0 < read_bytes(server) - before <= 2 * SEGMENT


def test_head_and_list_read_no_content(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    s3.put_object(Bucket="delta-00", Key="k", Body=release(73, 6 * MIB, 0))
    server.drop_caches()
    before = read_bytes(server)
    s3.head_object(Bucket="delta-00", Key="k")
    s3.list_objects_v2(Bucket="delta-00")
    assert read_bytes(server) - before <= 256 * KIB


def test_memory_is_bounded_however_many_come_at_once(new_server: NewServer) -> None:
    """32 clients upload and download 24 MiB each under a budget of 256 MiB; who does not fit is asked to come again."""
    server = new_server(limits={"memory_bytes_max": "256MiB"}).start()
    s3 = s3_client(server.endpoint, retries={"total_max_attempts": 30, "mode": "standard"}, read_timeout=300)
    for bucket in ("delta-00", "delta-aes256-00"):
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="app-0", Body=release(74, 24 * MIB, 0))
    idle = server.status_bytes("VmRSS")
    contents = [release(74, 24 * MIB, version) for version in range(1, 5)]

    def client(number: int) -> bool:
        bucket = ("delta-00", "delta-aes256-00")[number % 2]
        content = contents[number % len(contents)]
        s3.put_object(Bucket=bucket, Key=f"app-{number}", Body=content)
        return bool(s3.get_object(Bucket=bucket, Key=f"app-{number}")["Body"].read() == content)

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        assert all(pool.map(client, range(1, 33)))
    peak = server.status_bytes("VmHWM")
    assert idle < peak < 512 * MIB, f"peak {peak / MIB:.0f} MiB"
    assert server.metrics().total("deltaweir_memory_budget_bytes", state="limit") == 256 * MIB
