"""The ten checksum algorithms: verified, stored, returned, for whole objects and for parts."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from awscrt import checksums

from outside.clients import S3Client, s3_client
from outside.content import MIB, noise
from outside.failure import error_code

DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    "CRC32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "CRC32C": lambda data: checksums.crc32c(data).to_bytes(4, "big"),
    "CRC64NVME": lambda data: checksums.crc64nvme(data).to_bytes(8, "big"),
    "SHA1": lambda data: hashlib.sha1(data, usedforsecurity=False).digest(),
    "SHA256": lambda data: hashlib.sha256(data).digest(),
    "SHA512": lambda data: hashlib.sha512(data).digest(),
    "MD5": lambda data: hashlib.md5(data, usedforsecurity=False).digest(),
    "XXHASH64": lambda data: bytes(checksums.XXHash.compute_xxhash64(data)),
    "XXHASH3": lambda data: bytes(checksums.XXHash.compute_xxhash3_64(data)),
    "XXHASH128": lambda data: bytes(checksums.XXHash.compute_xxhash3_128(data)),
}
ALGORITHMS = sorted(DIGESTS)
PARTS = [noise(1, 5 * MIB), noise(2, 5 * MIB), noise(3, 777)]


def encoded(algorithm: str, data: bytes) -> str:
    """The checksum as S3 writes it."""
    return base64.b64encode(DIGESTS[algorithm](data)).decode()


def field(algorithm: str) -> str:
    """`ChecksumCRC32C`: boto3's name of it."""
    return f"Checksum{algorithm}"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_claimed_checksum_is_verified_stored_and_returned(s3: S3Client, bucket: str, algorithm: str) -> None:
    body = noise(4, 100_000)
    put = s3.put_object(Bucket=bucket, Key="k", Body=body, **{field(algorithm): encoded(algorithm, body)})
    assert dict(put)[field(algorithm)] == encoded(algorithm, body)
    for read in (s3.head_object, s3.get_object):
        got = dict(read(Bucket=bucket, Key="k", ChecksumMode="ENABLED"))
        assert got[field(algorithm)] == encoded(algorithm, body)
        assert got["ChecksumType"] == "FULL_OBJECT"
    assert field(algorithm) not in dict(s3.head_object(Bucket=bucket, Key="k"))  # only on request


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_wrong_checksum_stores_nothing_and_leaves_what_was_there(s3: S3Client, bucket: str, algorithm: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"before")
    wrong = {"Bucket": bucket, "Key": "k", "Body": b"after", field(algorithm): encoded(algorithm, b"something else")}
    assert error_code(s3.put_object, **wrong) == (400, "BadDigest")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"before"


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "MD5"])  # boto3 computes no MD5
def test_a_checksum_sent_as_trailer_is_verified_and_stored(s3: S3Client, bucket: str, algorithm: str) -> None:
    body = noise(5, 200_000)
    s3.put_object(Bucket=bucket, Key="k", Body=body, ChecksumAlgorithm=algorithm)
    got = dict(s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED"))
    assert got[field(algorithm)] == encoded(algorithm, body)


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [(name, "COMPOSITE") for name in ALGORITHMS if name != "CRC64NVME"]
    + [(name, "FULL_OBJECT") for name in ("CRC32", "CRC32C", "CRC64NVME")],
)
def test_a_multipart_object_has_the_checksum_its_upload_asked_for(
    s3: S3Client, bucket: str, algorithm: str, kind: str
) -> None:
    at: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    created = s3.create_multipart_upload(**at, ChecksumAlgorithm=algorithm, ChecksumType=kind)
    assert (created["ChecksumAlgorithm"], created["ChecksumType"]) == (algorithm, kind)
    ids = at | {"UploadId": created["UploadId"]}
    listed: list[dict[str, Any]] = []
    for number, body in enumerate(PARTS, 1):
        claim = {field(algorithm): encoded(algorithm, body)}
        put = s3.upload_part(**ids, PartNumber=number, Body=body, **claim)
        listed.append({"PartNumber": number, "ETag": put["ETag"], **claim})
    assert [dict(part)[field(algorithm)] for part in s3.list_parts(**ids)["Parts"]] == [
        encoded(algorithm, body) for body in PARTS
    ]
    if kind == "COMPOSITE":
        whole = encoded(algorithm, b"".join(DIGESTS[algorithm](body) for body in PARTS)) + f"-{len(PARTS)}"
        claim = {}
    else:
        whole = encoded(algorithm, b"".join(PARTS))
        claim = {field(algorithm): whole}
    done = dict(s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": listed}, ChecksumType=kind, **claim))
    head = dict(s3.head_object(**at, ChecksumMode="ENABLED"))
    assert done[field(algorithm)] == head[field(algorithm)] == whole
    assert head["ChecksumType"] == kind


@pytest.mark.parametrize("kind", ["full_object", "Full_Object", "FULL_OBJECT"])
def test_the_case_of_a_checksums_type_does_not_matter(s3: S3Client, bucket: str, kind: str) -> None:
    created = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm="crc32", ChecksumType=kind)
    assert (created["ChecksumAlgorithm"], created["ChecksumType"]) == ("CRC32", "FULL_OBJECT")


