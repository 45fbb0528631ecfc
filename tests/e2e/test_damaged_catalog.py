"""A damaged SQLite catalog is set aside and made again by the server itself, with what was not shipped yet."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client
from outside.content import KIB, noise
from outside.failure import error_code
from outside.server import Server, until
from outside.storage import assert_accounts_balance

OBJECTS = 12


def put_all(s3: S3Client, first: int, end: int) -> dict[str, bytes]:
    """Objects of several kinds: some live in the catalog, some are deltas of each other."""
    objects = {}
    for number in range(first, end):
        size = 2 * KIB if number % 3 == 0 else 200 * KIB
        objects[f"app-{number:02}"] = noise(5, size - KIB) + noise(number, KIB)
        s3.put_object(Bucket="bucket", Key=f"app-{number:02}", Body=objects[f"app-{number:02}"])
    return objects


def with_unshipped(server: Server) -> dict[str, bytes]:
    """A store whose last changes are in its catalog alone, and its objects. The process was killed."""
    server.start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="bucket")
    objects = put_all(s3, 0, OBJECTS)
    assert server.stop() == 0
    server.start()
    s3 = blunt_client(server.endpoint)
    objects |= put_all(s3, OBJECTS - 2, OBJECTS + 6)
    s3.delete_object(Bucket="bucket", Key="app-01")
    del objects["app-01"]
    server.kill()
    return objects


def whole_again(server: Server) -> None:
    """Waits until the server has made its catalog again and serves it."""
    until(lambda: "the catalog is whole again" in server.log.read_text(), 60, server.tail())
    server.wait_ready()


def assert_served(server: Server, objects: dict[str, bytes]) -> None:
    """Exactly these objects, every byte."""
    s3 = blunt_client(server.endpoint)
    listed = s3.list_objects_v2(Bucket="bucket").get("Contents", [])
    assert [found["Key"] for found in listed] == sorted(objects)
    for key, content in objects.items():
        assert s3.get_object(Bucket="bucket", Key=key)["Body"].read() == content, key
    s3.put_object(Bucket="bucket", Key="after", Body=b"written behind it")
    assert_accounts_balance(server)


ROT = {
    "names": """UPDATE versions SET key = CAST('aside' AS BLOB) WHERE key = CAST('app-04' AS BLOB);
        UPDATE versions SET key = CAST('app-04' AS BLOB) WHERE key = CAST('app-05' AS BLOB);
        UPDATE versions SET key = CAST('app-05' AS BLOB) WHERE key = CAST('aside' AS BLOB);""",
    "bases": "UPDATE edges SET base = (SELECT max(id) FROM blobs WHERE form = 0 AND id <> base)",
    "blobs": "UPDATE blobs SET root_offset = root_offset + 1",
}
"""Rot that the database's own verification passes."""


@pytest.mark.parametrize("where", ROT)
def test_a_rotten_row_is_found_and_the_catalog_made_again_with_what_was_not_shipped(
    new_server: NewServer, where: str
) -> None:
    server = new_server(backup={"journal_seconds": 3600})
    objects = with_unshipped(server)
    with closing(sqlite3.connect(server.data / "catalog.sqlite")) as rows:
        rows.executescript(ROT[where])
    server.start()
    whole_again(server)
    assert_served(server, objects)
    aside = [path.name for path in server.data.glob("catalog.sqlite.damaged-*") if path.name[-1].isdigit()]
    assert len(aside) == 1, aside
    assert not (server.data / "catalog.sqlite.rebuilding").exists()
    server.restart()
    assert_served(server, objects | {"after": b"written behind it"})


def test_a_file_that_is_no_database_any_more_is_made_again_from_the_store(new_server: NewServer) -> None:
    server = new_server()
    server.start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="bucket")
    objects = put_all(s3, 0, OBJECTS)
    assert server.stop() == 0
    with (server.data / "catalog.sqlite").open("r+b") as file:
        file.write(noise(3, 8 * KIB))
    server.start()
    whole_again(server)
    assert_served(server, objects)


def test_a_catalog_that_is_damaged_again_within_the_hour_is_left_to_its_operator(new_server: NewServer) -> None:
    server = new_server()
    server.start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="bucket")
    objects = put_all(s3, 1, 3)
    assert server.stop() == 0
    (server.data / f"catalog.sqlite.damaged-{int(time.time() * 1000)}").touch()
    with closing(sqlite3.connect(server.data / "catalog.sqlite")) as rows:
        rows.executescript("UPDATE edges SET base = delta; UPDATE versions SET size = size + 1 WHERE seq < 0")
        rows.executescript("UPDATE blobs SET verified_ms = 1, stored_len = stored_len + 1")
    server.launch()
    until(lambda: "deltaweir rebuild" in server.log.read_text(), 30, server.tail())
    assert error_code(s3.put_object, Bucket="bucket", Key="new", Body=b"x") == (503, "ServiceUnavailable")
    assert server.admin_status("/readyz") == 503
    assert sorted(objects) == [found["Key"] for found in s3.list_objects_v2(Bucket="bucket")["Contents"]]
