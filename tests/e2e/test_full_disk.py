"""A full disk refuses uploads and nothing else: content is read and deleted, and space heals it without a restart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client
from outside.content import noise
from outside.disks import MIB, Disk, mounted
from outside.server import OFF, Server, Value, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")

BUCKET = f"{OFF.name}-00"
LAYOUTS = ("one", "catalog", "blobs", "inodes")
"""What is full: the only disk, that of the catalog alone, that of the blobs alone, or the inodes of the only disk."""


@dataclass
class Store:
    """A server whose data lie on small disks."""

    server: Server
    layout: str
    disk: Disk
    """The one that is filled."""
    s3: S3Client
    """A client that tries once."""
    small_files: int = 150
    """Objects of a cycle where inodes are what is full."""

    def fill(self) -> None:
        """Until nothing more fits."""
        (self.disk.fill_inodes if self.layout == "inodes" else self.disk.fill)()

    def put(self, cycle: int) -> dict[str, bytes]:
        """Objects that take enough to be missed."""
        sizes = [64 << 10] * self.small_files if self.layout == "inodes" else [4 * MIB] * 6
        objects = {f"{cycle}/{number:03}": noise(number, size) for number, size in enumerate(sizes)}
        for key, body in objects.items():
            self.s3.put_object(Bucket=BUCKET, Key=key, Body=body)
        return objects

    def refusal(self) -> ClientError | None:
        """How an upload is refused; `None` when it is not."""
        try:
            self.s3.put_object(Bucket=BUCKET, Key="one-more", Body=noise(7, MIB))
        except ClientError as refused:
            return refused
        return None

    def assert_full(self, objects: dict[str, bytes]) -> None:
        """Uploads are refused with a hint, reads are served."""
        refused = until(self.refusal, 10, "uploads are refused")
        answer = refused.response["ResponseMetadata"]
        assert answer["HTTPStatusCode"] == 503 and int(answer["HTTPHeaders"]["retry-after"]) >= 1
        assert "full" in refused.response["Error"]["Message"]
        key = min(objects)
        assert self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == objects[key]
        assert self.server.admin_status("/readyz") == 200

    def heal(self, objects: dict[str, bytes]) -> None:
        """Everything is deleted and collected, and uploads go on."""
        for key in objects:
            self.s3.delete_object(Bucket=BUCKET, Key=key)
        assert self.server.json("gc", "--now")["deleted_blobs"] >= len(objects)
        if self.layout == "catalog":
            # Where blobs lie elsewhere, deletions do not give the catalog space.
            self.disk.empty()
        until(lambda: self.refusal() is None, 30, "uploads go on")


def stored_on(
    stack: ExitStack,
    new_server: NewServer,
    folder: Path,
    layout: str,
    file_system: str = "tmpfs",
    inodes: int = 20_000,
) -> Store:
    """A server that runs on small disks."""
    disk = stack.enter_context(mounted(folder / "disk", 112 * MIB, inodes, file_system))
    other = disk
    if layout in ("catalog", "blobs"):
        other = stack.enter_context(mounted(folder / "other", 112 * MIB, file_system=file_system))
    data, blobs = (other, disk) if layout == "blobs" else (disk, other)
    tables: dict[str, dict[str, Value]] = {
        "storage": {"data": str(data.path / "data")},
        "backends.local": {"type": "local", "path": str(blobs.path / "blobs")},
    }
    server = new_server(**tables)
    stack.callback(server.kill)
    server.start()
    store = Store(server, layout, disk, blunt_client(server.endpoint))
    store.s3.create_bucket(Bucket=BUCKET)
    return store


@pytest.fixture(params=LAYOUTS)
def store(request: pytest.FixtureRequest, new_server: NewServer, tmp_path: Path) -> Iterator[Store]:
    """A server with nothing in it."""
    with ExitStack() as stack:
        yield stored_on(stack, new_server, tmp_path, request.param, inodes=900 if request.param == "inodes" else 20_000)


def test_a_full_disk_refuses_uploads_and_heals_when_content_is_deleted(store: Store) -> None:
    for cycle in range(2):
        objects = store.put(cycle)
        store.fill()
        store.assert_full(objects)
        store.heal(objects)
        store.disk.empty()


def test_a_server_starts_on_a_full_disk(store: Store) -> None:
    objects = store.put(0)
    store.fill()
    store.server.restart()
    store.fill()
    store.server.kill()
    store.server.start()
    store.assert_full(objects)
    assert store.server.metrics().total("deltaweir_disk_full") >= 1
    store.heal(objects)
    until(lambda: store.server.metrics().total("deltaweir_disk_full") == 0, 30, "the disk is shown as healed")


@pytest.mark.parametrize("store", ["one"], indirect=True)
def test_a_full_disk_removes_at_once_the_files_that_nothing_knows(store: Store) -> None:
    assert store.server.stop() == 0
    # A file of an epoch that has ended: its writer can commit it no more.
    orphan = store.disk.path / "blobs" / "blobs" / "+ef" / "+d" / "000000010123456789abcdef01234def"
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.write_bytes(noise(1, MIB))
    store.server.start()
    report = store.server.json("gc", "--sweep")
    assert (report["trash_files"], report["orphan_blobs"]) == (1, 0) and orphan.exists()
    store.fill()
    report = store.server.json("gc")
    assert (report["trash_files"], report["orphan_blobs"]) == (0, 1) and not orphan.exists()
