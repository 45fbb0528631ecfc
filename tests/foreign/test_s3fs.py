"""s3fs-fuse: a bucket as a file system. Attributes live in metadata and change by copies onto the same key, files of
many megabytes are uploads in parts, a rename copies their parts, folders are empty objects."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outside.clients import S3Client
from outside.content import MIB, noise
from outside.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not os.access("/dev/fuse", os.W_OK), reason="this machine mounts no file systems of users"),
]


@pytest.fixture
def mounted(endpoint: str, bucket: str, tmp_path: Path) -> Iterator[Path]:
    """The bucket, mounted."""
    point, secret = tmp_path / "bucket", tmp_path / "secret"
    point.mkdir()
    secret.write_text(f"{ACCESS_KEY_ID}:{SECRET_ACCESS_KEY}\n")
    secret.chmod(0o600)
    options = f"passwd_file={secret},url={endpoint},use_path_request_style,multipart_size=5"
    with (tmp_path / "s3fs.log").open("wb") as log:
        process = subprocess.Popen(["s3fs", bucket, point, "-f", "-o", options], stdout=log, stderr=log)
    try:
        until(lambda: process.poll() is not None or point.is_mount(), 30, "the bucket is mounted")
        assert process.poll() is None, (tmp_path / "s3fs.log").read_text()
        yield point
    finally:
        process.terminate()
        process.wait(60)


def test_files_are_written_changed_renamed_and_removed(mounted: Path, s3: S3Client, bucket: str) -> None:
    (mounted / "folder" / "deeper").mkdir(parents=True)
    small, large = mounted / "small file", mounted / "folder" / "large"
    small.write_text("content")
    small.chmod(0o640)
    content = noise(9, 23 * MIB)
    large.write_bytes(content)
    assert "-" in s3.head_object(Bucket=bucket, Key="folder/large")["ETag"]
    moved = mounted / "folder" / "deeper" / "moved"
    large.rename(moved)
    assert not large.exists()
    assert moved.read_bytes() == content
    assert (small.read_text(), small.stat().st_mode & 0o777) == ("content", 0o640)
    assert s3.head_object(Bucket=bucket, Key="small file")["Metadata"]["mode"]
    with small.open("a") as file:
        file.write(" and more")
    assert s3.get_object(Bucket=bucket, Key="small file")["Body"].read() == b"content and more"
    assert sorted(path.name for path in mounted.rglob("*")) == ["deeper", "folder", "moved", "small file"]
    small.unlink()
    assert not small.exists()
