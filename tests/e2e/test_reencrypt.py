"""A bucket gets another domain key while it is used, is killed in the middle of it, and loses its catalog there."""

from __future__ import annotations

from typing import Any

from outside.beside import again_and_again
from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import noise
from outside.reencryption import ALONE, SLOWLY, assert_whole, kill_half_way, put_all_kinds, rebuild_half_way
from outside.server import Server
from outside.storage import assert_accounts_balance

BUCKET = "delta-aes256-00"


def filled(server: Server) -> dict[str, bytes]:
    """The bucket with objects of all kinds."""
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    return put_all_kinds(s3, BUCKET)


def blobs_of(server: Server) -> dict[int, int]:
    """Blobs by the epoch that they are sealed in."""
    keys: list[dict[str, Any]] = server.json("keys", "list")["keys"]
    return {key["epoch"]: key["blobs"] for key in keys if key["bucket"] == BUCKET and key["epoch"]}


def test_a_rebuild_takes_no_copy_of_a_killed_run_for_a_lost_version(new_server: NewServer) -> None:
    """What the run had moved was not in the shipped journal yet: its blobs are in no row of the rebuilt catalog."""
    server = new_server(convert=SLOWLY, backup={"journal_seconds": 3600}).start()
    stored = filled(server)
    server.run("journal")
    kill_half_way(server, BUCKET)
    server.lose_catalog()
    recovered = server.json("rebuild")["recovered"]
    assert (recovered["versions"], recovered["unreadable"]) == ([], []), recovered
    assert recovered["rewrites"] > 0, "there was something to take for a lost version"
    server.start()
    assert_whole(server, BUCKET, stored)


def test_a_bucket_that_is_killed_half_way_reads_rebuilds_and_goes_on(new_server: NewServer) -> None:
    server = new_server(convert=SLOWLY).start()
    stored = filled(server)
    kill_half_way(server, BUCKET)
    server.start()
    half = blobs_of(server)
    assert half[1] > 0, "the rest is sealed as before"
    assert half[2] > 0, "a part of it is sealed anew"
    assert_whole(server, BUCKET, stored)

    # The catalog is lost in this state.
    rebuild_half_way(server)
    assert len(blobs_of(server)) == 2
    assert_whole(server, BUCKET, stored)

    # Anew from there, while others write.
    s3 = s3_client(server.endpoint)

    def write(number: int) -> None:
        key = f"while-{number % 5}"
        s3.put_object(Bucket=BUCKET, Key=key, Body=noise(number, 5000), Metadata={"of": key})
        assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == noise(number, 5000)
        stored[key] = noise(number, 5000)

    with again_and_again(write):
        report = server.json("keys", "reencrypt", BUCKET)
    assert report["left"] == 0
    assert_whole(server, BUCKET, stored)
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
    assert_whole(server, BUCKET, stored)
    server.restart()
    assert_whole(server, BUCKET, stored)

    # Nothing that a recovery needs went with it.
    server.stop()
    server.lose_catalog()
    server.run("rebuild")
    server.start()
    assert_whole(server, BUCKET, stored)
    check = server.json("keys", "verify")
    assert (check["problems"], check["outdated"]) == ([], 0)
