"""Writes and deletions under conditions: on every way to write, decided in the transaction, one winner of a race."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.content import noise
from outside.failure import error_code
from outside.server import DELTA, DELTA_SEALED, Mode

FAILED = (412, "PreconditionFailed")
GONE = (404, "NoSuchKey")
OTHER = '"0123456789abcdef0123456789abcdef"'


def put(s3: S3Client, bucket: str, key: str, body: bytes = b"content", **conditions: Any) -> str:
    return str(s3.put_object(Bucket=bucket, Key=key, Body=body, **conditions)["ETag"])


def copy(s3: S3Client, bucket: str, key: str, **conditions: Any) -> None:
    s3.copy_object(Bucket=bucket, Key=key, CopySource={"Bucket": bucket, "Key": "source"}, **conditions)


def upload(s3: S3Client, bucket: str, key: str, **conditions: Any) -> None:
    at = {"Bucket": bucket, "Key": key}
    at["UploadId"] = s3.create_multipart_upload(**at)["UploadId"]
    part = s3.upload_part(**at, PartNumber=1, Body=noise(3, 70_000))
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(**at, MultipartUpload=parts, **conditions)


WRITERS: list[Callable[..., Any]] = [put, copy, upload]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: str(write.__name__))
@pytest.mark.parametrize("mode", [DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
def test_every_way_to_write_holds_its_conditions(
    s3: S3Client, make_bucket: MakeBucket, write: Callable[..., Any], mode: Mode
) -> None:
    bucket = make_bucket(mode)
    put(s3, bucket, "source")
    at = {"s3": s3, "bucket": bucket, "key": "k"}
    assert error_code(write, **at, IfMatch=OTHER) == GONE
    write(**at, IfNoneMatch="*")
    assert error_code(write, **at, IfNoneMatch="*") == FAILED
    assert error_code(write, **at, IfMatch=OTHER) == FAILED
    etag = s3.head_object(Bucket=bucket, Key="k")["ETag"]
    write(**at, IfMatch=etag)
    s3.delete_object(Bucket=bucket, Key="k")
    write(**at, IfNoneMatch="*")


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: str(write.__name__))
@pytest.mark.parametrize("kept", [False, True], ids=["plain", "versions"])
def test_a_tag_that_must_not_be_there_is_compared_with_what_is_there_now(
    s3: S3Client, bucket: str, write: Callable[..., Any], kept: bool
) -> None:
    if kept:
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    put(s3, bucket, "source")
    at = {"s3": s3, "bucket": bucket, "key": "k"}
    write(**at, IfNoneMatch=OTHER)
    etag = s3.head_object(Bucket=bucket, Key="k")["ETag"]
    for tag in (etag, etag.strip('"')):
        assert error_code(write, **at, IfNoneMatch=tag) == FAILED
    write(**at, IfNoneMatch=OTHER)
    s3.delete_object(Bucket=bucket, Key="k")
    write(**at, IfNoneMatch=etag)
    s3.put_object(Bucket=bucket, Key="k", Body=b"something else")
    write(**at, IfNoneMatch=etag)


def test_a_caller_who_may_not_read_may_not_ask_for_a_tag_either(s3: S3Client, bucket: str, nobody: S3Client) -> None:
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"private")["ETag"]
    for tag in (etag, OTHER):
        assert error_code(nobody.put_object, Bucket=bucket, Key="k", Body=b"x", IfNoneMatch=tag)[0] == 403


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: str(write.__name__))
def test_a_key_behind_a_delete_marker_counts_as_absent(s3: S3Client, bucket: str, write: Callable[..., Any]) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    put(s3, bucket, "source")
    at = {"s3": s3, "bucket": bucket, "key": "k"}
    write(**at, IfNoneMatch="*")
    assert error_code(write, **at, IfNoneMatch="*") == FAILED
    s3.delete_object(Bucket=bucket, Key="k")
    assert error_code(write, **at, IfMatch=OTHER) == GONE
    write(**at, IfNoneMatch="*")
    assert len(s3.list_object_versions(Bucket=bucket, Prefix="k")["Versions"]) == 2


def test_conditions_that_s3_has_not_on_writes_are_not_implemented(s3: S3Client, bucket: str) -> None:
    put(s3, bucket, "source")
    at = {"s3": s3, "bucket": bucket, "key": "k"}
    assert error_code(put, **at, IfNoneMatch=f"{OTHER}, {OTHER}") == (501, "NotImplemented")
    assert error_code(s3.delete_object, Bucket=bucket, Key="source", IfMatch=f"W/{OTHER}") == (501, "NotImplemented")
    assert error_code(put, **at, IfNoneMatch="*", IfMatch=OTHER) == (501, "NotImplemented")


def test_a_deletion_holds_its_conditions(s3: S3Client, bucket: str) -> None:
    at: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    long_ago = datetime(2015, 1, 1, tzinfo=UTC)
    for condition, wrong in (("IfMatch", OTHER), ("IfMatchLastModifiedTime", long_ago), ("IfMatchSize", 9999)):
        etag = put(s3, bucket, "k")
        modified = s3.head_object(**at)["LastModified"]
        right = {"IfMatch": etag, "IfMatchLastModifiedTime": modified, "IfMatchSize": 7}[condition]
        assert error_code(s3.delete_object, **at, **{condition: wrong}) == FAILED, condition
        assert s3.head_object(**at)["ETag"] == etag
        s3.delete_object(**at, **{condition: right})
        assert error_code(s3.get_object, **at) == GONE
    assert error_code(s3.delete_object, **at, IfMatch=OTHER) == GONE
    assert error_code(s3.delete_object, **at, IfMatch="*") == GONE
    s3.delete_object(**at, IfMatchSize=7)
    put(s3, bucket, "k")
    s3.delete_object(**at, IfMatch="*")
    assert error_code(s3.head_object, **at) == (404, "404")


def test_all_conditions_of_a_deletion_must_hold(s3: S3Client, bucket: str) -> None:
    etag = put(s3, bucket, "k")
    at: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    modified = s3.head_object(**at)["LastModified"]
    right: dict[str, Any] = {"IfMatch": etag, "IfMatchLastModifiedTime": modified, "IfMatchSize": 7}
    wrong = {"IfMatch": OTHER, "IfMatchLastModifiedTime": modified - timedelta(seconds=1), "IfMatchSize": 8}
    for name, value in wrong.items():
        assert error_code(s3.delete_object, **at, **(right | {name: value})) == FAILED, name
    s3.delete_object(**at, **right)


def test_every_entry_of_a_batch_holds_its_own_conditions(s3: S3Client, bucket: str) -> None:
    etags = {key: put(s3, bucket, key) for key in ("a", "b", "c", "d", "e", "f")}
    modified = s3.head_object(Bucket=bucket, Key="d")["LastModified"]
    entries: list[dict[str, Any]] = [
        {"Key": "a", "ETag": etags["a"]},
        {"Key": "b", "ETag": OTHER},
        {"Key": "c", "Size": 7},
        {"Key": "d", "LastModifiedTime": modified},
        {"Key": "e", "LastModifiedTime": datetime(2015, 1, 1, tzinfo=UTC)},
        {"Key": "f", "Size": 8},
        {"Key": "none", "ETag": OTHER},
        {"Key": "none", "Size": 1},
    ]
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": entries})
    assert [entry["Key"] for entry in answer["Deleted"]] == ["a", "c", "d", "none"]
    told = [(entry["Key"], entry["Code"]) for entry in answer["Errors"]]
    failed = "PreconditionFailed"
    assert told == [("b", failed), ("e", failed), ("f", failed), ("none", "NoSuchKey")]
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["b", "e", "f"]


def test_conditions_of_a_deletion_by_version_ask_the_current_version(s3: S3Client, bucket: str) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    at: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    first = s3.put_object(**at, Body=b"1")
    second = s3.put_object(**at, Body=b"22")
    old = {**at, "VersionId": first["VersionId"]}
    assert error_code(s3.delete_object, **old, IfMatch=first["ETag"]) == FAILED
    s3.delete_object(**old, IfMatch=second["ETag"], IfMatchSize=2)
    marker = s3.delete_object(**at, IfMatch=second["ETag"])
    assert marker["DeleteMarker"] is True


def test_a_conditional_deletion_tells_a_delete_marker_from_a_key_that_never_was(s3: S3Client, bucket: str) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    at: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    assert error_code(s3.delete_object, **at, IfMatch="*") == GONE
    etag = put(s3, bucket, "k")
    s3.delete_object(**at)
    for condition in ("*", etag, OTHER):
        assert error_code(s3.delete_object, **at, IfMatch=condition) == FAILED, condition
    now = datetime.now(UTC)
    for asked in ({"IfMatchSize": 7}, {"IfMatchLastModifiedTime": now}):
        assert error_code(s3.delete_object, **at, **asked) == FAILED, asked
    for named in ({"ETag": etag}, {"Size": 7}, {"LastModifiedTime": now}):
        (entry,) = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k", **named}]})["Errors"]
        assert entry["Code"] == "PreconditionFailed", named
    assert len(s3.list_object_versions(Bucket=bucket)["DeleteMarkers"]) == 1


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: str(write.__name__))
def test_of_writers_that_all_want_an_absent_key_one_wins(s3: S3Client, bucket: str, write: Callable[..., Any]) -> None:
    put(s3, bucket, "source")
    for number in range(3):
        key = f"k{number}"
        conditional = partial(write, s3=s3, bucket=bucket, key=key, IfNoneMatch="*")
        results = race([conditional] * 8)
        assert results.count(None) == 1, results
        assert set(results) <= {None, "PreconditionFailed", "ConditionalRequestConflict"}


def test_of_writers_that_replace_the_same_content_one_wins(s3: S3Client, bucket: str) -> None:
    etag = put(s3, bucket, "k", b"0")
    bodies = [b"%d" % number for number in range(1, 9)]
    results = race([partial(put, s3, bucket, "k", body, IfMatch=etag) for body in bodies])
    assert results.count(None) == 1, results
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == bodies[results.index(None)]


@pytest.mark.parametrize("versions", [False, True], ids=["one version", "versions"])
def test_an_upload_during_which_the_key_was_changed_is_begun_again(s3: S3Client, bucket: str, versions: bool) -> None:
    """Also where the condition holds by now: `409 ConditionalRequestConflict`, as in S3."""
    if versions:
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    at: dict[str, Any] = {"Bucket": bucket, "Key": "k"}

    def begun() -> Callable[..., Any]:
        named = at | {"UploadId": s3.create_multipart_upload(**at)["UploadId"]}
        etag = s3.upload_part(**named, PartNumber=1, Body=b"part")["ETag"]
        listed = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
        return partial(s3.complete_multipart_upload, **named, MultipartUpload=listed)

    conflict, before = (409, "ConditionalRequestConflict"), put(s3, bucket, "k", b"0")
    complete = begun()
    etag = put(s3, bucket, "k", b"1")
    assert error_code(complete, IfMatch=before) == FAILED
    assert error_code(complete, IfMatch=etag) == conflict
    assert error_code(complete, IfNoneMatch="*") == FAILED
    begun()(IfMatch=etag)
    complete = begun()
    s3.delete_object(**at)
    assert error_code(complete, IfMatch=etag) == GONE
    assert error_code(complete, IfNoneMatch="*") == conflict
    etag = put(s3, bucket, "k", b"1")
    assert error_code(complete, IfMatch=etag) == conflict
    s3.delete_object(**at)
    # A marker more changes nothing: the key holds nothing at both times.
    complete = begun()
    s3.delete_object(**at)
    complete(IfNoneMatch="*")
    complete = begun()
    put(s3, bucket, "k", b"2")
    complete()
    assert s3.get_object(**at)["Body"].read() == b"part"


def test_of_deletions_of_the_same_content_one_wins(s3: S3Client, bucket: str) -> None:
    for _ in range(3):
        etag = put(s3, bucket, "k")
        conditional = partial(s3.delete_object, Bucket=bucket, Key="k", IfMatch=etag)
        results = race([conditional] * 8)
        assert results.count(None) == 1, results
        assert set(results) <= {None, "NoSuchKey", "PreconditionFailed"}


def race(steps: Sequence[Callable[[], Any]]) -> list[str | None]:
    """What each of several steps at once failed with."""

    def outcome(step: Callable[[], Any]) -> str | None:
        try:
            step()
        except Exception as error:
            return str(error.response["Error"]["Code"])  # type: ignore[attr-defined]
        return None

    with ThreadPoolExecutor(len(steps)) as pool:
        return list(pool.map(outcome, steps))
