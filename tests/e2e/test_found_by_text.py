"""Compressed files and what was in them find each other by plain text: no name and no stored byte says where they come
from."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from outside.archives import plain_tar, tar_gz, wheel
from outside.buckets import NewServer, at_effort
from outside.clients import S3Client, s3_client, upload_parts
from outside.content import MIB
from outside.server import Server, Value
from outside.storage import assert_accounts_balance, collect, stored

BUCKETS = ("delta-00", "delta-aes256-00")
"""A plain one and a sealed one."""

Made = Callable[[int, int], bytes]

MADE: dict[str, Made] = {
    "tar.gz": lambda seed, version: tar_gz(seed, 12, 60_000, version),
    "tgz": lambda seed, version: tar_gz(seed, 12, 60_000, version, level=9),
    "whl": lambda seed, version: wheel(seed, 12, 60_000, version),
    "tar": lambda seed, version: plain_tar(seed, 12, 60_000, version),
}
"""Archives by their kind; those of one seed hold the same files, `version` releases on."""

ROUTES = [
    ("tar.gz", "tar.gz"),
    ("tgz", "tar.gz"),
    ("tar.gz", "whl"),
    ("whl", "tar.gz"),
    ("tar.gz", "tar"),
    ("whl", "tar"),
]
"""From what is stored to what comes after it."""


@pytest.fixture
def new_server(new_server: NewServer) -> NewServer:
    return at_effort(new_server, "auto")


@pytest.fixture
def own(new_server: NewServer) -> Server:
    """A server whose converter works when it is told to."""
    return new_server(convert={"interval": "1h", "free_bytes_min": 0}).start()


def read(s3: S3Client, bucket: str, key: str) -> bytes:
    """An object's content."""
    content: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    return content


def put_others(server: Server, s3: S3Client, bucket: str, kind: str) -> None:
    """Six archives with other files in them."""
    for seed in range(20, 26):
        s3.put_object(Bucket=bucket, Key=f"{seed * 7919:x}/{seed * 104_729:x}", Body=MADE[kind](seed, 0))
    server.settle(120)


@pytest.mark.parametrize("bucket", BUCKETS)
@pytest.mark.parametrize(("before", "after"), ROUTES)
def test_content_finds_among_others_the_archive_that_has_it_under_another_name(
    own: Server, bucket: str, before: str, after: str
) -> None:
    s3 = s3_client(own.endpoint)
    s3.create_bucket(Bucket=bucket)
    first, second = MADE[before](2, 0), MADE[after](2, 1)
    s3.put_object(Bucket=bucket, Key="a/8f3a2c", Body=first)
    put_others(own, s3, bucket, before)
    s3.put_object(Bucket=bucket, Key="nightly/2026/77aa01", Body=second)
    own.settle(120)
    kept = stored(s3, bucket, "nightly/2026/77aa01")
    assert kept.bases == ("a/8f3a2c",)
    # What a wheel says nothing about, the other encoder and headers, is more of a tar.gz than the files that changed.
    assert kept.stored_bytes <= len(second) * 0.15
    collect(own)
    own.drop_caches()
    assert read(s3, bucket, "nightly/2026/77aa01") == second
    last = s3.get_object(Bucket=bucket, Key="nightly/2026/77aa01", Range="bytes=-65536")["Body"].read()
    assert last == second[-65_536:]
    assert read(s3, bucket, "a/8f3a2c") == first
    assert_accounts_balance(own)


def test_the_first_of_a_series_is_found_though_it_came_with_the_others(own: Server) -> None:
    """All of them wait for the converter, which has opened none when it begins."""
    s3, bucket = s3_client(own.endpoint), BUCKETS[0]
    s3.create_bucket(Bucket=bucket)
    releases = {f"{version * 7919:x}/{version * 104_729:x}": MADE["tar.gz"](2, version) for version in range(1, 5)}
    for key, content in releases.items():
        s3.put_object(Bucket=bucket, Key=key, Body=content)
    own.settle(120)
    shares = sorted(stored(s3, bucket, key).stored_bytes / len(content) for key, content in releases.items())
    assert shares[2] <= 0.15 and shares[3] <= 1.01, "all but one differ from it"
    for key, content in releases.items():
        assert read(s3, bucket, key) == content