def test_an_object_without_a_claim_gets_crc64nvme(endpoint: str, bucket: str) -> None:
    silent = s3_client(endpoint, request_checksum_calculation="when_required")
    body = noise(6, 100_000)
    put = silent.put_object(Bucket=bucket, Key="k", Body=body)
    head = silent.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    for answer in (put, head):
        assert (answer["ChecksumCRC64NVME"], answer["ChecksumType"]) == (encoded("CRC64NVME", body), "FULL_OBJECT")


@pytest.mark.parametrize("claims", ["when_required", "when_supported"])
def test_a_multipart_object_without_a_claim_gets_crc64nvme(endpoint: str, bucket: str, claims: str) -> None:
    """Whatever its parts claim, the upload asked for nothing."""
    client = s3_client(endpoint, request_checksum_calculation=claims)
    ids: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    created = client.create_multipart_upload(**ids)
    assert "ChecksumAlgorithm" not in created
    ids["UploadId"] = created["UploadId"]
    parts = [
        {"PartNumber": number, "ETag": client.upload_part(**ids, PartNumber=number, Body=body)["ETag"]}
        for number, body in enumerate(PARTS, 1)
    ]
    assert all("ChecksumCRC64NVME" not in part for part in client.list_parts(**ids)["Parts"])
    done = client.complete_multipart_upload(**ids, MultipartUpload={"Parts": parts})
    head = client.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    for answer in (done, head):
        assert answer["ChecksumCRC64NVME"] == encoded("CRC64NVME", b"".join(PARTS))
        assert answer["ChecksumType"] == "FULL_OBJECT"


def test_a_composite_checksum_needs_that_of_every_part(endpoint: str, bucket: str) -> None:
    silent = s3_client(endpoint, request_checksum_calculation="when_required")
    ids: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    ids["UploadId"] = silent.create_multipart_upload(**ids, ChecksumAlgorithm="SHA256")["UploadId"]
    assert error_code(silent.upload_part, **ids, PartNumber=1, Body=b"one") == (400, "InvalidRequest")
    claim = {"ChecksumSHA256": encoded("SHA256", b"one")}
    part = {"PartNumber": 1, "ETag": silent.upload_part(**ids, PartNumber=1, Body=b"one", **claim)["ETag"]}
    complete = silent.complete_multipart_upload
    assert error_code(complete, **ids, MultipartUpload={"Parts": [part]}) == (400, "InvalidRequest")
    complete(**ids, MultipartUpload={"Parts": [part | claim]})


def test_a_wrong_full_object_checksum_does_not_complete(s3: S3Client, bucket: str) -> None:
    at: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    created = s3.create_multipart_upload(**at, ChecksumAlgorithm="CRC64NVME", ChecksumType="FULL_OBJECT")
    ids = at | {"UploadId": created["UploadId"]}
    put = s3.upload_part(**ids, PartNumber=1, Body=b"one", ChecksumAlgorithm="CRC64NVME")
    parts = {"Parts": [{"PartNumber": 1, "ETag": put["ETag"]}]}
    wrong = {"MultipartUpload": parts, "ChecksumCRC64NVME": encoded("CRC64NVME", b"two"), "ChecksumType": "FULL_OBJECT"}
    assert error_code(s3.complete_multipart_upload, **ids, **wrong) == (400, "BadDigest")
    assert error_code(s3.head_object, **at) == (404, "404")


def test_an_upload_can_be_completed_with_its_exact_size_only(s3: S3Client, bucket: str) -> None:
    at: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    ids = at | {"UploadId": s3.create_multipart_upload(**at)["UploadId"]}
    put = s3.upload_part(**ids, PartNumber=1, Body=b"12345")
    parts = {"Parts": [{"PartNumber": 1, "ETag": put["ETag"]}]}
    status, code = error_code(s3.complete_multipart_upload, **ids, MultipartUpload=parts, MpuObjectSize=6)
    assert (status, code) == (400, "InvalidRequest")
    s3.complete_multipart_upload(**ids, MultipartUpload=parts, MpuObjectSize=5)


def test_a_copy_keeps_the_checksum(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="from", Body=b"content", ChecksumSHA256=encoded("SHA256", b"content"))
    s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/from")
    assert s3.head_object(Bucket=bucket, Key="to", ChecksumMode="ENABLED")["ChecksumSHA256"] == encoded(
        "SHA256", b"content"
    )


def test_content_md5_is_verified(s3: S3Client, bucket: str) -> None:
    def of(data: bytes) -> str:
        return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()

    s3.put_object(Bucket=bucket, Key="k", Body=b"content", ContentMD5=of(b"content"))
    assert error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"x", ContentMD5=of(b"y")) == (400, "BadDigest")
    assert error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"x", ContentMD5="short") == (400, "InvalidDigest")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"content"
