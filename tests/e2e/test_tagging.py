"""Tags of objects: set with a PUT, later, or by a copy; kept with the version, in every mode."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from outside.buckets import MakeBucket, NewServer
from outside.clients import S3Client, s3_client
from outside.content import MIB, noise
from outside.failure import error_code
from outside.server import DELTA, DELTA_SEALED, Mode

Tags = dict[str, str]


def tag_set(tags: Tags) -> dict[str, Any]:
    """boto3's form of tags."""
    return {"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]}


def tags_of(s3: S3Client, bucket: str, key: str) -> Tags:
    """The tags of an object."""
    return {tag["Key"]: tag["Value"] for tag in s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]}


@pytest.mark.parametrize("mode", [DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
def test_tags_are_set_replaced_and_removed(s3: S3Client, make_bucket: MakeBucket, mode: Mode) -> None:
    bucket = make_bucket(mode)
    at = {"Bucket": bucket, "Key": "k"}
    s3.put_object(**at, Body=b"content", Tagging="a=1&b+c=d%2Be", Metadata={"m": "1"})
    assert tags_of(s3, bucket, "k") == {"a": "1", "b c": "d+e"}
    before = s3.head_object(**at)
    assert before["TagCount"] == 2
    s3.put_object_tagging(**at, Tagging=tag_set({"ü": "größe", "a": ""}))
    assert tags_of(s3, bucket, "k") == {"ü": "größe", "a": ""}
    got = s3.get_object(**at)
    assert (got["Body"].read(), got["TagCount"], got["Metadata"]) == (b"content", 2, {"m": "1"})
    assert (got["LastModified"], got["ETag"]) == (before["LastModified"], before["ETag"])
    s3.delete_object_tagging(**at)
    assert tags_of(s3, bucket, "k") == {}
    assert "TagCount" not in s3.head_object(**at)
    s3.put_object_tagging(**at, Tagging=tag_set({"a": "1"}))
    s3.put_object(**at, Body=b"another")
    assert tags_of(s3, bucket, "k") == {}, "a new version has its own"


@pytest.mark.parametrize("mode", [DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
def test_each_version_has_tags_of_its_own(s3: S3Client, make_bucket: MakeBucket, mode: Mode) -> None:
    bucket = make_bucket(mode)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    at = {"Bucket": bucket, "Key": "k"}
    ids = [s3.put_object(**at, Body=b"x" * number, Tagging=f"put={number}")["VersionId"] for number in (1, 2, 3)]
    told = s3.put_object_tagging(**at, VersionId=ids[1], Tagging=tag_set({"later": "2"}))
    assert told["VersionId"] == ids[1]
    assert s3.put_object_tagging(**at, Tagging=tag_set({"later": "3"}))["VersionId"] == ids[2]
    s3.delete_object_tagging(**at, VersionId=ids[0])
    tags = [s3.get_object_tagging(**at, VersionId=version)["TagSet"] for version in ids]
    assert tags == [[], [{"Key": "later", "Value": "2"}], [{"Key": "later", "Value": "3"}]]
    assert [s3.head_object(**at, VersionId=version).get("TagCount") for version in ids] == [None, 1, 1]
    attributes = s3.get_object_attributes(**at, VersionId=ids[1], ObjectAttributes=["ObjectSize"])
    assert (attributes["ObjectSize"], attributes["VersionId"]) == (2, ids[1])
    s3.delete_object(**at)
    assert error_code(s3.put_object_tagging, **at, Tagging=tag_set({})) == (405, "MethodNotAllowed")
    none = {"VersionId": "0" * 32, "Tagging": tag_set({})}
    assert error_code(s3.put_object_tagging, **at, **none) == (404, "NoSuchVersion")


def test_a_copy_takes_tags_along_or_gets_its_own(s3: S3Client, make_bucket: MakeBucket) -> None:
    here, there = make_bucket(DELTA), make_bucket(DELTA_SEALED)
    s3.put_object(Bucket=here, Key="from", Body=b"x", Tagging="a=1")
    for bucket in (here, there):
        at = {"Bucket": bucket, "Key": "to", "CopySource": f"{here}/from"}
        s3.copy_object(**at)
        assert tags_of(s3, bucket, "to") == {"a": "1"}
        s3.copy_object(**at, Tagging="b=2")
        assert tags_of(s3, bucket, "to") == {"a": "1"}, "the directive says COPY unless it says REPLACE"
        s3.copy_object(**at, TaggingDirective="REPLACE", Tagging="b=2")
        assert tags_of(s3, bucket, "to") == {"b": "2"}
        s3.copy_object(**at, TaggingDirective="REPLACE")
        assert tags_of(s3, bucket, "to") == {}
    itself = {"Bucket": here, "Key": "from", "CopySource": f"{here}/from", "TaggingDirective": "REPLACE"}
    s3.copy_object(**itself, Tagging="c=3")
    assert tags_of(s3, here, "from") == {"c": "3"}


def test_an_upload_in_parts_has_the_tags_it_was_started_with(s3: S3Client, bucket: str) -> None:
    ids: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    ids["UploadId"] = s3.create_multipart_upload(**ids, Tagging="a=1")["UploadId"]
    part = {"PartNumber": 1, "ETag": s3.upload_part(**ids, PartNumber=1, Body=b"x")["ETag"]}
    s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": [part]})
    assert tags_of(s3, bucket, "k") == {"a": "1"}


def test_tags_have_s3s_limits(s3: S3Client, bucket: str) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    s3.put_object(**at, Body=b"x", Tagging="kept=yes")
    put = s3.put_object_tagging
    for tags in (
        {f"k{number}": "" for number in range(11)},
        {"k" * 129: "v"},
        {"k": "v" * 257},
        {"aws:k": "v"},
        {"k": "<v>"},
    ):
        assert error_code(put, **at, Tagging=tag_set(tags)) == (400, "InvalidTag"), tags
    twice = {"TagSet": [{"Key": "k", "Value": "1"}, {"Key": "k", "Value": "2"}]}
    assert error_code(put, **at, Tagging=twice) == (400, "InvalidTag")
    assert error_code(s3.put_object, **at, Body=b"y", Tagging="a=1&a=2") == (400, "InvalidArgument")
    assert tags_of(s3, bucket, "k") == {"kept": "yes"}
    most = {f"{number}" + "k" * 127: "v" * 256 for number in range(10)}
    put(**at, Tagging=tag_set(most))
    assert tags_of(s3, bucket, "k") == most
    for call in (s3.get_object_tagging, s3.delete_object_tagging):
        assert error_code(call, Bucket=bucket, Key="none") == (404, "NoSuchKey")
    assert error_code(put, Bucket=bucket, Key="none", Tagging=tag_set({})) == (404, "NoSuchKey")


def test_tags_survive_what_is_done_to_the_content(new_server: NewServer) -> None:
    """Packing, converting, a restart: jobs that rewrite a version take its tags along, those set meanwhile too."""
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    for mode in (DELTA, DELTA_SEALED):
        bucket = f"{mode.name}-00"
        s3.create_bucket(Bucket=bucket)
        for number in range(40):
            s3.put_object(Bucket=bucket, Key=f"k{number}", Body=noise(number, 3000), Tagging=f"put={number}")
        s3.put_object(Bucket=bucket, Key="big", Body=noise(1, 9 * MIB), Tagging="put=big")
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(
                    lambda n, bucket=bucket: s3.put_object_tagging(
                        Bucket=bucket, Key=f"k{n}", Tagging=tag_set({"later": str(n)})
                    ),
                    range(0, 40, 2),
                )
            )
    server.settle()
    server.restart()
    s3 = s3_client(server.endpoint)
    for mode in (DELTA, DELTA_SEALED):
        bucket = f"{mode.name}-00"
        for number in range(40):
            expected = {"later": str(number)} if number % 2 == 0 else {"put": str(number)}
            assert tags_of(s3, bucket, f"k{number}") == expected
            assert s3.get_object(Bucket=bucket, Key=f"k{number}")["Body"].read() == noise(number, 3000)
        assert tags_of(s3, bucket, "big") == {"put": "big"}


def test_tags_of_a_sealed_bucket_are_sealed(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-aes256-00")
    at = {"Bucket": "delta-aes256-00", "Key": "k"}
    s3.put_object(**at, Body=b"x", Tagging="colour=by-header-7741")
    s3.put_object_tagging(**at, Tagging=tag_set({"colour": "by-document-7742"}))
    server.stop()
    for path in server.data.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"by-header-7741" not in content, path
            assert b"by-document-7742" not in content, path


def test_attributes_are_told_as_asked(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"content")
    asked = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
    told = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=asked)
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert told["ETag"] == head["ETag"].strip('"')
    assert told["Checksum"] == {"ChecksumCRC32": head["ChecksumCRC32"], "ChecksumType": "FULL_OBJECT"}
    assert (told["StorageClass"], told["ObjectSize"], told["LastModified"]) == ("STANDARD", 7, head["LastModified"])
    assert "ObjectParts" not in told
    few = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["ObjectSize"])
    assert "ETag" not in few
    assert few["ObjectSize"] == 7
    wrong = {"Bucket": bucket, "Key": "k", "ObjectAttributes": ["Colour"]}
    assert error_code(s3.get_object_attributes, **wrong) == (400, "InvalidArgument")
    none = {"Bucket": bucket, "Key": "none", "ObjectAttributes": asked}
    assert error_code(s3.get_object_attributes, **none) == (404, "NoSuchKey")


def test_attributes_of_parts_come_in_pages_with_their_checksums(s3: S3Client, bucket: str) -> None:
    ids: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    ids["UploadId"] = s3.create_multipart_upload(**ids, ChecksumAlgorithm="SHA256")["UploadId"]
    listed = []
    for number, size in ((1, 5 * MIB), (3, 5 * MIB), (7, 100)):
        put = s3.upload_part(**ids, PartNumber=number, Body=noise(number, size), ChecksumAlgorithm="SHA256")
        listed.append({"PartNumber": number, "ETag": put["ETag"], "ChecksumSHA256": put["ChecksumSHA256"]})
    s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": listed})
    asked = {"Bucket": bucket, "Key": "k", "ObjectAttributes": ["ObjectParts", "Checksum"]}
    told = s3.get_object_attributes(**asked, MaxParts=2)
    page = told["ObjectParts"]
    assert told["Checksum"]["ChecksumType"] == "COMPOSITE"
    assert (page["TotalPartsCount"], page["IsTruncated"], page["NextPartNumberMarker"]) == (3, True, 3)
    assert [part["ChecksumSHA256"] for part in page["Parts"]] == [part["ChecksumSHA256"] for part in listed[:2]]
    rest = s3.get_object_attributes(**asked, PartNumberMarker=3)["ObjectParts"]
    assert [(part["PartNumber"], part["Size"]) for part in rest["Parts"]] == [(7, 100)]
    for number, part in zip((1, 3, 7), listed, strict=True):
        got = s3.get_object(Bucket=bucket, Key="k", PartNumber=number, ChecksumMode="ENABLED")
        assert (got["ChecksumSHA256"], got["PartsCount"]) == (part["ChecksumSHA256"], 3)
        assert got["Body"].read() == noise(number, 100 if number == 7 else 5 * MIB)
