"""Stores written by earlier commits open, are read whole, written to, survive a broken upgrade, and can be rebuilt."""

from __future__ import annotations

import hashlib
import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cluster.postgres import Postgres, binaries
from outside.clients import S3Client, s3_client
from outside.content import KIB, noise, release
from outside.old_stores import UPLOAD_KEY, OldStore, kept, parts_of, server_on
from outside.server import Server
from outside.storage import collect, stored

STORES = kept()


@dataclass
class Opened:
    """A copy of a fixture, and the database it needs."""

    store: OldStore
    folder: Path
    postgres: Postgres | None = None
    servers: list[Server] = field(default_factory=list)

    def server(self) -> Server:
        """A server on the copy, not started."""
        catalog = "sqlite" if self.postgres is None else self.postgres.url
        made = server_on(self.folder, catalog)
        made.write_config()
        self.servers.append(made)
        return made

    def sql(self, statement: str) -> None:
        """Changes the catalog behind the server's back."""
        if self.postgres is not None:
            command = [str(binaries() / "psql"), "-q", "-v", "ON_ERROR_STOP=1", "-c", statement, self.postgres.url]
        else:
            program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"
            command = ["python3.11", "-c", program, str(self.folder / "data" / "catalog.sqlite"), statement]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.fixture(params=STORES, ids=lambda store: store.name)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Each fixture in turn, as a copy."""
    copy = Opened(request.param, tmp_path)
    copy.store.unpack(tmp_path)
    if copy.store.on_postgres:
        copy.postgres = Postgres().make().start()
        load = [str(binaries() / "psql"), "-q", "-v", "ON_ERROR_STOP=1", "-f", str(tmp_path / "catalog.sql")]
        subprocess.run([*load, copy.postgres.url], check=True, capture_output=True, timeout=120)
    yield copy
    for server in copy.servers:
        server.kill()
    if copy.postgres is not None:
        copy.postgres.remove()


def assert_as_told(s3: S3Client, told: dict[str, Any], changed: frozenset[tuple[str, str]] = frozenset()) -> None:
    """Every object but the `changed` ones is what its client was told: bytes, a range, headers, listing."""
    listed = {
        (bucket, entry["Key"]): entry
        for bucket in {entry["bucket"] for entry in told["objects"]}
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        for entry in page.get("Contents", [])
    }
    assert len(told["objects"]) > 150
    for entry in told["objects"]:
        place = (entry["bucket"], entry["key"])
        if place in changed:
            continue
        ids = {"Bucket": entry["bucket"], "Key": entry["key"]}
        got = s3.get_object(**ids, ChecksumMode="ENABLED")
        content = got["Body"].read()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], place
        assert {name: got.get(name) for name in entry["headers"]} == entry["headers"], place
        assert got["LastModified"].isoformat() == entry["modified"], place
        assert (listed[place]["Size"], listed[place]["ETag"]) == (entry["size"], entry["headers"]["ETag"]), place
        if len(content) > 100:
            middle = s3.get_object(**ids, Range=f"bytes={len(content) // 2}-{len(content) // 2 + 50}")["Body"].read()
            assert middle == content[len(content) // 2 : len(content) // 2 + 51], place


def test_fixtures_hold_every_form_and_what_recovery_needs() -> None:
    assert {store.on_postgres for store in STORES} == {False, True}
    for store in STORES:
        told = store.told
        assert {entry["form"] for entry in told["objects"]} >= {"raw", "zstd", "delta", "dedup"}
        assert set(told["kinds"]) >= {"backup", "backup-part", "copies", "journal", "keyset", "lineage", "owner"}
        assert told["jobs"]["pack"]["packs"] > 0 and told["uploads"]
        if not store.on_postgres:
            assert store.archive.stat().st_size < 2 << 20


def test_a_store_of_an_earlier_commit_is_read_whole_and_written_to(opened: Opened) -> None:
    server = opened.server().start()
    s3 = s3_client(server.endpoint)
    told = opened.store.told
    assert_as_told(s3, told)
    changed = set()
    for bucket in ("delta-plain", "delta-sealed"):
        content = release(20, 90 * KIB, 5)
        s3.put_object(Bucket=bucket, Key="builds/app-5.bin", Body=content)
        assert stored(s3, bucket, "builds/app-5.bin").form == "delta", "what is stored already serves as a base"
        assert s3.get_object(Bucket=bucket, Key="builds/app-5.bin")["Body"].read() == content
        s3.put_object(Bucket=bucket, Key="inline", Body=noise(1, 9000))
        s3.delete_object(Bucket=bucket, Key="builds/app-0.bin")
        s3.delete_object(Bucket=bucket, Key="documents/003.json")
        changed |= {(bucket, key) for key in ("inline", "builds/app-0.bin", "documents/003.json")}
    (upload,) = told["uploads"]
    ids = {"Bucket": upload["bucket"], "Key": upload["key"], "UploadId": upload["id"]}
    second = s3.upload_part(**ids, PartNumber=2, Body=parts_of(60)[2])
    (first,) = (part for part in s3.list_parts(**ids)["Parts"] if part["PartNumber"] == 1)
    parts = [{"PartNumber": 1, "ETag": first["ETag"]}, {"PartNumber": 2, "ETag": second["ETag"]}]
    s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": parts})
    content = s3.get_object(Bucket=upload["bucket"], Key=UPLOAD_KEY)["Body"].read()
    assert content == parts_of(60)[0] + parts_of(60)[2]
    collect(server)
    report = server.json("scrub")
    assert report["counts"]["damaged"] == 0 and report["counts"]["ok"] > 50, report
    server.restart()
    assert_as_told(s3, told, frozenset(changed))


def test_an_upgrade_that_is_killed_again_and_again_loses_nothing(opened: Opened) -> None:
    rng = random.Random(50)
    server = opened.server()
    for _ in range(50):
        process = server.launch()
        time.sleep(rng.uniform(0, 0.12))  # the kill comes at any point of the start, not when something is reached
        process.kill()
        process.wait(30)
    server.start()
    assert_as_told(s3_client(server.endpoint), opened.store.told)


def test_a_store_of_an_earlier_commit_is_rebuilt_from_its_backup_and_journal(opened: Opened) -> None:
    if opened.postgres is None:
        for path in (opened.folder / "data").glob("catalog.sqlite*"):
            path.unlink()
    else:
        opened.sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    server = opened.server()
    report = server.json("rebuild")
    assert report["damage"] is None and report["replayed"] > 0 and report["backup"] is not None, report
    server.start()
    assert_as_told(s3_client(server.endpoint), opened.store.told)


def test_a_store_of_a_later_commit_is_refused_with_a_sentence(opened: Opened) -> None:
    server = opened.server()
    server.start()
    assert server.stop() == 0
    opened.sql("INSERT INTO schema_version (version) VALUES (100000)")
    process = server.launch()
    assert process.wait(30) != 0
    said = server.tail()
    assert "100000" in said and "newer" in said, said
