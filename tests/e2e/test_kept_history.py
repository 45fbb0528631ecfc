"""A bucket's history through all that happens to a store: a lost catalog, a move, originals, leaving."""

from __future__ import annotations

from pathlib import Path

import pytest

from outside import originals
from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import MIB, release
from outside.failure import error_code
from outside.server import Value
from outside.storage import collect
from outside.store import Store

BUCKETS = ("delta-00", "delta-aes256-00")
"""A plain one and a sealed one."""

Listed = list[tuple[str, str, bool, bool]]


def enable(s3: S3Client, bucket: str, status: str = "Enabled") -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})


def make_history(s3: S3Client, bucket: str) -> dict[tuple[str, str], bytes]:
    """Named and null versions and markers of two keys; what each version holds."""
    s3.create_bucket(Bucket=bucket)
    contents: dict[tuple[str, str], bytes] = {}

    def put(key: str, number: int) -> None:
        content = release(71, 2 * MIB, number)
        version = s3.put_object(Bucket=bucket, Key=key, Body=content).get("VersionId", "null")
        contents[key, version] = content

    put("a", 0)
    enable(s3, bucket)
    for number in (1, 2):
        put("a", number)
        put("b", number + 2)
    s3.delete_object(Bucket=bucket, Key="b")
    enable(s3, bucket, "Suspended")
    put("b", 5)
    enable(s3, bucket)
    put("b", 6)
    s3.delete_object(Bucket=bucket, Key="a")
    return contents


def listed(s3: S3Client, bucket: str) -> Listed:
    """Key, version, whether it is a marker and whether it is the latest."""
    answer = s3.list_object_versions(Bucket=bucket)
    versions = [(entry["Key"], entry["VersionId"], False, entry["IsLatest"]) for entry in answer["Versions"]]
    markers = [(entry["Key"], entry["VersionId"], True, entry["IsLatest"]) for entry in answer["DeleteMarkers"]]
    return versions + markers


def check(s3: S3Client, bucket: str, contents: dict[tuple[str, str], bytes]) -> None:
    """Every version is what was put."""
    for (key, version), content in contents.items():
        got = s3.get_object(Bucket=bucket, Key=key, VersionId=version)
        assert (got["VersionId"], got["Body"].read()) == (version, content)


@pytest.mark.parametrize("backed_up", [True, False], ids=["backup and journal", "journal alone"])
def test_a_lost_catalog_comes_back_with_every_version_and_marker(new_server: NewServer, backed_up: bool) -> None:
    server = new_server(backup={"journal_seconds": 1}).start()
    s3 = s3_client(server.endpoint)
    history = {bucket: make_history(s3, bucket) for bucket in BUCKETS}
    if backed_up:
        server.run("backup")
    for bucket in BUCKETS:
        version = s3.put_object(Bucket=bucket, Key="later", Body=b"later")["VersionId"]
        history[bucket]["later", version] = b"later"
        (removed,) = [name for name in history[bucket] if name[0] == "a" and name[1] == "null"]
        s3.delete_object(Bucket=bucket, Key="a", VersionId="null")
        del history[bucket][removed]
    before = {bucket: listed(s3, bucket) for bucket in BUCKETS}
    server.admin("/api/v1/journal", "POST")
    server.stop()
    server.lose_catalog()
    server.json("rebuild")
    server.start()
    s3 = s3_client(server.endpoint)
    for bucket in BUCKETS:
        assert listed(s3, bucket) == before[bucket]
        check(s3, bucket, history[bucket])
        assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
        assert error_code(s3.get_object, Bucket=bucket, Key="a") == (404, "NoSuchKey")
        assert "VersionId" in s3.put_object(Bucket=bucket, Key="a", Body=b"goes on")
        check(s3, bucket, history[bucket])


def test_a_bucket_that_moves_to_another_store_takes_its_history_along(new_server: NewServer, store: Store) -> None:
    tables: dict[str, dict[str, Value]] = {
        "backends.cloud": store.table(),
        "convert": {"interval": "1h", "free_bytes_min": 0},
    }
    server = new_server("server", **tables).start()
    s3 = s3_client(server.endpoint)
    for bucket in BUCKETS:
        contents = make_history(s3, bucket)
        before = listed(s3, bucket)
        report = server.json("convert", f"s3://{bucket}", "--backend", "cloud")
        assert report["elsewhere"] == 0, report
        collect(server)
        server.drop_caches()
        assert [path for path in server.blob_files() if "keyset" not in str(path)] == [], "nothing needs the disk"
        assert listed(s3, bucket) == before
        check(s3, bucket, contents)


def test_a_marker_hides_an_original_and_what_is_left_empty_stays_hidden(new_server: NewServer, store: Store) -> None:
    made = originals.fill(store, 5)
    through: dict[str, dict[str, Value]] = {
        "stores.old": originals.table(store),
        "buckets.through": {"read_through": "old/builds/"},
    }
    server = new_server(**through).start()
    s3 = s3_client(server.endpoint, read_timeout=120)
    s3.create_bucket(Bucket="through")
    enable(s3, "through")
    key, other = "app-0/app-3.bin", "app-0/app-1.bin"
    marker = s3.delete_object(Bucket="through", Key=key)["VersionId"]
    assert error_code(s3.get_object, Bucket="through", Key=key) == (404, "NoSuchKey")
    s3.delete_object(Bucket="through", Key=key, VersionId=marker)
    assert error_code(s3.get_object, Bucket="through", Key=key) == (404, "NoSuchKey"), "it stays hidden"
    adopted = s3.get_object(Bucket="through", Key=other)
    assert adopted["Body"].read() == made[f"builds/{other}"].content
    s3.put_object(Bucket="through", Key=other, Body=b"ours")
    kept = s3.get_object(Bucket="through", Key=other, VersionId=adopted["VersionId"])
    assert kept["Body"].read() == made[f"builds/{other}"].content, "the original is an old version now"


def test_eject_writes_current_versions_and_no_marker(new_server: NewServer, tmp_path: Path) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    contents = make_history(s3, BUCKETS[0])
    out = tmp_path / "out"
    server.run("eject", f"s3://{BUCKETS[0]}", str(out))
    newest = [content for (key, _), content in contents.items() if key == "b"][-1]
    assert (out / "b").read_bytes() == newest
    assert not (out / "a").exists(), "its newest version is a delete marker"
