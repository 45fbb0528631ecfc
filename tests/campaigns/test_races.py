"""Races for one key, one upload, one empty prefix, run on three replicas at once: each has exactly one outcome."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError

from campaigns.linearizability.workload import Caller
from cluster.replicas import Cluster
from outside.clients import S3Client, blunt_client
from outside.content import KIB, MIB, md5, multipart_etag, noise, release
from outside.server import Server, until

BUCKET = "delta-00"
LOST = {409, 412}
LONG = (pytest.mark.long, pytest.mark.timeout(3600))


@contextmanager
def callers(cluster: Cluster, count: int) -> Iterator[list[Caller]]:
    """Connections to the replicas themselves, in turn."""
    made = [Caller(cluster.replicas[number % len(cluster.replicas)].port, 30) for number in range(count)]
    try:
        yield made
    finally:
        for caller in made:
            caller.close()


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Runs the calls at the same moment and gives what each gave."""
    barrier = threading.Barrier(len(calls))

    def after_all_are_there(call: Callable[[], Any]) -> Any:
        barrier.wait(60)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(after_all_are_there, calls))


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=LONG)])
def test_of_64_writers_who_want_to_be_first_one_is(cluster: Cluster, rounds: int) -> None:
    target = f"/{BUCKET}/first"
    refusals: Counter[int] = Counter()
    with callers(cluster, 64) as writers:
        for number in range(rounds):
            bodies = [f"round {number} writer {writer}".encode() for writer in range(64)]

            def write(caller: Caller, body: bytes) -> int:
                answer = caller.call("PUT", target, [("If-None-Match", "*")], body)
                assert answer is not None, "no answer"
                return answer.status

            outcomes = together([partial(write, caller, body) for caller, body in zip(writers, bodies, strict=True)])
            assert outcomes.count(200) == 1, Counter(outcomes)
            refusals.update(status for status in outcomes if status != 200)
            for reader in writers[:3]:  # each replica sees the winner at once
                seen = reader.call("GET", target)
                assert seen is not None
                assert seen.body == bodies[outcomes.index(200)]
            assert (gone := writers[number % 64].call("DELETE", target)) is not None
            assert gone.status == 204
    assert set(refusals) <= LOST
    assert refusals.total() == 63 * rounds


@pytest.mark.parametrize("increments", [12, pytest.param(500, marks=LONG)])
def test_a_counter_that_is_compared_and_swapped_counts_every_success(cluster: Cluster, increments: int) -> None:
    """Sixteen workers, each until it has counted `increments` times."""
    target = f"/{BUCKET}/counter"
    refusals: Counter[int] = Counter()
    with callers(cluster, 16) as workers:
        first = workers[0].call("PUT", target, body=b"0")
        assert first is not None
        assert first.status == 200

        def count(caller: Caller) -> None:
            for _ in range(increments):
                while True:
                    held = caller.call("GET", target)
                    assert held is not None
                    tag = held.header("etag")
                    assert tag is not None
                    body = str(int(held.body) + 1).encode()
                    answer = caller.call("PUT", target, [("If-Match", tag)], body)
                    assert answer is not None
                    if answer.status == 200:
                        break
                    refusals[answer.status] += 1

        together([partial(count, caller) for caller in workers])
        held = workers[1].call("GET", target)
    assert held is not None
    assert int(held.body) == 16 * increments
    assert set(refusals) <= LOST
    assert refusals.total() > 0, "nobody met anybody"


@pytest.fixture
def clients(cluster: Cluster) -> list[S3Client]:
    """boto3 on each replica."""
    return [blunt_client(replica.endpoint) for replica in cluster.replicas]


def status(call: Callable[..., Any], **arguments: Any) -> tuple[int, str]:
    """Status and error code of a call, 200 and the tag of one that went well."""
    try:
        answer = call(**arguments)
    except ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"]), str(error.response["Error"]["Code"])
    return int(answer["ResponseMetadata"]["HTTPStatusCode"]), str(answer.get("ETag", "")).strip('"')


@pytest.mark.parametrize("uploads", [10, pytest.param(200, marks=LONG)])
def test_an_upload_is_completed_or_aborted_and_never_both(clients: list[S3Client], uploads: int) -> None:
    """Parts go to different replicas, one of them twice; then two complete it and mostly one aborts it."""
    rng = random.Random(24)
    big = noise(24, 5 * MIB)
    ended: Counter[str] = Counter()
    for number in range(uploads):
        at = {"Bucket": BUCKET, "Key": f"upload-{number}"}
        ids = at | {"UploadId": rng.choice(clients).create_multipart_upload(**at)["UploadId"]}
        small = f"upload {number}".encode()
        rng.choice(clients).upload_part(**ids, PartNumber=2, Body=b"replaced by the next")
        tags = [
            rng.choice(clients).upload_part(**ids, PartNumber=part, Body=body)["ETag"]
            for part, body in ((2, small), (1, big))
        ]
        parts = {"Parts": [{"PartNumber": 1, "ETag": tags[1]}, {"PartNumber": 2, "ETag": tags[0]}]}
        order = rng.sample(clients, 3)
        calls = [partial(status, s3.complete_multipart_upload, **ids, MultipartUpload=parts) for s3 in order[:2]]
        if number % 3:
            calls.append(partial(status, order[2].abort_multipart_upload, **ids))
        *completions, last = together(calls)
        aborted = number % 3 != 0 and last[0] == 204
        if number % 3 == 0:
            completions.append(last)
        completed = [outcome for outcome in completions if outcome[0] == 200]
        assert bool(completed) != aborted, (completions, last)
        ended["aborted" if aborted else "completed"] += 1
        for s3 in clients:
            found = status(s3.head_object, **at)
            if aborted:
                assert found == (404, "404")
            else:
                assert set(completed) == {found} == {(200, multipart_etag([big, small]))}
                assert s3.get_object(**at, Range="bytes=-9")["Body"].read() == (big + small)[-9:]
            assert status(s3.list_parts, **ids) == (404, "NoSuchUpload")
    assert ended["completed"] >= uploads // 3


