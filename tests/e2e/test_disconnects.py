"""Clients that go away leave nothing behind: no permit, no gauge, no temporary file, no half-stored object (E25)."""

from __future__ import annotations

import random
import threading

import pytest

from outside.buckets import NewServer
from outside.clients import blunt_client
from outside.content import MIB, noise, release
from outside.server import Server, until
from outside.storage import assert_accounts_balance
from outside.wire import Connection, signed

BODY = release(81, 6 * MIB, 1)


def storm(server: Server, count: int, seed: int) -> None:
    """Requests cut at a random byte, eight at a time: uploads, and downloads whose client stops reading."""
    host = f"127.0.0.1:{server.port}"
    numbers = iter(range(count))
    lock = threading.Lock()

    def clients() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            rng = random.Random(seed * 1_000_003 + number)
            bucket = rng.choice(["delta-00", "delta-aes256-00", "zstd-00"])
            with Connection(server.port) as connection:
                if rng.random() < 0.5:
                    request = signed(host, "PUT", f"/{bucket}/cut-{number}", body=BODY)
                    connection.send(request[: rng.randrange(len(request) - 1)])
                else:
                    connection.send(signed(host, "GET", f"/{bucket}/app"))
                    wanted = rng.randrange(len(BODY))
                    received = 0
                    while received < wanted and (data := connection.socket.recv(65536)):
                        received += len(data)

    threads = [threading.Thread(target=clients) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def at_rest(server: Server) -> bool:
    """Nothing is going on. A scrape is an admin request, so it does not count itself."""
    metrics = server.metrics()
    return (
        metrics.total("deltaweir_http_inflight") == 0
        and metrics.total("deltaweir_spool_bytes", state="used") == 0
        and metrics.total("deltaweir_codec_threads", state="busy") == 0
    )


@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_after_a_storm_of_disconnects_everything_is_as_before(new_server: NewServer, count: int) -> None:
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    for bucket in ("delta-00", "delta-aes256-00", "zstd-00"):
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="app", Body=BODY)

    def memory_without_caches() -> float:
        server.drop_caches()  # each time: what a cut upload still works on puts its base there when it is done
        return server.metrics().total("deltaweir_memory_budget_bytes", state="used")

    memory = memory_without_caches()
    storm(server, 100, seed=1)  # opens what is kept open
    until(lambda: at_rest(server), 60, "the server is at rest")
    server.drop_caches()
    files = server.open_files()
    storm(server, count, seed=2)
    until(lambda: at_rest(server), 60, "the server is at rest again")
    server.drop_caches()
    until(lambda: server.open_files() <= files + 2, 30, f"descriptors are back to {files}, not {server.open_files()}")
    until(lambda: memory_without_caches() <= memory, 30, "the budget's permits are given back")
    for bucket in ("delta-00", "delta-aes256-00", "zstd-00"):
        assert [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["app"]
        assert s3.get_object(Bucket=bucket, Key="app")["Body"].read() == BODY
    server.restart()  # what an abandoned upload wrote belongs to a closed epoch now
    server.run("gc", "--now", "--empty-trash")
    assert_accounts_balance(server)


def test_an_overwrite_that_is_cut_leaves_the_old_object(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    s3.put_object(Bucket="delta-00", Key="k", Body=b"old")
    request = signed(f"127.0.0.1:{server.port}", "PUT", "/delta-00/k", body=noise(1, 8 * MIB))
    with Connection(server.port) as connection:
        connection.send(request[:-1])
    until(lambda: at_rest(server), 30, "the server noticed")
    assert s3.get_object(Bucket="delta-00", Key="k")["Body"].read() == b"old"
