"""A base that many deltas need is stored twice: one damaged file costs nothing, two are an error (E8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client
from outside.content import KIB, MIB, noise
from outside.server import Server, until
from outside.storage import assert_accounts_balance, bucket_stats
from outside.store import Store

DELTAS = 20
SIZE = MIB


class Place(Protocol):
    """Where a server's blobs lie."""

    def names(self, folder: str) -> list[str]:
        """The names in `blobs/` or `copies/`, sorted, without the folder."""

    def read(self, folder: str, name: str) -> bytes:
        """What lies under a name."""

    def write(self, folder: str, name: str, content: bytes) -> None:
        """Puts something else there."""

    def remove(self, folder: str, name: str) -> None:
        """Removes it."""


class Directory:
    """A local backend."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _file(self, folder: str, name: str) -> Path:
        (found,) = (self.root / folder).rglob(name)
        return found

    def names(self, folder: str) -> list[str]:
        """See `Place`."""
        return sorted(path.name for path in (self.root / folder).rglob("*") if path.is_file())

    def read(self, folder: str, name: str) -> bytes:
        """See `Place`."""
        return self._file(folder, name).read_bytes()

    def write(self, folder: str, name: str, content: bytes) -> None:
        """See `Place`."""
        self._file(folder, name).write_bytes(content)

    def remove(self, folder: str, name: str) -> None:
        """See `Place`."""
        self._file(folder, name).unlink()


class Cloud:
    """An S3 backend."""

    def __init__(self, s3: S3Client, prefix: str) -> None:
        self.s3, self.prefix = s3, prefix

    def _key(self, folder: str, name: str) -> str:
        return f"{self.prefix}{folder}/{name}"

    def names(self, folder: str) -> list[str]:
        """See `Place`."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket="blobs", Prefix=self._key(folder, ""))
        return sorted(found["Key"].rsplit("/", 1)[1] for page in pages for found in page.get("Contents", []))

    def read(self, folder: str, name: str) -> bytes:
        """See `Place`."""
        content: bytes = self.s3.get_object(Bucket="blobs", Key=self._key(folder, name))["Body"].read()
        return content

    def write(self, folder: str, name: str, content: bytes) -> None:
        """See `Place`."""
        self.s3.put_object(Bucket="blobs", Key=self._key(folder, name), Body=content)

    def remove(self, folder: str, name: str) -> None:
        """See `Place`."""
        self.s3.delete_object(Bucket="blobs", Key=self._key(folder, name))


def flipped(content: bytes) -> bytes:
    """One bit in the middle is another."""
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 0x10
    return bytes(changed)


def series() -> dict[str, bytes]:
    """Twenty objects that differ from a first one by 2 KiB each."""
    first = noise(71, SIZE)
    objects = {"app-00": first}
    for number in range(1, DELTAS + 1):
        at = number * 40 * KIB
        objects[f"app-{number:02}"] = first[:at] + noise(1000 + number, 2 * KIB) + first[at + 2 * KIB :]
    return objects


def read(s3: S3Client, bucket: str, key: str) -> bytes | None:
    """An object's bytes; `None` when the answer is an error or is cut."""
    try:
        content: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    except (BotoCoreError, ClientError):
        return None
    return content


def unreadable(server: Server, bucket: str, objects: dict[str, bytes]) -> set[str]:
    """Keys of the objects that cannot be read now; none may be read wrong."""
    server.drop_caches()
    s3 = blunt_client(server.endpoint, retries={"total_max_attempts": 1})
    got = {key: read(s3, bucket, key) for key in objects}
    assert all(got[key] in (None, content) for key, content in objects.items()), "wrong bytes"
    return {key for key, content in got.items() if content is None}


def run_job(server: Server, name: str) -> Any:
    """What a run of a job reports."""
    until(lambda: not server.admin(f"/api/v1/jobs/{name}")["running"], 60, "an earlier run has ended")
    run = server.admin(f"/api/v1/jobs/{name}", "POST")["run"]

    def ended() -> Any:
        job = server.admin(f"/api/v1/jobs/{name}")
        return job["run"] >= run and not job["running"] and job

    job = until(ended, 60, f"{name} has ended")
    assert job["last_result"] == "ok", job
    return job["last_outcome"]


def scrub(server: Server) -> Any:
    """The report of a scrub, whatever it found."""
    return json.loads(server.run("scrub", "--json", check=False).stdout)


