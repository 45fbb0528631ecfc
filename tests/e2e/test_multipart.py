"""Multipart uploads: what SDKs send for anything over 8 MiB, and what nobody sends but may."""

from __future__ import annotations

import base64
import hashlib
import io
from typing import Any

import pytest
from boto3.s3.transfer import TransferConfig

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.content import MIB, md5, multipart_etag, noise, release
from outside.failure import error_code
from outside.server import DELTA, DELTA_SEALED, OFF, Mode

PARTS = [noise(1, 5 * MIB), noise(2, 5 * MIB + 3), noise(3, 1000)]


class Upload:
    """One upload of one key."""

    def __init__(self, s3: S3Client, bucket: str, key: str = "k", **create: Any) -> None:
        self.s3 = s3
        self.at = {"Bucket": bucket, "Key": key}
        self.id = s3.create_multipart_upload(**self.at, **create)["UploadId"]
        self.parts: dict[int, dict[str, Any]] = {}

    def part(self, number: int, body: bytes, **more: Any) -> None:
        """Uploads a part and notes what Complete needs of it."""
        put = self.s3.upload_part(**self.at, UploadId=self.id, PartNumber=number, Body=body, **more)
        self.parts[number] = {"PartNumber": number, "ETag": put["ETag"]}

    def listed(self) -> dict[str, Any]:
        """The document of Complete, in order."""
        return {"Parts": [self.parts[number] for number in sorted(self.parts)]}

    def complete(self, **more: Any) -> Any:
        """Completes with the parts noted."""
        more.setdefault("MultipartUpload", self.listed())
        return self.s3.complete_multipart_upload(**self.at, UploadId=self.id, **more)

    def content(self) -> bytes:
        """What the key holds."""
        content: bytes = self.s3.get_object(**self.at)["Body"].read()
        return content


