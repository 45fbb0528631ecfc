"""A bucket gets another domain key while it is used, is killed in the middle of it, and loses its catalog there."""

from __future__ import annotations

import threading
from typing import Any

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import MIB, noise, release
from outside.server import Server, Value, until
from outside.storage import assert_accounts_balance

BUCKET = "delta-aes256-00"
ALONE: dict[str, Value] = {"interval": "1h", "free_bytes_min": 0}
SLOWLY: dict[str, Value] = {**ALONE, "bytes_per_second_max": "2MiB"}


def filled(server: Server) -> dict[str, bytes]:
    """Bases and deltas, noise, small objects and an empty one."""
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    stored = {f"release-{n:02}": release(3, 600_000, n) for n in range(6)}
    stored |= {f"noise-{n:02}": noise(n, MIB) for n in range(6)}
    stored |= {f"small-{n:02}": noise(100 + n, 300) for n in range(6)}
    stored["empty"] = b""
    for key, content in sorted(stored.items()):
        s3.put_object(Bucket=BUCKET, Key=key, Body=content, Metadata={"of": key})
    return stored


def assert_whole(server: Server, stored: dict[str, bytes]) -> None:
    """Every object reads as it was written, metadata included."""
    server.drop_caches()
    s3 = s3_client(server.endpoint)
    for key, content in stored.items():
        got = s3.get_object(Bucket=BUCKET, Key=key)
        assert got["Body"].read() == content, key
        assert got["Metadata"] == {"of": key}
    assert len(s3.list_objects_v2(Bucket=BUCKET)["Contents"]) == len(stored)


def blobs_of(server: Server) -> dict[int, int]:
    """Blobs by the epoch that they are sealed in."""
    keys: list[dict[str, Any]] = server.json("keys", "list")["keys"]
    return {key["epoch"]: key["blobs"] for key in keys if key["bucket"] == BUCKET and key["epoch"]}


def done(server: Server) -> int:
    """Objects that the run has gone through."""
    progress = server.json("jobs", "reencrypt")["progress"]
    return int(progress["done"]) if progress else 0


def start(server: Server) -> None:
    """Asks for the job and does not wait for it."""
    server.admin("/api/v1/jobs/reencrypt", "POST", body={"bucket": BUCKET})


def test_a_rebuild_takes_no_copy_of_a_killed_run_for_a_lost_version(new_server: NewServer) -> None:
    """What the run had moved was not in the shipped journal yet: its blobs are in no row of the rebuilt catalog."""
    server = new_server(convert=SLOWLY, backup={"journal_seconds": 3600}).start()
    stored = filled(server)
    server.run("journal")
    start(server)
    until(lambda: done(server) >= 4, 60, "a part of the bucket is sealed anew")
    server.kill()
    server.lose_catalog()
    recovered = server.json("rebuild")["recovered"]
    assert (recovered["versions"], recovered["unreadable"]) == ([], []), recovered
    assert recovered["rewrites"] > 0, "there was something to take for a lost version"
    server.start()
    assert_whole(server, stored)


def test_a_bucket_that_is_killed_half_way_reads_rebuilds_and_goes_on(new_server: NewServer) -> None:
    server = new_server(convert=SLOWLY).start()
    stored = filled(server)
    start(server)
    until(lambda: done(server) >= 4, 60, "a part of the bucket is sealed anew")
    server.kill()
    server.start()
    half = blobs_of(server)
    assert half[1] > 0, "the rest is sealed as before"
    assert half[2] > 0, "a part of it is sealed anew"
    assert_whole(server, stored)

    # The catalog is lost in this state.
    server.run("jobs", "reencrypt", "pause")
    until(lambda: not server.json("jobs", "reencrypt")["running"], 60, "the run has paused")
    server.run("journal")
    server.kill()
    server.lose_catalog()
    server.run("rebuild")
    server.tables["convert"] = ALONE
    server.start()
    assert len(blobs_of(server)) == 2
    assert_whole(server, stored)

    # Anew from there, while others write.
    failed: list[Exception] = []
    ended = threading.Event()

    def write() -> None:
        s3 = s3_client(server.endpoint)
        number = 0
        while not ended.is_set():
            try:
                key = f"while-{number % 5}"
                s3.put_object(Bucket=BUCKET, Key=key, Body=noise(number, 5000), Metadata={"of": key})
                assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == noise(number, 5000)
                stored[key] = noise(number, 5000)
                number += 1
            except Exception as error:  # whatever a client sees is what counts
                failed.append(error)
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        report = server.json("keys", "reencrypt", BUCKET)
    finally:
        ended.set()
        writer.join()
    assert failed == []
    assert report["left"] == 0
    assert_whole(server, stored)
    assert server.json("keys", "verify")["problems"] == []


def test_an_old_key_is_shredded_when_nothing_depends_on_it(new_server: NewServer) -> None:
    server = new_server(gc={"interval": "1h", "grace": "0s"}, convert=ALONE).start()
    stored = filled(server)
    assert "never sealed with another key" in server.run("keys", "shred", BUCKET).stdout
    report = server.json("keys", "reencrypt", BUCKET)
    assert (report["epoch"], report["objects"], report["left"]) == (2, len(stored), 0)
    refused = server.run("keys", "shred", BUCKET, "--yes", check=False)
    assert refused.returncode == 1
    assert "wait for their purge" in refused.stdout
    server.run("journal")
    server.run("gc", "--now")
    # The account has the keysets as long as they are with two keys each.
    assert_accounts_balance(server)
    assert "key 1 can be removed" in server.run("keys", "shred", BUCKET).stdout
    assert list(blobs_of(server)) == [1, 2], "to ask changes nothing"
    assert server.json("keys", "shred", BUCKET, "--yes")["shredded"] is True
    assert list(blobs_of(server)) == [2]
    assert_accounts_balance(server)
    server.run("keys", "rotate")
    assert_accounts_balance(server)
    assert_whole(server, stored)
    server.restart()
    assert_whole(server, stored)

    # Nothing that a recovery needs went with it.
    server.stop()
    server.lose_catalog()
    server.run("rebuild")
    server.start()
    assert_whole(server, stored)
    check = server.json("keys", "verify")
    assert (check["problems"], check["outdated"]) == ([], 0)
