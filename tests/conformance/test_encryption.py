"""Encryption: which headers belong together, and what each kind tells and needs."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest

from outside.clients import S3Client
from outside.content import MIB, md5, noise
from outside.failure import error_code
from outside.wire import ask, signed

KEY = b"k" * 32
OTHER = b"o" * 32


def customer(key: bytes, source: bool = False) -> dict[str, Any]:
    name = "CopySourceSSECustomer" if source else "SSECustomer"
    return {f"{name}Algorithm": "AES256", f"{name}Key": key}


def headers(secret: bytes = KEY, **changes: str | None) -> list[tuple[str, str]]:
    start = "x-amz-server-side-encryption-customer-"
    whole: dict[str, str | None] = {
        "algorithm": "AES256",
        "key": base64.b64encode(secret).decode(),
        "key-MD5": base64.b64encode(hashlib.md5(secret, usedforsecurity=False).digest()).decode(),
    }
    whole |= {name.replace("_", "-"): value for name, value in changes.items()}
    return [(start + name, value) for name, value in whole.items() if value is not None]


WRONG: dict[str, list[tuple[str, str]]] = {
    "algorithm alone": headers(key=None, key_MD5=None),
    "no algorithm": headers(algorithm=None),
    "no key": headers(key=None),
    "no md5": headers(key_MD5=None),
    "wrong md5": headers(key_MD5=base64.b64encode(b"m" * 16).decode()),
    "short key": headers(b"k" * 16),
    "long key": headers(b"k" * 33),
    "no base64": headers(key="!!!"),
    "algorithm": headers(algorithm="AES128"),
    "beside sse-s3": [*headers(), ("x-amz-server-side-encryption", "AES256")],
}


@pytest.mark.parametrize("sent", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("how", ["put", "upload"])
def test_a_customers_key_comes_whole(connect: Any, s3: S3Client, bucket: str, sent: Any, how: str) -> None:
    method, target = ("PUT", f"/{bucket}/k") if how == "put" else ("POST", f"/{bucket}/k?uploads")
    with connect() as connection:
        answer = ask(connect, signed(connection.host, method, target, sent, b"x" if how == "put" else b""), method)
    assert answer.status == 400
    assert answer.code in ("InvalidArgument", "InvalidRequest", "InvalidEncryptionAlgorithmError")
    assert error_code(s3.head_object, Bucket=bucket, Key="k") == (404, "404")


@pytest.mark.parametrize("size", [0, 1, 1024, 65_536, 65_537, MIB])
def test_content_under_a_customers_key_is_read_with_it_alone(s3: S3Client, bucket: str, size: int) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    body = noise(3, size)
    put = s3.put_object(**at, Body=body, **customer(KEY))
    assert put["SSECustomerAlgorithm"] == "AES256"
    got = s3.get_object(**at, **customer(KEY))
    assert got["Body"].read() == body
    assert got["SSECustomerKeyMD5"] == put["SSECustomerKeyMD5"]
    assert s3.head_object(**at, **customer(KEY))["ContentLength"] == size
    for call in (s3.get_object, s3.head_object):
        assert error_code(call, **at)[0] == 400
        assert error_code(call, **at, **customer(OTHER))[0] == 400


@pytest.mark.parametrize("part", ["bytes=0-0", "bytes=100-200", "bytes=65530-65540", "bytes=-10"])
def test_a_range_of_encrypted_content_is_exact(s3: S3Client, bucket: str, part: str) -> None:
    body = noise(3, 70_000)
    s3.put_object(Bucket=bucket, Key="k", Body=body, **customer(KEY))
    got = s3.get_object(Bucket=bucket, Key="k", Range=part, **customer(KEY))["Body"].read()
    first, _, last = part.removeprefix("bytes=").partition("-")
    assert got == (body[-10:] if not first else body[int(first) : int(last) + 1])


KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}, {}),
    "sse-s3": ({"ServerSideEncryption": "AES256"}, {}, {}),
    "sse-kms": ({"ServerSideEncryption": "aws:kms"}, {}, {}),
    "sse-c": (customer(KEY), customer(KEY), customer(KEY, source=True)),
}


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
def test_a_copy_goes_from_any_kind_to_any_kind(s3: S3Client, bucket: str, source: str, target: str) -> None:
    body = noise(4, 10_000)
    s3.put_object(Bucket=bucket, Key="from", Body=body, **KINDS[source][0])
    to = KINDS[target][0] if target != "sse-c" or source != "sse-c" else customer(OTHER)
    s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/from", **to, **KINDS[source][2])
    reading = to if target == "sse-c" else {}
    got = s3.get_object(Bucket=bucket, Key="to", **reading)
    assert got["Body"].read() == body
    if target in ("sse-s3", "sse-kms"):
        assert got["ServerSideEncryption"] == to["ServerSideEncryption"]


@pytest.mark.parametrize("kind", ["sse-s3", "sse-kms", "sse-c"])
def test_an_upload_in_parts_is_encrypted_as_it_was_begun(s3: S3Client, bucket: str, kind: str) -> None:
    write, read, _ = KINDS[kind]
    at = {"Bucket": bucket, "Key": "k"}
    upload = s3.create_multipart_upload(**at, **write)["UploadId"]
    parts = [noise(1, 5 * MIB), noise(2, 100)]
    each = read if kind == "sse-c" else {}
    etags = [
        s3.upload_part(**at, UploadId=upload, PartNumber=number, Body=body, **each)["ETag"]
        for number, body in enumerate(parts, 1)
    ]
    listed = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]}
    s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=listed)
    assert s3.get_object(**at, **read)["Body"].read() == b"".join(parts)


def test_a_part_brings_the_key_of_its_upload(s3: S3Client, bucket: str) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    upload = s3.create_multipart_upload(**at, **customer(KEY))["UploadId"]
    part = at | {"UploadId": upload, "PartNumber": 1, "Body": b"x"}
    assert error_code(s3.upload_part, **part)[0] == 400
    assert error_code(s3.upload_part, **part, **customer(OTHER)) == (400, "InvalidRequest")


@pytest.mark.parametrize("kind", ["AES256", "aws:kms"])
def test_a_bucket_encrypts_what_says_nothing(s3: S3Client, bucket: str, kind: str) -> None:
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": kind}}]}
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=rules)
    told = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert told[0]["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": kind}
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"content")
    assert put["ServerSideEncryption"] == kind
    assert s3.head_object(Bucket=bucket, Key="k")["ServerSideEncryption"] == kind
    if kind == "AES256":
        assert put["ETag"] == f'"{md5(b"content")}"'
    s3.delete_bucket_encryption(Bucket=bucket)


@pytest.mark.parametrize(
    "document",
    [
        "<ServerSideEncryptionConfiguration/>",
        "<ServerSideEncryptionConfiguration><Rule/></ServerSideEncryptionConfiguration>",
        "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES1</SSEAlgorithm>"
        "</ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>",
        "<Other/>",
    ],
)
def test_a_default_that_is_none_is_refused(connect: Any, bucket: str, document: str) -> None:
    with connect() as connection:
        answer = ask(connect, signed(connection.host, "PUT", f"/{bucket}?encryption", body=document.encode()), "PUT")
    assert answer.status == 400


@pytest.mark.parametrize("how", ["get_object", "head_object"])
@pytest.mark.parametrize("kind", ["AES256", "aws:kms"])
def test_a_read_names_no_key_of_the_server(connect: Any, s3: S3Client, bucket: str, how: str, kind: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ServerSideEncryption=kind)
    method = "GET" if how == "get_object" else "HEAD"
    with connect() as connection:
        sent = [("x-amz-server-side-encryption", kind)]
        answer = ask(connect, signed(connection.host, method, f"/{bucket}/k", sent), method)
    assert answer.status == 400


@pytest.mark.parametrize("name", ["no-such-key", "arn:aws:kms:us-east-1:1:key/none"])
def test_a_key_that_nobody_made_is_refused(s3: S3Client, bucket: str, name: str) -> None:
    asked = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": name}
    status, code = error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"x", **asked)
    assert (status, code) == (400, "KMS.NotFoundException")


def test_the_key_of_a_default_is_looked_up_when_something_is_written(s3: S3Client, bucket: str) -> None:
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "nobody"}}
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
    told = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert told["ApplyServerSideEncryptionByDefault"] == rule["ApplyServerSideEncryptionByDefault"]
    assert error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"x") == (400, "KMS.NotFoundException")


@pytest.mark.parametrize("by_default", [True, False])
@pytest.mark.parametrize("asked", [True, False, None])
def test_the_key_of_the_bucket_is_told_where_request_or_bucket_want_it(
    s3: S3Client, bucket: str, by_default: bool, asked: bool | None
) -> None:
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}, "BucketKeyEnabled": by_default}
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
    want: dict[str, Any] = {} if asked is None else {"BucketKeyEnabled": asked}
    kept = by_default if asked is None else asked
    at = {"Bucket": bucket, "Key": "k"}
    upload = s3.create_multipart_upload(Bucket=bucket, Key="parts", **want)
    answers = [
        s3.put_object(**at, Body=b"x", **want),
        s3.head_object(**at),
        s3.get_object(**at),
        s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/k", **want),
        upload,
        s3.upload_part(Bucket=bucket, Key="parts", UploadId=upload["UploadId"], PartNumber=1, Body=b"x"),
    ]
    assert [answer.get("BucketKeyEnabled", False) for answer in answers] == [kept] * len(answers)
    s3.put_object(**at, Body=b"x", ServerSideEncryption="AES256", **want)
    assert "BucketKeyEnabled" not in s3.head_object(**at), "it is a key of SSE-KMS"


CONTEXT = {"project": "aurora", "stage": "größer"}


def encoded(pairs: Any) -> str:
    return base64.b64encode(json.dumps(pairs).encode()).decode()


@pytest.mark.parametrize("how", ["put", "copy", "upload"])
def test_a_context_is_kept_and_told_to_the_writer_alone(s3: S3Client, bucket: str, how: str) -> None:
    body = noise(11, 6 * MIB)
    asked: dict[str, Any] = {"ServerSideEncryption": "aws:kms", "SSEKMSEncryptionContext": encoded(CONTEXT)}
    here = {"Bucket": bucket, "Key": "k"}
    if how == "put":
        told = s3.put_object(**here, **asked, Body=body)
    elif how == "copy":
        s3.put_object(Bucket=bucket, Key="source", Body=body)
        told = s3.copy_object(**here, **asked, CopySource=f"{bucket}/source")
    else:
        told = s3.create_multipart_upload(**here, **asked)
        ids = here | {"UploadId": told["UploadId"]}
        parts = [
            {"PartNumber": number, "ETag": s3.upload_part(**ids, PartNumber=number, Body=part)["ETag"]}
            for number, part in enumerate((body[: 5 * MIB], body[5 * MIB :]), 1)
        ]
        s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": parts})
    assert json.loads(base64.b64decode(told["SSEKMSEncryptionContext"])) == CONTEXT
    read = s3.get_object(**here)
    assert read["Body"].read() == body
    assert s3.get_object(**here, Range="bytes=5242870-5242889")["Body"].read() == body[5242870:5242890]
    assert "x-amz-server-side-encryption-context" not in read["ResponseMetadata"]["HTTPHeaders"]
    plain = s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/k", ServerSideEncryption="aws:kms")
    assert "SSEKMSEncryptionContext" not in plain, "a copy takes it from its own request"
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == body


WRONG_CONTEXTS: dict[str, tuple[str, str]] = {
    "no base64": ("aws:kms", "???"),
    "no json": ("aws:kms", base64.b64encode(b"{").decode()),
    "a list": ("aws:kms", encoded(["a"])),
    "a number": ("aws:kms", encoded({"a": 1})),
    "nothing": ("aws:kms", encoded({})),
    "too long": ("aws:kms", encoded({"a": "x" * 8192})),
    "another algorithm": ("AES256", encoded(CONTEXT)),
}


@pytest.mark.parametrize(("algorithm", "context"), WRONG_CONTEXTS.values(), ids=WRONG_CONTEXTS)
def test_a_context_is_an_object_of_strings_beside_a_named_key(
    s3: S3Client, bucket: str, algorithm: Any, context: str
) -> None:
    asked = {"ServerSideEncryption": algorithm, "SSEKMSEncryptionContext": context}
    assert error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"x", **asked) == (400, "InvalidArgument")
    assert error_code(s3.head_object, Bucket=bucket, Key="k") == (404, "404")


@pytest.mark.parametrize("given", [None, KEY, OTHER], ids=["no key", "the key", "another"])
def test_a_list_of_parts_needs_no_key_but_takes_no_other(s3: S3Client, bucket: str, given: bytes | None) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    upload = s3.create_multipart_upload(**at, **customer(KEY))["UploadId"]
    part = s3.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"x", **customer(KEY))
    asked = at | {"UploadId": upload, "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}}
    if given == OTHER:
        assert error_code(s3.complete_multipart_upload, **asked, **customer(OTHER)) == (400, "InvalidRequest")
    else:
        s3.complete_multipart_upload(**asked, **(customer(given) if given else {}))
        assert s3.get_object(**at, **customer(KEY))["Body"].read() == b"x"


@pytest.mark.parametrize("kind", ["AES256", "aws:kms"])
def test_a_copy_tells_how_it_is_encrypted(s3: S3Client, bucket: str, kind: str) -> None:
    s3.put_object(Bucket=bucket, Key="source", Body=b"x")
    at = {"Bucket": bucket, "Key": "k"}
    assert (
        s3.copy_object(**at, CopySource=f"{bucket}/source", ServerSideEncryption=kind)["ServerSideEncryption"] == kind
    )
    upload = s3.create_multipart_upload(**at, ServerSideEncryption=kind)["UploadId"]
    part = s3.upload_part_copy(**at, UploadId=upload, PartNumber=1, CopySource=f"{bucket}/source")
    assert part["ServerSideEncryption"] == kind
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]}
    assert s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts)["ServerSideEncryption"] == kind


def test_a_bucket_that_blocks_customers_keys_takes_no_write_with_one(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="before", Body=b"x", **customer(KEY))

    def rule(kind: str) -> dict[str, Any]:
        default = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        return {"Rules": [default | {"BlockedEncryptionTypes": {"EncryptionType": [kind]}}]}

    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=rule("SSE-C"))
    told = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert told["BlockedEncryptionTypes"] == {"EncryptionType": ["SSE-C"]}
    source = {"Bucket": bucket, "Key": "before"}
    denied = (403, "AccessDenied")
    assert error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"x", **customer(KEY)) == denied
    assert error_code(s3.create_multipart_upload, Bucket=bucket, Key="k", **customer(KEY)) == denied
    both = customer(KEY) | customer(KEY, source=True)
    assert error_code(s3.copy_object, Bucket=bucket, Key="k", CopySource=source, **both) == denied
    assert s3.get_object(**source, **customer(KEY))["Body"].read() == b"x"
    assert s3.put_object(Bucket=bucket, Key="k", Body=b"x")["ServerSideEncryption"] == "AES256"
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=rule("NONE"))
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", **customer(KEY))


def test_a_rule_that_only_blocks_leaves_the_default_as_it_is(connect: Any, s3: S3Client, bucket: str) -> None:
    before = s3.put_object(Bucket=bucket, Key="k", Body=b"x").get("ServerSideEncryption")
    rule = "<Rule><BlockedEncryptionTypes><EncryptionType>SSE-C</EncryptionType></BlockedEncryptionTypes></Rule>"
    document = f"<ServerSideEncryptionConfiguration>{rule}</ServerSideEncryptionConfiguration>".encode()
    digest = base64.b64encode(hashlib.md5(document, usedforsecurity=False).digest()).decode()
    with connect() as connection:
        request = signed(connection.host, "PUT", f"/{bucket}?encryption", [("content-md5", digest)], document)
        assert ask(connect, request, "PUT").status == 200
    assert s3.put_object(Bucket=bucket, Key="k", Body=b"x").get("ServerSideEncryption") == before
    assert error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"x", **customer(KEY)) == (403, "AccessDenied")
