"""What the converter does behind the clients' backs, and what it must not: their bytes stay theirs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client, upload_parts
from outside.content import MIB, multipart_etag, noise, release, text
from outside.server import Server, Value, until
from outside.storage import assert_accounts_balance, bucket_stats, collect, stored
from outside.store import Store

BUCKETS = ("delta-00", "delta-aes256-00")
"""A plain one and a sealed one; the configuration of every server here knows them."""


def body(s3: S3Client, bucket: str, key: str) -> bytes:
    """An object's content."""
    content: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    return content


def visible(s3: S3Client, bucket: str, key: str) -> dict[str, object]:
    """What a client can see of an object, but for how it is stored."""
    head = s3.head_object(Bucket=bucket, Key=key)
    headers: dict[str, str] = head["ResponseMetadata"]["HTTPHeaders"]
    names = ("etag", "last-modified", "content-length", "content-type", "x-amz-meta-a")
    return {name: headers.get(name) for name in names}


@pytest.mark.parametrize("bucket", BUCKETS)
def test_what_a_bucket_of_high_effort_gets_later_changes_nothing_but_the_space(
    new_server: NewServer, bucket: str
) -> None:
    """`max` is work for the converter: the upload is stored at balanced, waits, and is smaller after settling."""
    own = new_server(defaults={"effort": "max"}, convert={"interval": "1h"}).start()
    s3 = s3_client(own.endpoint)
    s3.create_bucket(Bucket=bucket)
    for version in range(2):
        content = release(61, 6 * MIB, version)
        s3.put_object(Bucket=bucket, Key=f"app-{version}", Body=content, Metadata={"a": "b"})
    upload_parts(s3, bucket, "parts", release(61, 11 * MIB, 2))
    s3.put_object(Bucket=bucket, Key="day.log", Body=text(61, 3 * MIB))
    in_a_hurry = stored(s3, bucket, "day.log").stored_bytes
    before = {key: visible(s3, bucket, key) for key in ("app-0", "app-1", "parts")}
    part = s3.head_object(Bucket=bucket, Key="parts", PartNumber=2)["ContentLength"]
    own.settle(120)
    assert own.metrics().total("deltaweir_deferred_blobs") == 0
    done = own.metrics().total("deltaweir_convert_blobs_total", reason="deferred")
    assert done >= 4, "every blob of the bucket was looked at again"
    assert stored(s3, bucket, "day.log").stored_bytes < in_a_hurry * 0.9
    collect(own)
    own.drop_caches()
    for version in range(2):
        assert body(s3, bucket, f"app-{version}") == release(61, 6 * MIB, version)
    assert body(s3, bucket, "parts") == release(61, 11 * MIB, 2)
    assert body(s3, bucket, "day.log") == text(61, 3 * MIB)
    assert {key: visible(s3, bucket, key) for key in before} == before
    assert s3.head_object(Bucket=bucket, Key="parts", PartNumber=2)["ContentLength"] == part
    assert_accounts_balance(own)


