"""`deltaweir recover --merge`: a catalog that was put back from a copy is joined with the store that went on."""

from __future__ import annotations

import json
import shutil

import pytest

from outside.buckets import NewServer
from outside.clients import blunt_client
from outside.content import noise
from outside.server import Server, until
from outside.storage import assert_accounts_balance

BUCKET = "delta-00"
LOST = 40


def forked(server: Server) -> None:
    """A store with 40 objects more than its catalog, which was put back from a copy."""
    s3 = blunt_client(server.start().endpoint)
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="before", Body=noise(1, 9_000))
    assert server.stop() == 0
    catalog = server.data / "catalog.sqlite"
    copy = server.data / "copy"
    shutil.copy(catalog, copy)
    s3 = blunt_client(server.start().endpoint)
    for number in range(LOST):
        s3.put_object(Bucket=BUCKET, Key=f"lost-{number:02}", Body=noise(100 + number, 9_000))
    server.admin("/api/v1/journal", "POST")
    server.kill()
    server.lose_catalog()
    copy.rename(catalog)


def refusal(server: Server) -> str:
    """Why a server does not start."""
    process = server.launch()
    until(lambda: process.poll() is not None, 60, "the server ends")
    return server.tail(3)


@pytest.mark.parametrize("journal_seconds", [3600, 0])
@pytest.mark.parametrize("interrupted", [False, True])
def test_forty_objects_that_a_catalog_lacks_are_back_after_a_merge(
    new_server: NewServer, journal_seconds: int, interrupted: bool
) -> None:
    server = new_server(backup={"journal_seconds": journal_seconds})
    forked(server)
    assert "deltaweir recover --merge" in refusal(server)
    if interrupted:
        # A merge that ended between setting the catalog aside and making another.
        (server.data / "catalog.sqlite.merging").write_text("catalog.sqlite.forked-1")
        (server.data / "catalog.sqlite").rename(server.data / "catalog.sqlite.forked-1")
    report = json.loads(server.run("recover", "--merge", "--json").stdout)
    assert report["merged"]["buckets"] == {BUCKET: {"store": LOST, "catalog": 0}}
    assert (report["merged"]["conflicts"], report["merged"]["left_out"]) == ([], [])
    assert not (server.data / "catalog.sqlite.merging").exists()
    again = server.run("recover", "--merge", check=False)
    assert again.returncode == 1 and "there is nothing to merge" in again.stderr

    s3 = blunt_client(server.start().endpoint)
    for number in range(LOST):
        got = s3.get_object(Bucket=BUCKET, Key=f"lost-{number:02}")["Body"].read()
        assert got == noise(100 + number, 9_000)
    s3.put_object(Bucket=BUCKET, Key="after", Body=noise(2, 9_000))
    assert s3.list_objects_v2(Bucket=BUCKET)["KeyCount"] == LOST + 2
    assert_accounts_balance(server)
