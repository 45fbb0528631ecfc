"""Coming from another S3 server and going back, by the commands of docs/guide/migrating.md as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from outside import originals
from outside.buckets import NewServer
from outside.clients import S3Client, s3_client, upload_parts
from outside.content import MIB, noise
from outside.server import ACCESS_KEY_ID, ROOT, SECRET_ACCESS_KEY, Server, Value
from outside.storage import bucket_stats
from outside.store import Store
from outside.tools import built_by_setup

pytestmark = pytest.mark.timeout(3600)

GUIDE = ROOT / "docs" / "guide" / "migrating.md"
SCRIPTS = dict(re.findall(r"^<!-- script: ([\w-]+) -->\n```\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL))
BUCKET = "media"
COUNT = 120
LARGE = "disk images/größe+1.img"
"""An object in parts, under a key that has to be escaped."""


class Minio(Store):
    """MinIO on one directory: a process of its own."""

    def start(self) -> Store:
        command = [str(built_by_setup("minio", "minio")), "server", "--address", f"127.0.0.1:{self.port}"]
        return self.run(
            [*command, "--console-address", "127.0.0.1:0", str(self.folder / "drive")],
            {"MINIO_ROOT_USER": ACCESS_KEY_ID, "MINIO_ROOT_PASSWORD": SECRET_ACCESS_KEY},
            timeout_s=60,
        )


@dataclass
class Move:
    """A server that is left, filled with objects, and one that is moved to."""

    old: Store
    made: dict[str, originals.Original]
    large: bytes
    server: Server
    folder: Path

    def run(self, *names: str) -> str:
        """Blocks of the guide, one after another in one shell; what they print."""
        programs = self.folder / "programs"
        programs.mkdir(exist_ok=True)
        if not (programs / "deltaweir").exists():
            (programs / "deltaweir").symlink_to(self.server.binary)
        settings = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "RCLONE_CONFIG": "/dev/null",
            "DELTAWEIR_CONFIG": str(self.server.config),
            "DELTAWEIR_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "DELTAWEIR_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "OLD": self.old.endpoint,
            "OLD_KEY": ACCESS_KEY_ID,
            "OLD_SECRET": SECRET_ACCESS_KEY,
            "WEIR": self.server.endpoint,
            "WEIR_KEY": ACCESS_KEY_ID,
            "WEIR_SECRET": SECRET_ACCESS_KEY,
            "OUT": str(self.folder / "out"),
        }
        script = "\n".join(SCRIPTS[name] for name in ("remotes", *names))
        done = subprocess.run(
            ["bash", "-euo", "pipefail"],
            input=script,
            env=settings,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{names}\n{done.stdout}\n{done.stderr}\n{self.server.tail()}"
        return done.stdout + done.stderr

    def check(self, s3: S3Client, bucket: str) -> None:
        """Every object of the old bucket is in this one, with what stands beside its content; no other is."""
        keys = {found["Key"] for page in pages(s3, bucket) for found in page.get("Contents", [])}
        assert keys == {*self.made, LARGE}
        for key, made in self.made.items():
            got = s3.get_object(Bucket=bucket, Key=key)
            assert got["Body"].read() == made.content, key
            assert (got["ContentType"], got["CacheControl"]) == (made.content_type, "max-age=60")
            # rclone adds the time of a file to what the client gave.
            assert made.metadata.items() <= got["Metadata"].items()
        assert s3.get_object(Bucket=bucket, Key=LARGE)["Body"].read() == self.large


def pages(s3: S3Client, bucket: str) -> Iterator[dict[str, list[dict[str, str]]]]:
    """The bucket's listing."""
    yield from s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)


@pytest.fixture(params=[Store, pytest.param(Minio, marks=pytest.mark.long)], ids=["versitygw", "minio"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """The server that is left."""
    running: Store = request.param(tmp_path / "old").start()
    yield running
    running.stop()


@pytest.fixture
def move(old: Store, new_server: NewServer, tmp_path: Path) -> Move:
    """Objects on the old server, and an empty deltaweir whose configuration is the guide's."""
    made = originals.fill(old, COUNT, bucket=BUCKET)
    large = noise(7, 12 * MIB)
    upload_parts(old.client(), BUCKET, LARGE, large)
    tables: dict[str, dict[str, Value]] = {
        "stores.media": originals.table(old, bucket=BUCKET),
        "stores.back": originals.table(old, bucket="back"),
        "buckets.media": {"read_through": "media"},
    }
    return Move(old, made, large, new_server(**tables).start(), tmp_path)


def test_a_bucket_is_copied_by_rclone_and_compared(move: Move) -> None:
    move.run("copy")
    # Clients still write to the old server: the last pass brings what changed and removes what went.
    theirs = move.old.client()
    gone, changed = list(move.made)[:2]
    theirs.delete_object(Bucket=BUCKET, Key=gone)
    del move.made[gone]
    again = originals.original(5_000, 30_000)
    move.made[changed] = originals.Original(changed, again.content, again.content_type, again.metadata)
    theirs.put_object(
        Bucket=BUCKET,
        Key=changed,
        Body=again.content,
        ContentType=again.content_type,
        CacheControl="max-age=60",
        Metadata=again.metadata,
    )
    move.run("copy")
    assert "0 differences found" in move.run("check")
    move.check(s3_client(move.server.endpoint), BUCKET)
    logical = sum(len(one.content) for one in move.made.values()) + len(move.large)
    move.server.settle()
    stats = bucket_stats(move.server, BUCKET)
    assert stats["foreign_bytes"] == 0
    assert stats["stored"]["total"] < logical - len(move.made) * 10_000, stats["stored"]
    s3_client(move.server.endpoint).put_object(Bucket=BUCKET, Key=changed, Body=b"other")
    with pytest.raises(AssertionError, match="1 differences found"):
        move.run("check")


def test_a_bucket_is_served_in_place_and_converted_until_the_old_server_can_go(move: Move) -> None:
    s3 = s3_client(move.server.endpoint, read_timeout=120)
    s3.create_bucket(Bucket=BUCKET)
    key = list(move.made)[3]
    assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == move.made[key].content, "before the import"
    move.run("import")
    move.check(s3, BUCKET)
    assert bucket_stats(move.server, BUCKET)["foreign_bytes"] > len(move.large)
    move.run("convert")
    assert bucket_stats(move.server, BUCKET)["foreign_bytes"] == 0
    assert "0 differences found" in move.run("check")
    move.old.stop()
    move.check(s3, BUCKET)


def test_a_bucket_goes_back_to_the_old_server_and_into_files(move: Move) -> None:
    move.run("copy")
    shutil.rmtree(move.folder / "out", ignore_errors=True)
    assert "0 differences found" in move.run("eject")
    move.check(move.old.client(), "back")
    assert "0 differences found" in move.run("eject-files")
    for key, made in move.made.items():
        assert (move.folder / "out" / key).read_bytes() == made.content
    assert (move.folder / "out" / LARGE).read_bytes() == move.large


def test_every_script_of_the_guide_is_run_here() -> None:
    text = Path(__file__).read_text()
    assert len(SCRIPTS) == 7
    assert [name for name in SCRIPTS if f'"{name}"' not in text] == []