@pytest.mark.parametrize("mode", [OFF, DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
def test_parts_in_any_order_make_one_object(s3: S3Client, make_bucket: MakeBucket, mode: Mode) -> None:
    upload = Upload(s3, make_bucket(mode), ContentType="text/x-parts", Metadata={"a": "b"})
    for number in (3, 1, 2):
        upload.part(number, PARTS[number - 1])
    done = upload.complete()
    assert done["ETag"] == f'"{multipart_etag(PARTS)}"'
    assert upload.content() == b"".join(PARTS)
    head = s3.head_object(**upload.at)
    assert (head["ETag"], head["ContentType"], head["Metadata"]) == (done["ETag"], "text/x-parts", {"a": "b"})
    (listed,) = s3.list_objects_v2(Bucket=upload.at["Bucket"])["Contents"]
    assert (listed["Size"], listed["ETag"]) == (sum(map(len, PARTS)), done["ETag"])


def test_part_numbers_may_have_gaps(s3: S3Client, bucket: str) -> None:
    upload = Upload(s3, bucket)
    for number, body in zip((7, 900, 10000), PARTS, strict=True):
        upload.part(number, body)
    upload.complete()
    assert upload.content() == b"".join(PARTS)


def test_the_last_upload_of_a_part_counts(s3: S3Client, bucket: str) -> None:
    upload = Upload(s3, bucket)
    upload.part(1, noise(9, 6 * MIB))
    upload.part(1, PARTS[0])
    upload.part(2, PARTS[2])
    upload.complete()
    assert upload.content() == PARTS[0] + PARTS[2]


def test_parts_that_complete_leaves_out_are_not_in_the_object(s3: S3Client, bucket: str) -> None:
    upload = Upload(s3, bucket)
    for number, body in enumerate(PARTS, 1):
        upload.part(number, body)
    del upload.parts[2]
    upload.complete()
    assert upload.content() == PARTS[0] + PARTS[2]


def test_completing_again_with_the_same_list_gives_the_same_answer(s3: S3Client, bucket: str) -> None:
    upload = Upload(s3, bucket)
    upload.part(1, b"small and last")
    first, second = upload.complete(), upload.complete()
    assert first["ETag"] == second["ETag"]
    assert upload.content() == b"small and last"


def test_an_aborted_upload_is_gone(s3: S3Client, bucket: str) -> None:
    upload = Upload(s3, bucket)
    upload.part(1, PARTS[2])
    ids = {"UploadId": upload.id, **upload.at}
    s3.abort_multipart_upload(**ids)
    assert error_code(upload.complete) == (404, "NoSuchUpload")
    assert error_code(s3.upload_part, **ids, PartNumber=1, Body=b"x") == (404, "NoSuchUpload")
    assert error_code(s3.list_parts, **ids) == (404, "NoSuchUpload")
    assert error_code(s3.abort_multipart_upload, **ids) == (404, "NoSuchUpload")
    assert error_code(s3.head_object, **upload.at) == (404, "404")


def test_complete_says_what_is_wrong_with_its_list(s3: S3Client, bucket: str) -> None:
    upload = Upload(s3, bucket)
    upload.part(1, b"too small to be followed")
    upload.part(2, PARTS[0])
    upload.part(3, PARTS[1])
    first, second, third = (upload.parts[number] for number in (1, 2, 3))
    for parts, code in (
        ([first, second], "EntityTooSmall"),
        ([third, second], "InvalidPartOrder"),
        ([second, second], "InvalidPartOrder"),
        ([second, {"PartNumber": 4, "ETag": third["ETag"]}], "InvalidPart"),
        ([{"PartNumber": 2, "ETag": third["ETag"]}], "InvalidPart"),
    ):
        assert error_code(upload.complete, MultipartUpload={"Parts": parts}) == (400, code)
    upload.complete(MultipartUpload={"Parts": [second, third]})
    assert upload.content() == PARTS[0] + PARTS[1]


def test_parts_are_listed_in_pages_with_sizes_and_tags(s3: S3Client, bucket: str) -> None:
    upload = Upload(s3, bucket)
    for number in (5, 1, 3, 8):
        upload.part(number, noise(number, 1000 + number))
    ids = {"UploadId": upload.id, **upload.at}
    page = s3.list_parts(**ids, MaxParts=2)
    assert [part["PartNumber"] for part in page["Parts"]] == [1, 3]
    assert (page["IsTruncated"], page["NextPartNumberMarker"]) == (True, 3)
    rest = s3.list_parts(**ids, PartNumberMarker=3)
    assert [(part["PartNumber"], part["Size"]) for part in rest["Parts"]] == [(5, 1005), (8, 1008)]
    assert rest["Parts"][0]["ETag"] == f'"{md5(noise(5, 1005))}"'
    assert rest["IsTruncated"] is False


def test_open_uploads_are_listed_by_key_with_prefix_and_pages(s3: S3Client, bucket: str) -> None:
    keys = ["a/1", "a/2", "b", "b", "c/x/y"]
    uploads = [Upload(s3, bucket, key) for key in keys]
    listed = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [found["Key"] for found in listed] == keys
    assert {found["UploadId"] for found in listed} == {upload.id for upload in uploads}
    assert [found["Key"] for found in s3.list_multipart_uploads(Bucket=bucket, Prefix="a/")["Uploads"]] == keys[:2]
    grouped = s3.list_multipart_uploads(Bucket=bucket, Delimiter="/")
    assert [found["Prefix"] for found in grouped["CommonPrefixes"]] == ["a/", "c/"]
    seen: list[str] = []
    marker: dict[str, Any] = {}
    for _ in range(len(keys)):
        page = s3.list_multipart_uploads(Bucket=bucket, MaxUploads=1, **marker)
        seen += [found["UploadId"] for found in page["Uploads"]]
        if not page["IsTruncated"]:
            break
        marker = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
    assert seen == [found["UploadId"] for found in listed]
    for upload in uploads:
        s3.abort_multipart_upload(UploadId=upload.id, **upload.at)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


def test_a_part_can_be_copied_from_an_object_or_a_range_of_it(s3: S3Client, make_bucket: MakeBucket) -> None:
    source = release(4, 12 * MIB, 0)
    here, there = make_bucket(DELTA), make_bucket(DELTA_SEALED)
    s3.put_object(Bucket=here, Key="source", Body=source)
    for bucket in (here, there):
        upload = Upload(s3, bucket, "assembled")
        ids: dict[str, Any] = {"UploadId": upload.id, **upload.at, "CopySource": f"{here}/source"}
        whole = s3.upload_part_copy(**ids, PartNumber=1)["CopyPartResult"]
        piece = s3.upload_part_copy(**ids, PartNumber=2, CopySourceRange="bytes=1000-8000000")["CopyPartResult"]
        upload.parts = {1: {"PartNumber": 1, "ETag": whole["ETag"]}, 2: {"PartNumber": 2, "ETag": piece["ETag"]}}
        upload.part(3, PARTS[2])
        assert piece["ETag"] == f'"{md5(source[1000:8000001])}"'
        upload.complete()
        assert upload.content() == source + source[1000:8000001] + PARTS[2]
        past = error_code(s3.upload_part_copy, **ids, PartNumber=2, CopySourceRange=f"bytes=0-{12 * MIB}")
        assert past[1] in ("NoSuchUpload", "InvalidRange", "InvalidArgument")


def test_part_number_reads_one_part(s3: S3Client, bucket: str) -> None:
    upload = Upload(s3, bucket)
    for number, body in enumerate(PARTS, 1):
        upload.part(number, body)
    upload.complete()
    start = 0
    for number, body in enumerate(PARTS, 1):
        got = s3.get_object(**upload.at, PartNumber=number)
        assert got["Body"].read() == body
        assert (got["PartsCount"], got["ContentLength"]) == (3, len(body))
        assert got["ContentRange"] == f"bytes {start}-{start + len(body) - 1}/{sum(map(len, PARTS))}"
        start += len(body)
    assert s3.head_object(**upload.at, PartNumber=2)["ContentLength"] == len(PARTS[1])
    assert error_code(s3.get_object, **upload.at, PartNumber=4) == (400, "InvalidPart")


def test_ranges_cross_the_borders_of_parts(s3: S3Client, bucket: str) -> None:
    upload = Upload(s3, bucket)
    for number, body in enumerate(PARTS, 1):
        upload.part(number, body)
    upload.complete()
    whole = b"".join(PARTS)
    for first, last in ((5 * MIB - 10, 5 * MIB + 10), (0, len(whole) - 1), (10 * MIB - 5, len(whole) - 1)):
        got = s3.get_object(**upload.at, Range=f"bytes={first}-{last}")
        assert got["Body"].read() == whole[first : last + 1]


def test_a_finished_upload_does_not_show_until_it_is_complete(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"before")
    upload = Upload(s3, bucket)
    upload.part(1, PARTS[2])
    assert upload.content() == b"before"
    upload.complete()
    assert upload.content() == PARTS[2]


def test_boto3s_transfers_round_trip(s3: S3Client, bucket: str) -> None:
    content = release(8, 30 * MIB + 5, 0)
    config = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB)
    s3.upload_fileobj(io.BytesIO(content), bucket, "transfer", Config=config)
    back = io.BytesIO()
    s3.download_fileobj(bucket, "transfer", back, Config=config)
    assert back.getvalue() == content


def test_a_bad_part_digest_stores_nothing(s3: S3Client, bucket: str) -> None:
    upload = Upload(s3, bucket)
    wrong = base64.b64encode(hashlib.md5(b"other", usedforsecurity=False).digest()).decode()
    put = {**upload.at, "UploadId": upload.id, "PartNumber": 1, "Body": b"body", "ContentMD5": wrong}
    assert error_code(s3.upload_part, **put) == (400, "BadDigest")
    assert "Parts" not in s3.list_parts(**upload.at, UploadId=upload.id)
