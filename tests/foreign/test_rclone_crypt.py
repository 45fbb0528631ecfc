"""rclone crypt: names and content that the client encrypts, in parts, read by range, moved, and checked afterwards."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from outside.clients import Rclone, S3Client
from outside.content import MIB, noise

pytestmark = pytest.mark.long


class Crypt(Rclone):
    """rclone with a remote `secret:` over a folder of the bucket `crypt-of-rclone`."""

    def environment(self) -> dict[str, str]:
        obscured = subprocess.run(["rclone", "obscure", "secret"], capture_output=True, text=True, check=True)
        return super().environment() | {
            "RCLONE_CONFIG_SECRET_TYPE": "crypt",
            "RCLONE_CONFIG_SECRET_REMOTE": "store:crypt-of-rclone/vault",
            "RCLONE_CONFIG_SECRET_PASSWORD": obscured.stdout.strip(),
        }


def test_an_encrypted_tree_is_kept_changed_and_read_back(endpoint: str, s3: S3Client, tmp_path: Path) -> None:
    rclone = Crypt(endpoint, tmp_path / "home")
    tree = tmp_path / "tree"
    (tree / "größe 1+2").mkdir(parents=True)
    for name, size in (("a", 0), ("b", 70_000), ("größe 1+2/large", 12 * MIB)):
        (tree / name).write_bytes(noise(size or 1, size))
    s3.create_bucket(Bucket="crypt-of-rclone")
    parts = ("--s3-upload-cutoff", "5M", "--s3-chunk-size", "5M")
    rclone.run("sync", str(tree), "secret:", *parts)
    assert "0 differences found" in rclone.run("cryptcheck", str(tree), "secret:").stderr
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket="crypt-of-rclone")["Contents"]]
    assert len(keys) == 3 and not any("large" in key for key in keys)
    (tree / "b").write_bytes(noise(2, 70_001))
    (tree / "a").unlink()
    rclone.run("sync", str(tree), "secret:", *parts)
    rclone.run("moveto", "secret:b", "secret:moved")
    rclone.run("copy", "secret:", str(tmp_path / "back"))
    assert (tmp_path / "back" / "moved").read_bytes() == noise(2, 70_001)
    assert (tmp_path / "back" / "größe 1+2" / "large").read_bytes() == noise(12 * MIB, 12 * MIB)
    assert not (tmp_path / "back" / "a").exists()
