"""Any one lost file of a local store costs at most 16 objects, and scrub writes it anew."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client
from outside.content import KIB, noise
from outside.server import Server
from outside.storage import assert_accounts_balance, bucket_stats, collect

LOST_MAX = 16
THREADS = 8


def small_objects(count: int) -> dict[str, bytes]:
    """Records of about 600 bytes that have much in common, and twenty times the same 40 KiB."""
    shared = b"\n".join(b"field-%03d: value %03d" % (number, number * 7) for number in range(20))
    objects = {
        f"records/{number:05}": b"%d\n%s\n%s" % (number, shared, noise(number, 24).hex().encode())
        for number in range(count)
    }
    same = noise(99, 40 * KIB)
    return objects | {f"same/{number:02}": same for number in range(20)}


def read(s3: S3Client, key: str) -> bytes | None:
    """An object's bytes; `None` when the answer is an error or is cut."""
    try:
        content: bytes = s3.get_object(Bucket="bucket", Key=key)["Body"].read()
    except (BotoCoreError, ClientError):
        return None
    return content


def lost(server: Server, objects: dict[str, bytes]) -> set[str]:
    """Keys that cannot be read. What can be is right."""
    server.drop_caches()
    s3 = blunt_client(server.endpoint, max_pool_connections=THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        found = dict(zip(objects, pool.map(lambda key: read(s3, key), objects), strict=True))
    wrong = [key for key, content in found.items() if content is not None and content != objects[key]]
    assert not wrong, wrong
    return {key for key, content in found.items() if content is None}


def files(server: Server) -> list[Path]:
    """Every stored blob and second copy, the largest first."""
    found = [path for folder in ("blobs", "copies") for path in (server.blobs / folder).rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_size, reverse=True)


def filled(server: Server, objects: dict[str, bytes]) -> Server:
    """A server with these objects, packed."""
    server.start()
    s3 = blunt_client(server.endpoint, max_pool_connections=THREADS)
    s3.create_bucket(Bucket="bucket")
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda key: s3.put_object(Bucket="bucket", Key=key, Body=objects[key]), objects))
    server.settle()
    server.run("jobs", "copies", "start")
    collect(server)
    return server


def scrubbed(server: Server) -> dict[str, int]:
    """What a scrub of everything counted."""
    counts: dict[str, int] = json.loads(server.run("scrub", "--json", check=False).stdout)["counts"]
    return counts


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=(pytest.mark.long, pytest.mark.timeout(1200)))])
def test_one_lost_file_costs_at_most_16_objects_and_scrub_writes_it_anew(new_server: NewServer, count: int) -> None:
    objects = small_objects(count)
    server = filled(new_server(), objects)
    large = [path for path in files(server) if path.stat().st_size > 20 * KIB]
    assert 2 < len(large) < 20 + count // 50, "they are packed, and every pack is there twice"
    copies = [path for path in large if "copies" in path.parts]
    packs = [path for path in large if "copies" not in path.parts]
    # Each of them in the long run; otherwise a pack and a copy.
    for path in large if count > 2000 else [packs[0], copies[0]]:
        content = path.read_bytes()
        path.unlink()
        missing = lost(server, objects) if path in packs else set()
        assert len(missing) <= LOST_MAX, f"{path.name}: {len(missing)} objects"
        counts = scrubbed(server)
        if missing:
            assert counts["damaged"] == 1
            path.write_bytes(content)
        else:
            assert counts["restored"] + counts["copies_replaced"] == 1, counts
            assert path not in packs or path.read_bytes() == content
    assert bucket_stats(server, "bucket")["base_copy_bytes"] > 0
    assert_accounts_balance(server)


def test_the_collector_removes_a_pack_with_its_copy(new_server: NewServer) -> None:
    objects = {key: content for key, content in small_objects(400).items() if key.startswith("records/")}
    server = filled(new_server(), objects)
    assert any("copies" in path.parts for path in files(server))
    s3 = blunt_client(server.endpoint)
    for key in objects:
        s3.delete_object(Bucket="bucket", Key=key)
    collect(server)
    assert files(server) == []


def test_a_backend_that_is_told_to_keeps_no_second_copies(new_server: NewServer) -> None:
    objects = {key: content for key, content in small_objects(400).items() if key.startswith("records/")}
    server = new_server(storage={"second_copies": "none"})
    filled(server, objects)
    assert not any("copies" in path.parts for path in files(server))
    assert lost(server, objects) == set()
    files(server)[0].unlink()
    assert len(lost(server, objects)) > LOST_MAX, "a pack was lost"


def test_a_rebuild_that_died_before_it_announced_its_lineage_is_served(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="bucket")
    content = noise(7, 200 * KIB)
    s3.put_object(Bucket="bucket", Key="k", Body=content)
    assert server.stop() == 0
    server.lose_catalog()
    server.lose_journal_and_backups()
    server.run("rebuild")
    # Its backup is there, and it died before this.
    shutil.rmtree(server.blobs / "lineage")
    server.start()
    s3 = blunt_client(server.endpoint)
    assert s3.get_object(Bucket="bucket", Key="deltaweir-recovered/k")["Body"].read() == content
    s3.put_object(Bucket="bucket", Key="next", Body=content)
    server.restart()
    assert (server.blobs / "lineage").exists()
