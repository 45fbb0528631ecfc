"""Buckets: made, listed, found, refused, deleted."""

from __future__ import annotations

import pytest

from outside.clients import S3Client
from outside.failure import error_code


def test_a_new_bucket_is_listed_found_and_gone_after_its_deletion(s3: S3Client) -> None:
    s3.create_bucket(Bucket="made-and-deleted")
    assert "made-and-deleted" in [found["Name"] for found in s3.list_buckets()["Buckets"]]
    assert s3.head_bucket(Bucket="made-and-deleted")["ResponseMetadata"]["HTTPStatusCode"] == 200
    s3.delete_bucket(Bucket="made-and-deleted")
    assert error_code(s3.head_bucket, Bucket="made-and-deleted") == (404, "404")
    assert "made-and-deleted" not in [found["Name"] for found in s3.list_buckets()["Buckets"]]


def test_buckets_are_listed_in_order_with_owner_and_creation_date(s3: S3Client) -> None:
    for name in ("order-b", "order-a", "order-c"):
        s3.create_bucket(Bucket=name)
    listed = s3.list_buckets()
    names = [found["Name"] for found in listed["Buckets"]]
    assert names == sorted(names)
    assert listed["Owner"]["ID"]
    assert all(found["CreationDate"].tzinfo is not None for found in listed["Buckets"])


def test_a_bucket_that_holds_an_object_is_not_deleted(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert error_code(s3.delete_bucket, Bucket=bucket) == (409, "BucketNotEmpty")
    s3.delete_object(Bucket=bucket, Key="k")
    s3.delete_bucket(Bucket=bucket)


def test_a_deleted_bucket_can_be_made_again_and_is_empty(s3: S3Client) -> None:
    s3.create_bucket(Bucket="made-again")
    s3.put_object(Bucket="made-again", Key="k", Body=b"x")
    s3.delete_object(Bucket="made-again", Key="k")
    s3.delete_bucket(Bucket="made-again")
    s3.create_bucket(Bucket="made-again")
    assert s3.list_objects_v2(Bucket="made-again")["KeyCount"] == 0


def test_the_location_of_us_east_1_is_empty(s3: S3Client, bucket: str) -> None:
    assert s3.get_bucket_location(Bucket=bucket).get("LocationConstraint") is None


def test_what_is_asked_of_a_bucket_that_does_not_exist_says_so(s3: S3Client) -> None:
    missing = {"Bucket": "never-made"}
    assert error_code(s3.list_objects_v2, **missing) == (404, "NoSuchBucket")
    assert error_code(s3.delete_bucket, **missing) == (404, "NoSuchBucket")
    assert error_code(s3.put_object, **missing, Key="k", Body=b"x") == (404, "NoSuchBucket")
    assert error_code(s3.get_object, **missing, Key="k") == (404, "NoSuchBucket")
    assert error_code(s3.create_multipart_upload, **missing, Key="k") == (404, "NoSuchBucket")


@pytest.mark.parametrize("name", ["Upper-case", "192.168.5.4", "xn--punycode", "a..b", "-dash", "dash-"])
def test_a_name_outside_the_rules_is_refused(s3: S3Client, name: str) -> None:
    assert error_code(s3.create_bucket, Bucket=name) == (400, "InvalidBucketName")
