"""DeleteObjects: many keys in one document."""

from __future__ import annotations

from outside.clients import S3Client
from outside.failure import error_code


def test_a_thousand_keys_are_deleted_at_once_and_named(s3: S3Client, bucket: str) -> None:
    for number in range(30):
        s3.put_object(Bucket=bucket, Key=f"k{number:04}", Body=b"x")
    s3.put_object(Bucket=bucket, Key="stays", Body=b"x")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": f"k{number:04}"} for number in range(1000)]})
    assert sorted(found["Key"] for found in answer["Deleted"]) == [f"k{number:04}" for number in range(1000)]
    assert [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["stays"]


def test_quiet_names_failures_only(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k"}], "Quiet": True})
    assert "Deleted" not in answer
    assert "Errors" not in answer
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_keys_with_markup_and_dots_stay_in_their_bucket(s3: S3Client, bucket: str) -> None:
    keys = ["a&b<c>", "../other/key", "ü 𝄞", "plus+", "two  spaces"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
    assert {found["Key"] for found in answer["Deleted"]} == set(keys)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_too_many_or_no_keys_are_refused(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k1", Body=b"x")
    many = [{"Key": f"k{number}"} for number in range(1001)]
    assert error_code(s3.delete_objects, Bucket=bucket, Delete={"Objects": many}) == (400, "MalformedXML")
    assert error_code(s3.delete_objects, Bucket=bucket, Delete={"Objects": []}) == (400, "MalformedXML")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1
