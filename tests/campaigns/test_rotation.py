"""The KEK is rotated over many blobs while clients read and write: no request fails, and no blob is touched. Its
provider is away for a minute: no read fails."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from campaigns.sizes import size
from e2e.test_key_providers import kept_by
from outside.buckets import NewServer
from outside.clients import blunt_client
from outside.content import noise
from outside.key_providers import transit
from outside.server import Server
from outside.storage import collect

BUCKET = "off-aes256-00"
OBJECTS = size(100_000)
BYTES = 5_000
"""More than what lies in the catalog itself: each is a blob of its own."""
ROTATIONS = 3
CLIENTS = 4
SECONDS_MAX = 10
AWAY_S = size(60)
"""How long the provider of the KEK answers nothing."""
READ = 200
"""Objects that are read meanwhile."""


def blobs(server: Server) -> dict[str, tuple[int, int, int]]:
    """Every blob of content with its inode, length and time: one that was written again has others."""
    found = [path for path in (server.blobs / "blobs").rglob("*") if path.is_file()]
    stats = {str(path): path.stat() for path in found}
    return {path: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def content(number: int) -> bytes:
    """Of one object."""
    return number.to_bytes(8, "big") + noise(1, BYTES - 8)


def touched(before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]) -> int:
    """How many blobs are gone or were written again."""
    return sum(after.get(path) != stat for path, stat in before.items())


@pytest.mark.long
def test_a_rotation_that_writes_blobs_again_is_found(new_server: NewServer) -> None:
    """The mutant: the key of the bucket changes in place of the key that wraps it."""
    server = new_server(gc={"grace": "1s"}, convert={"interval": "1h", "defer": False}).start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    for number in range(READ):
        s3.put_object(Bucket=BUCKET, Key=f"{number:06}", Body=content(number))
    before = blobs(server)
    server.run("keys", "reencrypt", BUCKET, timeout_s=120)
    collect(server)
    found = touched(before, blobs(server))
    print(json.dumps({"campaign": "rotation by copies", "touched": found, "mutant_detected": found > 0}))
    assert found == len(before) == READ


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_rotations_under_load_fail_nobody_and_touch_no_blob(new_server: NewServer) -> None:
    server = new_server(gc={"interval": "1h"}, convert={"interval": "1h", "defer": False}).start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    with ThreadPoolExecutor(16) as pool:
        put = [
            pool.submit(s3.put_object, Bucket=BUCKET, Key=f"{number:06}", Body=content(number))
            for number in range(OBJECTS)
        ]
        for done in put:
            done.result()
    before = blobs(server)
    assert len(before) == OBJECTS
    failed: list[str] = []
    answered = [0] * CLIENTS
    ended = threading.Event()

    def work(client: int) -> None:
        number = client
        while not ended.is_set():
            try:
                key = f"{number % OBJECTS:06}"
                assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == content(number % OBJECTS)
                s3.put_object(Bucket=BUCKET, Key=f"new-{client}-{number % 10}", Body=content(number))
            except Exception as error:  # whatever a client sees is what counts
                failed.append(repr(error))
            answered[client] += 2
            number += 7919

    workers = [threading.Thread(target=work, args=[client]) for client in range(CLIENTS)]
    took_s = []
    for worker in workers:
        worker.start()
    try:
        for _ in range(ROTATIONS):
            began = time.monotonic()
            done = server.json("keys", "rotate", "--remove-needless")
            took_s.append(round(time.monotonic() - began, 2))
            assert (done["made"], done["removed"]) == (True, True)
    finally:
        ended.set()
        for worker in workers:
            worker.join()
    written_again = touched(before, blobs(server))
    line = {
        "campaign": "rotation",
        "blobs": OBJECTS,
        "ops": ROTATIONS,
        "requests": sum(answered),
        "errors": len(failed),
        "wrong": written_again,
        "seconds": took_s,
    }
    print(json.dumps(line))
    assert failed == []
    assert written_again == 0
    assert min(answered) > 0, "every client worked meanwhile"
    check = server.json("keys", "verify")
    assert (check["problems"], check["outdated"]) == ([], 0)
    assert max(took_s) < SECONDS_MAX


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_reads_are_unbroken_while_the_provider_of_the_kek_is_away(new_server: NewServer) -> None:
    with transit() as keeper:
        server = new_server(**kept_by(keeper, key_lifetime="2s")).start()
        s3 = blunt_client(server.endpoint)
        s3.create_bucket(Bucket=BUCKET)
        for number in range(READ):
            s3.put_object(Bucket=BUCKET, Key=f"{number:06}", Body=content(number))
        server.drop_caches()
        keeper.stop()
        failed: list[str] = []
        answered = [0] * CLIENTS
        ends = time.monotonic() + AWAY_S

        def read(client: int) -> None:
            number = client
            while time.monotonic() < ends:
                try:
                    key = f"{number % READ:06}"
                    assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == content(number % READ)
                except Exception as error:  # whatever a client sees is what counts
                    failed.append(repr(error))
                answered[client] += 1
                number += CLIENTS

        readers = [threading.Thread(target=read, args=[client]) for client in range(CLIENTS)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        refused = server.metrics().total("deltaweir_sealing_refused")
        line = {"campaign": "provider away", "seconds": AWAY_S, "ops": sum(answered), "errors": len(failed)}
        print(json.dumps(line))
        assert failed == []
        assert min(answered) > 0
        assert refused == 1 or AWAY_S < 10, "it was away for longer than its key lives"
