"""Range and partNumber reads, on every form an object can have."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.content import KIB, MIB, noise, release
from outside.failure import error_code
from outside.server import MODES, Mode

SIZE = 9 * MIB + 4321


@dataclass(frozen=True)
class Stored:
    """An object that is read in parts."""

    bucket: str
    key: str
    content: bytes


@pytest.fixture(scope="module", params=MODES, ids=lambda mode: mode.name)
def stored(request: pytest.FixtureRequest, s3: S3Client, make_bucket: MakeBucket) -> Stored:
    """The second release of a file: in a delta bucket it differs from the first."""
    mode: Mode = request.param
    bucket = make_bucket(mode)
    for version in range(2):
        s3.put_object(Bucket=bucket, Key=f"app-{version}", Body=release(11, SIZE, version))
    return Stored(bucket, "app-1", release(11, SIZE, 1))


@pytest.mark.parametrize(
    ("asked", "first", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-65535", 0, 64 * KIB),
        ("bytes=65535-65536", 65535, 65537),
        (f"bytes={4 * MIB - 1}-{4 * MIB}", 4 * MIB - 1, 4 * MIB + 1),
        (f"bytes={SIZE - 1}-{SIZE - 1}", SIZE - 1, SIZE),
        (f"bytes={SIZE - 1}-", SIZE - 1, SIZE),
        ("bytes=-1", SIZE - 1, SIZE),
        ("bytes=-100000", SIZE - 100000, SIZE),
        (f"bytes=-{SIZE * 2}", 0, SIZE),
        (f"bytes=100-{SIZE * 9}", 100, SIZE),
        ("bytes=0-", 0, SIZE),
        ("bytes=3000000-8000000", 3000000, 8000001),
        ("bytes=5-18446744073709551615", 5, SIZE),
    ],
)
def test_a_range_is_exactly_the_bytes_asked_for(s3: S3Client, stored: Stored, asked: str, first: int, end: int) -> None:
    got = s3.get_object(Bucket=stored.bucket, Key=stored.key, Range=asked)
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert got["ContentRange"] == f"bytes {first}-{end - 1}/{SIZE}"
    assert got["ContentLength"] == end - first
    assert got["Body"].read() == stored.content[first:end]


def test_random_ranges_are_exact(s3: S3Client, stored: Stored) -> None:
    rng = random.Random(7)
    for _ in range(40):
        first = rng.randrange(SIZE)
        last = min(SIZE - 1, first + rng.choice([0, 1, 100, 64 * KIB, 5 * MIB]))
        got = s3.get_object(Bucket=stored.bucket, Key=stored.key, Range=f"bytes={first}-{last}")
        assert got["Body"].read() == stored.content[first : last + 1]


@pytest.mark.parametrize(
    "asked", [f"bytes={SIZE}-", f"bytes={SIZE}-{SIZE + 5}", "bytes=-0", "bytes=18446744073709551615-"]
)
def test_a_range_past_the_end_is_416(s3: S3Client, stored: Stored, asked: str) -> None:
    assert error_code(s3.get_object, Bucket=stored.bucket, Key=stored.key, Range=asked) == (416, "InvalidRange")


NO_RANGES = [
    "bytes=0-1,5-6",
    "lines=1-2",
    "bytes=b-a",
    "bytes=9-3",
    "bytes 0-5",
    "bytes= -1",
    "bytes=0 -1",
]


@pytest.mark.parametrize("asked", [*NO_RANGES, "bytes=--1", "bytes=0--1", "bytes=,", "bytes=100-x"])
def test_what_is_no_single_range_of_bytes_gives_the_whole_object(s3: S3Client, stored: Stored, asked: str) -> None:
    got = s3.get_object(Bucket=stored.bucket, Key=stored.key, Range=asked)
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert got["Body"].read() == stored.content


def test_head_answers_a_range_like_get_without_the_body(s3: S3Client, stored: Stored) -> None:
    head = s3.head_object(Bucket=stored.bucket, Key=stored.key, Range="bytes=10-19")
    assert (head["ResponseMetadata"]["HTTPStatusCode"], head["ContentLength"]) == (206, 10)


def test_a_range_of_an_empty_object_is_416_and_the_object_itself_is_empty(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    for asked in ("bytes=0-0", "bytes=0-", "bytes=-0"):
        assert error_code(s3.get_object, Bucket=bucket, Key="empty", Range=asked) == (416, "InvalidRange"), asked
        assert error_code(s3.head_object, Bucket=bucket, Key="empty", Range=asked) == (416, "416"), asked
    assert s3.get_object(Bucket=bucket, Key="empty")["Body"].read() == b""


def test_the_last_bytes_of_an_empty_object_are_the_whole_of_it(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    for got in (
        s3.get_object(Bucket=bucket, Key="empty", Range="bytes=-5"),
        s3.head_object(Bucket=bucket, Key="empty", Range="bytes=-5"),
    ):
        assert (got["ResponseMetadata"]["HTTPStatusCode"], got["ContentLength"]) == (200, 0)
        assert "ContentRange" not in got


def test_part_number_1_of_a_single_put_is_the_whole_object(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="single", Body=noise(1, 1000))
    got = s3.get_object(Bucket=bucket, Key="single", PartNumber=1)
    assert (got["ResponseMetadata"]["HTTPStatusCode"], got["Body"].read()) == (206, noise(1, 1000))
    assert error_code(s3.get_object, Bucket=bucket, Key="single", PartNumber=2) == (400, "InvalidPart")
