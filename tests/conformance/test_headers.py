"""Headers as bad clients send them: what is tolerated, what is refused, and with which code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outside.clients import S3Client
from outside.failure import error_code
from outside.wire import Answer, ask, encode, signed

Send = Callable[..., Answer]


@pytest.fixture
def send(connect: Any, bucket: str) -> Send:
    """Sends a signed request about the bucket, its target relative to it."""

    def one(method: str, target: str, headers: list[tuple[str, str]], body: bytes = b"") -> Answer:
        with connect() as connection:
            return ask(connect, signed(connection.host, method, f"/{bucket}{target}", headers, body), method)

    return one


PUTS: list[tuple[str, str, int, str | None]] = [
    ("content-md5", "", 400, "InvalidDigest"),
    ("content-md5", "YmFkIG1kNQ==", 400, "InvalidDigest"),
    ("content-md5", "\x07", 400, None),
    ("content-md5", "rL0Y20xC+Fzt72VPzMSk2A==", 400, "BadDigest"),
    ("content-type", "text/plain", 200, None),
    ("content-type", "", 200, None),
    ("content-type", "no slash at all", 200, None),
    ("user-agent", "", 200, None),
    ("user-agent", "a" * 500, 200, None),
    ("expires", "0", 200, None),
    ("expires", "never", 200, None),
    ("x-amz-acl", "public-ready", 400, "InvalidArgument"),
    ("x-amz-acl", "", 400, "InvalidArgument"),
    ("x-amz-acl", "PRIVATE", 400, "InvalidArgument"),
    ("x-amz-storage-class", "COLD", 400, "InvalidStorageClass"),
    ("x-amz-storage-class", "standard", 400, "InvalidStorageClass"),
    ("x-amz-storage-class", "STANDARD", 200, None),
    ("x-amz-storage-class", "REDUCED_REDUNDANCY", 200, None),
    ("x-amz-server-side-encryption", "AES128", 400, "InvalidArgument"),
    ("x-amz-server-side-encryption", "AES256", 200, None),
    ("x-amz-tagging", "a=1&a=2", 400, "InvalidArgument"),
    ("x-amz-tagging", "aws:a=1", 400, "InvalidTag"),
    ("x-amz-tagging", "=1", 400, "InvalidTag"),
    ("x-amz-tagging", "a", 200, None),
    ("x-amz-tagging", "a=", 200, None),
    ("x-amz-tagging", "a=1&b=2", 200, None),
    ("x-amz-checksum-crc32", "AAAAAA==", 400, "BadDigest"),
    ("x-amz-checksum-crc32", "AAAA", 400, "InvalidRequest"),
    ("x-amz-checksum-sha256", "x", 400, "InvalidRequest"),
    ("x-amz-sdk-checksum-algorithm", "CRC99", 400, "InvalidRequest"),
    ("x-amz-expected-bucket-owner", "123456789012", 403, "AccessDenied"),
    ("x-amz-grant-read", "nonsense", 400, "InvalidArgument"),
    ("x-amz-grant-read", "id=nobody", 400, "InvalidArgument"),
    ("x-amz-grant-read", 'emailAddress="nobody@example.com"', 400, "UnresolvableGrantByEmailAddress"),
    ("x-amz-object-lock-legal-hold", "ON", 400, "InvalidRequest"),
    ("x-amz-object-lock-legal-hold", "maybe", 400, "InvalidArgument"),
    ("x-amz-object-lock-mode", "GOVERNANCE", 400, None),
    ("x-amz-object-lock-retain-until-date", "2099-01-01T00:00:00Z", 400, None),
    ("if-match", '"0123456789abcdef0123456789abcdef"', 404, "NoSuchKey"),
    ("if-none-match", "*", 200, None),
    ("if-none-match", '"0123456789abcdef0123456789abcdef"', 200, None),
    ("if-none-match", 'W/"0123456789abcdef0123456789abcdef"', 501, "NotImplemented"),
    ("x-amz-website-redirect-location", "/elsewhere", 200, None),
    ("x-amz-website-redirect-location", "https://example.com/", 200, None),
    ("x-amz-website-redirect-location", "elsewhere", 400, "InvalidRedirectLocation"),
    ("x-amz-website-redirect-location", "ftp://example.com/", 400, "InvalidRedirectLocation"),
    ("x-amz-mfa", "serial 123456", 501, "NotImplemented"),
]


@pytest.mark.parametrize(("name", "value", "status", "code"), PUTS, ids=[f"{n}: {v[:30]}" for n, v, _, _ in PUTS])
def test_a_header_of_a_put_is_taken_or_refused(
    send: Send, name: str, value: str, status: int, code: str | None
) -> None:
    answer = send("PUT", "/k", [(name, value)], b"content")
    assert answer.status == status
    assert code is None or answer.code == code


AUTHORIZATIONS = [
    ("", (403,)),
    ("AWS HAHAHA", (400, 403)),
    ("AWS AKIAX:signature", (400, 403)),
    ("Bearer token", (400,)),
    ("AWS4-HMAC-SHA256", (400,)),
    ("AWS4-HMAC-SHA256 Credential=x", (400,)),
    (
        "AWS4-HMAC-SHA256 Credential=AKIAX/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00",
        (400, 403),
    ),
]


@pytest.mark.parametrize(("value", "statuses"), AUTHORIZATIONS, ids=[value[:25] for value, _ in AUTHORIZATIONS])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_an_authorization_that_is_none_lets_nobody_in(
    connect: Any, bucket: str, method: str, value: str, statuses: tuple[int, ...]
) -> None:
    with connect() as connection:
        headers = [("Host", connection.host), ("Authorization", value), ("Content-Length", "0")]
        answer = ask(connect, encode(method, f"/{bucket}/k", headers), method)
    assert answer.status in statuses


@pytest.mark.parametrize("length", ["-1", "x", "1.5", "99999999999999999999999"])
@pytest.mark.parametrize("target", ["", "/k"], ids=["bucket", "object"])
def test_a_content_length_is_a_number(connect: Any, bucket: str, target: str, length: str) -> None:
    with connect() as connection:
        headers = [("Host", connection.host), ("Content-Length", length)]
        answer = ask(connect, encode("PUT", f"/{bucket}{target}", headers), "PUT")
    assert answer.status in (400, 413)


@pytest.mark.parametrize("key", ["k" * 1025, "ü" * 513, "a/" * 513])
@pytest.mark.parametrize(
    "call", ["get_object", "head_object", "put_object", "delete_object", "create_multipart_upload"]
)
def test_a_key_is_at_most_1024_bytes(s3: S3Client, bucket: str, call: str, key: str) -> None:
    status, code = error_code(getattr(s3, call), Bucket=bucket, Key=key)
    assert (status, code) == (400, "400" if call == "head_object" else "KeyTooLongError")


@pytest.mark.parametrize("location", ["/elsewhere", "http://example.com/a", "https://example.com/b?c=d"])
def test_a_redirect_location_is_kept_and_told(s3: S3Client, bucket: str, location: str) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    s3.put_object(**at, Body=b"x", WebsiteRedirectLocation=location)
    assert s3.head_object(**at)["WebsiteRedirectLocation"] == location
    got = s3.get_object(**at)
    assert (got["WebsiteRedirectLocation"], got["Metadata"]) == (location, {})
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/k")
    assert "WebsiteRedirectLocation" not in s3.head_object(Bucket=bucket, Key="copy")
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/k", WebsiteRedirectLocation="/copied")
    assert s3.head_object(Bucket=bucket, Key="copy")["WebsiteRedirectLocation"] == "/copied"
    upload = s3.create_multipart_upload(**at, WebsiteRedirectLocation=location)["UploadId"]
    etag = s3.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"y")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts)
    assert s3.head_object(**at)["WebsiteRedirectLocation"] == location


OVERRIDES = {
    "ResponseContentType": ("ContentType", "foo/bar"),
    "ResponseContentLanguage": ("ContentLanguage", "esperanto"),
    "ResponseContentDisposition": ("ContentDisposition", "bla"),
    "ResponseContentEncoding": ("ContentEncoding", "aaa"),
    "ResponseCacheControl": ("CacheControl", "no-cache"),
}


@pytest.mark.parametrize("asked", sorted(OVERRIDES))
def test_a_read_may_say_what_its_answer_is_called(s3: S3Client, nobody: S3Client, bucket: str, asked: str) -> None:
    field, value = OVERRIDES[asked]
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="public-read")
    assert s3.get_object(Bucket=bucket, Key="k", **{asked: value})[field] == value
    assert error_code(nobody.get_object, Bucket=bucket, Key="k", **{asked: value}) == (400, "InvalidRequest")


METADATA = ["plain", "with space", "a=b;c", "x" * 1000, "trailing  ", "!#$%&'()*", "=?odd"]


@pytest.mark.parametrize("value", METADATA)
def test_printable_metadata_comes_back(s3: S3Client, bucket: str, value: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"meta1": value})
    assert s3.get_object(Bucket=bucket, Key="k")["Metadata"]["meta1"] == value.strip()


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("gzip", "gzip"),
        ("deflate, gzip", "deflate, gzip"),
        ("deflate,gzip", "deflate,gzip"),
        ("gzip, aws-chunked", "gzip"),
        ("aws-chunked, gzip", "gzip"),
        ("deflate, aws-chunked, gzip", "deflate, gzip"),
        ("aws-chunked", None),
        ("aws-chunked, aws-chunked", None),
    ],
)
def test_a_content_encoding_is_kept_as_sent_but_for_the_framing(
    s3: S3Client, bucket: str, sent: str, kept: str | None
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ContentEncoding=sent)
    assert s3.head_object(Bucket=bucket, Key="k").get("ContentEncoding") == kept


@pytest.mark.parametrize("query", ["acl", "tagging", "versioning", "policy", "cors", "lifecycle", "object-lock"])
def test_a_document_that_is_no_xml_is_malformed(send: Send, query: str) -> None:
    answer = send("PUT", f"?{query}", [], b"no document")
    assert answer.status == 400
    assert answer.code in ("MalformedXML", "MalformedPolicy", "MalformedACLError", "InvalidRequest")


NOT_BUILT = [
    ("GET", "/k?torrent"),
    ("POST", "/k?restore"),
    ("POST", "/k?select&select-type=2"),
    ("PUT", "?website"),
    ("PUT", "?replication"),
    ("PUT", "?inventory&id=a"),
    ("PUT", "?analytics&id=a"),
    ("PUT", "?metrics&id=a"),
    ("PUT", "?intelligent-tiering&id=a"),
]


@pytest.mark.parametrize(("method", "target"), NOT_BUILT, ids=[f"{m} {t}" for m, t in NOT_BUILT])
def test_what_is_not_built_is_501_and_changes_nothing(
    s3: S3Client, bucket: str, send: Send, method: str, target: str
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"here")
    answer = send(method, target, [], b"<Document/>")
    assert (answer.status, answer.code) == (501, "NotImplemented")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"here"


def test_what_is_switched_off_may_be_said_to_be_off(s3: S3Client, bucket: str) -> None:
    s3.put_bucket_request_payment(Bucket=bucket, RequestPaymentConfiguration={"Payer": "BucketOwner"})
    s3.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={})
    s3.put_bucket_accelerate_configuration(Bucket=bucket, AccelerateConfiguration={"Status": "Suspended"})
    assert s3.get_bucket_accelerate_configuration(Bucket=bucket)["Status"] == "Suspended"
    assert s3.get_bucket_request_payment(Bucket=bucket)["Payer"] == "BucketOwner"
    assert "LoggingEnabled" not in s3.get_bucket_logging(Bucket=bucket)


def test_what_is_switched_off_cannot_be_switched_on(s3: S3Client, bucket: str) -> None:
    target = {"LoggingEnabled": {"TargetBucket": bucket, "TargetPrefix": "log/"}}
    not_built = (501, "NotImplemented")
    payment = {"Payer": "Requester"}
    assert error_code(s3.put_bucket_logging, Bucket=bucket, BucketLoggingStatus=target) == not_built
    call = s3.put_bucket_request_payment
    assert error_code(call, Bucket=bucket, RequestPaymentConfiguration=payment) == not_built
    fast = {"Status": "Enabled"}
    call = s3.put_bucket_accelerate_configuration
    assert error_code(call, Bucket=bucket, AccelerateConfiguration=fast) == not_built
    assert "Status" not in s3.get_bucket_accelerate_configuration(Bucket=bucket)


@pytest.mark.parametrize("query", ["accelerate", "requestPayment", "logging"])
def test_a_switch_that_says_nothing_known_is_malformed(send: Send, query: str) -> None:
    answer = send("PUT", f"?{query}", [], b"<Document/>")
    assert (answer.status, answer.code) == (400, "MalformedXML")
