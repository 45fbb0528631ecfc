"""What is stored beside content and comes back with it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.failure import error_code
from outside.server import DELTA, DELTA_SEALED, Mode

HEADERS = {
    "ContentType": "application/x-deltaweir; charset=utf-8",
    "ContentEncoding": "gzip",
    "ContentDisposition": 'attachment; filename="a b.txt"',
    "ContentLanguage": "de-CH, en",
    "CacheControl": "max-age=3600, private",
}


@pytest.mark.parametrize("mode", [DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
def test_content_headers_and_metadata_come_back_on_get_and_head(
    s3: S3Client, make_bucket: MakeBucket, mode: Mode
) -> None:
    bucket = make_bucket(mode)
    expires = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    metadata = {"plain": "value", "with-spaces": "a  b", "mixed": "Case Stays", "dotted.name": "1", "empty": ""}
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata=metadata, Expires=expires, **HEADERS)
    for answer in (s3.head_object(Bucket=bucket, Key="k"), s3.get_object(Bucket=bucket, Key="k")):
        assert {name: dict(answer)[name] for name in HEADERS} == HEADERS
        assert answer["ResponseMetadata"]["HTTPHeaders"]["expires"] == "Wed, 02 Jan 2030 03:04:05 GMT"
        assert {name: " ".join(value.split()) for name, value in answer["Metadata"].items()} == {
            name: " ".join(value.split()) for name, value in metadata.items()
        }


def test_an_object_without_a_type_is_binary(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert s3.head_object(Bucket=bucket, Key="k")["ContentType"] == "binary/octet-stream"
    assert s3.head_object(Bucket=bucket, Key="k")["Metadata"] == {}


def test_overwriting_replaces_all_metadata(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"old": "1"}, ContentType="text/plain")
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"new": "2"})
    head = s3.head_object(Bucket=bucket, Key="k")
    assert (head["Metadata"], head["ContentType"]) == ({"new": "2"}, "binary/octet-stream")


def test_metadata_of_2_kib_fits_and_one_byte_more_does_not(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"a": "v" * 2047})
    assert len(s3.head_object(Bucket=bucket, Key="k")["Metadata"]["a"]) == 2047
    assert error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"y", Metadata={"a": "v" * 2048}) == (
        400,
        "MetadataTooLarge",
    )
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"


def test_a_signed_url_can_override_what_a_get_answers(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", **HEADERS)
    got = s3.get_object(
        Bucket=bucket,
        Key="k",
        ResponseContentType="text/html",
        ResponseContentDisposition="inline",
        ResponseContentEncoding="identity",
        ResponseContentLanguage="fr",
        ResponseCacheControl="no-store",
        ResponseExpires=datetime(2031, 1, 1, tzinfo=UTC),
    )
    assert (got["ContentType"], got["ContentDisposition"], got["ContentEncoding"]) == (
        "text/html",
        "inline",
        "identity",
    )
    assert (got["ContentLanguage"], got["CacheControl"]) == ("fr", "no-store")
    assert s3.head_object(Bucket=bucket, Key="k")["ContentType"] == HEADERS["ContentType"]


def test_the_storage_class_is_echoed(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="cold", Body=b"x", StorageClass="STANDARD_IA")
    s3.put_object(Bucket=bucket, Key="usual", Body=b"x", StorageClass="STANDARD")
    assert s3.head_object(Bucket=bucket, Key="cold")["StorageClass"] == "STANDARD_IA"
    assert "StorageClass" not in s3.head_object(Bucket=bucket, Key="usual")
    classes = {found["Key"]: found["StorageClass"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    assert classes == {"cold": "STANDARD_IA", "usual": "STANDARD"}