@pytest.mark.parametrize("backend", ["local", "cloud"])
@pytest.mark.parametrize("bucket", ["delta-00", "delta-aes256-00"])
def test_twenty_deltas_outlive_their_base(
    new_server: NewServer, request: pytest.FixtureRequest, backend: str, bucket: str
) -> None:
    place: Place
    if backend == "local":
        server = new_server().start()
        place = Directory(server.blobs)
    else:
        store: Store = request.getfixturevalue("store")
        server = new_server(**store.tables()).start()
        place = Cloud(store.client(), str(store.table()["prefix"]))
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket=bucket)
    objects = series()
    for key, content in objects.items():
        s3.put_object(Bucket=bucket, Key=key, Body=content)
    server.settle()
    assert place.names("copies") == []

    report = run_job(server, "copies")
    assert (report["copied"], report["damaged"], report["errors"]) == (1, 0, 0)
    (copy,) = place.names("copies")
    base = copy.split("-")[0]
    good = place.read("blobs", base)
    assert place.read("copies", copy) == good
    told = server.json("inspect", base)
    assert told["fan_in"] == DELTAS and told["copy"] == copy.split("-")[1]
    stats = bucket_stats(server, bucket)
    assert (stats["base_copies"], stats["base_copy_bytes"]) == (1, len(good))
    assert stats["stored"]["overhead"] >= len(good)
    if backend == "local":
        assert_accounts_balance(server)

    for damage in (None, flipped(good), good[: len(good) // 2]):
        if damage is None:
            place.remove("blobs", base)
        else:
            place.write("blobs", base, damage)
        assert unreadable(server, bucket, objects) == set()
        found = scrub(server)
        assert (found["counts"]["restored"], found["counts"]["damaged"]) == (1, 0), found
        assert place.read("blobs", base) == good
        assert unreadable(server, bucket, objects) == set()
    assert server.metrics().total("deltaweir_base_copy_reads_total", result="served") >= 3
    assert server.metrics().total("deltaweir_scrub_objects_total", result="restored") == 3
    assert server.metrics().total("deltaweir_quarantined_blobs") == 0

    place.write("copies", copy, flipped(good))
    assert scrub(server)["counts"]["copies_replaced"] == 1
    (second,) = place.names("copies")
    assert second != copy and place.read("copies", second) == good

    place.write("blobs", base, flipped(good))
    place.write("copies", second, flipped(good))
    lost = unreadable(server, bucket, objects)
    assert lost == objects.keys()
    found = scrub(server)
    assert {one["key"] for one in found["quarantine"]["affected"]} == lost

    place.write("copies", second, good)
    server.restart()
    assert scrub(server)["counts"]["restored"] == 1
    assert unreadable(server, bucket, objects) == set()

    s3 = blunt_client(server.endpoint)
    for key in objects:
        s3.delete_object(Bucket=bucket, Key=key)
    server.run("gc", "--now")
    assert (place.names("blobs"), place.names("copies")) == ([], [])
    assert bucket_stats(server, bucket)["base_copies"] == 0


def copied_series(server: Server, place: Directory) -> tuple[dict[str, bytes], str]:
    """Stores a series whose base has a second copy then: its objects, and the copy's name."""
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    objects = series()
    for key, content in objects.items():
        s3.put_object(Bucket="delta-00", Key=key, Body=content)
    run_job(server, "copies")
    (copy,) = place.names("copies")
    return objects, copy


def test_what_a_crash_left_of_a_copy_is_collected_and_is_no_blob_to_a_rebuild(new_server: NewServer) -> None:
    server = new_server().start()
    place = Directory(server.blobs)
    objects, copy = copied_series(server, place)
    base, _ = copy.split("-")
    assert server.stop() == 0

    # As if the process had ended between the copy and its row.
    left = server.blobs / "copies" / "+ab" / "+b" / f"{base}-{copy.split('-')[1][:8]}{'ab' * 12}"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(place.read("copies", copy))
    assert len(place.names("copies")) == 2
    server.start()
    server.run("gc", "--now")
    assert len(place.names("copies")) == 2, "it is on the list for a day"
    server.run("gc", "--empty-trash")
    assert place.names("copies") == [copy]

    assert server.stop() == 0
    place.write("blobs", base, flipped(place.read("blobs", base)))
    server.lose_catalog()
    rebuilt = server.json("rebuild")
    assert rebuilt["recovered"]["unknown_blobs"] == 0, rebuilt
    server.start()
    assert unreadable(server, "delta-00", objects) == set(), "the rebuilt catalog knows the copy"
    assert scrub(server)["counts"]["restored"] == 1


def test_a_base_that_cannot_be_written_anew_is_said_to_be_damaged_and_its_objects_are_read(
    new_server: NewServer,
) -> None:
    server = new_server().start()
    place = Directory(server.blobs)
    objects, copy = copied_series(server, place)
    base, _ = copy.split("-")
    (lies,) = (server.blobs / "blobs").rglob(base)
    good = lies.read_bytes()
    # A directory in the file's place is neither read nor removed.
    lies.unlink()
    (lies / "in the way").mkdir(parents=True)
    assert unreadable(server, "delta-00", objects) == set()
    found = server.run("scrub", "--json", check=False)
    assert found.returncode == 1 and "second copies" in found.stderr
    report = json.loads(found.stdout)
    assert (report["counts"]["copy_only"], report["counts"]["restored"]) == (1, 0)
    assert report["quarantine"] == {"blobs": [], "affected": []}
    assert "only its second copy can be read" in server.tail(200)
    assert place.read("copies", copy) == good
    assert unreadable(server, "delta-00", objects) == set()

    (lies / "in the way").rmdir()
    lies.rmdir()
    assert scrub(server)["counts"]["restored"] == 1
    assert lies.read_bytes() == good


def test_without_the_setting_nothing_is_stored_twice(new_server: NewServer) -> None:
    server = new_server(storage={"base_copies": 0, "second_copies": "none"}).start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    for key, content in series().items():
        s3.put_object(Bucket="delta-00", Key=key, Body=content)
    assert server.admin("/api/v1/jobs/copies")["interval_s"] is None
    assert run_job(server, "copies")["copied"] == 0
    assert Directory(server.blobs).names("copies") == []


@pytest.mark.parametrize("wrong", [1001, -1, "many"])
def test_a_number_of_deltas_that_no_base_has_is_refused(new_server: NewServer, wrong: int | str) -> None:
    server = new_server(storage={"base_copies": wrong})
    server.write_config()
    refused = server.run("config", "check", check=False)
    assert refused.returncode != 0 and "storage.base_copies" in refused.stdout + refused.stderr