def test_a_delta_that_is_read_often_becomes_whole_as_far_as_the_others_pay_for_it(new_server: NewServer) -> None:
    own = new_server(convert={"interval": "1h", "hot_reads": 4, "free_bytes_min": 0}).start()
    s3 = s3_client(own.endpoint)
    bucket, *others = BUCKETS
    for name in BUCKETS:
        s3.create_bucket(Bucket=name)
    # Fifteen deltas in each bucket save thirty times the one, so one may become whole, and no more.
    for version in range(16):
        for name in BUCKETS:
            s3.put_object(Bucket=name, Key=f"app-{version}", Body=release(63, MIB, version))
    assert stored(s3, bucket, "app-1").form == stored(s3, bucket, "app-2").form == "delta"
    body(s3, bucket, "app-2")
    before = own.admin("/api/v1/stats")["totals"]
    saved = before["bytes_by_coding"]["delta_plain"] - before["bytes_by_coding"]["delta_stored"]
    for _ in range(6):
        assert body(s3, bucket, "app-1") == release(63, MIB, 1)
        for name in others:
            assert body(s3, name, "app-3") == release(63, MIB, 3)
    own.settle()
    collect(own)
    hot = [stored(s3, bucket, "app-1"), *(stored(s3, name, "app-3") for name in others)]
    assert sorted(how.form for how in hot) == ["delta"] * len(others) + ["raw"]
    assert [how.reason for how in hot if how.form == "raw"] == ["hot"]
    assert stored(s3, bucket, "app-2").form == "delta", "once is not often"
    after = own.admin("/api/v1/stats")["totals"]["stored"]["total"]
    assert 0 < after - before["stored"]["total"] <= saved / 20
    assert own.metrics().total("deltaweir_heat_bytes") > 0
    assert body(s3, bucket, "app-1") == release(63, MIB, 1)
    assert own.metrics().total("deltaweir_convert_blobs_total", reason="hot", result="converted") == 1


def test_a_base_that_nobody_names_any_more_is_let_go_of(new_server: NewServer) -> None:
    own = new_server(convert={"interval": "1h", "free_bytes_min": 0}).start()
    s3 = s3_client(own.endpoint)
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)
        for version in range(4):
            s3.put_object(Bucket=bucket, Key=f"app-{version}", Body=release(64, 5 * MIB, version))
        one = bucket_stats(own, bucket)["stored"]["total"]
        s3.delete_object(Bucket=bucket, Key="app-0")
        assert bucket_stats(own, bucket)["stored"]["base_only"] > 5 * MIB
        own.settle(120)
        collect(own)
        stats = bucket_stats(own, bucket)["stored"]
        assert stats["base_only"] == 0, stats
        assert stats["total"] <= one, "the newest became whole, the others are deltas of it"
        own.drop_caches()
        for version in range(1, 4):
            assert body(s3, bucket, f"app-{version}") == release(64, 5 * MIB, version)
    assert_accounts_balance(own)


def moving_server(store: Store, new_server: NewServer, **convert: Value) -> Server:
    """A server whose buckets lie on its disk, with the store as a second backend."""
    tables: dict[str, dict[str, Value]] = {
        "backends.cloud": store.table(),
        "convert": {"interval": "1h", "free_bytes_min": 0, **convert},
    }
    return new_server("server", **tables).start()


def local_blobs(server: Server) -> list[str]:
    """Content blobs on the server's own disk."""
    return [path.name for path in server.blob_files() if "keyset" not in str(path)]


