"""s3cmd: buckets, uploads in parts, sync, ACLs, signed URLs, expiry, tags, versions; its own URLs and headers."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from outside.clients import Command
from outside.content import MIB, noise
from outside.server import ACCESS_KEY_ID, ROOT, SECRET_ACCESS_KEY

pytestmark = pytest.mark.long


class S3cmd(Command):
    """s3cmd from the repository's own environment."""

    def run(self, *arguments: str) -> str:
        """`s3cmd ARGUMENTS`, what it prints."""
        host = self.endpoint.removeprefix("http://")
        pair = [f"--access_key={ACCESS_KEY_ID}", f"--secret_key={SECRET_ACCESS_KEY}"]
        place = ["--no-ssl", f"--host={host}", f"--host-bucket={host}", *pair]
        return self._run(str(ROOT / ".venv" / "bin" / "s3cmd"), *place, *arguments).stdout


@pytest.fixture
def s3cmd(endpoint: str, tmp_path: Path) -> S3cmd:
    """s3cmd on the shared endpoint."""
    return S3cmd(endpoint, tmp_path / "s3cmd-home")


def test_files_go_up_in_parts_are_listed_and_come_back(s3cmd: S3cmd, tmp_path: Path, bucket: str) -> None:
    big, small, back = tmp_path / "big", tmp_path / "small", tmp_path / "back"
    big.write_bytes(noise(1, 12 * MIB))
    small.write_bytes(b"small")
    s3cmd.run("put", str(big), f"s3://{bucket}/big", "--multipart-chunk-size-mb=5")
    s3cmd.run("put", str(small), f"s3://{bucket}/dir/small")
    listed = s3cmd.run("ls", "-r", f"s3://{bucket}")
    assert f"s3://{bucket}/big" in listed and f"s3://{bucket}/dir/small" in listed
    s3cmd.run("get", f"s3://{bucket}/big", str(back))
    assert back.read_bytes() == big.read_bytes()
    assert str(12 * MIB + 5) in s3cmd.run("du", f"s3://{bucket}")
    with urllib.request.urlopen(s3cmd.run("signurl", f"s3://{bucket}/big", "+600").strip(), timeout=20) as answer:
        assert answer.read() == big.read_bytes()


def test_objects_are_copied_moved_opened_tagged_and_changed(s3cmd: S3cmd, tmp_path: Path, bucket: str) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"small")
    s3cmd.run("put", str(small), f"s3://{bucket}/a")
    s3cmd.run("cp", f"s3://{bucket}/a", f"s3://{bucket}/b")
    s3cmd.run("mv", f"s3://{bucket}/b", f"s3://{bucket}/c")
    s3cmd.run("modify", "--add-header=x-amz-meta-colour:blue", f"s3://{bucket}/c")
    assert "blue" in s3cmd.run("info", f"s3://{bucket}/c")
    s3cmd.run("setacl", "--acl-public", f"s3://{bucket}/c")
    with urllib.request.urlopen(f"{s3cmd.endpoint}/{bucket}/c", timeout=20) as answer:
        assert answer.read() == b"small"
    s3cmd.run("settagging", f"s3://{bucket}/c", "a=b&c=d")
    assert "\ta:\tb\n\tc:\td\n" in s3cmd.run("gettagging", f"s3://{bucket}/c")


def test_a_bucket_expires_keeps_versions_and_is_removed_with_all_it_holds(s3cmd: S3cmd, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"x")
    s3cmd.run("mb", "s3://made-by-s3cmd")
    s3cmd.run("expire", "s3://made-by-s3cmd", "--expiry-days=3")
    assert "<Days>3</Days>" in s3cmd.run("getlifecycle", "s3://made-by-s3cmd")
    s3cmd.run("sync", f"{tmp_path / 'tree'}/", "s3://made-by-s3cmd/t/")
    assert "upload" not in s3cmd.run("sync", f"{tmp_path / 'tree'}/", "s3://made-by-s3cmd/t/")
    s3cmd.run("del", "-r", "--force", "s3://made-by-s3cmd")
    s3cmd.run("rb", "s3://made-by-s3cmd")
