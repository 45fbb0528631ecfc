"""A catalog and its store that were set back together agree; an anchor that lies elsewhere shows it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.postgres import Postgres
from cluster.replicas import KEK
from outside.buckets import NewServer
from outside.clients import s3_client
from outside.server import Server, Value, until
from outside.store import Store


@dataclass(frozen=True)
class Outside:
    """Where an anchor is."""

    tables: dict[str, dict[str, Value]]
    """The configuration that names it."""
    texts: Callable[[], list[str]]
    """The documents that are there."""

    def noted(self) -> tuple[str, int]:
        """The lineage and the mutation that they tell."""
        documents = [json.loads(text) for text in self.texts()]
        assert documents, "nothing is noted"
        newest = max(documents, key=lambda document: (document["lineage"], document["seq"]))
        return newest["lineage"], newest["seq"]


def in_file(folder: Path) -> Outside:
    """A file elsewhere."""
    path = folder / "elsewhere.json"
    return Outside({"backup": {"anchor": str(path)}}, lambda: [path.read_text()])


def in_directory(folder: Path) -> Outside:
    """A second directory store."""
    path = folder / "elsewhere"
    tables: dict[str, dict[str, Value]] = {
        "backup": {"anchor": "store:elsewhere/of/photos"},
        "stores.elsewhere": {"type": "local", "path": str(path)},
    }
    return Outside(tables, lambda: [file.read_text() for file in (path / "of").rglob("*") if file.is_file()])


def in_cloud(store: Store) -> Outside:
    """A bucket of a second S3 store."""
    client = store.client()
    tables: dict[str, dict[str, Value]] = {
        "backup": {"anchor": "store:elsewhere"},
        "stores.elsewhere": store.table() | {"prefix": ""},
    }

    def texts() -> list[str]:
        listed = client.list_objects_v2(Bucket="blobs", Prefix="deltaweir-anchor/").get("Contents", [])
        return [client.get_object(Bucket="blobs", Key=found["Key"])["Body"].read().decode() for found in listed]

    return Outside(tables, texts)


@pytest.fixture(params=["file", "directory", "cloud"])
def outside(request: pytest.FixtureRequest, tmp_path: Path) -> Outside:
    """An anchor of every kind."""
    if request.param == "cloud":
        return in_cloud(request.getfixturevalue("store"))
    return (in_file if request.param == "file" else in_directory)(tmp_path)


def put(server: Server, key: str) -> None:
    """An object whose journal entry is in the store."""
    s3_client(server.endpoint).put_object(Bucket="off-00", Key=key, Body=b"x")
    server.run("journal")


def with_one_object(new_server: NewServer, outside: Outside) -> Server:
    """A server that was stopped, whose anchor knows of an object."""
    server = new_server(**outside.tables).start()
    s3_client(server.endpoint).create_bucket(Bucket="off-00")
    put(server, "first")
    assert server.stop() == 0
    return server


def set_back(server: Server, copy: Path) -> None:
    """Catalog, journal and blobs as they were."""
    shutil.rmtree(server.data)
    shutil.copytree(copy, server.data, symlinks=True)


def test_a_store_that_was_set_back_with_its_catalog_is_refused(
    new_server: NewServer, outside: Outside, tmp_path: Path
) -> None:
    server = with_one_object(new_server, outside)
    first = outside.noted()
    copy = tmp_path / "copy"
    shutil.copytree(server.data, copy, symlinks=True)
    server.start()
    put(server, "second")
    assert server.stop() == 0
    second = outside.noted()
    assert (second[0], second[1] > first[1]) == (first[0], True)
    assert len(outside.texts()) == 1, "what it stands on is removed"

    set_back(server, copy)
    refused = server.run("serve", check=False)
    assert refused.returncode != 0
    assert "the anchor" in refused.stderr
    server.lose_catalog()
    refused = server.run("rebuild", check=False)
    assert refused.returncode != 0
    assert "the anchor" in refused.stderr
    assert outside.noted() == second, "a refusal lowers nothing"

    set_back(server, copy)
    server.lose_catalog()
    server.run("rebuild", "--accept-less-than-anchor")
    server.start()
    put(server, "third")
    s3 = s3_client(server.endpoint)
    assert [found["Key"] for found in s3.list_objects_v2(Bucket="off-00")["Contents"]] == ["first", "third"]
    server.restart()
    assert outside.noted()[0] != first[0]


def test_an_older_copy_can_be_served_when_its_operator_says_so(
    new_server: NewServer, outside: Outside, tmp_path: Path
) -> None:
    server = with_one_object(new_server, outside)
    copy = tmp_path / "copy"
    shutil.copytree(server.data, copy, symlinks=True)
    server.start()
    put(server, "second")
    assert server.stop() == 0
    set_back(server, copy)
    server.launch("--accept-older-catalog")
    server.wait_ready()
    put(server, "third")
    server.restart()
    keys = [found["Key"] for found in s3_client(server.endpoint).list_objects_v2(Bucket="off-00")["Contents"]]
    assert keys == ["first", "third"]


def test_an_anchor_that_is_not_understood_is_no_permission(new_server: NewServer, tmp_path: Path) -> None:
    server = with_one_object(new_server, in_file(tmp_path))
    (tmp_path / "elsewhere.json").write_text("{}")
    refused = server.run("serve", check=False)
    assert refused.returncode != 0
    assert "backup.anchor" in refused.stderr
    server.tables["backup"] = {"anchor": str(tmp_path / "nowhere" / "anchor.json")}
    server.write_config()
    checked = server.run("config", "check", check=False)
    assert checked.returncode != 0
    assert "backup.anchor: there is no directory" in checked.stderr


def test_a_store_that_does_not_answer_is_no_permission_and_holds_up_no_write(
    new_server: NewServer, store: Store
) -> None:
    server = with_one_object(new_server, in_cloud(store))
    server.start()
    store.stop()
    put(server, "shipped without it")
    until(lambda: "the anchor outside of the store stays behind" in server.tail(500), 90, "the log says so")
    s3 = s3_client(server.endpoint)
    assert s3.get_object(Bucket="off-00", Key="shipped without it")["Body"].read() == b"x"
    server.kill()
    refused = server.run("serve", check=False)
    assert refused.returncode != 0
    assert "store:elsewhere/deltaweir-anchor (backup.anchor)" in refused.stderr
    store.start()
    server.start()


def test_of_two_replicas_the_anchor_has_what_either_shipped(new_server: NewServer, tmp_path: Path) -> None:
    outside = in_directory(tmp_path)
    postgres = Postgres()
    try:
        postgres.make().start()
        storage: dict[str, Value] = {"catalog": postgres.url, "kek": KEK}
        blobs: dict[str, Value] = {"type": "local", "path": str(tmp_path / "shared")}
        shared = outside.tables | {"storage": storage, "backends.local": blobs}
        first = new_server(**shared).start()
        replicas = [first, Server(tmp_path / "second", first.tables).start()]
        s3_client(replicas[0].endpoint).create_bucket(Bucket="off-00")
        for number in range(6):
            put(replicas[number % 2], f"k{number}")
        shipped = [replica.json("journal")["seq"] for replica in replicas]
        assert [replica.stop() for replica in replicas] == [0, 0]
        assert outside.noted()[1] >= max(shipped)
        assert len(outside.texts()) <= len(replicas), "each removes what it stands on"
        replicas[0].start()
        assert replicas[0].stop() == 0
    finally:
        postgres.remove()
