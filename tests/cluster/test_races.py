"""Races on three replicas: of requests that exclude each other one wins, and everybody then sees what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cluster.replicas import Cluster
from outside.clients import S3Client, s3_client
from outside.server import until
from outside.users import client_of

ROUNDS = range(3)
LATER = datetime(2099, 1, 1, tzinfo=UTC)
LOST = {409, 412, 404}
Call = Callable[[], Any]


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[S3Client]]:
    """A client of each replica; days of lifecycle rules are short."""
    cluster = Cluster.start(tmp_path_factory.mktemp("races"), {"lifecycle": {"day": "200ms"}})
    try:
        yield [s3_client(replica.endpoint) for replica in cluster.replicas]
    finally:
        cluster.stop()


@pytest.fixture
def place(replicas: list[S3Client], request: pytest.FixtureRequest) -> str:
    """A bucket of the case's own, with object lock, so that it keeps versions."""
    name = str(request.node.name).removeprefix("test_").translate(str.maketrans("_[", "--", "]"))[-60:].strip("-")
    replicas[0].create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return name


def race(*calls: Call) -> list[int]:
    """Begins all at once; the status of each."""
    start = Barrier(len(calls))

    def run(call: Call) -> int:
        start.wait()
        try:
            return int(call()["ResponseMetadata"]["HTTPStatusCode"])
        except ClientError as error:
            return int(error.response["ResponseMetadata"]["HTTPStatusCode"])

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def only_winner(statuses: list[int]) -> int:
    """Which call won, alone."""
    winners = [number for number, status in enumerate(statuses) if status < 300]
    assert len(winners) == 1, statuses
    assert {status for status in statuses if status >= 300} <= LOST | {403}, statuses
    return winners[0]


def contents(replicas: list[S3Client], bucket: str) -> set[bytes]:
    """What the replicas say of `k`."""
    return {s3.get_object(Bucket=bucket, Key="k")["Body"].read() for s3 in replicas}


def uploaded(s3: S3Client, bucket: str, body: bytes) -> dict[str, Any]:
    """An upload that only has to be completed."""
    at = {"Bucket": bucket, "Key": "k"}
    upload = s3.create_multipart_upload(**at)["UploadId"]
    etag = s3.upload_part(**at, UploadId=upload, PartNumber=1, Body=body)["ETag"]
    return at | {"UploadId": upload, "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": etag}]}}


@pytest.mark.parametrize("number", ROUNDS)
def test_one_of_six_writers_is_the_first(replicas: list[S3Client], place: str, number: int) -> None:
    bodies = [b"%d of round %d" % (writer, number) for writer in range(6)]

    def put(writer: int) -> Any:
        return replicas[writer % 3].put_object(Bucket=place, Key="k", Body=bodies[writer], IfNoneMatch="*")

    winner = only_winner(race(*[lambda writer=writer: put(writer) for writer in range(6)]))
    assert contents(replicas, place) == {bodies[winner]}


@pytest.mark.parametrize("number", ROUNDS)
def test_one_of_three_writers_replaces_what_all_have_read(replicas: list[S3Client], place: str, number: int) -> None:
    etag = replicas[0].put_object(Bucket=place, Key="k", Body=b"read %d" % number)["ETag"]

    def put(writer: int) -> Any:
        return replicas[writer].put_object(Bucket=place, Key="k", Body=b"%d" % writer, IfMatch=etag)

    winner = only_winner(race(*[lambda writer=writer: put(writer) for writer in range(3)]))
    assert contents(replicas, place) == {b"%d" % winner}


@pytest.mark.parametrize("number", ROUNDS)
def test_one_of_three_uploads_completes_on_an_absent_key(replicas: list[S3Client], place: str, number: int) -> None:
    ready = [uploaded(s3, place, b"%d %d" % (writer, number)) for writer, s3 in enumerate(replicas)]

    def complete(writer: int) -> Any:
        return replicas[writer].complete_multipart_upload(**ready[writer], IfNoneMatch="*")

    winner = only_winner(race(*[lambda writer=writer: complete(writer) for writer in range(3)]))
    assert contents(replicas, place) == {b"%d %d" % (winner, number)}


@pytest.mark.parametrize("number", ROUNDS)
def test_one_of_three_copies_makes_an_absent_key(replicas: list[S3Client], place: str, number: int) -> None:
    for writer, s3 in enumerate(replicas):
        s3.put_object(Bucket=place, Key=f"source-{writer}", Body=b"%d %d" % (writer, number))

    def copy(writer: int) -> Any:
        return replicas[writer].copy_object(
            Bucket=place, Key="k", CopySource=f"{place}/source-{writer}", IfNoneMatch="*"
        )

    winner = only_winner(race(*[lambda writer=writer: copy(writer) for writer in range(3)]))
    assert contents(replicas, place) == {b"%d %d" % (winner, number)}


@pytest.mark.parametrize("number", ROUNDS)
def test_what_was_read_is_deleted_or_replaced(replicas: list[S3Client], place: str, number: int) -> None:
    first, second, third = replicas
    at = {"Bucket": place, "Key": "k"}
    etag = first.put_object(**at, Body=b"read %d" % number)["ETag"]
    calls = (lambda: first.delete_object(**at, IfMatch=etag), lambda: second.put_object(**at, Body=b"2", IfMatch=etag))
    winner = only_winner(race(*calls))
    if winner == 1:
        assert contents(replicas, place) == {b"2"}
    else:
        with pytest.raises(third.exceptions.NoSuchKey):
            third.get_object(**at)