def test_a_bucket_moves_to_another_store_while_clients_write_and_delete(new_server: NewServer, store: Store) -> None:
    server = moving_server(store, new_server)
    s3 = s3_client(server.endpoint, max_pool_connections=16)
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)
        expected = {f"app-{number:02}": release(65, 2 * MIB, number) for number in range(16)}
        for key, content in expected.items():
            s3.put_object(Bucket=bucket, Key=key, Body=content, Metadata={"a": "b"})
        upload_parts(s3, bucket, "parts", release(65, 11 * MIB, 3))
        s3.copy_object(Bucket=bucket, Key="copied", CopySource=f"{bucket}/app-03")
        expected |= {"parts": release(65, 11 * MIB, 3), "copied": expected["app-03"]}
        untouched = [f"app-{number:02}" for number in range(3, 16, 3)] + ["parts", "copied"]
        before = {key: visible(s3, bucket, key) for key in untouched}
        stop = threading.Event()
        gone: set[str] = set()

        def write(
            bucket: str = bucket,
            expected: dict[str, bytes] = expected,
            gone: set[str] = gone,
            stop: threading.Event = stop,
        ) -> int:
            """Overwrites and deletes until the move has ended; at least one round."""
            rounds = 0
            while rounds == 0 or not stop.is_set():
                for number in (1, 4, 7, 10, 13):
                    key = f"app-{number:02}"
                    expected[key] = release(65, 2 * MIB, 20 + number + rounds % 3)
                    s3.put_object(Bucket=bucket, Key=key, Body=expected[key])
                for number in (2, 5, 8):
                    s3.delete_object(Bucket=bucket, Key=f"app-{number:02}")
                    gone.add(f"app-{number:02}")
                rounds += 1
            return rounds

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                report = server.json("convert", f"s3://{bucket}", "--backend", "cloud")
            finally:
                stop.set()
            assert writing.result(60) >= 1
        assert report["elsewhere"] == 0, report
        # Uploads that had begun before the move may have ended on the disk after it.
        again = server.json("convert", f"s3://{bucket}", "--backend", "cloud")
        assert again["elsewhere"] == 0, again
        collect(server)
        server.drop_caches()
        for key, content in expected.items():
            if key not in gone:
                assert body(s3, bucket, key) == content, key
        listed = {found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]}
        assert listed == set(expected) - gone, "nothing lost, and nothing came back"
        assert {key: visible(s3, bucket, key) for key in untouched} == before
        assert local_blobs(server) == [], "the old bytes are gone"
    server.stop()
    # Everything is in the store: the disk is not needed any more.
    assert local_blobs(server) == []
    server.start()
    assert body(s3_client(server.endpoint), BUCKETS[1], "app-03") == release(65, 2 * MIB, 3)


def test_a_move_goes_on_after_kill_9(new_server: NewServer, store: Store) -> None:
    server = moving_server(store, new_server, bytes_per_second_max="2MiB")
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    contents = {f"app-{number:02}": release(66, 1 * MIB, number) for number in range(24)}
    for key, content in contents.items():
        s3.put_object(Bucket="delta-00", Key=key, Body=content)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.run, "convert", "s3://delta-00", "--backend", "cloud", check=False)
        until(lambda: server.admin("/api/v1/jobs/convert")["progress"]["done"] >= 6, 60, "a quarter has moved")
        server.kill()
        assert asked.result(60).returncode != 0, "the command says that the server is gone"
    assert local_blobs(server), "it was not done yet"
    server.tables["convert"] = {**server.tables["convert"], "bytes_per_second_max": 0}
    server.start()
    s3 = s3_client(server.endpoint)

    def over() -> bool:
        job = server.admin("/api/v1/jobs/convert")
        return not job["running"] and job["last_result"] == "ok"

    until(over, 120, "the order went on by itself")
    outcome = server.admin("/api/v1/jobs/convert")["last_outcome"]
    assert outcome["objects"] >= 24, outcome
    assert outcome["elsewhere"] == 0, outcome
    collect(server)
    assert local_blobs(server) == []
    server.drop_caches()
    for key, content in contents.items():
        assert body(s3, "delta-00", key) == content


def test_an_order_for_a_prefix_encodes_what_is_there_and_one_for_a_bucket_is_its_setting(new_server: NewServer) -> None:
    own = new_server(convert={"interval": "1h", "free_bytes_min": 0}).start()
    s3 = s3_client(own.endpoint)
    s3.create_bucket(Bucket="off-00")
    for version in range(3):
        s3.put_object(Bucket="off-00", Key=f"a/app-{version}", Body=release(67, 3 * MIB, version))
        s3.put_object(Bucket="off-00", Key=f"b/app-{version}", Body=release(68, 3 * MIB, version))
    before = bucket_stats(own, "off-00")["stored"]["total"]
    report = own.json("convert", "s3://off-00/a/", "--compression", "delta", "--effort", "fast")
    assert report["objects"] == 3, report
    assert [stored(s3, "off-00", f"a/app-{version}").form for version in range(3)].count("delta") == 2
    assert {stored(s3, "off-00", f"b/app-{version}").form for version in range(3)} == {"raw"}
    s3.put_object(Bucket="off-00", Key="a/app-9", Body=release(67, 3 * MIB, 9))
    assert stored(s3, "off-00", "a/app-9").form == "raw", "a prefix's order is no setting"
    own.json("convert", "s3://off-00", "--compression", "delta")
    s3.put_object(Bucket="off-00", Key="b/app-9", Body=release(68, 3 * MIB, 9))
    assert stored(s3, "off-00", "b/app-9").form == "delta", "a bucket's order is its setting"
    collect(own)
    assert bucket_stats(own, "off-00")["stored"]["total"] < before / 2
    own.drop_caches()
    for prefix, seed in (("a", 67), ("b", 68)):
        for version in (0, 1, 2, 9):
            assert body(s3, "off-00", f"{prefix}/app-{version}") == release(seed, 3 * MIB, version)
    assert_accounts_balance(own)


