"""Checksums: every algorithm, claimed in a header or a trailer, of parts and of wholes, told to those who ask."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable
from typing import Any

import awscrt.checksums
import pytest

from outside.clients import S3Client
from outside.content import MIB, noise
from outside.failure import error_code
from outside.wire import ask, signed


def base(number: int, size: int) -> str:
    return base64.b64encode(number.to_bytes(size)).decode()


ALGORITHMS: dict[str, Callable[[bytes], str]] = {
    "CRC32": lambda body: base(zlib.crc32(body), 4),
    "CRC32C": lambda body: base(awscrt.checksums.crc32c(body), 4),
    "CRC64NVME": lambda body: base(awscrt.checksums.crc64nvme(body), 8),
    "SHA1": lambda body: base64.b64encode(hashlib.sha1(body, usedforsecurity=False).digest()).decode(),
    "SHA256": lambda body: base64.b64encode(hashlib.sha256(body).digest()).decode(),
}
NAMES = list(ALGORITHMS)
BODIES = [b"", b"x", b"a little content", noise(1, 100_000)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("body", BODIES, ids=[str(len(body)) for body in BODIES])
def test_a_right_claim_is_kept_and_told(s3: S3Client, bucket: str, name: str, body: bytes) -> None:
    right = ALGORITHMS[name](body)
    put = s3.put_object(Bucket=bucket, Key="k", Body=body, **{f"Checksum{name}": right})
    assert put[f"Checksum{name}"] == right
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert (head[f"Checksum{name}"], head["ChecksumType"]) == (right, "FULL_OBJECT")
    assert f"Checksum{name}" not in s3.head_object(Bucket=bucket, Key="k")
    told = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["Checksum"])["Checksum"]
    assert told == {f"Checksum{name}": right, "ChecksumType": "FULL_OBJECT"}


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_claim_stores_nothing(s3: S3Client, bucket: str, name: str) -> None:
    wrong = ALGORITHMS[name](b"other")
    code = error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"content", **{f"Checksum{name}": wrong})
    assert code == (400, "BadDigest")
    assert error_code(s3.head_object, Bucket=bucket, Key="k") == (404, "404")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", ["x", "AAA", "####", "A" * 100])
def test_a_claim_that_is_no_checksum_is_refused(s3: S3Client, bucket: str, name: str, wrong: str) -> None:
    code = error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"content", **{f"Checksum{name}": wrong})
    assert code == (400, "InvalidRequest")


@pytest.mark.parametrize("name", NAMES)
def test_a_trailer_claims_as_a_header_does(s3: S3Client, bucket: str, name: str) -> None:
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"in a trailer", ChecksumAlgorithm=name)
    assert put[f"Checksum{name}"] == ALGORITHMS[name](b"in a trailer")
    listed = s3.list_objects_v2(Bucket=bucket)["Contents"][0]
    assert listed["ChecksumAlgorithm"] == [name]
    assert listed["ChecksumType"] == "FULL_OBJECT"


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_computes_what_is_asked_for(s3: S3Client, bucket: str, name: str) -> None:
    s3.put_object(Bucket=bucket, Key="from", Body=b"content")
    copied = s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/from", ChecksumAlgorithm=name)
    assert copied["CopyObjectResult"][f"Checksum{name}"] == ALGORITHMS[name](b"content")
    assert s3.get_object(Bucket=bucket, Key="to", ChecksumMode="ENABLED")["Body"].read() == b"content"


TYPES = [(name, kind) for name in NAMES for kind in ("COMPOSITE", "FULL_OBJECT")]
ALLOWED = {("CRC64NVME", "COMPOSITE"): False, ("SHA1", "FULL_OBJECT"): False, ("SHA256", "FULL_OBJECT"): False}
PARTS = [noise(1, 5 * MIB), b"the last part"]


@pytest.mark.parametrize(("name", "kind"), TYPES)
def test_an_upload_has_the_checksum_it_was_begun_with(s3: S3Client, bucket: str, name: str, kind: str) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    begin = at | {"ChecksumAlgorithm": name, "ChecksumType": kind}
    if not ALLOWED.get((name, kind), True):
        assert error_code(s3.create_multipart_upload, **begin) == (400, "InvalidRequest")
        return
    upload = s3.create_multipart_upload(**begin)
    assert (upload["ChecksumAlgorithm"], upload["ChecksumType"]) == (name, kind)
    listed = []
    for number, body in enumerate(PARTS, 1):
        value = ALGORITHMS[name](body)
        part = {"UploadId": upload["UploadId"], "PartNumber": number, f"Checksum{name}": value}
        etag = s3.upload_part(**at, **part, Body=body)["ETag"]
        listed.append({"PartNumber": number, "ETag": etag, f"Checksum{name}": value})
    parts = s3.list_parts(**at, UploadId=upload["UploadId"])
    assert (parts["ChecksumAlgorithm"], parts["ChecksumType"]) == (name, kind)
    assert [part[f"Checksum{name}"] for part in parts["Parts"]] == [part[f"Checksum{name}"] for part in listed]
    done = s3.complete_multipart_upload(**at, UploadId=upload["UploadId"], MultipartUpload={"Parts": listed})
    if kind == "FULL_OBJECT":
        wanted = ALGORITHMS[name](b"".join(PARTS))
    else:
        digests = b"".join(base64.b64decode(part[f"Checksum{name}"]) for part in listed)
        wanted = f"{ALGORITHMS[name](digests)}-2"
    assert (done[f"Checksum{name}"], done["ChecksumType"]) == (wanted, kind)
    head = s3.head_object(**at, ChecksumMode="ENABLED")
    assert (head[f"Checksum{name}"], head["ChecksumType"]) == (wanted, kind)
    told = s3.get_object_attributes(**at, ObjectAttributes=["Checksum", "ObjectParts", "ETag", "ObjectSize"])
    assert told["Checksum"][f"Checksum{name}"] == wanted.removesuffix("-2")
    assert (told["ObjectSize"], told["ETag"]) == (sum(map(len, PARTS)), done["ETag"].strip('"'))
    assert told["ObjectParts"]["TotalPartsCount"] == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_part_claims_with_the_algorithm_of_its_upload(s3: S3Client, bucket: str, name: str) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    upload = s3.create_multipart_upload(**at, ChecksumAlgorithm=name)["UploadId"]
    other = NAMES[(NAMES.index(name) + 1) % len(NAMES)]
    part: dict[str, Any] = {"UploadId": upload, "PartNumber": 1, "Body": b"x"}
    code = error_code(s3.upload_part, **at, **part, **{f"Checksum{other}": ALGORITHMS[other](b"x")})
    assert code == (400, "InvalidRequest")


@pytest.mark.parametrize("length", [1, 5, 100])
def test_an_upload_completes_with_the_size_that_is_claimed_alone(s3: S3Client, bucket: str, length: int) -> None:
    at: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    at["UploadId"] = s3.create_multipart_upload(**at)["UploadId"]
    etag = s3.upload_part(**at, PartNumber=1, Body=b"x" * length)["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    code = error_code(s3.complete_multipart_upload, **at, MultipartUpload=parts, MpuObjectSize=length + 1)
    assert code == (400, "InvalidRequest")
    s3.complete_multipart_upload(**at, MultipartUpload=parts, MpuObjectSize=length)


@pytest.mark.parametrize("name", ["CRC32", "CRC32C", "SHA1", "SHA256"])
def test_an_upload_begun_without_an_algorithm_completes_whatever_older_checksum_is_claimed(
    s3: S3Client, bucket: str, name: str
) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    at["UploadId"] = s3.create_multipart_upload(**at)["UploadId"]
    etag = s3.upload_part(**at, PartNumber=1, Body=b"content")["ETag"]
    length = {"CRC32": 4, "CRC32C": 4, "SHA1": 20, "SHA256": 32}[name]
    claim = {f"Checksum{name}": base(1, length)}
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    done = s3.complete_multipart_upload(**at, MultipartUpload=parts, **claim)
    assert f"Checksum{name}" not in done
    assert s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")["ChecksumCRC64NVME"]


@pytest.mark.parametrize("name", ["SHA512", "MD5", "XXHASH64"])
def test_an_upload_begun_without_an_algorithm_takes_no_newer_checksum(
    connect: Any, s3: S3Client, bucket: str, name: str
) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    upload = s3.create_multipart_upload(**at)["UploadId"]
    etag = s3.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"content")["ETag"]
    part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
    body = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>"
    claim = (f"x-amz-checksum-{name.lower()}", base(1, {"SHA512": 64, "MD5": 16, "XXHASH64": 8}[name]))
    with connect() as connection:
        target = f"/{bucket}/k?uploadId={upload}"
        answer = ask(connect, signed(connection.host, "POST", target, [claim], body.encode()), "POST")
    assert (answer.status, answer.code) == (400, "InvalidRequest")
