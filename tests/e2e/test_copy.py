"""CopyObject: content always, metadata as directed, between every kind of bucket."""

from __future__ import annotations

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.content import MIB, md5, release
from outside.failure import error_code
from outside.server import DELTA, DELTA_SEALED, OFF, ZSTD_SEALED, Mode


@pytest.fixture
def source(s3: S3Client, bucket: str) -> str:
    """A bucket in which `from` has a type and metadata."""
    s3.put_object(Bucket=bucket, Key="from", Body=b"content", ContentType="text/plain", Metadata={"a": "1"})
    return bucket


def test_a_copy_takes_content_and_metadata(s3: S3Client, source: str) -> None:
    copied = s3.copy_object(Bucket=source, Key="to", CopySource={"Bucket": source, "Key": "from"})
    assert copied["CopyObjectResult"]["ETag"] == f'"{md5(b"content")}"'
    head = s3.head_object(Bucket=source, Key="to")
    assert (head["ContentType"], head["Metadata"]) == ("text/plain", {"a": "1"})
    assert s3.get_object(Bucket=source, Key="to")["Body"].read() == b"content"


def test_replace_takes_the_metadata_of_the_request(s3: S3Client, source: str) -> None:
    s3.copy_object(
        Bucket=source,
        Key="to",
        CopySource=f"{source}/from",
        MetadataDirective="REPLACE",
        Metadata={"b": "2"},
        ContentType="image/png",
    )
    head = s3.head_object(Bucket=source, Key="to")
    assert (head["ContentType"], head["Metadata"]) == ("image/png", {"b": "2"})


def test_a_copy_outlives_its_source(s3: S3Client, source: str) -> None:
    s3.copy_object(Bucket=source, Key="to", CopySource=f"{source}/from")
    s3.delete_object(Bucket=source, Key="from")
    assert s3.get_object(Bucket=source, Key="to")["Body"].read() == b"content"


def test_an_object_copied_onto_itself_must_change_something(s3: S3Client, source: str) -> None:
    itself = {"Bucket": source, "Key": "from", "CopySource": f"{source}/from"}
    assert error_code(s3.copy_object, **itself) == (400, "InvalidRequest")
    s3.copy_object(**itself, MetadataDirective="REPLACE", Metadata={"changed": "yes"})
    assert s3.head_object(Bucket=source, Key="from")["Metadata"] == {"changed": "yes"}
    assert s3.get_object(Bucket=source, Key="from")["Body"].read() == b"content"


@pytest.mark.parametrize("key", ["with space", "plus+and%percent", "ünïcode/𝄞", "a//b/../c", "?query=1", "trailing/"])
def test_a_source_key_is_decoded_exactly_once(s3: S3Client, bucket: str, key: str) -> None:
    s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    s3.copy_object(Bucket=bucket, Key="to", CopySource={"Bucket": bucket, "Key": key})
    assert s3.get_object(Bucket=bucket, Key="to")["Body"].read() == key.encode()


def test_a_missing_source_is_said_to_be_missing(s3: S3Client, bucket: str) -> None:
    assert error_code(s3.copy_object, Bucket=bucket, Key="to", CopySource=f"{bucket}/none") == (404, "NoSuchKey")
    assert error_code(s3.copy_object, Bucket=bucket, Key="to", CopySource="never-made/none") == (404, "NoSuchBucket")
    assert error_code(s3.copy_object, Bucket="never-made", Key="to", CopySource=f"{bucket}/x")[1] == "NoSuchBucket"


@pytest.mark.parametrize(
    ("first", "second"),
    [(DELTA, DELTA), (DELTA_SEALED, OFF), (OFF, DELTA_SEALED), (ZSTD_SEALED, DELTA_SEALED)],
    ids=lambda mode: mode.name,
)
def test_copies_cross_buckets_and_come_back(s3: S3Client, make_bucket: MakeBucket, first: Mode, second: Mode) -> None:
    here, there = make_bucket(first), make_bucket(second)
    contents = {f"app-{version}": release(21, 5 * MIB, version) for version in range(2)}
    for key, content in contents.items():
        s3.put_object(Bucket=here, Key=key, Body=content, Metadata={"k": key})
        s3.copy_object(Bucket=there, Key=key, CopySource={"Bucket": here, "Key": key})
        s3.delete_object(Bucket=here, Key=key)
    for key, content in contents.items():
        assert s3.get_object(Bucket=there, Key=key)["Body"].read() == content
        s3.copy_object(Bucket=here, Key=f"back-{key}", CopySource={"Bucket": there, "Key": key})
        got = s3.get_object(Bucket=here, Key=f"back-{key}")
        assert (got["Body"].read(), got["Metadata"]) == (content, {"k": key})
        assert got["ETag"] == f'"{md5(content)}"'
