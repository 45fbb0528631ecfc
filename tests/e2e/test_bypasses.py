"""Ways around an authorization that were found in other servers: none of them leads anywhere here."""

from __future__ import annotations

import json
import urllib.request
from typing import Any
from urllib.error import HTTPError

import pytest

from outside.clients import S3Client
from outside.failure import error_code
from outside.policies import put_policy
from outside.users import ALT_ID, anonymous, client_of

DENIED = (403, "AccessDenied")


def statement(effect: str, bucket: str, actions: str | list[str], key: str = "*", **more: Any) -> dict[str, Any]:
    """A statement about the keys of a bucket, for the account `alt` unless `more` says otherwise."""
    resource = f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}"
    return {"Effect": effect, "Principal": {"AWS": ALT_ID}, "Action": actions, "Resource": resource} | more


def fetch(url: str, headers: dict[str, str]) -> int:
    """The status of an unsigned GET."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


@pytest.fixture
def target(alt: S3Client, bucket: str) -> Any:
    """A bucket of the other account, gone after the test."""
    name = f"{bucket}-of-alt"[:63]
    alt.create_bucket(Bucket=name)
    yield name
    for found in alt.list_objects_v2(Bucket=name).get("Contents", []):
        alt.delete_object(Bucket=name, Key=found["Key"])
    for open_upload in alt.list_multipart_uploads(Bucket=name).get("Uploads", []):
        alt.abort_multipart_upload(Bucket=name, Key=open_upload["Key"], UploadId=open_upload["UploadId"])
    alt.delete_bucket(Bucket=name)


def test_a_copy_needs_read_on_its_source(s3: S3Client, alt: S3Client, bucket: str, target: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"secret")
    copy = {"Bucket": target, "Key": "mine", "CopySource": f"{bucket}/k"}
    assert error_code(alt.copy_object, **copy) == DENIED
    put_policy(s3, bucket, statement("Allow", bucket, "s3:GetObject"))
    alt.copy_object(**copy)


def test_a_part_copied_needs_read_on_its_source(s3: S3Client, alt: S3Client, bucket: str, target: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"secret")
    upload = alt.create_multipart_upload(Bucket=target, Key="mine")["UploadId"]
    copy = {"Bucket": target, "Key": "mine", "CopySource": f"{bucket}/k", "UploadId": upload, "PartNumber": 1}
    assert error_code(alt.upload_part_copy, **copy) == DENIED
    put_policy(s3, bucket, statement("Allow", bucket, "s3:GetObject"))
    alt.upload_part_copy(**copy)


def test_a_denial_with_a_condition_holds_for_copies_too(s3: S3Client, alt: S3Client, bucket: str, target: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"secret")
    here = {"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}
    allowed = statement("Allow", bucket, "s3:GetObject")
    put_policy(s3, bucket, allowed, statement("Deny", bucket, "s3:GetObject", Condition=here))
    assert error_code(alt.copy_object, Bucket=target, Key="mine", CopySource=f"{bucket}/k") == DENIED


def test_a_version_is_copied_by_those_who_may_read_versions(
    s3: S3Client, alt: S3Client, bucket: str, target: str
) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    version = s3.put_object(Bucket=bucket, Key="k", Body=b"old")["VersionId"]
    s3.put_object(Bucket=bucket, Key="k", Body=b"new")
    put_policy(s3, bucket, statement("Allow", bucket, "s3:GetObject"))
    source = {"Bucket": bucket, "Key": "k", "VersionId": version}
    assert error_code(alt.copy_object, Bucket=target, Key="mine", CopySource=source) == DENIED
    assert error_code(alt.get_object, Bucket=bucket, Key="k", VersionId=version) == DENIED
    put_policy(s3, bucket, statement("Allow", bucket, ["s3:GetObject", "s3:GetObjectVersion"]))
    alt.copy_object(Bucket=target, Key="mine", CopySource=source)
    assert alt.get_object(Bucket=target, Key="mine")["Body"].read() == b"old"


def test_a_denied_key_is_denied_however_it_is_written(s3: S3Client, bucket: str, endpoint: str) -> None:
    s3.put_object(Bucket=bucket, Key="secret", Body=b"x")
    everybody = {"Principal": "*"}
    put_policy(
        s3,
        bucket,
        statement("Allow", bucket, "s3:GetObject", **everybody),
        statement("Deny", bucket, "s3:GetObject", "secret", **everybody),
    )
    for path in ("secret", "%73ecret", "s%65cret", "secret?versionId=null", "secret?partNumber=1"):
        assert fetch(f"{endpoint}/{bucket}/{path}", {}) == 403, path
    # Other keys, which are not there.
    for path in ("secret/", "./secret", "x/../secret", "Secret"):
        assert fetch(f"{endpoint}/{bucket}/{path}", {}) in (403, 404), path


def test_nothing_tells_of_a_key_to_those_who_may_not_list(s3: S3Client, bucket: str, endpoint: str) -> None:
    nobody = anonymous(endpoint)
    s3.put_object(Bucket=bucket, Key="there", Body=b"x")
    for key in ("there", "absent"):
        assert error_code(nobody.head_object, Bucket=bucket, Key=key)[0] == 403, key
        for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"x"'}, {"Range": "bytes=9-"}):
            assert error_code(nobody.get_object, Bucket=bucket, Key=key, **condition) == DENIED, (key, condition)


def test_nobody_lists_versions_parts_or_uploads(s3: S3Client, bucket: str, endpoint: str) -> None:
    nobody = anonymous(endpoint)
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    assert error_code(nobody.list_object_versions, Bucket=bucket) == DENIED
    assert error_code(nobody.list_multipart_uploads, Bucket=bucket) == DENIED
    assert error_code(nobody.list_parts, Bucket=bucket, Key="k", UploadId=upload) == DENIED
    s3.abort_multipart_upload(Bucket=bucket, Key="k", UploadId=upload)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Client-IP"])
def test_a_client_does_not_say_where_it_comes_from(s3: S3Client, bucket: str, endpoint: str, header: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    elsewhere = {"IpAddress": {"aws:SourceIp": "203.0.113.0/24"}}
    put_policy(s3, bucket, statement("Allow", bucket, "s3:GetObject", Principal="*", Condition=elsewhere))
    claim = "for=203.0.113.7" if header == "Forwarded" else "203.0.113.7"
    assert fetch(f"{endpoint}/{bucket}/k", {header: claim}) == 403


@pytest.mark.parametrize("header", ["username", "userid", "aws-username", "x-amz-username", "groups"])
def test_a_header_named_like_a_key_of_conditions_is_a_header(
    s3: S3Client, bucket: str, endpoint: str, header: str
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    root = {"StringEquals": {"aws:username": "root"}}
    put_policy(s3, bucket, statement("Allow", bucket, "s3:GetObject", Principal="*", Condition=root))
    assert fetch(f"{endpoint}/{bucket}/k", {header: "root"}) == 403


def test_who_may_write_objects_may_not_write_the_policy(s3: S3Client, alt: S3Client, bucket: str) -> None:
    put_policy(s3, bucket, statement("Allow", bucket, ["s3:PutObject", "s3:GetObject", "s3:DeleteObject"]))
    opened = json.dumps({"Version": "2012-10-17", "Statement": [statement("Allow", bucket, "s3:*", Principal="*")]})
    assert error_code(alt.put_bucket_policy, Bucket=bucket, Policy=opened) == DENIED
    assert error_code(alt.delete_bucket_policy, Bucket=bucket) == DENIED
    assert error_code(alt.put_bucket_acl, Bucket=bucket, ACL="public-read") == DENIED


def test_metadata_named_like_ours_is_metadata(s3: S3Client, bucket: str) -> None:
    ours = {"x-deltaweir-form": "whole", "X-Amz-Server-Side-Encryption": "AES256", "owner": ALT_ID, "etag": "0"}
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata=ours)
    found = s3.head_object(Bucket=bucket, Key="k")
    assert found["Metadata"] == {name.lower(): value for name, value in ours.items()}
    assert found["ETag"] != '"0"'


def test_deleting_does_not_tell_whether_a_bucket_is_there(s3: S3Client, endpoint: str, bucket: str) -> None:
    """To somebody who may delete nothing, a bucket that is not there looks like one that is not theirs."""
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    delete: Any = {"Objects": [{"Key": "k"}, {"Key": "v", "VersionId": "null"}]}
    answers = []
    for name in (bucket, "never-made-by-anybody"):
        answer = client_of(endpoint, "colleague").delete_objects(Bucket=name, Delete=delete)
        answers.append((answer["Errors"], answer.get("Deleted")))
        assert error_code(anonymous(endpoint).delete_objects, Bucket=name, Delete=delete) == DENIED
    assert answers[0] == answers[1]
    assert [found["Code"] for found in answers[0][0]] == ["AccessDenied"] * 2
    assert error_code(s3.delete_objects, Bucket="never-made-by-anybody", Delete=delete) == (404, "NoSuchBucket")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"
