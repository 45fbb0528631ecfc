"""Buckets that keep versions, through clients as they come: boto3 and aws-cli without any setting of their own."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.s3.transfer import TransferConfig

from outside.buckets import MakeBucket
from outside.clients import AwsCli, S3Client
from outside.content import MIB, noise, release
from outside.failure import error_code
from outside.server import ACCESS_KEY_ID, DELTA, MODES, REGION, SECRET_ACCESS_KEY, Mode, Server

UNKNOWN = "0123456789abcdef0123456789abcdef"


def keep(s3: S3Client, bucket: str, status: str = "Enabled") -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})


@pytest.fixture
def kept(s3: S3Client, make_bucket: MakeBucket) -> str:
    """An empty bucket that keeps versions."""
    bucket = make_bucket()
    keep(s3, bucket)
    return bucket


def put(s3: S3Client, bucket: str, key: str, body: bytes) -> str:
    return str(s3.put_object(Bucket=bucket, Key=key, Body=body)["VersionId"])


def body(s3: S3Client, bucket: str, key: str, version: str | None = None) -> bytes:
    named = {} if version is None else {"VersionId": version}
    return bytes(s3.get_object(Bucket=bucket, Key=key, **named)["Body"].read())


def history(s3: S3Client, bucket: str, **page: Any) -> list[tuple[str, str, bool, bool]]:
    """Key, version id, whether it is a marker, whether it is the latest; of one page, by key, the latest first."""
    answer = s3.list_object_versions(Bucket=bucket, **page)
    versions = [(entry, False) for entry in answer.get("Versions", [])]
    markers = [(entry, True) for entry in answer.get("DeleteMarkers", [])]
    rows = sorted(versions + markers, key=lambda row: (row[0]["Key"], not row[0]["IsLatest"]))
    return [(entry["Key"], entry["VersionId"], marker, entry["IsLatest"]) for entry, marker in rows]


def response_of(call: Callable[..., Any], **arguments: Any) -> Any:
    """The answer of a call that must fail."""
    with pytest.raises(Exception) as caught:
        call(**arguments)
    return caught.value.response  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_version_is_read_as_it_was_written_in_every_mode(
    s3: S3Client, make_bucket: MakeBucket, mode: Mode
) -> None:
    bucket = make_bucket(mode)
    before = release(7, 3 * MIB, 0)
    assert "VersionId" not in s3.put_object(Bucket=bucket, Key="k", Body=before)
    keep(s3, bucket)
    contents = [before] + [release(7, 3 * MIB, number) for number in (1, 2, 3)] + [b"small", b""]
    versions = ["null"] + [put(s3, bucket, "k", content) for content in contents[1:]]
    assert len(set(versions)) == len(versions)
    for version, content in zip(versions, contents, strict=True):
        assert body(s3, bucket, "k", version) == content
        head = s3.head_object(Bucket=bucket, Key="k", VersionId=version)
        assert (head["VersionId"], head["ContentLength"]) == (version, len(content))
        part = s3.get_object(Bucket=bucket, Key="k", VersionId=version, Range="bytes=2-9")["Body"] if content else None
        assert part is None or part.read() == content[2:10]
    assert body(s3, bucket, "k") == b""
    listed = s3.list_object_versions(Bucket=bucket)["Versions"]
    assert [entry["VersionId"] for entry in listed] == versions[::-1]
    assert [entry["IsLatest"] for entry in listed] == [True] + [False] * 5
    assert [entry["Size"] for entry in listed] == [len(content) for content in contents[::-1]]
    s3.delete_object(Bucket=bucket, Key="k", VersionId=versions[2])
    assert error_code(s3.get_object, Bucket=bucket, Key="k", VersionId=versions[2]) == (404, "NoSuchVersion")
    for version, content in zip(versions[3:], contents[3:], strict=True):
        assert body(s3, bucket, "k", version) == content, "what others were encoded against may go"


def test_versioning_is_off_until_enabled_and_is_then_enabled_or_suspended(s3: S3Client, bucket: str) -> None:
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    for status in ("Enabled", "Suspended", "Enabled"):
        keep(s3, bucket, status)
        assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == status
    wrong = {"Status": "Off"}
    assert error_code(s3.put_bucket_versioning, Bucket=bucket, VersioningConfiguration=wrong) == (
        400,
        "MalformedXML",
    )
    none: dict[str, str] = {}
    refused = error_code(s3.put_bucket_versioning, Bucket=bucket, VersioningConfiguration=none)
    assert refused == (400, "IllegalVersioningConfigurationException")
    assert error_code(s3.get_bucket_versioning, Bucket="no-such-bucket-here") == (404, "NoSuchBucket")


def test_mfa_delete_is_refused_with_a_sentence(s3: S3Client, bucket: str) -> None:
    answer = response_of(
        s3.put_bucket_versioning,
        Bucket=bucket,
        VersioningConfiguration={"Status": "Enabled", "MFADelete": "Enabled"},
    )
    assert answer["Error"]["Code"] == "NotImplemented"
    assert "MFA delete" in answer["Error"]["Message"]
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    without = {"Status": "Enabled", "MFADelete": "Disabled"}
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=without)


def test_a_deletion_hides_a_key_behind_a_marker(s3: S3Client, kept: str) -> None:
    version = put(s3, kept, "k", b"one")
    deleted = s3.delete_object(Bucket=kept, Key="k")
    assert deleted["DeleteMarker"] is True
    marker = deleted["VersionId"]
    for call in (s3.get_object, s3.head_object):
        missing = response_of(call, Bucket=kept, Key="k")["ResponseMetadata"]
        headers = missing["HTTPHeaders"]
        assert missing["HTTPStatusCode"] == 404
        assert (headers["x-amz-delete-marker"], headers["x-amz-version-id"]) == ("true", marker)
        named = response_of(call, Bucket=kept, Key="k", VersionId=marker)["ResponseMetadata"]
        headers = named["HTTPHeaders"]
        assert (named["HTTPStatusCode"], headers["allow"]) == (405, "DELETE")
        assert (headers["x-amz-delete-marker"], headers["x-amz-version-id"]) == ("true", marker)
        assert "last-modified" in headers
    assert error_code(s3.get_object, Bucket=kept, Key="k") == (404, "NoSuchKey")
    assert error_code(s3.get_object, Bucket=kept, Key="k", VersionId=marker) == (405, "MethodNotAllowed")
    assert s3.list_objects_v2(Bucket=kept)["KeyCount"] == 0
    assert "Contents" not in s3.list_objects(Bucket=kept)
    assert body(s3, kept, "k", version) == b"one"
    assert history(s3, kept) == [("k", marker, True, True), ("k", version, False, False)]


def test_removing_the_marker_brings_the_object_back(s3: S3Client, kept: str) -> None:
    put(s3, kept, "k", b"one")
    second = put(s3, kept, "k", b"two")
    markers = [s3.delete_object(Bucket=kept, Key="k")["VersionId"] for _ in range(2)]
    assert len(set(markers)) == 2
    for marker in markers[::-1]:
        removed = s3.delete_object(Bucket=kept, Key="k", VersionId=marker)
        assert (removed["DeleteMarker"], removed["VersionId"]) == (True, marker)
    got = s3.get_object(Bucket=kept, Key="k")
    assert (got["VersionId"], got["Body"].read()) == (second, b"two")
    gone = s3.delete_object(Bucket=kept, Key="k", VersionId=second)
    assert (gone["VersionId"], "DeleteMarker" in gone) == (second, False)
    assert body(s3, kept, "k") == b"one"
    again = s3.delete_object(Bucket=kept, Key="k", VersionId=second)
    assert again["ResponseMetadata"]["HTTPStatusCode"] == 204, "what is not there is deleted already"


def test_a_key_that_never_was_gets_a_marker(s3: S3Client, kept: str) -> None:
    marker = s3.delete_object(Bucket=kept, Key="never")["VersionId"]
    assert history(s3, kept) == [("never", marker, True, True)]


def test_while_suspended_the_null_version_is_the_one_that_is_replaced(s3: S3Client, make_bucket: MakeBucket) -> None:
    bucket = make_bucket()
    s3.put_object(Bucket=bucket, Key="k", Body=b"before")
    keep(s3, bucket)
    version = put(s3, bucket, "k", b"named")
    keep(s3, bucket, "Suspended")
    assert s3.get_object(Bucket=bucket, Key="k")["VersionId"] == version
    for content in (b"null one", b"null two"):
        assert "VersionId" not in s3.put_object(Bucket=bucket, Key="k", Body=content)
    assert s3.head_object(Bucket=bucket, Key="k")["VersionId"] == "null"
    assert body(s3, bucket, "k", "null") == b"null two"
    assert history(s3, bucket) == [("k", "null", False, True), ("k", version, False, False)]
    deleted = s3.delete_object(Bucket=bucket, Key="k")
    assert (deleted["VersionId"], deleted["DeleteMarker"]) == ("null", True)
    assert s3.delete_object(Bucket=bucket, Key="k")["VersionId"] == "null"
    assert history(s3, bucket) == [("k", "null", True, True), ("k", version, False, False)]
    assert body(s3, bucket, "k", version) == b"named"
    keep(s3, bucket)
    newest = put(s3, bucket, "k", b"named again")
    expected = [(newest, False), ("null", True), (version, False)]
    answer = s3.list_object_versions(Bucket=bucket)
    listed = {entry["VersionId"] for entry in answer["Versions"]} | {e["VersionId"] for e in answer["DeleteMarkers"]}
    assert listed == {name for name, _ in expected}


def test_version_ids_that_cannot_be_are_told_apart_from_those_that_are_not(s3: S3Client, kept: str) -> None:
    put(s3, kept, "k", b"one")
    for call in (s3.get_object, s3.head_object):
        assert error_code(call, Bucket=kept, Key="k", VersionId=UNKNOWN)[0] == 404
        assert error_code(call, Bucket=kept, Key="k", VersionId="null")[0] == 404
        assert error_code(call, Bucket=kept, Key="k", VersionId="what?")[0] == 400
    assert error_code(s3.get_object, Bucket=kept, Key="k", VersionId=UNKNOWN) == (404, "NoSuchVersion")
    assert error_code(s3.get_object, Bucket=kept, Key="k", VersionId="what?") == (400, "InvalidArgument")
    assert error_code(s3.delete_object, Bucket=kept, Key="k", VersionId="what?") == (400, "InvalidArgument")


def test_versions_are_paged_whatever_the_page(s3: S3Client, kept: str) -> None:
    expected = []
    for key in ("a", "b/1", "b/2", "ü &"):
        names = [put(s3, kept, key, key.encode() + bytes([number])) for number in range(3)]
        names.append(s3.delete_object(Bucket=kept, Key=key)["VersionId"])
        expected += [(key, name) for name in names[::-1]]
    for size in (1, 2, 3, 4, 5, 16, 1000):
        pages = s3.get_paginator("list_object_versions").paginate(Bucket=kept, PaginationConfig={"PageSize": size})
        rows = []
        for page in pages:
            found = page.get("Versions", []) + page.get("DeleteMarkers", [])
            assert len(found) <= size
            rows += [(entry["Key"], entry["VersionId"]) for entry in found]
        assert sorted(rows) == sorted(expected), size
    last = None
    walked: list[tuple[str, str]] = []
    marker: dict[str, str] = {}
    while last is None or last["IsTruncated"]:
        last = s3.list_object_versions(Bucket=kept, MaxKeys=1, **marker)
        walked += [(e["Key"], e["VersionId"]) for e in last.get("Versions", []) + last.get("DeleteMarkers", [])]
        if last["IsTruncated"]:
            marker = {"KeyMarker": last["NextKeyMarker"], "VersionIdMarker": last["NextVersionIdMarker"]}
    assert walked == expected, "one at a time they come in order"
    behind = s3.list_object_versions(Bucket=kept, KeyMarker="a")
    assert {entry["Key"] for entry in behind["Versions"]} == {"b/1", "b/2", "ü &"}
    rolled = s3.list_object_versions(Bucket=kept, Delimiter="/")
    assert rolled["CommonPrefixes"] == [{"Prefix": "b/"}]
    assert {entry["Key"] for entry in rolled["Versions"]} == {"a", "ü &"}
    only = s3.list_object_versions(Bucket=kept, Prefix="b/2")
    assert [(entry["Key"], entry["VersionId"]) for entry in only["Versions"]] == expected[9:12]
    alone = {"VersionIdMarker": UNKNOWN}
    assert error_code(s3.list_object_versions, Bucket=kept, **alone) == (400, "InvalidArgument")
    wrong = {"KeyMarker": "a", "VersionIdMarker": "what?"}
    assert error_code(s3.list_object_versions, Bucket=kept, **wrong) == (400, "InvalidArgument")
    nothing = s3.list_object_versions(Bucket=kept, MaxKeys=0)
    assert not nothing["IsTruncated"] and "Versions" not in nothing


def test_a_bucket_that_never_kept_versions_lists_its_objects_as_null(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"one")
    assert history(s3, bucket) == [("k", "null", False, True)]
    got = s3.get_object(Bucket=bucket, Key="k", VersionId="null")
    assert got["Body"].read() == b"one"
    assert "VersionId" not in s3.head_object(Bucket=bucket, Key="k")
    assert "VersionId" not in s3.delete_object(Bucket=bucket, Key="k")
    assert history(s3, bucket) == []


def test_a_batch_deletes_versions_and_makes_markers(s3: S3Client, kept: str) -> None:
    first, second = (put(s3, kept, "k", text) for text in (b"one", b"two"))
    marker = s3.delete_object(Bucket=kept, Key="gone")["VersionId"]
    objects = [
        {"Key": "k", "VersionId": first},
        {"Key": "gone", "VersionId": marker},
        {"Key": "k"},
        {"Key": "k", "VersionId": UNKNOWN},
        {"Key": "k", "VersionId": "what?"},
    ]
    answer = s3.delete_objects(Bucket=kept, Delete={"Objects": objects})
    named, unmarked, marked, unknown = answer["Deleted"]
    assert named == {"Key": "k", "VersionId": first}
    assert unmarked == {"Key": "gone", "VersionId": marker, "DeleteMarker": True, "DeleteMarkerVersionId": marker}
    assert marked["DeleteMarker"] is True and "VersionId" not in marked
    assert unknown == {"Key": "k", "VersionId": UNKNOWN}
    assert [(error["Code"], error["VersionId"]) for error in answer["Errors"]] == [("NoSuchVersion", "what?")]
    assert history(s3, kept) == [
        ("k", marked["DeleteMarkerVersionId"], True, True),
        ("k", second, False, False),
    ]


def test_a_bucket_is_deleted_only_when_no_version_and_no_marker_is_left(s3: S3Client, kept: str) -> None:
    version = put(s3, kept, "k", b"one")
    marker = s3.delete_object(Bucket=kept, Key="k")["VersionId"]
    for name in (version, marker):
        assert error_code(s3.delete_bucket, Bucket=kept) == (409, "BucketNotEmpty")
        s3.delete_object(Bucket=kept, Key="k", VersionId=name)
    s3.delete_bucket(Bucket=kept)


def test_a_bucket_is_emptied_as_boto3_empties_one(endpoint: str, s3: S3Client, kept: str) -> None:
    for number in range(30):
        for _ in range(3):
            put(s3, kept, f"k{number}", b"x")
        s3.delete_object(Bucket=kept, Key=f"k{number}")
    keys = {"aws_access_key_id": ACCESS_KEY_ID, "aws_secret_access_key": SECRET_ACCESS_KEY}
    resource: Any = boto3.resource("s3", endpoint_url=endpoint, region_name=REGION, **keys)
    resource.Bucket(kept).object_versions.delete()
    assert history(s3, kept) == []
    s3.delete_bucket(Bucket=kept)


def test_copies_name_their_version_and_their_sources(s3: S3Client, kept: str, make_bucket: MakeBucket) -> None:
    first = put(s3, kept, "k", noise(1, 300_000))
    second = put(s3, kept, "k", noise(2, 300_000))
    source = {"Bucket": kept, "Key": "k", "VersionId": first}
    back = s3.copy_object(Bucket=kept, Key="k", CopySource=source)
    assert back["CopySourceVersionId"] == first
    assert back["VersionId"] not in (first, second)
    assert body(s3, kept, "k") == noise(1, 300_000), "an older version is brought back by a copy onto its key"
    plain = {"Bucket": kept, "Key": "k"}
    assert s3.copy_object(Bucket=kept, Key="other", CopySource=plain)["CopySourceVersionId"] == back["VersionId"]
    elsewhere = make_bucket()
    copied = s3.copy_object(Bucket=elsewhere, Key="c", CopySource=source | {"VersionId": second})
    assert copied["CopySourceVersionId"] == second and "VersionId" not in copied
    assert body(s3, elsewhere, "c") == noise(2, 300_000)
    marker = s3.delete_object(Bucket=kept, Key="k")["VersionId"]
    assert error_code(s3.copy_object, Bucket=kept, Key="x", CopySource=plain) == (404, "NoSuchKey")
    refused = error_code(s3.copy_object, Bucket=kept, Key="x", CopySource=source | {"VersionId": marker})
    assert refused == (400, "InvalidRequest")
    missing = error_code(s3.copy_object, Bucket=kept, Key="x", CopySource=source | {"VersionId": UNKNOWN})
    assert missing == (404, "NoSuchVersion")


def test_an_upload_in_parts_is_one_more_version(s3: S3Client, kept: str) -> None:
    first = put(s3, kept, "k", b"one")
    content = noise(5, 12 * MIB)
    s3.upload_fileobj(io.BytesIO(content), kept, "k", Config=TransferConfig(multipart_chunksize=5 * MIB))
    assert body(s3, kept, "k") == content
    upload = s3.create_multipart_upload(Bucket=kept, Key="k")["UploadId"]
    part = {"Bucket": kept, "Key": "k", "UploadId": upload, "PartNumber": 1}
    copied = s3.upload_part_copy(CopySource={"Bucket": kept, "Key": "k", "VersionId": first}, **part)
    assert copied["CopySourceVersionId"] == first
    parts = {"Parts": [{"PartNumber": 1, "ETag": copied["CopyPartResult"]["ETag"]}]}
    whole = {"Bucket": kept, "Key": "k", "UploadId": upload, "MultipartUpload": parts}
    version = s3.complete_multipart_upload(**whole)["VersionId"]
    put(s3, kept, "k", b"newer")
    assert s3.complete_multipart_upload(**whole)["VersionId"] == version, "completed twice it is the same version"
    assert body(s3, kept, "k", version) == b"one"
    assert len(history(s3, kept)) == 4


def test_conditions_ask_the_current_version(s3: S3Client, kept: str) -> None:
    first = put(s3, kept, "k", b"one")
    tag = s3.head_object(Bucket=kept, Key="k")["ETag"]
    assert error_code(s3.put_object, Bucket=kept, Key="k", Body=b"x", IfNoneMatch="*") == (412, "PreconditionFailed")
    s3.put_object(Bucket=kept, Key="k", Body=b"two", IfMatch=tag)
    assert error_code(s3.put_object, Bucket=kept, Key="k", Body=b"x", IfMatch=tag) == (412, "PreconditionFailed")
    assert error_code(s3.delete_object, Bucket=kept, Key="k", IfMatch=tag) == (412, "PreconditionFailed")
    s3.delete_object(Bucket=kept, Key="k")
    s3.put_object(Bucket=kept, Key="k", Body=b"three", IfNoneMatch="*")
    assert s3.get_object(Bucket=kept, Key="k", VersionId=first, IfMatch=tag)["Body"].read() == b"one"
    assert error_code(s3.get_object, Bucket=kept, Key="k", VersionId=first, IfNoneMatch=tag)[0] == 304


def test_aws_cli_works_with_versions(aws: AwsCli, make_bucket: MakeBucket, tmp_path: Path) -> None:
    bucket = make_bucket()

    def api(*arguments: str) -> Any:
        out = aws.run("s3api", *arguments, "--bucket", bucket).stdout
        return json.loads(out) if out.strip() else {}

    api("put-bucket-versioning", "--versioning-configuration", "Status=Enabled")
    assert api("get-bucket-versioning") == {"Status": "Enabled"}
    file = tmp_path / "file"
    for text in ("one", "two"):
        file.write_text(text)
        aws.run("s3", "cp", "--no-progress", str(file), f"s3://{bucket}/dir/k")
    aws.run("s3", "rm", f"s3://{bucket}/dir/k")
    assert aws.run("s3", "ls", f"s3://{bucket}/dir/", check=False).stdout == ""
    listed = api("list-object-versions", "--prefix", "dir/")
    newest, oldest = listed["Versions"]
    (marker,) = listed["DeleteMarkers"]
    assert marker["IsLatest"] and not newest["IsLatest"]
    back = tmp_path / "back"
    api("get-object", "--key", "dir/k", "--version-id", oldest["VersionId"], str(back))
    assert back.read_text() == "one"
    assert api("delete-object", "--key", "dir/k", "--version-id", marker["VersionId"])["DeleteMarker"] is True
    aws.run("s3", "cp", "--no-progress", f"s3://{bucket}/dir/k", str(back))
    assert back.read_text() == "two"
    refused = aws.run("s3", "rb", "--force", f"s3://{bucket}", check=False)
    assert refused.returncode != 0 and "BucketNotEmpty" in refused.stderr


def test_writers_of_one_key_each_have_their_version(s3: S3Client, kept: str) -> None:
    def write(number: int) -> tuple[str, bytes | None]:
        if number % 5 == 4:
            return str(s3.delete_object(Bucket=kept, Key="k")["VersionId"]), None
        content = noise(number, 20_000)
        return put(s3, kept, "k", content), content

    with ThreadPoolExecutor(10) as pool:
        written = dict(pool.map(write, range(40)))
    assert len(written) == 40
    rows = history(s3, kept)
    assert {version for _, version, _, _ in rows} == set(written)
    (latest,) = [(version, marker) for _, version, marker, is_latest in rows if is_latest]
    for version, content in written.items():
        if content is None:
            assert error_code(s3.get_object, Bucket=kept, Key="k", VersionId=version)[0] == 405
        else:
            assert body(s3, kept, "k", version) == content
    if latest[1]:
        assert error_code(s3.get_object, Bucket=kept, Key="k") == (404, "NoSuchKey")
    else:
        assert s3.head_object(Bucket=kept, Key="k")["VersionId"] == latest[0]


def test_no_version_is_lost_to_a_write_that_was_under_way_when_versioning_was_enabled(
    s3: S3Client, make_bucket: MakeBucket
) -> None:
    bucket = make_bucket()
    acknowledged: list[str] = []

    def write(number: int) -> None:
        version = s3.put_object(Bucket=bucket, Key="k", Body=noise(number, 200_000)).get("VersionId", "null")
        acknowledged.append(version)

    with ThreadPoolExecutor(8) as pool:
        early = [pool.submit(write, number) for number in range(16)]
        early[3].result()
        keep(s3, bucket)
        late = [pool.submit(write, number) for number in range(16, 32)]
        for done in early + late:
            done.result()
    listed = {version for _, version, _, _ in history(s3, bucket)}
    assert {version for version in acknowledged if version != "null"} == listed - {"null"}


def test_history_is_kept_by_collection_and_counted(server: Server, s3: S3Client, make_bucket: MakeBucket) -> None:
    bucket = make_bucket(DELTA)
    keep(s3, bucket)
    contents = [release(11, 4 * MIB, number) for number in range(5)]
    versions = [put(s3, bucket, "k", content) for content in contents]
    marker = s3.delete_object(Bucket=bucket, Key="marked")["VersionId"]
    told = server.json("explain", f"s3://{bucket}/k", "--version", versions[3])
    assert (told["version"], told["current"], told["form"]) == (versions[3], False, "delta")
    assert server.json("explain", f"s3://{bucket}/k")["version"] == versions[4]
    assert server.json("explain", f"s3://{bucket}/marked", "--version", marker)["delete_marker"] is True
    (row,) = [row for row in server.admin("/api/v1/stats")["buckets"] if row["name"] == bucket]
    assert (row["objects"], row["noncurrent_versions"], row["delete_markers"]) == (1, 4, 1)
    assert row["noncurrent_bytes"] == 16 * MIB
    assert 0 < row["noncurrent_stored_bytes"] < 8 * MIB, "an overwrite is encoded against what it replaces"
    server.run("gc", "--now")
    server.drop_caches()
    for version, content in zip(versions, contents, strict=True):
        assert body(s3, bucket, "k", version) == content
    for version in versions[1:]:
        s3.delete_object(Bucket=bucket, Key="k", VersionId=version)
    server.run("gc", "--now")
    server.drop_caches()
    assert body(s3, bucket, "k") == contents[0]


def test_last_modified_of_versions_does_not_go_back(s3: S3Client, kept: str) -> None:
    versions = [put(s3, kept, "k", bytes([number])) for number in range(5)]
    times = [s3.head_object(Bucket=kept, Key="k", VersionId=version)["LastModified"] for version in versions]
    assert times == sorted(times)
    assert abs(times[-1].timestamp() - time.time()) < 120