@pytest.mark.parametrize("number", ROUNDS)
def test_nine_writers_make_nine_versions_and_one_is_the_newest(
    replicas: list[S3Client], place: str, number: int
) -> None:
    def put(writer: int) -> Any:
        return replicas[writer % 3].put_object(Bucket=place, Key="k", Body=b"%d %d" % (writer, number))

    assert race(*[lambda writer=writer: put(writer) for writer in range(9)]) == [200] * 9
    pages = [s3.list_object_versions(Bucket=place)["Versions"] for s3 in replicas]
    orders = {tuple(version["VersionId"] for version in page) for page in pages}
    assert len(orders) == 1 and len(set(orders.pop())) == 9
    assert [version["IsLatest"] for version in pages[0]] == [True] + [False] * 8
    assert {s3.head_object(Bucket=place, Key="k")["VersionId"] for s3 in replicas} == {pages[0][0]["VersionId"]}


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("kind", ["retention", "hold"])
def test_a_version_is_locked_or_removed(replicas: list[S3Client], place: str, number: int, kind: str) -> None:
    first, second, third = replicas
    at = {"Bucket": place, "Key": "k"}
    at["VersionId"] = first.put_object(**at, Body=b"%d" % number)["VersionId"]

    def lock() -> Any:
        if kind == "hold":
            return first.put_object_legal_hold(**at, LegalHold={"Status": "ON"})
        return first.put_object_retention(**at, Retention={"Mode": "COMPLIANCE", "RetainUntilDate": LATER})

    locked = only_winner(race(lock, lambda: second.delete_object(**at))) == 0
    if locked:
        assert third.get_object(**at)["Body"].read() == b"%d" % number
    else:
        with pytest.raises(ClientError, match="NoSuchVersion"):
            third.get_object(**at)


@pytest.mark.parametrize("number", ROUNDS)
def test_one_of_three_accounts_makes_the_bucket(replicas: list[S3Client], number: int) -> None:
    name = f"raced-for-{number}"
    endpoints = [s3.meta.endpoint_url for s3 in replicas]
    accounts = [replicas[0], client_of(endpoints[1], "alt"), client_of(endpoints[2], "tenant")]
    winner = only_winner(race(*[lambda s3=s3: s3.create_bucket(Bucket=name) for s3 in accounts]))
    for endpoint in endpoints:
        s3 = s3_client(endpoint) if winner == 0 else client_of(endpoint, ("alt", "tenant")[winner - 1])
        s3.head_bucket(Bucket=name)


@pytest.mark.parametrize("number", ROUNDS)
def test_a_bucket_that_three_make_is_made_once(replicas: list[S3Client], number: int) -> None:
    name = f"made-thrice-{number}"
    assert race(*[lambda s3=s3: s3.create_bucket(Bucket=name) for s3 in replicas]) == [200, 200, 200]
    replicas[0].put_object(Bucket=name, Key="k", Body=b"x")
    assert contents(replicas, name) == {b"x"}
    assert [found["Name"] for found in replicas[1].list_buckets()["Buckets"]].count(name) == 1


@pytest.mark.parametrize("number", ROUNDS)
def test_a_bucket_goes_or_gets_its_object(replicas: list[S3Client], number: int) -> None:
    first, second, third = replicas
    name = f"going-{number}"
    first.create_bucket(Bucket=name)
    calls = (lambda: first.delete_bucket(Bucket=name), lambda: second.put_object(Bucket=name, Key="k", Body=b"x"))
    if only_winner(race(*calls)) == 1:
        assert third.get_object(Bucket=name, Key="k")["Body"].read() == b"x"
    else:
        with pytest.raises(ClientError, match="404"):
            third.head_bucket(Bucket=name)


@pytest.mark.parametrize("number", ROUNDS)
def test_expiry_never_takes_what_was_written_over_what_was_due(replicas: list[S3Client], number: int) -> None:
    bucket = f"expiring-{number}"
    replicas[0].create_bucket(Bucket=bucket)
    due = {"Filter": {"Tag": {"Key": "due", "Value": "yes"}}, "Expiration": {"Days": 1}, "Status": "Enabled"}
    replicas[0].put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [due]})

    def write(writer: int) -> dict[str, Any]:
        s3 = replicas[writer]
        keys = [f"{writer}/{key}" for key in range(20)]
        for key in [*keys, f"left/{writer}"]:
            s3.put_object(Bucket=bucket, Key=key, Body=b"due", Tagging="due=yes")
        for key in keys:
            written: dict[str, Any] = s3.put_object(Bucket=bucket, Key=key, Body=b"new")
        return written

    assert race(*[lambda writer=writer: write(writer) for writer in range(3)]) == [200] * 3
    left = {"Bucket": bucket, "Prefix": "left/"}
    until(lambda: replicas[0].list_objects_v2(**left)["KeyCount"] == 0, 30, "what is due goes", 0.1)
    for s3 in replicas:
        assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 60
        assert s3.get_object(Bucket=bucket, Key="2/19")["Body"].read() == b"new"
