"""Signature Version 2 in the `Authorization` header, as boto3's `signature_version="s3"` and older clients send it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest

from outside.clients import S3Client, s3_client
from outside.content import noise
from outside.failure import error_code
from outside.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from outside.wire import Answer, ask, encode

Send = Callable[..., Answer]


@pytest.fixture
def old(endpoint: str) -> S3Client:
    """boto3, signing by version 2."""
    return s3_client(endpoint, signature_version="s3")


@pytest.fixture
def send(connect: Any, bucket: str) -> Send:
    """Sends a PUT that is signed by hand over its date, its `x-amz-*` and its resource."""

    def one(date: str | None, amz_date: str | None, added: tuple[tuple[str, str], ...] = ()) -> Answer:
        target = f"/{bucket}/by-hand"
        amz = "" if amz_date is None else f"x-amz-date:{amz_date}\n"
        text = f"PUT\n\n\n{'' if amz_date is not None else date or ''}\n{amz}{target}"
        made = hmac.new(SECRET_ACCESS_KEY.encode(), text.encode(), hashlib.sha1).digest()
        headers = [("Authorization", f"AWS {ACCESS_KEY_ID}:{base64.b64encode(made).decode()}"), *added]
        headers += [("Date", date)] if date is not None else []
        headers += [("x-amz-date", amz_date)] if amz_date is not None else []
        with connect() as connection:
            head = [("Host", connection.host), *headers, ("Content-Length", "4")]
            return ask(connect, encode("PUT", target, head, b"body"))

    return one


def test_objects_are_put_read_listed_copied_and_deleted(old: S3Client, bucket: str) -> None:
    at = {"Bucket": bucket, "Key": "a key/ü+%"}
    old.put_object(**at, Body=b"content", ContentType="text/plain", Metadata={"a": "1"}, Tagging="t=1")
    assert old.get_object(**at, Range="bytes=1-3")["Body"].read() == b"ont"
    assert old.head_object(**at)["Metadata"] == {"a": "1"}
    assert old.get_object_tagging(**at)["TagSet"] == [{"Key": "t", "Value": "1"}]
    old.copy_object(Bucket=bucket, Key="copy", CopySource=at)
    listed = old.list_objects_v2(Bucket=bucket, Prefix="a ", Delimiter="/")
    assert [each["Prefix"] for each in listed["CommonPrefixes"]] == ["a key/"]
    old.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "copy"}, {"Key": at["Key"]}]})
    assert "Contents" not in old.list_objects(Bucket=bucket)


def test_a_multipart_upload_is_signed_by_version_2(old: S3Client, bucket: str) -> None:
    content = noise(5, 9 << 20)
    old.upload_fileobj(io.BytesIO(content), bucket, "parts")
    assert old.get_object(Bucket=bucket, Key="parts", PartNumber=2)["PartsCount"] == 2
    got = io.BytesIO()
    old.download_fileobj(bucket, "parts", got)
    assert got.getvalue() == content


def test_configurations_are_sub_resources_that_are_signed(old: S3Client, bucket: str) -> None:
    old.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    assert old.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    old.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    assert old.get_bucket_tagging(Bucket=bucket)["TagSet"] == [{"Key": "a", "Value": "b"}]
    version = old.put_object(Bucket=bucket, Key="k", Body=b"1")["VersionId"]
    old.put_object(Bucket=bucket, Key="k", Body=b"22")
    assert old.get_object(Bucket=bucket, Key="k", VersionId=version)["Body"].read() == b"1"
    overridden = old.get_object(Bucket=bucket, Key="k", ResponseContentType="image/png")
    assert overridden["ContentType"] == "image/png"
    assert old.get_bucket_acl(Bucket=bucket)["Grants"][0]["Permission"] == "FULL_CONTROL"


def test_buckets_are_made_listed_and_deleted(old: S3Client, s3: S3Client, bucket: str) -> None:
    name = f"{bucket}-old"
    old.create_bucket(Bucket=name)
    assert name in [each["Name"] for each in old.list_buckets()["Buckets"]]
    assert s3.get_bucket_location(Bucket=name)["LocationConstraint"] is None
    old.delete_bucket(Bucket=name)
    assert error_code(s3.head_bucket, Bucket=name) == (404, "404")


def test_a_wrong_secret_and_an_unknown_key_are_refused(endpoint: str, bucket: str) -> None:
    wrong = s3_client(endpoint, secret="wrong", signature_version="s3")
    assert error_code(wrong.list_objects_v2, Bucket=bucket) == (403, "SignatureDoesNotMatch")
    nobody = s3_client(endpoint, key_id="AKIANOBODYHASTHIS000", signature_version="s3")
    assert error_code(nobody.list_objects_v2, Bucket=bucket) == (403, "InvalidAccessKeyId")


@pytest.mark.parametrize("date", ["Date", "x-amz-date", "both"])
def test_either_date_is_taken(send: Send, date: str) -> None:
    now = formatdate(usegmt=True)
    answer = send(None if date == "x-amz-date" else now, None if date == "Date" else now)
    assert answer.status == 200, answer.body


def test_a_zone_of_mails_is_taken(send: Send) -> None:
    assert send(formatdate(usegmt=True).replace("GMT", "+0000"), None).status == 200


@pytest.mark.parametrize(
    ("date", "code"),
    [
        ("Bad Date", "AccessDenied"),
        ("", "AccessDenied"),
        ("Tue, 07 Jul 2010 21:53:04 GMT", "RequestTimeTooSkewed"),
        ("Tue, 07 Jul 2100 21:53:04 GMT", "RequestTimeTooSkewed"),
        ("Tue, 07 Jul 9999 21:53:04 GMT", "RequestTimeTooSkewed"),
        ("Tue, 07 Jul 1950 21:53:04 GMT", "AccessDenied"),
    ],
)
def test_a_date_that_is_none_or_not_now_is_refused(send: Send, date: str, code: str) -> None:
    for answer in (send(date, None), send(formatdate(usegmt=True), date)):
        assert (answer.status, answer.code) == (403, code)


def test_a_request_without_a_date_is_refused(send: Send) -> None:
    answer = send(None, None)
    assert (answer.status, answer.code) == (403, "AccessDenied")


@pytest.mark.parametrize("added", ["x-amz-acl", "x-amz-meta-a", "Content-MD5", "Content-Type"])
def test_a_header_that_is_not_signed_breaks_the_signature(send: Send, added: str) -> None:
    answer = send(formatdate(usegmt=True), None, ((added, "private"),))
    assert (answer.status, answer.code) == (403, "SignatureDoesNotMatch")
