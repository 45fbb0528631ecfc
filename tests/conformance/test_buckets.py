"""Buckets: which names there are, how they are listed, what creating one twice says."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from outside.buckets import MakeBucket, NewServer
from outside.clients import S3Client, new_client
from outside.failure import error_code
from outside.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from outside.wire import ask, signed

GOOD_NAMES = ["abc", "a1b", "1ab", "a-b", "a.b", "a-b.c-d", "a.1.b", "0.0.0", "a" * 63, "b" * 62, "ab--cd", "xn-a"]
BAD_NAMES = [
    "ab",
    "a" * 64,
    "Abc",
    "abC",
    "a_b",
    "-abc",
    "abc-",
    ".abc",
    "abc.",
    "a..b",
    "a.-b",
    "a-.b",
    "192.168.5.4",
    "xn--abc",
    "sthree-abc",
    "abc-s3alias",
    "abc--ol-s3",
    "abc.mrap",
    "abc--x-s3",
    "abc--table-s3",
    "a b",
    "a+b",
    "a*b",
    "ümlaut",
    "a!b",
    "a~b",
]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_name_within_the_rules_is_a_bucket(s3: S3Client, name: str) -> None:
    s3.create_bucket(Bucket=name)
    s3.head_bucket(Bucket=name)
    s3.delete_bucket(Bucket=name)
    assert error_code(s3.head_bucket, Bucket=name) == (404, "404")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_against_the_rules_is_refused(connect: Any, name: str) -> None:
    with connect() as connection:
        answer = ask(connect, signed(connection.host, "PUT", "/" + quote(name)), "PUT")
    assert (answer.status, answer.code) == (400, "InvalidBucketName")


@pytest.mark.parametrize("place", ["eu-west-1", "EU", "us-west-2", "ap-south-1"])
def test_a_bucket_of_another_region_is_not_made_here(s3: S3Client, place: str) -> None:
    code = error_code(s3.create_bucket, Bucket="elsewhere", CreateBucketConfiguration={"LocationConstraint": place})
    assert code == (400, "IllegalLocationConstraintException")


def test_making_a_bucket_again_changes_nothing_in_us_east_1(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert s3.create_bucket(Bucket=bucket)["Location"] == f"/{bucket}"
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"


def test_making_a_bucket_again_gives_it_the_acl_of_the_request(s3: S3Client, nobody: Any, bucket: str) -> None:
    s3.create_bucket(Bucket=bucket, ACL="public-read")
    nobody.list_objects_v2(Bucket=bucket)
    s3.create_bucket(Bucket=bucket)
    assert error_code(nobody.list_objects_v2, Bucket=bucket) == (403, "AccessDenied")
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration={"BlockPublicAcls": True})
    assert error_code(s3.create_bucket, Bucket=bucket, ACL="public-read") == (403, "AccessDenied")


def test_in_another_region_making_a_bucket_again_says_that_it_is_yours(new_server: NewServer) -> None:
    server = new_server(server={"region": "eu-west-1"})
    with server:
        s3: Any = new_client(
            endpoint_url=server.endpoint,
            region_name="eu-west-1",
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
        )
        made = {"Bucket": "mine", "CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}
        s3.create_bucket(**made)
        assert error_code(s3.create_bucket, **made) == (409, "BucketAlreadyOwnedByYou")


def test_creating_a_bucket_of_somebody_else_says_that_it_exists(alt: S3Client, bucket: str) -> None:
    assert error_code(alt.create_bucket, Bucket=bucket) == (409, "BucketAlreadyExists")


def test_a_stranger_deletes_no_bucket(alt: S3Client, s3: S3Client, bucket: str) -> None:
    assert error_code(alt.delete_bucket, Bucket=bucket) == (403, "AccessDenied")
    s3.head_bucket(Bucket=bucket)


def test_nobody_lists_buckets_without_a_signature(nobody: S3Client) -> None:
    assert error_code(nobody.list_buckets) == (403, "AccessDenied")


def test_head_tells_the_region(s3: S3Client, bucket: str) -> None:
    headers = s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
    assert (headers["x-amz-bucket-region"], headers["x-amz-access-point-alias"]) == ("us-east-1", "false")


def test_a_list_with_any_parameter_tells_each_buckets_region(s3: S3Client, bucket: str) -> None:
    asked: list[dict[str, Any]] = [{"Prefix": bucket}, {"BucketRegion": "us-east-1"}, {"MaxBuckets": 1000}]
    for parameter in asked:
        regions = {found.get("BucketRegion") for found in s3.list_buckets(**parameter)["Buckets"]}
        assert regions == {"us-east-1"}, parameter
    assert {found.get("BucketRegion") for found in s3.list_buckets()["Buckets"]} == {None}


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_buckets_are_listed_in_pages(s3: S3Client, make_bucket: MakeBucket, size: int) -> None:
    made = {make_bucket() for _ in range(3)}
    names: list[str] = []
    more: dict[str, Any] = {}
    while True:
        page = s3.list_buckets(MaxBuckets=size, Prefix="plain-", **more)
        assert len(page["Buckets"]) <= size
        assert page["Prefix"] == "plain-"
        names += [bucket["Name"] for bucket in page["Buckets"]]
        if "ContinuationToken" not in page:
            break
        more = {"ContinuationToken": page["ContinuationToken"]}
    assert names == sorted(set(names))
    assert made <= set(names)


@pytest.mark.parametrize("size", ["0", "-1", "10001", "many"])
def test_a_page_of_buckets_has_a_size_that_makes_sense(connect: Any, size: str) -> None:
    with connect() as connection:
        answer = ask(connect, signed(connection.host, "GET", f"/?max-buckets={size}"))
    assert (answer.status, answer.code) == (400, "InvalidArgument")


@pytest.mark.parametrize("prefix", ["no-such-", "PLAIN", "plain-99999"])
def test_a_prefix_that_no_bucket_has_lists_none(s3: S3Client, bucket: str, prefix: str) -> None:
    assert s3.list_buckets(Prefix=prefix)["Buckets"] == [], bucket


@pytest.mark.parametrize(
    "body", ["<wrong/>", "not xml", "<CreateBucketConfiguration><Other/></CreateBucketConfiguration>"]
)
def test_a_configuration_that_is_none_makes_no_bucket(connect: Any, s3: S3Client, body: str) -> None:
    with connect() as connection:
        answer = ask(connect, signed(connection.host, "PUT", "/never-made-so", body=body.encode()), "PUT")
    assert (answer.status, answer.code) == (400, "MalformedXML")
    assert error_code(s3.head_bucket, Bucket="never-made-so") == (404, "404")


NOTHING_THERE: list[tuple[str, dict[str, Any]]] = [
    ("list_objects", {}),
    ("list_objects_v2", {}),
    ("list_object_versions", {}),
    ("list_multipart_uploads", {}),
    ("get_bucket_location", {}),
    ("get_bucket_acl", {}),
    ("get_bucket_cors", {}),
    ("get_bucket_tagging", {}),
    ("get_bucket_policy", {}),
    ("get_bucket_versioning", {}),
    ("get_bucket_lifecycle_configuration", {}),
    ("get_bucket_encryption", {}),
    ("get_object_lock_configuration", {}),
    ("get_bucket_ownership_controls", {}),
    ("get_public_access_block", {}),
    ("get_bucket_notification_configuration", {}),
    ("delete_bucket", {}),
    ("delete_bucket_cors", {}),
    ("delete_bucket_policy", {}),
    ("delete_bucket_tagging", {}),
    ("delete_bucket_lifecycle", {}),
    ("get_object", {"Key": "k"}),
    ("get_object_acl", {"Key": "k"}),
    ("get_object_tagging", {"Key": "k"}),
    ("put_object", {"Key": "k", "Body": b"x"}),
    ("delete_object", {"Key": "k"}),
    ("create_multipart_upload", {"Key": "k"}),
    ("put_bucket_versioning", {"VersioningConfiguration": {"Status": "Enabled"}}),
    ("put_bucket_tagging", {"Tagging": {"TagSet": [{"Key": "a", "Value": "b"}]}}),
    ("delete_objects", {"Delete": {"Objects": [{"Key": "k"}]}}),
]


@pytest.mark.parametrize(("call", "more"), NOTHING_THERE, ids=[call for call, _ in NOTHING_THERE])
def test_a_bucket_that_is_not_there_is_said_not_to_be(s3: S3Client, call: str, more: dict[str, Any]) -> None:
    assert error_code(getattr(s3, call), Bucket="no-such-bucket", **more) == (404, "NoSuchBucket")