def test_a_paused_converter_leaves_what_waits_alone_until_it_is_resumed(new_server: NewServer) -> None:
    own = new_server(defaults={"effort": "high"}, convert={"interval": "1h", "free_bytes_min": 0}).start()
    own.settle()
    assert own.json("convert", "--pause") == {"converter": {"paused": True}, "convert": {"paused": True}}
    s3 = s3_client(own.endpoint)
    s3.create_bucket(Bucket="delta-00")
    s3.put_object(Bucket="delta-00", Key="app", Body=release(69, 3 * MIB, 0))
    own.settle()
    assert own.metrics().total("deltaweir_job_backlog", job_name="converter") >= 1
    assert own.metrics().total("deltaweir_convert_blobs_total") == 0
    own.run("convert", "--resume")
    own.settle()
    assert own.metrics().total("deltaweir_deferred_blobs") == 0
    assert own.metrics().total("deltaweir_convert_blobs_total", reason="deferred") == 1


def test_orders_that_make_no_sense_are_refused_in_words(new_server: NewServer) -> None:
    own = new_server(convert={"interval": "1h"}).start()
    s3_client(own.endpoint).create_bucket(Bucket="delta-00")
    for arguments, why in (
        (("s3://nowhere",), "there is no bucket nowhere"),
        (("s3://delta-00", "--backend", "nowhere"), "not configured"),
        (("s3://delta-00/prefix", "--backend", "local"), "as a whole"),
        (("delta-00",), "s3://BUCKET"),
        (("--backend", "local"), "which bucket"),
    ):
        refused = own.run("convert", *arguments, check=False)
        assert refused.returncode != 0, arguments
        assert why in refused.stderr, (arguments, refused.stderr)
    nothing_failed(own)


def nothing_failed(server: Server) -> None:
    """No job has begun and failed, or waits for somebody to resume or cancel it."""
    for job in server.admin("/api/v1/jobs"):
        assert (job["last_result"], job["waiting"]) in ((None, False), ("ok", False)), job
    assert " ERROR " not in server.final_log()


def test_an_order_about_what_is_not_there_is_refused_before_it_begins(new_server: NewServer) -> None:
    own = new_server().start()
    s3_client(own.endpoint).create_bucket(Bucket="delta-00")
    folder = str(own.folder / "ejected")
    for command, why in (
        (("keys", "reencrypt", "nowhere"), "there is no bucket nowhere"),
        (("keys", "reencrypt", "delta-00"), "not encrypted"),
        (("eject", "s3://nowhere", folder), "there is no bucket nowhere"),
        (("eject", "s3://delta-00", "store:nowhere"), "there is no"),
        (("import", "nowhere", "s3://delta-00"), "there is no"),
    ):
        refused = own.run(*command, check=False)
        assert refused.returncode != 0, command
        assert why in refused.stderr, (command, refused.stderr)
    nothing_failed(own)


