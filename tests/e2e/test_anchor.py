"""A catalog and its store that were set back together agree; an anchor that lies elsewhere shows it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.server import Server


def put(server: Server, key: str) -> None:
    """An object whose journal entry is in the store."""
    s3_client(server.endpoint).put_object(Bucket="off-00", Key=key, Body=b"x")
    server.run("journal")


def with_one_object(new_server: NewServer, folder: Path) -> tuple[Server, Path]:
    """A server that was stopped, whose anchor knows of an object, and the anchor."""
    anchor = folder / "elsewhere.json"
    server = new_server(backup={"anchor": str(anchor)}).start()
    s3_client(server.endpoint).create_bucket(Bucket="off-00")
    put(server, "first")
    assert server.stop() == 0
    return server, anchor


def set_back(server: Server, copy: Path) -> None:
    """Catalog, journal and blobs as they were."""
    shutil.rmtree(server.data)
    shutil.copytree(copy, server.data, symlinks=True)


def test_a_store_that_was_set_back_with_its_catalog_is_refused(new_server: NewServer, tmp_path: Path) -> None:
    server, anchor = with_one_object(new_server, tmp_path)
    first = json.loads(anchor.read_text())
    copy = tmp_path / "copy"
    shutil.copytree(server.data, copy, symlinks=True)
    server.start()
    put(server, "second")
    assert server.stop() == 0
    second = json.loads(anchor.read_text())
    assert (second["lineage"], second["seq"] > first["seq"]) == (first["lineage"], True)

    set_back(server, copy)
    refused = server.run("serve", check=False)
    assert refused.returncode != 0
    assert "the anchor" in refused.stderr
    server.lose_catalog()
    refused = server.run("rebuild", check=False)
    assert refused.returncode != 0
    assert "the anchor" in refused.stderr
    assert json.loads(anchor.read_text()) == second, "a refusal lowers nothing"

    set_back(server, copy)
    server.lose_catalog()
    server.run("rebuild", "--accept-less-than-anchor")
    server.start()
    put(server, "third")
    s3 = s3_client(server.endpoint)
    assert [found["Key"] for found in s3.list_objects_v2(Bucket="off-00")["Contents"]] == ["first", "third"]
    server.restart()
    assert json.loads(anchor.read_text())["lineage"] != first["lineage"]


def test_an_older_copy_can_be_served_when_its_operator_says_so(new_server: NewServer, tmp_path: Path) -> None:
    server, _ = with_one_object(new_server, tmp_path)
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
    server, anchor = with_one_object(new_server, tmp_path)
    anchor.write_text("{}")
    refused = server.run("serve", check=False)
    assert refused.returncode != 0
    assert "backup.anchor" in refused.stderr
    server.tables["backup"] = {"anchor": str(tmp_path / "nowhere" / "anchor.json")}
    server.write_config()
    checked = server.run("config", "check", check=False)
    assert checked.returncode != 0
    assert "backup.anchor: there is no directory" in checked.stderr
