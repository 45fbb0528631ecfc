"""Wheels, jars and archives: the next release of one takes little, and comes back as it was published."""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from outside.archives import damaged, dump, dump_of_rows, layer, picture, plain_tar, report, tar_gz, wheel
from outside.buckets import NewServer, at_effort
from outside.clients import S3Client, blunt_client, s3_client, upload_parts
from outside.content import MIB, release
from outside.conversion import Releases, converting
from outside.disks import mounted
from outside.server import Server
from outside.storage import assert_accounts_balance, collect, stored

BUCKETS = ("delta-00", "delta-aes256-00")
"""A plain one and a sealed one; the configuration of every server here knows them."""

Archive = Callable[[int], bytes]

ARCHIVES: dict[str, Archive] = {
    "wheel": lambda version: wheel(1, 16, 60_000, version, data_len=5 * MIB),
    "tar.gz": lambda version: tar_gz(2, 20, 100_000, version),
    "layer of wheels": lambda version: layer(4, 8, version),
    "fast wheel": lambda version: wheel(3, 10, 60_000, version, level=1),
    "picture": lambda version: picture(8, 3000, version),
    "dump": lambda version: dump(9, 8, 400_000, version),
    "dump with one row in fifty moved": lambda version: dump_of_rows(11, 60_000, version),
    "report": lambda version: report(10, 40, version),
}
IN_PIECES = ("picture", "dump", "dump with one row in fifty moved")
"""Their container cuts the streams."""


def body(s3: S3Client, bucket: str, key: str, first: int | None = None, end: int | None = None) -> bytes:
    """An object's content, or a range of it."""
    wanted = {} if first is None or end is None else {"Range": f"bytes={first}-{end - 1}"}
    content: bytes = s3.get_object(Bucket=bucket, Key=key, **wanted)["Body"].read()
    return content


def flip(path: Path) -> None:
    """One bit in the middle; done twice, nothing has happened."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.chmod(0o600)
    path.write_bytes(content)


def codings(server: Server, bucket: str, key: str) -> list[str]:
    """The coding of each segment of an object's blobs."""
    told = server.admin(f"/api/v1/explain?bucket={bucket}&key={key}")
    inspected = [server.admin(f"/api/v1/inspect?blob={blob['id']}") for blob in told["blobs"]]
    return [segment["coding"] for blob in inspected for segment in blob["segments"]]


@pytest.fixture
def new_server(new_server: NewServer) -> NewServer:
    return at_effort(new_server, "auto")


@pytest.fixture
def own(new_server: NewServer) -> Server:
    """A server whose converter works when it is told to."""
    return new_server(convert={"interval": "1h", "free_bytes_min": 0}).start()


@pytest.mark.parametrize("kind", ARCHIVES)
def test_the_next_release_of_an_archive_takes_at_most_15_percent_and_comes_back(own: Server, kind: str) -> None:
    s3, releases = s3_client(own.endpoint), [ARCHIVES[kind](version) for version in range(2)]
    taken: dict[str, int] = {}
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)
        for version, content in enumerate(releases):
            s3.put_object(Bucket=bucket, Key=f"package-1.{version}", Body=content)
        own.settle(120)
        sizes = [stored(s3, bucket, f"package-1.{version}").stored_bytes for version in range(2)]
        assert max(sizes) <= max(map(len, releases)) * 1.01, "first objects take no more than they are"
        assert min(sizes) <= len(releases[1]) * 0.15
        taken[bucket] = min(sizes)
        successor = f"package-1.{sizes.index(min(sizes))}"
        assert set(codings(own, bucket, successor)) == {"gapped-view" if kind in IN_PIECES else "view"}
        if kind in IN_PIECES:
            assert own.metrics().total("deltaweir_view_streams_total", result="gapped") > 0
        if kind == "layer of wheels":
            assert own.metrics().total("deltaweir_view_streams_total", result="nested") > 0
        collect(own)
        own.drop_caches()
        for version, content in enumerate(releases):
            assert body(s3, bucket, f"package-1.{version}") == content
        rng, content = random.Random(kind), releases[sizes.index(min(sizes))]
        own.drop_caches()
        for _ in range(12):
            first = rng.randrange(len(content))
            end = min(len(content), first + rng.choice([1, 1000, 65_536, 3_000_000]))
            assert body(s3, bucket, successor, first, end) == content[first:end]
        assert body(s3, bucket, successor, len(content) - 65_536, len(content)) == content[-65_536:]
    assert taken[BUCKETS[1]] <= taken[BUCKETS[0]] * 1.02 + 4096, "a seal costs no more than two percent"
    assert_accounts_balance(own)