def test_an_upload_outlives_the_replicas_that_took_its_parts(cluster: Cluster, clients: list[S3Client]) -> None:
    at = {"Bucket": "delta-aes256-00", "Key": "outlives"}
    bodies = [noise(25, 5 * MIB), release(25, 5 * MIB, 0), noise(26, 1000)]
    ids = at | {"UploadId": clients[0].create_multipart_upload(**at)["UploadId"]}
    parts = []
    for number, (s3, replica, body) in enumerate(zip(clients, cluster.replicas, bodies, strict=True), 1):
        parts.append({"PartNumber": number, "ETag": s3.upload_part(**ids, PartNumber=number, Body=body)["ETag"]})
        replica.kill()
        replica.start()
    assert [part["PartNumber"] for part in clients[1].list_parts(**ids)["Parts"]] == [1, 2, 3]
    clients[2].complete_multipart_upload(**ids, MultipartUpload={"Parts": parts})
    for s3 in clients:
        got = s3.get_object(**at)
        assert got["ETag"].strip('"') == multipart_etag(bodies)
        assert got["Body"].read() == b"".join(bodies)


@pytest.mark.parametrize("prefixes", [12, pytest.param(500, marks=LONG)])
def test_who_comes_first_into_an_empty_prefix_does_not_matter(cluster: Cluster, prefixes: int) -> None:
    """Thirty-two writers bring releases of one file into an empty prefix at the same moment, on all replicas: whichever
    became the base, all can be read on every replica."""
    contents = [release(19, 70 * KIB, version) for version in range(32)]
    with callers(cluster, 32) as writers:
        for prefix in range(prefixes):
            keys = [f"/{BUCKET}/first-base/{prefix:03}/app-1.{version}.bin" for version in range(32)]

            def bring(caller: Caller, key: str, body: bytes) -> int:
                answer = caller.call("PUT", key, body=body)
                return 0 if answer is None else answer.status

            calls = [
                partial(bring, caller, key, body) for caller, key, body in zip(writers, keys, contents, strict=True)
            ]
            assert set(together(calls)) == {200}

            def read(caller: Caller, key: str) -> str:
                answer = caller.call("GET", key)
                return "" if answer is None or answer.status != 200 else md5(answer.body)

            # Each is read on another replica than the one that took it.
            calls_of_readers = [
                partial(read, caller, key) for caller, key in zip([*writers[1:], writers[0]], keys, strict=True)
            ]
            assert together(calls_of_readers) == [md5(content) for content in contents]


def test_what_one_replica_acknowledges_the_others_see_at_once(cluster: Cluster) -> None:
    """Write on one, read and list on the next, delete on the third, and the first knows."""
    with callers(cluster, 3) as (one, two, three):
        for number in range(30):
            target = f"/{BUCKET}/seen/{number}"
            body = f"content {number}".encode()
            assert (put := one.call("PUT", target, body=body)) is not None
            assert put.status == 200
            assert (got := two.call("GET", target)) is not None
            assert got.body == body
            assert (listed := three.call("GET", f"/{BUCKET}?list-type=2&prefix=seen%2F{number}")) is not None
            assert f"<Key>seen/{number}</Key>".encode() in listed.body
            assert (deleted := three.call("DELETE", target)) is not None
            assert deleted.status == 204
            assert (gone := one.call("HEAD", target)) is not None
            assert gone.status == 404
            one, two, three = two, three, one


def test_nothing_is_left_when_everything_was_deleted(cluster: Cluster) -> None:
    """The last of this file: after all the races every object, upload and bucket goes, the collector runs, and neither
    rows nor blobs stay behind."""
    s3 = blunt_client(cluster.replicas[1].endpoint)
    for bucket in ("delta-00", "delta-aes256-00"):
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            entries = [{"Key": entry["Key"]} for entry in page.get("Contents", [])]
            if entries:
                assert "Errors" not in s3.delete_objects(Bucket=bucket, Delete={"Objects": entries})
        for upload in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
            s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        s3.delete_bucket(Bucket=bucket)
    # Replicas give readers elsewhere the grace; one with a grace of a second is the collector here.
    replica: Server = cluster.replicas[0]
    replica.tables["gc"] = {"grace": "1s"}
    replica.restart()
    replica.settle()

    def collected() -> bool:
        replica.admin("/api/v1/gc?now=true", "POST")
        return bool(replica.admin("/api/v1/stats")["totals"]["stored"]["total"] == 0)

    until(collected, 60, "everything that died is purged", interval_s=0.5)
    assert replica.admin("/api/v1/stats")["totals"]["objects"] == 0
    left = cluster.store.client().list_objects_v2(Bucket="blobs").get("Contents", [])
    assert [found["Key"] for found in left if found["Key"].startswith("blobs/blobs/")] == []
