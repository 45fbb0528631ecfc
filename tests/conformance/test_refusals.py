"""What S3 says of requests that make no sense: the code that its documentation gives, and where clients show them to
people, its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outside.clients import S3Client
from outside.failure import error_code
from outside.wire import Answer, ask, encode, signed

Send = Callable[..., Answer]
OWN = "<AccessControlPolicy><AccessControlList/></AccessControlPolicy>"


@pytest.fixture
def send(connect: Any) -> Send:
    """Sends a signed request."""

    def one(method: str, target: str, headers: list[tuple[str, str]] | None = None, body: bytes = b"") -> Answer:
        with connect() as connection:
            host = connection.host
        return ask(connect, signed(host, method, target, headers or [], body), method)

    return one


@pytest.fixture
def unsigned(connect: Any) -> Send:
    """Sends a request as it is."""

    def one(method: str, target: str, headers: list[tuple[str, str]], body: bytes = b"") -> Answer:
        with connect() as connection:
            host = connection.host
        return ask(connect, encode(method, target, [("Host", host), *headers], body), method)

    return one


def words(answer: Answer) -> str:
    """The message of an error."""
    return answer.body.split(b"<Message>")[1].split(b"</Message>")[0].decode().replace("&apos;", "'")


@pytest.mark.parametrize("header", ["x-amz-acl", "x-amz-grant-read"])
def test_an_acl_comes_in_headers_or_in_a_document(send: Send, s3: S3Client, bucket: str, header: str) -> None:
    owner = s3.list_buckets()["Owner"]["ID"]
    value = "private" if header == "x-amz-acl" else f'id="{owner}"'
    answer = send("PUT", f"/{bucket}?acl", [(header, value)], OWN.encode())
    assert (answer.status, answer.code) == (400, "UnexpectedContent")


def test_a_permission_that_does_not_exist_is_a_malformed_acl(send: Send, bucket: str) -> None:
    grant = (
        '<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser">'
        "<ID>nobody</ID></Grantee><Permission>LOOK</Permission></Grant>"
    )
    body = f"<AccessControlPolicy><AccessControlList>{grant}</AccessControlList></AccessControlPolicy>"
    answer = send("PUT", f"/{bucket}?acl", body=body.encode())
    assert (answer.status, answer.code) == (400, "MalformedACLError")


@pytest.mark.parametrize("listing", ["uploads", "versions"])
def test_a_key_has_no_listing_of_uploads_or_versions(send: Send, bucket: str, listing: str) -> None:
    answer = send("GET", f"/{bucket}/key?{listing}")
    assert (answer.status, answer.code) == (400, "InvalidRequest")
    assert listing in words(answer)


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
@pytest.mark.parametrize("target", ["", "/key"])
def test_only_copies_name_a_source(send: Send, bucket: str, method: str, target: str) -> None:
    answer = send(method, f"/{bucket}{target}", [("x-amz-copy-source", "bucket/key")])
    assert answer.status == 400
    assert method == "HEAD" or answer.code == "InvalidArgument"


def test_an_upload_is_not_written_to_without_a_part_number(send: Send, bucket: str) -> None:
    answer = send("PUT", f"/{bucket}/key?uploadId=some", body=b"part")
    assert (answer.status, answer.code) == (405, "MethodNotAllowed")
    assert answer.header("Allow") == "DELETE, POST, GET"


@pytest.mark.parametrize(
    ("list_of_checksums", "code"),
    [
        ("<ChecksumSHA1>AAAAAAAAAAAAAAAAAAAAAAAAAAA=</ChecksumSHA1>", "BadDigest"),
        ("<ChecksumCRC32>not base64</ChecksumCRC32>", "InvalidArgument"),
        ("<ChecksumCRC32>AAAAAA==</ChecksumCRC32><ChecksumCRC32C>AAAAAA==</ChecksumCRC32C>", "InvalidArgument"),
        ("<ChecksumCRC32>AAAAAA==</ChecksumCRC32>", "InvalidPart"),
    ],
    ids=["another-algorithm", "no-base64", "two", "another-value"],
)
def test_the_list_of_an_upload_names_the_checksum_of_each_part(
    send: Send, s3: S3Client, bucket: str, list_of_checksums: str, code: str
) -> None:
    begun = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")[
        "UploadId"
    ]
    tag = s3.upload_part(Bucket=bucket, Key="k", UploadId=begun, PartNumber=1, Body=b"one", ChecksumAlgorithm="CRC32")[
        "ETag"
    ]
    part = f"<Part><PartNumber>1</PartNumber><ETag>{tag}</ETag>{list_of_checksums}</Part>"
    body = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()
    answer = send("POST", f"/{bucket}/k?uploadId={begun}", body=body)
    assert (answer.status, answer.code) == (400, code)


def test_the_size_of_an_upload_is_held_against_what_was_sent(send: Send, s3: S3Client, bucket: str) -> None:
    begun = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    tag = s3.upload_part(Bucket=bucket, Key="k", UploadId=begun, PartNumber=1, Body=b"one")["ETag"]
    body = (
        f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part></CompleteMultipartUpload>"
    )
    for size, said in (
        ("4", "value 4 does not match what was computed: 3"),
        ("-1", "less than zero: '-1'"),
        ("x", "invalid: 'x'"),
    ):
        answer = send("POST", f"/{bucket}/k?uploadId={begun}", [("x-amz-mp-object-size", size)], body.encode())
        assert (answer.status, answer.code) == (400, "InvalidRequest")
        assert said in words(answer)
    assert send("POST", f"/{bucket}/k?uploadId={begun}", [("x-amz-mp-object-size", "3")], body.encode()).status == 200


@pytest.mark.parametrize(
    ("authorization", "code", "said"),
    [
        ("nonsense", "InvalidArgument", "one and only one ' ' (space) required"),
        ("AWS4-HMAC-SHA256 Credential=a", "AuthorizationHeaderMalformed", "requires three components"),
        ("AWS4-HMAC-SHA256 Credential=a, SignedHeaders, Signature=b", "AuthorizationHeaderMalformed", "is malformed"),
        (
            "AWS4-HMAC-SHA256 Key=a, SignedHeaders=host, Signature=b",
            "AuthorizationHeaderMalformed",
            "missing Credential.",
        ),
        (
            "AWS4-HMAC-SHA256 Credential=a, Names=host, Signature=b",
            "AuthorizationHeaderMalformed",
            "missing SignedHeaders.",
        ),
        (
            "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Sig=b",
            "AuthorizationHeaderMalformed",
            "missing Signature.",
        ),
        (
            "AWS4-HMAC-SHA256 Credential=a, Credential=a, Signature=b",
            "AuthorizationHeaderMalformed",
            "missing SignedHeaders.",
        ),
    ],
)
def test_an_authorization_header_says_what_it_lacks(
    unsigned: Send, bucket: str, authorization: str, code: str, said: str
) -> None:
    answer = unsigned("GET", f"/{bucket}", [("Authorization", authorization), ("x-amz-date", "20260101T000000Z")])
    assert (answer.status, answer.code) == (400, code)
    assert said in words(answer)


def test_attributes_that_nobody_names_are_an_invalid_request(send: Send, s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"")
    answer = send("GET", f"/{bucket}/k?attributes")
    assert (answer.status, answer.code) == (400, "InvalidRequest")
    answer = send("GET", f"/{bucket}/k?attributes", [("x-amz-object-attributes", "Colour")])
    assert (answer.status, answer.code) == (400, "InvalidArgument")


@pytest.mark.parametrize("read", ["get_object_retention", "get_object_legal_hold"])
def test_a_lock_is_asked_of_an_object_that_is_there(s3: S3Client, bucket: str, read: str) -> None:
    assert error_code(getattr(s3, read), Bucket=bucket, Key="absent") == (404, "NoSuchKey")
    s3.put_object(Bucket=bucket, Key="there", Body=b"")
    assert error_code(getattr(s3, read), Bucket=bucket, Key="there") == (400, "InvalidRequest")


def test_a_new_bucket_has_an_arn(send: Send) -> None:
    answer = send("PUT", "/conformance-refusals-arn")
    assert (answer.header("Location"), answer.header("x-amz-bucket-arn")) == (
        "/conformance-refusals-arn",
        "arn:aws:s3:::conformance-refusals-arn",
    )


@pytest.mark.parametrize(
    "header", ["invalid header", "X-Custom:Header", "X(Custom)", "Bad/Header", "Bad=Name", "tab\tchar"]
)
def test_a_rule_of_cors_names_headers_that_can_be(send: Send, s3: S3Client, bucket: str, header: str) -> None:
    rule = {"AllowedOrigins": ["*"], "AllowedMethods": ["GET"]}
    for kind in ("AllowedHeaders", "ExposeHeaders"):
        rules = {"CORSRules": [rule | {kind: [header]}]}
        assert error_code(s3.put_bucket_cors, Bucket=bucket, CORSConfiguration=rules) == (400, "InvalidRequest")
    preflight = [("Origin", "https://a.test"), ("Access-Control-Request-Method", "GET")]
    answer = send("OPTIONS", f"/{bucket}/k", [*preflight, ("Access-Control-Request-Headers", f"x-amz-date,{header}")])
    assert (answer.status, answer.code) == (400, "BadRequest")


def test_the_least_size_for_transitions_is_kept_and_told(s3: S3Client, bucket: str) -> None:
    rule: Any = {
        "ID": "r",
        "Status": "Enabled",
        "Filter": {},
        "Transitions": [{"Days": 30, "StorageClass": "STANDARD_IA"}],
    }
    rules: Any = {"Bucket": bucket, "LifecycleConfiguration": {"Rules": [rule]}}
    name, default, other = "TransitionDefaultMinimumObjectSize", "all_storage_classes_128K", "varies_by_storage_class"
    put: Any = s3.put_bucket_lifecycle_configuration
    assert put(**rules)[name] == default
    assert put(**rules, **{name: other})[name] == other
    assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)[name] == other
    s3.delete_bucket_lifecycle(Bucket=bucket)
    put(**rules)
    assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)[name] == default
    assert error_code(put, **rules, **{name: "none"}) == (400, "InvalidArgument")


def test_a_request_that_says_which_headers_it_has_is_told_whether_they_are_allowed(
    send: Send, s3: S3Client, bucket: str
) -> None:
    rule = {"AllowedOrigins": ["https://a.test"], "AllowedMethods": ["GET"], "AllowedHeaders": ["x-amz-*"]}
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    s3.put_object(Bucket=bucket, Key="k", Body=b"")
    origin = ("Origin", "https://a.test")
    told = send("GET", f"/{bucket}/k", [origin, ("Access-Control-Request-Headers", "X-Amz-Date, x-amz-meta-a")])
    assert told.header("Access-Control-Allow-Headers") == "x-amz-date, x-amz-meta-a"
    told = send("GET", f"/{bucket}/k", [origin, ("Access-Control-Request-Headers", "range")])
    assert (told.status, told.header("Access-Control-Allow-Origin")) == (200, None)


def test_a_policy_that_is_no_json_is_told_so(s3: S3Client, bucket: str) -> None:
    for text, said in (("{true}", "This policy contains invalid Json"), ("false", "the first byte must be '{'")):
        with pytest.raises(s3.exceptions.ClientError, match=said):
            s3.put_bucket_policy(Bucket=bucket, Policy=text)


def form(fields: dict[str, str]) -> tuple[list[tuple[str, str]], bytes]:
    """A form with a file, as a browser sends it."""
    parts = [f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in fields.items()]
    file = '--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nx\r\n--b--\r\n'
    return [("Content-Type", "multipart/form-data; boundary=b")], "".join([*parts, file]).encode()


def test_a_form_without_a_boundary_is_malformed_and_what_is_no_form_fails_its_condition(
    unsigned: Send, bucket: str
) -> None:
    for kind, status, code in (
        ("multipart/form-data", 400, "MalformedPOSTRequest"),
        ("text/plain", 412, "PreconditionFailed"),
    ):
        answer = unsigned("POST", f"/{bucket}", [("Content-Type", kind), ("Content-Length", "1")], b"x")
        assert (answer.status, answer.code) == (status, code)


@pytest.mark.parametrize(
    ("left_out", "empty"),
    [
        ("policy", False),
        *((name, empty) for name in ("signature", "credential", "date", "algorithm") for empty in (True, False)),
    ],
)
def test_a_form_that_is_signed_has_every_field_of_a_signature(
    unsigned: Send, bucket: str, left_out: str, empty: bool
) -> None:
    fields = {
        "key": "k",
        # A policy of no conditions that has not ended yet.
        "policy": "eyJleHBpcmF0aW9uIjoiMjA5OS0wMS0wMVQwMDowMDowMFoiLCJjb25kaXRpb25zIjpbXX0=",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": "a/20260101/us-east-1/s3/aws4_request",
        "x-amz-date": "20260101T000000Z",
        "x-amz-signature": "00",
    }
    left_out = left_out if left_out == "policy" else f"x-amz-{left_out}"
    if empty:
        fields[left_out] = ""
    else:
        del fields[left_out]
    headers, body = form(fields)
    answer = unsigned("POST", f"/{bucket}", [*headers, ("Content-Length", str(len(body)))], body)
    assert answer.status == 400
    assert f"a field named '{left_out}'" in words(answer)


def test_a_file_of_an_unknown_kind_is_kept_as_bytes(unsigned: Send, s3: S3Client, bucket: str) -> None:
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    headers, body = form({"key": "k", "Content-Type": ""})
    assert unsigned("POST", f"/{bucket}", [*headers, ("Content-Length", str(len(body)))], body).status == 204
    assert s3.head_object(Bucket=bucket, Key="k")["ContentType"] == "binary/octet-stream"
