"""Tags: limits, characters, and every way to set them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from outside.clients import S3Client
from outside.failure import error_code

Tags = list[tuple[str, str]]


def on_object(s3: S3Client, bucket: str, tags: Tags) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": k, "Value": v} for k, v in tags]})


def with_put(s3: S3Client, bucket: str, tags: Tags) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging=urlencode(tags))


def with_copy(s3: S3Client, bucket: str, tags: Tags) -> None:
    s3.put_object(Bucket=bucket, Key="from", Body=b"x")
    more = {"TaggingDirective": "REPLACE", "Tagging": urlencode(tags)}
    s3.copy_object(Bucket=bucket, Key="k", CopySource=f"{bucket}/from", **more)


def with_upload(s3: S3Client, bucket: str, tags: Tags) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    upload = s3.create_multipart_upload(**at, Tagging=urlencode(tags))["UploadId"]
    etag = s3.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts)


def on_bucket(s3: S3Client, bucket: str, tags: Tags) -> None:
    s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [{"Key": k, "Value": v} for k, v in tags]})


WAYS: list[Callable[[S3Client, str, Tags], None]] = [on_object, with_put, with_copy, with_upload, on_bucket]
GOOD: dict[str, Tags] = {
    "one": [("a", "b")],
    "empty value": [("a", "")],
    "characters": [("a+b=c._:/@-", "x y+z=._:/@-")],
    "letters": [("schlüssel", "größe"), ("鍵", "値")],
    "longest": [("k" * 128, "v" * 256)],
    "ten": [(f"k{number}", str(number)) for number in range(10)],
    "case": [("a", "1"), ("A", "2")],
}
BAD: dict[str, Tags] = {
    "long key": [("k" * 129, "v")],
    "long value": [("k", "v" * 257)],
    "twice": [("a", "1"), ("a", "2")],
    "reserved": [("aws:a", "1")],
    "characters": [("a<b", "1")],
    "characters of a value": [("a", "1;2")],
    "line break": [("a", "1\n2")],
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.__name__))
@pytest.mark.parametrize("tags", GOOD.values(), ids=GOOD)
def test_tags_within_the_limits_come_back(s3: S3Client, bucket: str, way: Callable[..., None], tags: Tags) -> None:
    way(s3, bucket, tags)
    if way is on_bucket:
        found = s3.get_bucket_tagging(Bucket=bucket)["TagSet"]
    else:
        found = s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]
        assert s3.head_object(Bucket=bucket, Key="k")["TagCount"] == len(tags)
    assert sorted((tag["Key"], tag["Value"]) for tag in found) == sorted(tags)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.__name__))
@pytest.mark.parametrize("tags", BAD.values(), ids=BAD)
def test_tags_beyond_the_limits_are_refused(s3: S3Client, bucket: str, way: Callable[..., None], tags: Tags) -> None:
    # In a header, a key that stands twice is no list of parameters.
    in_header = tags == BAD["twice"] and way in (with_put, with_copy, with_upload)
    wanted = "InvalidArgument" if in_header else "InvalidTag"
    assert error_code(way, s3=s3, bucket=bucket, tags=tags) == (400, wanted)


@pytest.mark.parametrize("way", WAYS[:4], ids=lambda way: str(way.__name__))
def test_an_object_has_at_most_ten_tags(s3: S3Client, bucket: str, way: Callable[..., None]) -> None:
    tags = [(f"k{number}", "v") for number in range(11)]
    assert error_code(way, s3=s3, bucket=bucket, tags=tags) == (400, "InvalidTag")


@pytest.mark.parametrize(("number", "fits"), [(50, True), (51, False)])
def test_a_bucket_has_at_most_fifty_tags(s3: S3Client, bucket: str, number: int, fits: bool) -> None:
    tags = [(f"k{count}", "v") for count in range(number)]
    if fits:
        on_bucket(s3, bucket, tags)
    else:
        assert error_code(on_bucket, s3=s3, bucket=bucket, tags=tags) == (400, "InvalidTag")


@pytest.mark.parametrize("call", ["get_object_tagging", "delete_object_tagging"])
def test_a_key_that_is_not_there_has_no_tags(s3: S3Client, bucket: str, call: str) -> None:
    assert error_code(getattr(s3, call), Bucket=bucket, Key="none") == (404, "NoSuchKey")


def test_tags_are_removed_twice_without_complaint(s3: S3Client, bucket: str) -> None:
    on_object(s3, bucket, [("a", "b")])
    for _ in range(2):
        s3.delete_object_tagging(Bucket=bucket, Key="k")
        assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []
    assert "TagCount" not in s3.head_object(Bucket=bucket, Key="k")


def test_an_overwritten_object_has_lost_its_tags(s3: S3Client, bucket: str) -> None:
    with_put(s3, bucket, [("a", "b")])
    s3.put_object(Bucket=bucket, Key="k", Body=b"y")
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []


def test_tags_do_not_touch_the_object(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"m": "1"})
    before = s3.head_object(Bucket=bucket, Key="k")
    on = {"Bucket": bucket, "Key": "k", "Tagging": {"TagSet": [{"Key": "a", "Value": "b"}]}}
    s3.put_object_tagging(**on)
    after = s3.head_object(Bucket=bucket, Key="k")
    for name in ("ETag", "LastModified", "Metadata", "ContentLength"):
        assert before[name] == after[name]


def test_who_may_not_see_tags_is_not_told_how_many_there_are(s3: S3Client, alt: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="public-read", Tagging="a=b")
    assert s3.get_object(Bucket=bucket, Key="k")["TagCount"] == 1
    for told in (alt.get_object(Bucket=bucket, Key="k"), alt.head_object(Bucket=bucket, Key="k")):
        assert "TagCount" not in told


@pytest.mark.parametrize("call", ["get_object_tagging", "put_object_tagging", "delete_object_tagging"])
def test_a_stranger_sees_and_sets_no_tags(s3: S3Client, alt: S3Client, bucket: str, call: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="public-read")
    more: dict[str, Any] = {"Tagging": {"TagSet": []}} if call.startswith("put") else {}
    assert error_code(getattr(alt, call), Bucket=bucket, Key="k", **more) == (403, "AccessDenied")
