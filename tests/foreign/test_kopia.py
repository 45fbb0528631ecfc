"""kopia: snapshots in packs of megabytes, verified and restored; what is unused is removed; blobs under object lock."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from outside.clients import Command, S3Client
from outside.content import MIB, noise
from outside.server import ACCESS_KEY_ID, REGION, ROOT, SECRET_ACCESS_KEY
from outside.tools import built_by_setup

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


KOPIA = ROOT / ".tools" / "bin" / "kopia"


class Kopia(Command):
    """kopia, in one of its homes."""

    def run(self, *arguments: str) -> str:
        """`kopia ARGUMENTS`, what it prints."""
        return self._run(str(KOPIA), *arguments).stdout

    def environment(self) -> dict[str, str]:
        return super().environment() | {"KOPIA_PASSWORD": "of the tests", "KOPIA_CHECK_FOR_UPDATES": "false"}

    def repository(self, action: str, bucket: str, *more: str) -> str:
        """`kopia repository create` or `connect`, in a bucket."""
        place = urlsplit(self.endpoint)
        server = ["--endpoint", place.netloc, "--region", REGION, "--disable-tls"]
        keys = ["--access-key", ACCESS_KEY_ID, "--secret-access-key", SECRET_ACCESS_KEY]
        return self.run("repository", action, "s3", "--bucket", bucket, "--prefix", "k/", *server, *keys, *more)


@pytest.fixture
def kopia(endpoint: str, tmp_path: Path) -> Kopia:
    """kopia on the shared endpoint."""
    built_by_setup("kopia", KOPIA.name)
    return Kopia(endpoint, tmp_path / "kopia-home")


def grow(tree: Path, seed: int) -> None:
    """Files of a few sizes, one of them longer than a pack."""
    tree.mkdir(exist_ok=True)
    for number, size in enumerate((0, 700, 300_000, 24 * MIB)):
        (tree / f"{seed}-{number}").write_bytes(noise(seed + number, size))


def same(one: Path, other: Path) -> bool:
    """Whether two directories have the same files."""
    read = [{path.name: path.read_bytes() for path in tree.iterdir()} for tree in (one, other)]
    return read[0] == read[1]


def test_snapshots_are_made_verified_and_restored_by_another_client(kopia: Kopia, tmp_path: Path, bucket: str) -> None:
    tree = tmp_path / "tree"
    grow(tree, 1)
    kopia.repository("create", bucket)
    kopia.run("snapshot", "create", str(tree))
    grow(tree, 10)
    kopia.run("snapshot", "create", str(tree))
    kopia.run("snapshot", "verify", "--verify-files-percent", "100")
    other = Kopia(kopia.endpoint, tmp_path / "other-home")
    other.repository("connect", bucket)
    other.run("snapshot", "restore", str(tree), str(tmp_path / "back"))
    assert same(tree, tmp_path / "back")


def test_maintenance_removes_what_no_snapshot_names(kopia: Kopia, s3: S3Client, tmp_path: Path, bucket: str) -> None:
    def packs() -> int:
        return int(s3.list_objects_v2(Bucket=bucket, Prefix="k/p")["KeyCount"])

    tree = tmp_path / "tree"
    grow(tree, 1)
    kopia.repository("create", bucket)
    kopia.run("snapshot", "create", str(tree))
    assert packs() > 0
    kopia.run("snapshot", "delete", "--all-snapshots-for-source", str(tree), "--delete")
    for _ in range(3):  # what is unused is forgotten in one run, and removed in the next
        kopia.run("maintenance", "run", "--full", "--safety", "none")
    assert packs() == 0


def test_a_repository_keeps_its_blobs_under_object_lock(kopia: Kopia, s3: S3Client, tmp_path: Path) -> None:
    bucket = "kopia-locked"
    s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    kopia.repository("create", bucket, "--retention-mode", "GOVERNANCE", "--retention-period", "24h")
    grow(tmp_path / "tree", 1)
    kopia.run("snapshot", "create", str(tmp_path / "tree"))
    key = s3.list_objects_v2(Bucket=bucket, Prefix="k/p")["Contents"][0]["Key"]
    assert s3.get_object_retention(Bucket=bucket, Key=key)["Retention"]["Mode"] == "GOVERNANCE"
    kopia.run("snapshot", "verify", "--verify-files-percent", "100")
