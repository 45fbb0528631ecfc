"""Versions: each operation names the version it means, and deletions are undone or final."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outside.clients import S3Client
from outside.failure import error_code
from outside.wire import Connection, ask, signed

ABSENT = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def kept(s3: S3Client, bucket: str) -> str:
    """A bucket that keeps versions."""
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return bucket


def suspend(s3: S3Client, bucket: str) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})


def put(s3: S3Client, bucket: str, *bodies: bytes, key: str = "k") -> list[str]:
    return [str(s3.put_object(Bucket=bucket, Key=key, Body=body)["VersionId"]) for body in bodies]


def listed(s3: S3Client, bucket: str, what: str = "Versions") -> list[tuple[str, str, bool]]:
    found = s3.list_object_versions(Bucket=bucket).get(what, [])
    return [(entry["Key"], entry["VersionId"], entry["IsLatest"]) for entry in found]


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get_object", {}),
    ("head_object", {}),
    ("get_object_acl", {}),
    ("get_object_tagging", {}),
    ("put_object_tagging", {"Tagging": {"TagSet": []}}),
    ("delete_object_tagging", {}),
    ("put_object_acl", {"ACL": "private"}),
    ("get_object_attributes", {"ObjectAttributes": ["ETag"]}),
]


@pytest.mark.parametrize(("call", "more"), CALLS, ids=[call for call, _ in CALLS])
def test_a_version_that_is_not_there_is_said_not_to_be(
    s3: S3Client, kept: str, call: str, more: dict[str, Any]
) -> None:
    put(s3, kept, b"1")
    status, code = error_code(getattr(s3, call), Bucket=kept, Key="k", VersionId=ABSENT, **more)
    assert (status, code) == (404, "404" if call == "head_object" else "NoSuchVersion")


@pytest.mark.parametrize(("call", "more"), CALLS, ids=[call for call, _ in CALLS])
def test_a_version_id_that_cannot_be_is_refused(s3: S3Client, kept: str, call: str, more: dict[str, Any]) -> None:
    put(s3, kept, b"1")
    status, code = error_code(getattr(s3, call), Bucket=kept, Key="k", VersionId="not a version", **more)
    assert (status, code) == (400, "400" if call == "head_object" else "InvalidArgument")


@pytest.mark.parametrize(("call", "more"), CALLS, ids=[call for call, _ in CALLS])
def test_a_delete_marker_named_by_its_version_is_not_an_object(
    s3: S3Client, kept: str, call: str, more: dict[str, Any]
) -> None:
    put(s3, kept, b"1")
    marker = s3.delete_object(Bucket=kept, Key="k")["VersionId"]
    status, _ = error_code(getattr(s3, call), Bucket=kept, Key="k", VersionId=marker, **more)
    assert status == 405


@pytest.mark.parametrize(("method", "parameter"), [("GET", ""), ("GET", "tagging"), ("PUT", "tagging"), ("GET", "acl")])
def test_a_marker_says_which_method_it_does_not_allow(
    connect: Callable[[], Connection], s3: S3Client, kept: str, method: str, parameter: str
) -> None:
    put(s3, kept, b"1")
    marker = s3.delete_object(Bucket=kept, Key="k")["VersionId"]
    body = b"<Tagging><TagSet/></Tagging>" if method == "PUT" else b""
    target = f"/{kept}/k?{parameter}&versionId={marker}" if parameter else f"/{kept}/k?versionId={marker}"
    with connect() as connection:
        host = connection.host
    answer = ask(connect, signed(host, method, target, body=body), method)
    assert (answer.status, answer.code) == (405, "MethodNotAllowed")
    assert f"<Method>{method}</Method>".encode() in answer.body
    assert b"<ResourceType>DeleteMarker</ResourceType>" in answer.body
    assert answer.header("allow") == "DELETE"


@pytest.mark.parametrize(("call", "more"), CALLS, ids=[call for call, _ in CALLS])
def test_a_key_behind_a_marker_is_absent(s3: S3Client, kept: str, call: str, more: dict[str, Any]) -> None:
    put(s3, kept, b"1")
    s3.delete_object(Bucket=kept, Key="k")
    refused = error_code(getattr(s3, call), Bucket=kept, Key="k", **more)
    if "tagging" in call:
        assert refused == (405, "MethodNotAllowed"), "S3 says of its tags that it can have none"
    else:
        assert refused == (404, "404" if call == "head_object" else "NoSuchKey")


@pytest.mark.parametrize("number", [1, 2, 5])
def test_versions_are_read_and_removed_in_any_order(s3: S3Client, kept: str, number: int) -> None:
    bodies = [f"body {count}".encode() for count in range(number)]
    ids = put(s3, kept, *bodies)
    assert [version for _, version, _ in listed(s3, kept)] == ids[::-1]
    for version, body in zip(ids, bodies, strict=True):
        assert s3.get_object(Bucket=kept, Key="k", VersionId=version)["Body"].read() == body
    for count, version in enumerate(ids[1:] + ids[:1]):
        s3.delete_object(Bucket=kept, Key="k", VersionId=version)
        assert len(listed(s3, kept)) == number - 1 - count
        assert error_code(s3.get_object, Bucket=kept, Key="k", VersionId=version) == (404, "NoSuchVersion")


def test_removing_the_newest_version_brings_back_the_one_before(s3: S3Client, kept: str) -> None:
    first, second = put(s3, kept, b"1", b"2")
    s3.delete_object(Bucket=kept, Key="k", VersionId=second)
    got = s3.get_object(Bucket=kept, Key="k")
    assert (got["Body"].read(), got["VersionId"]) == (b"1", first)
    assert listed(s3, kept) == [("k", first, True)]


@pytest.mark.parametrize("key", ["_", ":", " ", "a/b", "ü", "%2F", "x?versionId=1"])
def test_any_key_has_versions(s3: S3Client, kept: str, key: str) -> None:
    ids = put(s3, kept, b"1", b"2", key=key)
    assert [(name, version) for name, version, _ in listed(s3, kept)] == [(key, ids[1]), (key, ids[0])]
    for version in ids:
        s3.delete_object(Bucket=kept, Key=key, VersionId=version)
    assert listed(s3, kept) == []


def test_what_was_there_before_is_the_null_version(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"before")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    (new,) = put(s3, bucket, b"after")
    assert listed(s3, bucket) == [("k", new, True), ("k", "null", False)]
    assert s3.get_object(Bucket=bucket, Key="k", VersionId="null")["Body"].read() == b"before"
    s3.delete_object(Bucket=bucket, Key="k", VersionId="null")
    assert listed(s3, bucket) == [("k", new, True)]


def test_while_suspended_a_put_replaces_the_null_version_alone(s3: S3Client, kept: str) -> None:
    first, second = put(s3, kept, b"1", b"2")
    suspend(s3, kept)
    for body in (b"3", b"4"):
        s3.put_object(Bucket=kept, Key="k", Body=body)
        assert {version for _, version, _ in listed(s3, kept)} == {first, second, "null"}
        assert s3.get_object(Bucket=kept, Key="k")["Body"].read() == body


@pytest.mark.parametrize("how", ["put", "copy", "complete"])
def test_while_suspended_a_write_names_no_version(s3: S3Client, kept: str, how: str) -> None:
    put(s3, kept, b"1")
    suspend(s3, kept)
    at = {"Bucket": kept, "Key": "k"}
    if how == "put":
        told = s3.put_object(**at, Body=b"2")
    elif how == "copy":
        told = s3.copy_object(**at, CopySource=f"{kept}/k", MetadataDirective="REPLACE")
    else:
        upload = s3.create_multipart_upload(**at)["UploadId"]
        part = s3.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"2")
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        told = s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts)
    assert "VersionId" not in told
    assert s3.head_object(**at)["VersionId"] == "null"


def test_while_suspended_a_deletion_puts_a_null_marker(s3: S3Client, kept: str) -> None:
    (first,) = put(s3, kept, b"1")
    suspend(s3, kept)
    s3.put_object(Bucket=kept, Key="k", Body=b"2")
    gone = s3.delete_object(Bucket=kept, Key="k")
    assert (gone["VersionId"], gone["DeleteMarker"]) == ("null", True)
    assert listed(s3, kept) == [("k", first, False)]
    assert listed(s3, kept, "DeleteMarkers") == [("k", "null", True)]
    assert s3.get_object(Bucket=kept, Key="k", VersionId=first)["Body"].read() == b"1"


def test_tags_and_acls_belong_to_a_version(s3: S3Client, kept: str) -> None:
    first, second = put(s3, kept, b"1", b"2")
    s3.put_object_tagging(Bucket=kept, Key="k", VersionId=first, Tagging={"TagSet": [{"Key": "a", "Value": "1"}]})
    s3.put_object_acl(Bucket=kept, Key="k", VersionId=first, ACL="public-read")
    assert s3.get_object_tagging(Bucket=kept, Key="k")["TagSet"] == []
    assert len(s3.get_object_acl(Bucket=kept, Key="k")["Grants"]) == 1
    assert len(s3.get_object_acl(Bucket=kept, Key="k", VersionId=first)["Grants"]) == 2
    told = s3.get_object_tagging(Bucket=kept, Key="k", VersionId=first)
    assert (told["TagSet"], told["VersionId"]) == ([{"Key": "a", "Value": "1"}], first)
    assert s3.head_object(Bucket=kept, Key="k")["VersionId"] == second


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_versions_and_markers_are_paged_together(s3: S3Client, kept: str, size: int) -> None:
    for key in ("a", "b"):
        put(s3, kept, b"1", b"2", key=key)
        s3.delete_object(Bucket=kept, Key=key)
    found: list[tuple[str, str]] = []
    more: dict[str, Any] = {}
    while True:
        page = s3.list_object_versions(Bucket=kept, MaxKeys=size, **more)
        entries = page.get("Versions", []) + page.get("DeleteMarkers", [])
        assert len(entries) <= size
        found += [(entry["Key"], entry["VersionId"]) for entry in entries]
        if not page["IsTruncated"]:
            break
        more = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}
    assert len(found) == len(set(found)) == 6
    assert sorted(key for key, _ in found) == ["a"] * 3 + ["b"] * 3


@pytest.mark.parametrize("status", ["", "enabled", "Disabled", "On"])
def test_versioning_is_enabled_or_suspended(s3: S3Client, bucket: str, status: str) -> None:
    asked = {"Bucket": bucket, "VersioningConfiguration": {"Status": status}}
    status_code, code = error_code(s3.put_bucket_versioning, **asked)
    assert (status_code, code in ("MalformedXML", "IllegalVersioningConfigurationException")) == (400, True)
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)


def test_a_batch_tells_what_it_did_to_each(s3: S3Client, kept: str) -> None:
    first, second = put(s3, kept, b"1", b"2")
    asked = {"Objects": [{"Key": "k", "VersionId": first}, {"Key": "k"}, {"Key": "none"}]}
    done = s3.delete_objects(Bucket=kept, Delete=asked)["Deleted"]
    assert done[0] == {"Key": "k", "VersionId": first}
    assert done[1]["DeleteMarker"] and done[1]["DeleteMarkerVersionId"]
    assert done[2]["DeleteMarker"]
    assert listed(s3, kept) == [("k", second, False)]
