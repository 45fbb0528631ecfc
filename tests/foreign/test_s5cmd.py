"""s5cmd: parallel parts, wildcards, pipes, sync, versions, presigned URLs of the Go SDK."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from outside.clients import Command
from outside.content import MIB, noise
from outside.server import REGION, ROOT

pytestmark = pytest.mark.long


class S5cmd(Command):
    """s5cmd from the repository's own environment."""

    def run(self, *arguments: str) -> str:
        """`s5cmd ARGUMENTS`, what it prints."""
        program = str(ROOT / ".venv" / "bin" / "s5cmd")
        return self._run(program, "--endpoint-url", self.endpoint, *arguments).stdout

    def environment(self) -> dict[str, str]:
        return super().environment() | {"AWS_REGION": REGION}


@pytest.fixture
def s5cmd(endpoint: str, tmp_path: Path) -> S5cmd:
    """s5cmd on the shared endpoint."""
    return S5cmd(endpoint, tmp_path / "s5cmd-home")


def test_files_go_up_in_parts_and_come_back_by_wildcard(s5cmd: S5cmd, tmp_path: Path, bucket: str) -> None:
    big = tmp_path / "big"
    big.write_bytes(noise(1, 12 * MIB))
    s5cmd.run("cp", "--part-size", "5", str(big), f"s3://{bucket}/big")
    assert "big" in s5cmd.run("ls", f"s3://{bucket}")
    s5cmd.run("cp", f"s3://{bucket}/*", f"{tmp_path / 'back'}/")
    assert (tmp_path / "back" / "big").read_bytes() == big.read_bytes()
    assert str(12 * MIB) in s5cmd.run("du", f"s3://{bucket}/*")
    with urllib.request.urlopen(s5cmd.run("presign", f"s3://{bucket}/big").strip(), timeout=20) as answer:
        assert answer.read() == big.read_bytes()


def test_objects_are_moved_synchronised_and_removed_with_their_versions(s5cmd: S5cmd, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for number in range(5):
        (tmp_path / "tree" / str(number)).write_bytes(noise(number, 1000))
    s5cmd.run("mb", "s3://made-by-s5cmd")
    s5cmd.run("bucket-version", "--set", "Enabled", "s3://made-by-s5cmd")
    s5cmd.run("sync", f"{tmp_path / 'tree'}/", "s3://made-by-s5cmd/t/")
    assert s5cmd.run("sync", f"{tmp_path / 'tree'}/", "s3://made-by-s5cmd/t/") == ""
    s5cmd.run("mv", "s3://made-by-s5cmd/t/0", "s3://made-by-s5cmd/moved")
    assert "moved" in s5cmd.run("head", "s3://made-by-s5cmd/moved")
    s5cmd.run("rm", "s3://made-by-s5cmd/*")
    s5cmd.run("rm", "--all-versions", "s3://made-by-s5cmd/*")
    s5cmd.run("rb", "s3://made-by-s5cmd")