def test_an_archive_in_parts_is_found_by_the_text_of_all_parts(own: Server) -> None:
    s3, bucket = s3_client(own.endpoint), BUCKETS[0]
    s3.create_bucket(Bucket=bucket)
    releases = [tar_gz(6, 10, 60_000, version, level=1, data_len=16 * MIB) for version in range(2)]
    assert len(releases[0]) > 8 * MIB
    upload_parts(s3, bucket, "a/8f3a2c", releases[0])
    put_others(own, s3, bucket, "tar.gz")
    upload_parts(s3, bucket, "nightly/77aa01", releases[1])
    own.settle(120)
    assert stored(s3, bucket, "nightly/77aa01").stored_bytes <= len(releases[1]) * 0.15
    own.drop_caches()
    assert read(s3, bucket, "nightly/77aa01") == releases[1]


def test_an_archive_that_moved_is_still_found_by_its_text(new_server: NewServer, tmp_path: Path) -> None:
    second: dict[str, Value] = {"type": "local", "path": str(tmp_path / "second")}
    own = new_server(convert={"interval": "1h", "free_bytes_min": 0}, **{"backends.second": second}).start()
    s3, bucket = s3_client(own.endpoint), BUCKETS[0]
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="a/8f3a2c", Body=MADE["tar.gz"](2, 0))
    own.settle(60)
    assert own.json("convert", f"s3://{bucket}", "--backend", "second")["objects"] == 1
    next_one = MADE["tar.gz"](2, 1)
    s3.put_object(Bucket=bucket, Key="nightly/77aa01", Body=next_one)
    own.settle(60)
    kept = stored(s3, bucket, "nightly/77aa01")
    assert kept.bases == ("a/8f3a2c",) and kept.stored_bytes <= len(next_one) * 0.15


def test_a_tree_over_an_archive_moves_and_stays_a_view(new_server: NewServer, tmp_path: Path) -> None:
    second: dict[str, Value] = {"type": "local", "path": str(tmp_path / "second")}
    own = new_server(convert={"interval": "1h", "free_bytes_min": 0}, **{"backends.second": second}).start()
    s3, bucket = s3_client(own.endpoint), BUCKETS[0]
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="a/8f3a2c", Body=MADE["tar.gz"](2, 0))
    own.settle(60)
    tree = MADE["tar"](2, 1)
    s3.put_object(Bucket=bucket, Key="trees/here", Body=tree)
    own.settle(60)
    before = stored(s3, bucket, "trees/here")
    assert own.json("convert", f"s3://{bucket}", "--backend", "second")["objects"] == 2
    own.drop_caches()
    after = stored(s3, bucket, "trees/here")
    assert before.bases == ("a/8f3a2c",) and after.form == "delta"
    assert after.stored_bytes <= before.stored_bytes * 1.1 < len(tree) * 0.15
    assert read(s3, bucket, "trees/here") == tree


def test_the_catalog_keeps_no_hook_of_an_archive_that_is_gone(own: Server) -> None:
    s3, bucket = s3_client(own.endpoint), BUCKETS[0]
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="a/8f3a2c", Body=MADE["tar.gz"](2, 0))
    own.settle(60)

    def hooks() -> int:
        with contextlib.closing(sqlite3.connect(own.data / "catalog.sqlite")) as catalog:
            (counted,) = catalog.execute("SELECT count(*) FROM hooks").fetchone()
        return int(counted)

    assert 24 < hooks() <= 48, "those of its bytes and those of its text"
    s3.delete_object(Bucket=bucket, Key="a/8f3a2c")
    collect(own)
    assert hooks() == 0
    s3.put_object(Bucket=bucket, Key="nightly/77aa01", Body=MADE["tar.gz"](2, 1))
    own.settle(60)
    assert stored(s3, bucket, "nightly/77aa01").bases == ()


def test_after_a_rebuild_an_order_for_the_bucket_makes_its_archives_found_again(own: Server) -> None:
    s3, bucket = s3_client(own.endpoint), BUCKETS[0]
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="a/8f3a2c", Body=MADE["tar.gz"](2, 0))
    own.settle(60)
    assert own.stop() == 0
    own.lose_catalog()
    own.run("rebuild")
    own.start()
    own.run("convert", f"s3://{bucket}")
    s3 = s3_client(own.endpoint)
    s3.put_object(Bucket=bucket, Key="nightly/77aa01", Body=MADE["tar.gz"](2, 1))
    own.settle(60)
    assert stored(s3, bucket, "nightly/77aa01").bases == ("a/8f3a2c",)
