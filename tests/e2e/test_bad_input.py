"""Malformed and forbidden requests: refused with S3's words, nothing stored, the connection sane afterwards."""

from __future__ import annotations

import pytest

from e2e.bad_requests import BODY, TABLE, Bad, Place
from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.content import md5, noise
from outside.wire import Connection, signed

SENTINEL = b"what was here before"


@pytest.fixture(scope="module")
def target(make_bucket: MakeBucket) -> str:
    """The bucket every bad request aims at."""
    return make_bucket()


@pytest.fixture
def place(s3: S3Client, target: str, endpoint: str) -> Place:
    """One object to be left alone, one a bad PUT would overwrite, one open upload; made anew for each request."""
    for found in s3.list_objects_v2(Bucket=target).get("Contents", []):
        s3.delete_object(Bucket=target, Key=found["Key"])
    for key in ("sentinel", "victim"):
        s3.put_object(Bucket=target, Key=key, Body=SENTINEL)
    upload = s3.create_multipart_upload(Bucket=target, Key="upload")["UploadId"]
    return Place(endpoint.removeprefix("http://"), target, upload)


def assert_untouched(s3: S3Client, place: Place) -> None:
    """The bucket is as the fixture made it."""
    listed = [(found["Key"], found["ETag"]) for found in s3.list_objects_v2(Bucket=place.bucket)["Contents"]]
    assert listed == [("sentinel", f'"{md5(SENTINEL)}"'), ("victim", f'"{md5(SENTINEL)}"')]
    assert "Parts" not in s3.list_parts(Bucket=place.bucket, Key="upload", UploadId=place.upload_id)


def assert_sane(connection: Connection, place: Place) -> None:
    """After a refusal the connection either answers the next request as if nothing had been, or is closed."""
    connection.send(signed(place.host, "GET", f"/{place.bucket}/sentinel"))
    answer = connection.answer()
    assert answer is None or (answer.status, answer.body) == (200, SENTINEL)


def test_the_table_is_as_long_as_was_promised() -> None:
    assert len({entry.case for entry in TABLE}) == len(TABLE) >= 60


@pytest.mark.parametrize(
    "entry",
    [pytest.param(entry, id=entry.case, marks=[pytest.mark.direct] if entry.direct else []) for entry in TABLE],
)
def test_a_bad_request_is_refused(s3: S3Client, place: Place, entry: Bad) -> None:
    port = int(place.host.rsplit(":", 1)[1])
    with Connection(port) as connection:
        connection.send(entry.make(place))
        answer = connection.answer(entry.method)
        assert answer is not None, "closed without an answer"
        assert answer.complete
        assert (answer.status, answer.code if entry.code else None) == (entry.status, entry.code), answer.body
        if entry.closes:
            assert connection.closed(), "the connection was left open"
        else:
            assert_sane(connection, place)
    assert_untouched(s3, place)


def test_a_body_that_ends_early_stores_nothing(s3: S3Client, place: Place) -> None:
    whole = signed(place.host, "PUT", place.key, body=noise(1, 3_000_000))
    for cut in (len(whole) - 1, len(whole) // 2, len(whole) - 2_999_999):
        with Connection(int(place.host.rsplit(":", 1)[1])) as connection:
            connection.send(whole[:cut])
        assert_untouched(s3, place)


def test_an_early_refusal_does_not_wait_for_a_body_that_was_not_sent(s3: S3Client, place: Place) -> None:
    """With `Expect: 100-continue` the client is told before it sends, and what it sends anyway is no new request."""
    request = signed(place.host, "PUT", "/never-made/k", [("Expect", "100-continue")], BODY)
    with Connection(int(place.host.rsplit(":", 1)[1])) as connection:
        connection.send(request.removesuffix(BODY))
        answer = connection.answer("PUT")
        assert answer is not None
        assert (answer.status, answer.code) == (404, "NoSuchBucket")
    assert_untouched(s3, place)


def test_a_body_is_asked_for_when_the_client_waits(s3: S3Client, bucket: str, place: Place) -> None:
    request = signed(place.host, "PUT", f"/{bucket}/k", [("Expect", "100-continue")], BODY)
    with Connection(int(place.host.rsplit(":", 1)[1])) as connection:
        connection.send(request.removesuffix(BODY))
        while b"\r\n\r\n" not in connection.buffer:
            connection.buffer += connection.socket.recv(4096)
        assert connection.buffer.startswith(b"HTTP/1.1 100 ")
        connection.send(BODY)
        answer = connection.answer("PUT")
    assert answer is not None
    assert answer.status == 200
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == BODY