@pytest.mark.parametrize("bucket", BUCKETS)
def test_an_archive_in_parts_shrinks_as_one_in_a_single_put_does(own: Server, bucket: str) -> None:
    """Its one stream goes on from part to part; parts of 8 MiB, as boto3 sends them."""
    s3 = s3_client(own.endpoint)
    s3.create_bucket(Bucket=bucket)
    releases = [tar_gz(6, 10, 60_000, version, level=1, data_len=16 * MIB) for version in range(3)]
    assert len(releases[0]) > 8 * MIB
    for version, content in enumerate(releases[:2]):
        upload_parts(s3, bucket, f"package-1.{version}", content)
        own.settle(120)
    s3.put_object(Bucket=bucket, Key="package-1.2", Body=releases[2])
    own.settle(120)
    in_parts, alone = (stored(s3, bucket, f"package-1.{version}").stored_bytes for version in (1, 2))
    assert in_parts <= len(releases[1]) * 0.15
    assert in_parts <= alone * 1.1 + 16_384
    assert set(codings(own, bucket, "package-1.1")) == {"view"}
    collect(own)
    own.drop_caches()
    for version, content in enumerate(releases):
        assert body(s3, bucket, f"package-1.{version}") == content
    second = s3.get_object(Bucket=bucket, Key="package-1.1", PartNumber=2)["Body"].read()
    assert second == releases[1][8 * MIB : 16 * MIB]
    assert (
        body(s3, bucket, "package-1.1", 8 * MIB - 1000, 8 * MIB + 1000) == releases[1][8 * MIB - 1000 : 8 * MIB + 1000]
    )
    assert_accounts_balance(own)


