"""The catalog burns; what was acknowledged does not (I11, E21): rebuild, restore, damage, copies that are too old."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cluster.postgres import Postgres
from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client
from outside.content import MIB, noise, release
from outside.server import Server, until

QUARANTINE = "deltaweir-recovered/"
BUCKETS = ("delta-00", "delta-aes256-00", "zstd-00", "off-aes256-00")


@dataclass
class History:
    """What clients were told: the last acknowledged state of every key."""

    objects: dict[tuple[str, str], tuple[str, str, dict[str, str], int]] = field(default_factory=dict)
    """(bucket, key) to SHA-256, ETag, metadata, size."""
    deleted: set[tuple[str, str]] = field(default_factory=set)

    def put(self, s3: S3Client, bucket: str, key: str, content: bytes, metadata: dict[str, str]) -> None:
        """PUT and remember."""
        kind = "application/x-test"
        answer = s3.put_object(Bucket=bucket, Key=key, Body=content, Metadata=metadata, ContentType=kind)
        self._keep(bucket, key, content, answer["ETag"], metadata)

    def put_parts(self, s3: S3Client, bucket: str, key: str, parts: list[bytes], metadata: dict[str, str]) -> None:
        """A multipart upload."""
        ids = {"Bucket": bucket, "Key": key}
        started = s3.create_multipart_upload(**ids, Metadata=metadata, ContentType="application/x-test")
        ids["UploadId"] = started["UploadId"]
        sent = [
            {"PartNumber": number, "ETag": s3.upload_part(**ids, PartNumber=number, Body=part)["ETag"]}
            for number, part in enumerate(parts, 1)
        ]
        answer = s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": sent})
        self._keep(bucket, key, b"".join(parts), answer["ETag"], metadata)

    def delete(self, s3: S3Client, bucket: str, key: str) -> None:
        """DELETE and remember."""
        s3.delete_object(Bucket=bucket, Key=key)
        self.objects.pop((bucket, key), None)
        self.deleted.add((bucket, key))

    def _keep(self, bucket: str, key: str, content: bytes, etag: str, metadata: dict[str, str]) -> None:
        self.objects[bucket, key] = (hashlib.sha256(content).hexdigest(), etag, metadata, len(content))
        self.deleted.discard((bucket, key))

    def assert_back(self, s3: S3Client) -> int:
        """Every object is what was acknowledged last, nothing deleted is there, nothing else is; how many."""
        for bucket in {bucket for bucket, _ in self.objects}:
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
            listed = {entry["Key"]: entry for page in pages for entry in page.get("Contents", [])}
            expected = {key for there, key in self.objects if there == bucket}
            assert {key for key in listed if not key.startswith(QUARANTINE)} == expected
            for key in expected:
                digest, etag, metadata, size = self.objects[bucket, key]
                got = s3.get_object(Bucket=bucket, Key=key)
                assert hashlib.sha256(got["Body"].read()).hexdigest() == digest, (bucket, key)
                assert (got["ETag"], got["Metadata"], got["ContentType"]) == (etag, metadata, "application/x-test")
                assert (listed[key]["Size"], listed[key]["ETag"]) == (size, etag)
        return len(self.objects)


def live(s3: S3Client, count: int, seed: int = 1) -> History:
    """A store's life: small and large objects, families of releases, parts, overwrites, deletions."""
    rng = random.Random(seed)
    history = History()
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)
    for number in range(count):
        bucket = BUCKETS[number % len(BUCKETS)]
        metadata = {"number": str(number), "note": f"n{rng.random():.6f}"}
        match rng.randrange(10):
            case 0:
                content = release(number % 7 + 7 * (number // 350), 200_000, number // 7 % 50)
                history.put(s3, bucket, f"family-{number % 7}/release-{number}.bin", content, metadata)
            case 1:
                history.put(s3, bucket, f"noise/{number}", noise(number, rng.randrange(5_000, 60_000)), metadata)
            case 2:
                history.put(s3, bucket, f"empty/{number}", b"", metadata)
            case _:
                history.put(s3, bucket, f"small/{number}", noise(number, rng.randrange(1, 3_000)), metadata)
        if number % 10 == 7:
            there, key = rng.choice(sorted(history.objects))
            history.put(s3, there, key, noise(number + 1_000_000, 9_000), {"again": "yes"})
        if number % 10 == 9:
            there, key = rng.choice(sorted(history.objects))
            history.delete(s3, there, key)
    for number, bucket in enumerate(BUCKETS):
        parts = [noise(number, 5 * MIB), release(number, 5 * MIB, 1), b"the end"]
        history.put_parts(s3, bucket, "parts/object", parts, {"parts": "3"})
    return history


def ship(server: Server) -> None:
    """What is acknowledged now is longer ago than `journal_seconds` afterwards."""
    server.admin("/api/v1/journal", "POST")


def burn(server: Server) -> None:
    """The catalog is lost, and the process with it."""
    server.kill()
    server.lose_catalog()


def purge_everything(server: Server) -> None:
    """What was deleted is gone from the backend, so that it could not come back if it wanted."""
    server.run("gc", "--now")


@pytest.mark.parametrize(
    ("count", "objects_min"),
    [(300, 200), pytest.param(11_600, 9_900, marks=[pytest.mark.long, pytest.mark.timeout(3600)])],
)
def test_a_rebuild_gives_back_every_version_that_was_acknowledged_in_time(
    new_server: NewServer, count: int, objects_min: int
) -> None:
    server = new_server(backup={"journal_seconds": 1}).start()
    s3 = blunt_client(server.endpoint)
    history = live(s3, count // 2, seed=1)
    server.run("backup")
    for number in range(count // 2):
        bucket = BUCKETS[number % len(BUCKETS)]
        history.put(s3, bucket, f"later/{number}", release(number // 40, 12_000, number % 40), {"later": str(number)})
        if number % 10 == 0:
            history.delete(s3, *min(history.objects))
    if count < 1000:
        purge_everything(server)
    ship(server)
    burn(server)
    (server.data / "root-credentials.json").unlink(missing_ok=True)
    report = server.json("rebuild")
    assert report["damage"] is None
    assert report["replayed"] > 0 and report["backup"] is not None
    server.start()
    # On a busy machine the converter may have been writing something anew when the process died: what only that blob
    # knows lies in quarantine, and is one object more.
    in_quarantine = report["recovered"]["versions"]
    assert history.assert_back(s3) == len(history.objects) == report["objects"] - len(in_quarantine)
    assert all(entry["has_older"] for entry in in_quarantine), in_quarantine
    assert len(history.objects) > objects_min
    # It goes on as a store does.
    history.put(s3, BUCKETS[1], "after", b"the fire", {})
    server.restart()
    history.assert_back(s3)


def test_what_only_blobs_know_is_quarantined_and_sealed_objects_open_with_only_the_kek(new_server: NewServer) -> None:
    server = new_server(backup={"journal_seconds": 3600}).start()
    s3 = blunt_client(server.endpoint)
    history = live(s3, 40)
    ship(server)
    sealed, plain = noise(501, 30_000), noise(502, 30_000)
    s3.put_object(Bucket="off-aes256-00", Key="last/sealed", Body=sealed)
    s3.put_object(Bucket="zstd-00", Key="last/plain", Body=plain, Metadata={"a": "b"})
    known = next(key for bucket, key in sorted(history.objects) if bucket == "zstd-00")
    s3.put_object(Bucket="zstd-00", Key=known, Body=noise(503, 30_000))
    keyring = (server.data / "keyring.json").read_text()
    burn(server)
    blobs = server.blobs.rename(server.folder / "blobs-kept")
    shutil.rmtree(server.data)
    server.data.mkdir(mode=0o700)
    blobs.rename(server.blobs)
    without_kek = server.run("rebuild", check=False)
    assert without_kek.returncode == 1 and "KEK" in without_kek.stderr
    (server.data / "keyring.json").write_text(keyring)
    report = server.json("rebuild")
    recovered = {(entry["bucket"], entry["key"]): entry for entry in report["recovered"]["versions"]}
    assert set(recovered) == {("off-aes256-00", "last/sealed"), ("zstd-00", "last/plain"), ("zstd-00", known)}
    assert recovered["zstd-00", known]["has_older"] and not recovered["zstd-00", "last/plain"]["has_older"]
    server.start()
    history.assert_back(s3)
    for bucket, key, content in (("off-aes256-00", "last/sealed", sealed), ("zstd-00", "last/plain", plain)):
        assert s3.get_object(Bucket=bucket, Key=QUARANTINE + key)["Body"].read() == content
    assert s3.head_object(Bucket="zstd-00", Key=QUARANTINE + "last/plain")["Metadata"] == {"a": "b"}


def test_with_neither_backup_nor_journal_manifests_tell_what_they_know(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    history = History()
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)
        for number in range(4):
            history.put(s3, bucket, f"release-{number}", release(3, 300_000, number), {"n": str(number)})
    parts = [noise(1, 5 * MIB), noise(2, 5 * MIB), noise(3, 30_000)]
    ids: dict[str, Any] = {"Bucket": "delta-00", "Key": "parts"}
    history.put_parts(s3, ids["Bucket"], ids["Key"], parts, {})
    burn(server)
    server.lose_journal_and_backups()
    refused = server.run("restore", check=False)
    assert refused.returncode == 1 and "rebuild" in refused.stderr
    report = server.json("rebuild", "--in-place")
    assert report["recovered"]["unreadable"] == []
    server.start()
    for (bucket, key), (digest, etag, metadata, _) in history.objects.items():
        # Nobody can tell whether all parts were found.
        got = s3.get_object(Bucket=bucket, Key=QUARANTINE + key if key == "parts" else key)
        assert (hashlib.sha256(got["Body"].read()).hexdigest(), got["ETag"]) == (digest, etag), (bucket, key)
        assert got["Metadata"] == metadata


@pytest.mark.parametrize("journal", [True, False], ids=["with-journal", "manifests-only"])
def test_nothing_is_lost_of_an_object_that_was_merged_around_a_part_of_another_one(
    new_server: NewServer, journal: bool
) -> None:
    bucket = "delta-aes256-00"
    server = new_server(
        convert={"interval": "1h", "merge_extents": 32, "free_bytes_min": 0}, backup={"journal_seconds": 3600}
    ).start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket=bucket)
    history = History()
    parts = [noise(number, 5 * MIB // 64) * 64 for number in range(40)]
    history.put_parts(s3, bucket, "parts", parts, {"of": "forty"})
    other: dict[str, Any] = {"Bucket": bucket, "Key": "other"}
    other["UploadId"] = s3.create_multipart_upload(**other, ContentType="application/x-test")["UploadId"]
    taken = s3.upload_part_copy(
        **other,
        PartNumber=1,
        CopySource=f"{bucket}/parts",
        CopySourceRange=f"bytes={20 * 5 * MIB}-{21 * 5 * MIB - 1}",
    )["CopyPartResult"]["ETag"]
    whole = s3.complete_multipart_upload(**other, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": taken}]})
    server.settle(300)
    purge_everything(server)
    extents = [extent["len"] for extent in server.json("explain", f"s3://{bucket}/parts")["extents"]]
    assert extents == [20 * 5 * MIB, 5 * MIB, 19 * 5 * MIB]

    ship(server)
    burn(server)
    if not journal:
        server.lose_journal_and_backups()
    report = server.json("rebuild", *([] if journal else ["--in-place"]))
    assert report["damage"] is None and report["recovered"]["unreadable"] == []
    server.start()
    if journal:
        history.objects[bucket, "other"] = (hashlib.sha256(parts[20]).hexdigest(), whole["ETag"], {}, 5 * MIB)
        assert history.assert_back(s3) == 2
        seventh = s3.get_object(Bucket=bucket, Key="parts", PartNumber=7)
        assert (seventh["PartsCount"], seventh["Body"].read()) == (40, parts[6])
        return
    # Merged blobs know their order, not which part of the upload lay between them: all bytes are there, in two pieces.
    recovered = {entry["recovered_as"] for entry in report["recovered"]["versions"]}
    bodies = [s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in recovered]
    assert sorted(bodies, key=len) == [parts[20], b"".join(parts[:20] + parts[21:])]


def files_of(server: Server, kind: str) -> list[Path]:
    """The files of one kind of blob, by name."""
    return sorted((path for path in (server.blobs / kind).rglob("*") if path.is_file()), key=lambda path: path.name)


def flip(path: Path) -> None:
    """One bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)


@pytest.mark.parametrize("torn", [False, True], ids=["flipped", "torn"])
def test_a_damaged_journal_blob_is_named_and_never_skipped(new_server: NewServer, torn: bool) -> None:
    server = new_server(backup={"journal_seconds": 3600}).start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="zstd-00")
    for number in range(6):
        s3.put_object(Bucket="zstd-00", Key=f"k{number}", Body=noise(number, 5_000))
        ship(server)
    burn(server)
    files = files_of(server, "journal")
    assert len(files) >= 6
    damaged = files[-3]
    if torn:
        damaged.chmod(0o600)
        damaged.write_bytes(damaged.read_bytes()[:-40])
    else:
        flip(damaged)
    for command in ("restore", "rebuild"):
        refused = server.run(command, check=False)
        assert refused.returncode == 1 and damaged.name in refused.stderr, refused.stderr
    assert "did not end" in start_refused(server)
    partly = server.run("rebuild", "--stop-at-damage", "--json", check=False)
    report = json.loads(partly.stdout)
    assert partly.returncode == 1 and damaged.name in report["damage"]
    assert {entry["key"] for entry in report["recovered"]["versions"]} == {"k3", "k4", "k5"}
    server.start()
    keys = {entry["Key"] for entry in s3.list_objects_v2(Bucket="zstd-00")["Contents"]}
    assert keys == {"k0", "k1", "k2", *(f"{QUARANTINE}k{number}" for number in (3, 4, 5))}


def test_a_damaged_backup_is_named_and_an_older_one_gives_the_same(new_server: NewServer) -> None:
    server = new_server(backup={"journal_seconds": 3600}).start()
    s3 = blunt_client(server.endpoint)
    history = live(s3, 24)
    first = server.json("backup")["backup"]["id"]
    history.put(s3, "zstd-00", "between", b"x" * 9_000, {})
    second = server.json("backup")["backup"]["id"]
    history.put(s3, "zstd-00", "behind", b"y" * 9_000, {})
    ship(server)
    burn(server)
    assert [entry["id"] for entry in server.json("restore", "--list")["backups"]] == [first, second]
    flip(next(path for path in files_of(server, "backup-part") if second.rsplit("-", 1)[1] in str(path)))
    refused = server.run("restore", check=False)
    assert refused.returncode == 1 and second in refused.stderr and "--backup" in refused.stderr
    report = server.json("restore", "--backup", first)
    assert report["backup"]["id"] == first
    server.start()
    history.assert_back(s3)


def start_refused(server: Server) -> str:
    """What `serve` says when it does not start."""
    process = server.launch()
    assert process.wait(30) != 0
    return server.tail()


def test_an_older_copy_of_the_catalog_is_refused_in_words_that_help(new_server: NewServer) -> None:
    server = new_server(backup={"journal_seconds": 3600}).start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="zstd-00")
    s3.put_object(Bucket="zstd-00", Key="old", Body=b"o" * 9_000)
    assert server.stop() == 0
    copy = server.folder / "copy.sqlite"
    shutil.copy(server.data / "catalog.sqlite", copy)
    server.start()
    s3.put_object(Bucket="zstd-00", Key="new", Body=b"n" * 9_000)
    assert server.stop() == 0
    burn(server)
    shutil.copy(copy, server.data / "catalog.sqlite")
    said = start_refused(server)
    for word in ("older copy", "deltaweir rebuild", "deltaweir restore", "--accept-older-catalog"):
        assert word in said, said
    burn(server)
    assert "is new" in start_refused(server), "an empty catalog over a store that has one"
    burn(server)
    shutil.copy(copy, server.data / "catalog.sqlite")
    server.launch("--accept-older-catalog")
    server.wait_ready()
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="zstd-00")["Contents"]] == ["old"]
    server.run("gc", "--now")
    s3.put_object(Bucket="zstd-00", Key="on", Body=b"w" * 9_000)
    server.restart()
    assert len(s3.list_objects_v2(Bucket="zstd-00")["Contents"]) == 2


def test_backup_and_rebuild_are_repeated_after_being_killed(new_server: NewServer) -> None:
    server = new_server(backup={"journal_seconds": 3600}).start()
    s3 = blunt_client(server.endpoint)
    history = live(s3, 60)
    ship(server)
    process = subprocess.Popen(
        [str(server.binary), "backup", "--config", str(server.config)],
        env=server.variables(),
        cwd=server.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: files_of(server, "backup-part") or process.poll() is not None, 30, "a backup is under way")
    server.kill()
    process.kill()
    process.wait(30)
    server.start()
    server.run("backup")
    burn(server)
    for delay_s in (0.02, 0.05, 0.1, 0.2):
        process = subprocess.Popen(
            [str(server.binary), "rebuild", "--config", str(server.config)],
            env=server.variables(),
            cwd=server.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)
        else:
            break
    if process.returncode != 0:
        again = server.run("rebuild", check=False)
        # It may have been killed when all was done.
        assert again.returncode == 0 or "what the last recovery made" in again.stderr, again.stderr
    server.start()
    history.assert_back(s3)


def test_without_a_pause_nothing_acknowledged_is_missing_from_the_journal(new_server: NewServer) -> None:
    server = new_server(backup={"journal_seconds": 0}).start()
    s3 = blunt_client(server.endpoint)
    history = live(s3, 30)
    burn(server)
    report = server.json("restore")
    assert report["objects"] == len(history.objects)
    server.start()
    history.assert_back(s3)


def test_a_store_moves_from_sqlite_to_postgresql_and_back(new_server: NewServer) -> None:
    postgres = Postgres().make().start()
    try:
        server = new_server(backup={"journal_seconds": 3600}).start()
        s3 = blunt_client(server.endpoint)
        history = live(s3, 24)
        server.run("backup")
        history.put(s3, "zstd-00", "behind", noise(77, 9_000), {"behind": "the backup"})
        assert server.stop() == 0
        server.tables["storage"] = {"catalog": postgres.url}
        server.write_config()
        report = server.json("restore")
        assert report["objects"] == len(history.objects) and report["replayed"] > 0
        server.start()
        history.assert_back(s3)
        history.put(s3, "delta-00", "in-postgres", noise(78, 9_000), {})
        server.run("backup")
        history.delete(s3, "zstd-00", "behind")
        assert server.stop() == 0
        server.tables["storage"] = {"catalog": "sqlite"}
        assert "gone on as" in start_refused(server), "the old catalog is not served again"
        burn(server)
        assert server.json("restore")["objects"] == len(history.objects)
        server.start()
        history.assert_back(s3)
    finally:
        postgres.remove()