def requests_of_a_cold_read(server: Server, s3: S3Client, bucket: str, key: str) -> float:
    """Requests to the backend for all of an object, with nothing of it in memory."""
    server.drop_caches()
    before = server.metrics().total("deltaweir_backend_requests_total", op="get")
    body(s3, bucket, key)
    return server.metrics().total("deltaweir_backend_requests_total", op="get") - before


def seen(s3: S3Client, bucket: str, key: str) -> dict[str, Any]:
    """Everything a client can ask of an object that came in parts, but for its bytes and how it is stored."""
    at: dict[str, Any] = {"Bucket": bucket, "Key": key}
    head = s3.head_object(**at, ChecksumMode="ENABLED")
    parts = range(1, head.get("PartsCount", 33) + 1)
    answers = [head, *(s3.head_object(**at, PartNumber=number, ChecksumMode="ENABLED") for number in parts)]
    for answer in answers:
        headers = answer.pop("ResponseMetadata")["HTTPHeaders"]
        answer["Modified"] = headers["last-modified"]
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=key)["Contents"][0]
    return {"answers": answers, "listed": listed}


@pytest.mark.parametrize("bucket", BUCKETS)
def test_an_object_of_many_parts_is_merged_under_its_readers_and_stays_what_it_was(
    new_server: NewServer, bucket: str
) -> None:
    """33 parts, since fewer are never merged, under a setting that merges so few."""
    own = new_server(convert={"interval": "1h", "merge_extents": 32, "free_bytes_min": 0}).start()
    s3 = s3_client(own.endpoint)
    s3.create_bucket(Bucket=bucket)
    at: dict[str, Any] = {"Bucket": bucket, "Key": "parts"}
    contents = [noise(700 + number, 5 * MIB) for number in range(32)] + [noise(733, 1000)]
    upload = s3.create_multipart_upload(**at, ChecksumAlgorithm="CRC32C", Metadata={"a": "b"})["UploadId"]
    parts = []
    for number, content in enumerate(contents, 1):
        put = s3.upload_part(**at, UploadId=upload, PartNumber=number, Body=content, ChecksumAlgorithm="CRC32C")
        parts.append({"PartNumber": number, "ETag": put["ETag"], "ChecksumCRC32C": put["ChecksumCRC32C"]})
    done = s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload={"Parts": parts})
    assert done["ETag"] == f'"{multipart_etag(contents)}"'
    whole = b"".join(contents)
    before = seen(s3, bucket, "parts")
    assert len(own.json("explain", f"s3://{bucket}/parts")["extents"]) == 33
    stored_before = bucket_stats(own, bucket)["stored"]["total"]
    requests_before = requests_of_a_cold_read(own, s3, bucket, "parts")

    reading = s3.get_object(**at)["Body"]
    first = reading.read(MIB)
    own.settle(300)
    collect(own)
    assert first + reading.read() == whole, "what was begun before the merge ends right after it"

    explained = own.json("explain", f"s3://{bucket}/parts")
    assert [extent["len"] for extent in explained["extents"]] == [len(whole)]
    assert own.metrics().total("deltaweir_merged_extents_total") == 33
    collect(own)
    own.drop_caches()
    assert seen(s3, bucket, "parts") == before
    assert bucket_stats(own, bucket)["stored"]["total"] <= stored_before
    for number in (1, 7, 33):
        got = s3.get_object(**at, PartNumber=number)
        assert (got["Body"].read(), got["PartsCount"]) == (contents[number - 1], 33)
    requests = requests_of_a_cold_read(own, s3, bucket, "parts")
    assert requests < requests_before - 32, f"{requests} after {requests_before}"
    assert s3.get_object(**at, Range=f"bytes={5 * MIB - 9}-{5 * MIB + 8}")["Body"].read() == whole[5 * MIB - 9 :][:18]
    assert body(s3, bucket, "parts") == whole
    assert_accounts_balance(own)
    own.settle(60)
    assert own.metrics().total("deltaweir_convert_blobs_total", reason="merge") == 1, "once is enough"
