"""A bucket's prefix, or a directory, belongs to one deployment (E22)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import MIB, noise
from outside.server import Server, Value, until
from outside.store import Store

BODY = noise(11, MIB)


def refuses(server: Server) -> str:
    """Why a server does not start."""
    process = server.launch()
    until(lambda: process.poll() is not None, 60, "the server ends")
    assert process.returncode != 0
    return server.tail(3)


def records(store: Store) -> list[dict[str, Value]]:
    """The ownership records of the store's prefix `blobs/`, the last one counts."""
    s3 = store.client()
    listed = s3.list_objects_v2(Bucket="blobs", Prefix="blobs/owner/")
    keys = sorted(found["Key"] for found in listed.get("Contents", []))
    assert keys == [f"blobs/owner/{number:016x}" for number in range(1, len(keys) + 1)]
    return [json.loads(s3.get_object(Bucket="blobs", Key=key)["Body"].read()) for key in keys]


@pytest.fixture(params=["s3", "local"])
def place(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> dict[str, Value]:
    """Where blobs are to go: the store, or a directory."""
    return store.table() if request.param == "s3" else {"type": "local", "path": str(tmp_path / "shared")}


def tables(place: dict[str, Value]) -> dict[str, dict[str, Value]]:
    """A configuration that keeps blobs there."""
    return {"backends.cloud": place, "storage": {"backend": "cloud"}}


def test_another_deployment_is_told_whose_place_it_is(place: dict[str, Value], new_server: NewServer) -> None:
    first = new_server("first", **tables(place)).start()
    second = new_server("second", **tables(place))
    for _ in range(2):
        why = refuses(second)
        assert re.search(r'backend "cloud" belongs to another deployment \([0-9a-f]{32}, for \d+ minutes\)', why), why
        assert "a bucket, a prefix or a directory of its own" in why and "deltaweir rebuild" in why
        assert first.admin_status("/readyz") == 200
        s3 = s3_client(first.endpoint)
        if "off-00" not in [found["Name"] for found in s3.list_buckets()["Buckets"]]:
            s3.create_bucket(Bucket="off-00")
            s3.put_object(Bucket="off-00", Key="k", Body=BODY)
        first.restart()  # its own place, also after a restart and with the first one's blobs in it
    assert s3_client(first.endpoint).get_object(Bucket="off-00", Key="k")["Body"].read() == BODY
    elsewhere = {"prefix": "other/"} if place["type"] == "s3" else {"path": f"{place['path']}-2"}
    second.tables["backends.cloud"] = place | elsewhere
    second.start()


def test_a_restored_catalog_has_the_place_and_the_old_process_leaves_it_alone(
    store: Store, new_server: NewServer
) -> None:
    old = new_server("old", **tables(store.table()), gc={"interval": "1s", "grace": "0s"}).start()
    s3 = s3_client(old.endpoint)
    s3.create_bucket(Bucket="off-00")
    s3.put_object(Bucket="off-00", Key="k", Body=BODY)
    assert old.run("backup", timeout_s=60).returncode == 0
    new = new_server("new", **tables(store.table()))
    new.write_config()
    # The journal is sealed, because the configuration has encrypted buckets: its key comes along.
    new.data.mkdir()
    shutil.copy(old.data / "keyring.json", new.data / "keyring.json")
    new.run("restore")
    (first, *taken) = records(store)
    # Two of them: a write of somebody who gave up may come late, and is for the first of them.
    assert len(taken) == 2 and len({record["deployment"] for record in taken} - {first["deployment"]}) == 1
    assert old.admin_status("/readyz") == 503, "nobody sends it requests any more"
    until(lambda: old.admin("/api/v1/jobs/gc")["last_result"] == "failed", 60, "the old collector refuses to work")
    with pytest.raises(ClientError, match="ServiceUnavailable"):
        s3.delete_object(Bucket="off-00", Key="k")
    new.start()
    ran = old.admin("/api/v1/jobs/gc")["run"]
    until(lambda: old.admin("/api/v1/jobs/gc")["run"] > ran + 2, 60, "the old collector had its chance")
    assert s3_client(new.endpoint).get_object(Bucket="off-00", Key="k")["Body"].read() == BODY
    old.stop()
    assert "restore" in refuses(old)
    assert records(store) == [first, *taken]
    new.restart()