def test_what_is_damaged_is_stored_as_it_came(own: Server) -> None:
    """Streams that end early, or are none: whatever can be opened is, the rest is bytes."""
    s3, bucket = s3_client(own.endpoint), BUCKETS[0]
    s3.create_bucket(Bucket=bucket)
    whole = wheel(4, 10, 60_000, 0)
    s3.put_object(Bucket=bucket, Key="package-0.whl", Body=whole)
    own.settle(60)
    contents = {f"package-{seed}.whl": damaged(wheel(4, 10, 60_000, 1), seed) for seed in range(1, 9)}
    contents["package-cut.whl"] = whole[: len(whole) // 2]
    contents["package-twice.whl"] = whole + whole[100:]
    for key, content in contents.items():
        s3.put_object(Bucket=bucket, Key=key, Body=content)
    own.settle(120)
    collect(own)
    own.drop_caches()
    for key, content in contents.items():
        assert body(s3, bucket, key) == content, key
    assert_accounts_balance(own)


def test_what_reads_or_moves_stored_objects_knows_views(own: Server, tmp_path: Path) -> None:
    """Copies, scrub, damage of a base, eject, a collection without the base's object, a rebuilt catalog."""
    s3, bucket = s3_client(own.endpoint), BUCKETS[0]
    s3.create_bucket(Bucket=bucket)
    releases = {f"package-1.{version}": wheel(7, 10, 60_000, version) for version in range(2)}
    for key, content in releases.items():
        s3.put_object(Bucket=bucket, Key=key, Body=content)
        own.settle(60)
    assert codings(own, bucket, "package-1.1") == ["view"]
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/package-1.1")
    assert own.json("scrub")["counts"]["damaged"] == 0
    (extent,) = own.json("explain", f"s3://{bucket}/package-1.0")["extents"]
    (base,) = own.blobs.rglob(extent["blob"])
    flip(base)
    found = own.run("scrub", "--json", check=False)
    affected = {one["key"] for one in json.loads(found.stdout)["quarantine"]["affected"]}
    assert affected == {"package-1.0", "package-1.1", "copy"}
    own.drop_caches()
    with pytest.raises((BotoCoreError, ClientError)):
        body(blunt_client(own.endpoint, retries={"total_max_attempts": 1}), bucket, "package-1.1")
    flip(base)
    own.run("scrub", "--percent", "100", "--older-than", "0s", "--bytes-per-second", "1GiB")
    ejected = tmp_path / "ejected"
    assert own.json("eject", f"s3://{bucket}", str(ejected))["failed"] == 0
    assert (ejected / "package-1.1").read_bytes() == releases["package-1.1"]
    s3.delete_object(Bucket=bucket, Key="package-1.0")
    collect(own)
    own.drop_caches()
    for key in ("package-1.1", "copy"):
        assert body(s3, bucket, key) == releases["package-1.1"]
    assert_accounts_balance(own)
    assert own.stop() == 0
    own.lose_catalog()
    assert own.json("rebuild")["recovered"]["unknown_blobs"] == 0
    own.start()
    assert body(s3, bucket, "package-1.1") == releases["package-1.1"]


def test_a_release_that_is_read_often_becomes_whole(new_server: NewServer) -> None:
    own = new_server(convert={"interval": "1h", "free_bytes_min": 0, "hot_reads": 3}).start()
    s3, bucket = s3_client(own.endpoint), BUCKETS[0]
    s3.create_bucket(Bucket=bucket)
    for version in range(2):
        # What these deltas save pays for it twenty times over.
        s3.put_object(Bucket=bucket, Key=f"app-{version}", Body=release(8, 3 * MIB, version))
        s3.put_object(Bucket=bucket, Key=f"package-1.{version}", Body=wheel(8, 14, 20_000, version))
        own.settle(60)
    hot, content = "package-1.1", wheel(8, 14, 20_000, 1)
    assert codings(own, bucket, hot) == ["view"]
    for _ in range(5):
        assert body(s3, bucket, hot) == content
    own.settle(60)
    assert stored(s3, bucket, hot).reason == "hot"
    assert body(s3, bucket, hot) == content


@pytest.mark.parametrize("bucket", BUCKETS)
def test_an_archive_finds_the_tree_that_is_in_it(new_server: NewServer, bucket: str) -> None:
    """By its text alone: no name and no byte of the archive says where it comes from. A tree says nothing of how the
    archive was compressed, so that reading takes the time of compressing: worth it where effort is high."""
    own = new_server(defaults={"effort": "high"}, convert={"interval": "1h", "free_bytes_min": 0}).start()
    s3 = s3_client(own.endpoint)
    s3.create_bucket(Bucket=bucket)
    for number in range(6):
        s3.put_object(Bucket=bucket, Key=f"others/{number}.tar", Body=plain_tar(20 + number, 12, 60_000, 0))
    s3.put_object(Bucket=bucket, Key="trees/here", Body=plain_tar(9, 12, 60_000, 0))
    own.settle(60)
    # A third of it under the next name: worth less than the tree, which has all of it. Before the
    # tree it would be the tree's base, and the tree none.
    s3.put_object(Bucket=bucket, Key="published/package-0.whl", Body=wheel(9, 4, 60_000, 0, level=1))
    own.settle(60)
    content = wheel(9, 12, 60_000, 0)
    s3.put_object(Bucket=bucket, Key="published/package.whl", Body=content)
    own.settle(60)
    told = own.json("explain", f"s3://{bucket}/published/package.whl")
    assert "trees/here" in json.dumps(told)
    assert "others/" not in json.dumps(told)
    kept = stored(s3, bucket, "published/package.whl")
    assert kept.stored_bytes <= len(content) * 0.1
    assert codings(own, bucket, "published/package.whl") == ["view"]
    own.drop_caches()
    assert body(s3, bucket, "published/package.whl") == content
    assert_accounts_balance(own)


def test_a_kill_while_the_converter_opens_streams_loses_nothing(new_server: NewServer) -> None:
    own = new_server(convert={"interval": "1h", "free_bytes_min": 0}).start()
    s3, bucket = s3_client(own.endpoint), BUCKETS[1]
    s3.create_bucket(Bucket=bucket)
    releases = [wheel(5, 12, 60_000, version) for version in range(4)]
    for version, content in enumerate(releases):
        s3.put_object(Bucket=bucket, Key=f"package-1.{version}", Body=content)
    rng = random.Random(5)
    for _ in range(4):
        settling = threading.Thread(target=try_to_settle, args=(own,))
        settling.start()
        time.sleep(rng.uniform(0.05, 0.6))  # the moment of death, not a wait for a condition
        own.kill()
        settling.join()
        own.start()
        s3 = s3_client(own.endpoint)
        for version, content in enumerate(releases):
            assert body(s3, bucket, f"package-1.{version}") == content
    own.settle(120)
    collect(own)
    own.drop_caches()
    taken = [stored(s3, bucket, f"package-1.{version}").stored_bytes for version in range(4)]
    assert sorted(taken)[2] <= len(releases[0]) * 0.15, "all but one differ from it"
    for version, content in enumerate(releases):
        assert body(s3, bucket, f"package-1.{version}") == content
    own.run("gc", "--now", "--empty-trash")
    assert_accounts_balance(own)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_disk_that_fills_up_while_the_converter_opens_streams_loses_nothing(new_server: NewServer) -> None:
    own = new_server(convert={"interval": "1h", "free_bytes_min": 0})
    with mounted(own.data, 112 * MIB) as disk, own:
        s3_client(own.endpoint).create_bucket(Bucket=BUCKETS[1])
        releases, rng = Releases(BUCKETS[1]), random.Random(7)
        for _ in range(6):
            releases.add(s3_client(own.endpoint))
            with converting(own, rng):
                disk.fill()
            assert releases.harm(own) == (0, 0)
            disk.empty()
            collect(own)
        releases.add(s3_client(own.endpoint))
        own.settle(120)
        assert own.metrics().total("deltaweir_deferred_blobs") == 0, "the converter works again as soon as it can"
        assert releases.harm(own) == (0, 0)
        assert releases.views(own) > 0
        # A blob whose row found no place lies there until its writer's epoch has ended.
        own.stop()
        own.start()
        own.run("gc", "--now", "--empty-trash")
        assert_accounts_balance(own)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_who_waits_after_a_full_disk_gets_the_converters_next_run_at_once(new_server: NewServer) -> None:
    """A run that failed for want of space rests for half a minute, if nobody waits. The disk has bytes left here, and
    no inode, so that the converter begins its work."""
    own = new_server(convert={"interval": "1h", "free_bytes_min": 0})
    with mounted(own.data, 112 * MIB, inodes=900) as disk, own:
        s3, bucket = s3_client(own.endpoint), BUCKETS[0]
        s3.create_bucket(Bucket=bucket)
        releases = {f"package-1.{version}": tar_gz(8, 12, 60_000, version) for version in range(2)}
        for key, content in releases.items():
            s3.put_object(Bucket=bucket, Key=key, Body=content)
        disk.fill_inodes()
        own.settle(60)
        (converter,) = (job for job in own.admin("/api/v1/jobs") if job["name"] == "converter")
        assert converter["last_result"] == "failed" and "full" in converter["last_outcome"]["error"]
        disk.empty()
        own.settle(60)
        assert own.metrics().total("deltaweir_deferred_blobs") == 0
        assert "view" in [coding for key in releases for coding in codings(own, bucket, key)]
        for key, content in releases.items():
            assert body(s3, bucket, key) == content


def try_to_settle(server: Server) -> None:
    """Until the server is killed."""
    with contextlib.suppress(Exception):
        server.settle(60)


def test_a_compressed_successor_is_put_together_once_for_all_its_readers(own: Server) -> None:
    s3, releases = s3_client(own.endpoint), [ARCHIVES["wheel"](version) for version in range(2)]
    s3.create_bucket(Bucket=BUCKETS[1])
    for version, content in enumerate(releases):
        s3.put_object(Bucket=BUCKETS[1], Key=f"package-1.{version}", Body=content)
        own.settle()
    views = codings(own, BUCKETS[1], "package-1.1").count("view")
    assert views > 0

    def put_together() -> float:
        """How many units were decoded since the start."""
        return own.metrics().total("deltaweir_decode_seconds_count", codec="view")

    own.drop_caches()
    before = put_together()
    assert body(s3, BUCKETS[1], "package-1.1") == releases[1]
    once = put_together() - before
    assert once >= views
    own.drop_caches()
    before = put_together()
    with ThreadPoolExecutor(6) as pool:
        read = [pool.submit(body, s3, BUCKETS[1], "package-1.1") for _ in range(6)]
        assert all(one.result() == releases[1] for one in read)
    assert body(s3, BUCKETS[1], "package-1.1", 70_000, 90_000) == releases[1][70_000:90_000], "a range of what is kept"
    assert put_together() - before == once
    own.drop_caches()
    assert body(s3, BUCKETS[1], "package-1.1", 70_000, 90_000) == releases[1][70_000:90_000]
    assert body(s3, BUCKETS[1], "package-1.1", 70_000, 90_000) == releases[1][70_000:90_000]
    assert put_together() - before > once, "a range alone is not kept"
