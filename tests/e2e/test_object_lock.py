"""Object lock through boto3 as it comes: what is locked is not removed, on every path that could."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.content import MIB, noise
from outside.failure import error_code
from outside.server import DELTA, DELTA_SEALED, Mode

DENIED = (403, "AccessDenied")
NO_LOCK = (400, "InvalidRequest")


def enable(s3: S3Client, bucket: str, rule: dict[str, Any] | None = None) -> None:
    """Lets the versions of a bucket be locked, with a default retention if one is given."""
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    configure(s3, bucket, rule)


def configure(s3: S3Client, bucket: str, rule: dict[str, Any] | None = None, enabled: str = "Enabled") -> None:
    configuration: dict[str, Any] = {"ObjectLockEnabled": enabled}
    if rule is not None:
        configuration["Rule"] = {"DefaultRetention": rule}
    s3.put_object_lock_configuration(Bucket=bucket, ObjectLockConfiguration=configuration)


@pytest.fixture
def lockable(s3: S3Client, make_bucket: MakeBucket) -> str:
    """An empty bucket whose versions can be locked."""
    bucket = make_bucket()
    enable(s3, bucket)
    return bucket


def ahead(**time: float) -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(**time)


def retention(mode: str = "GOVERNANCE", until: datetime | None = None) -> dict[str, Any]:
    return {"Mode": mode, "RetainUntilDate": until or ahead(days=1)}


def put(s3: S3Client, bucket: str, key: str = "k", body: bytes = b"content", **more: Any) -> str:
    return str(s3.put_object(Bucket=bucket, Key=key, Body=body, **more)["VersionId"])


def locked(mode: str = "GOVERNANCE", until: datetime | None = None) -> dict[str, Any]:
    """The arguments that write an object under retention."""
    return {"ObjectLockMode": mode, "ObjectLockRetainUntilDate": until or ahead(days=1)}


def test_a_bucket_is_created_with_object_lock_and_keeps_versions(s3: S3Client) -> None:
    bucket = "object-lock-from-the-start"
    s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    told = s3.get_object_lock_configuration(Bucket=bucket)["ObjectLockConfiguration"]
    assert told == {"ObjectLockEnabled": "Enabled"}
    for rule in ({"Mode": "GOVERNANCE", "Days": 3}, {"Mode": "COMPLIANCE", "Years": 1}):
        configure(s3, bucket, rule)
        told = s3.get_object_lock_configuration(Bucket=bucket)["ObjectLockConfiguration"]
        assert told == {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": rule}}
    configure(s3, bucket)
    assert "Rule" not in s3.get_object_lock_configuration(Bucket=bucket)["ObjectLockConfiguration"]


def test_versioning_of_a_bucket_with_object_lock_is_not_suspended(s3: S3Client, lockable: str) -> None:
    suspended = {"Status": "Suspended"}
    refused = error_code(s3.put_bucket_versioning, Bucket=lockable, VersioningConfiguration=suspended)
    assert refused == (409, "InvalidBucketState")
    assert s3.get_bucket_versioning(Bucket=lockable)["Status"] == "Enabled"


def test_a_bucket_that_keeps_no_versions_gets_no_object_lock(s3: S3Client, bucket: str) -> None:
    assert error_code(configure, s3=s3, bucket=bucket) == (409, "InvalidBucketState")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    assert error_code(configure, s3=s3, bucket=bucket) == (409, "InvalidBucketState")
    assert error_code(s3.get_object_lock_configuration, Bucket=bucket) == (
        404,
        "ObjectLockConfigurationNotFoundError",
    )
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    configure(s3, bucket)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ({"Mode": "GOVERNANCE", "Days": 0}, "InvalidRetentionPeriod"),
        ({"Mode": "GOVERNANCE", "Years": -1}, "InvalidRetentionPeriod"),
        ({"Mode": "COMPLIANCE", "Days": 36501}, "InvalidRetentionPeriod"),
        ({"Mode": "governance", "Days": 1}, "MalformedXML"),
        ({"Mode": "abc", "Years": 1}, "MalformedXML"),
        ({"Mode": "GOVERNANCE", "Days": 1, "Years": 1}, "MalformedXML"),
        ({"Mode": "GOVERNANCE"}, "MalformedXML"),
    ],
)
def test_a_default_retention_that_makes_no_sense_is_refused(
    s3: S3Client, lockable: str, rule: dict[str, Any], code: str
) -> None:
    assert error_code(configure, s3=s3, bucket=lockable, rule=rule) == (400, code)
    assert error_code(configure, s3=s3, bucket=lockable, enabled="Disabled") == (400, "MalformedXML")


def test_without_object_lock_nothing_can_be_locked(s3: S3Client, bucket: str) -> None:
    put_at: dict[str, Any] = {"Bucket": bucket, "Key": "k"}
    s3.put_object(**put_at, Body=b"x", ObjectLockLegalHoldStatus="OFF")
    assert error_code(s3.put_object, **put_at, Body=b"x", **locked()) == NO_LOCK
    assert error_code(s3.put_object, **put_at, Body=b"x", ObjectLockLegalHoldStatus="ON") == NO_LOCK
    assert error_code(s3.create_multipart_upload, **put_at, **locked()) == NO_LOCK
    assert error_code(s3.put_object_retention, **put_at, Retention=retention()) == NO_LOCK
    assert error_code(s3.get_object_retention, **put_at) == NO_LOCK
    assert error_code(s3.put_object_legal_hold, **put_at, LegalHold={"Status": "ON"}) == NO_LOCK
    assert error_code(s3.get_object_legal_hold, **put_at) == NO_LOCK
    s3.delete_object(**put_at, BypassGovernanceRetention=True)


def test_retention_is_set_read_and_told_by_head_and_get(s3: S3Client, lockable: str) -> None:
    version = put(s3, lockable)
    at = {"Bucket": lockable, "Key": "k"}
    assert error_code(s3.get_object_retention, **at) == (404, "NoSuchObjectLockConfiguration")
    wanted = retention("GOVERNANCE", ahead(days=2))
    assert s3.put_object_retention(**at, Retention=wanted)["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert s3.get_object_retention(**at)["Retention"] == wanted
    assert s3.get_object_retention(**at, VersionId=version)["Retention"] == wanted
    for answer in (s3.head_object(**at), s3.get_object(**at)):
        assert (answer["ObjectLockMode"], answer["ObjectLockRetainUntilDate"]) == (
            "GOVERNANCE",
            wanted["RetainUntilDate"],
        )
        assert "ObjectLockLegalHoldStatus" not in answer
    unknown = "0123456789abcdef0123456789abcdef"
    assert error_code(s3.get_object_retention, **at, VersionId=unknown) == (404, "NoSuchVersion")
    assert error_code(s3.put_object_retention, Bucket=lockable, Key="none", Retention=wanted) == (404, "NoSuchKey")
    wrong = {"Mode": "governance", "RetainUntilDate": ahead(days=1)}
    assert error_code(s3.put_object_retention, **at, Retention=wrong) == (400, "MalformedXML")
    assert error_code(s3.put_object_retention, **at, Retention={"Mode": "GOVERNANCE"}) == (400, "MalformedXML")
    past = retention(until=datetime(2020, 1, 1, tzinfo=UTC))
    assert error_code(s3.put_object_retention, **at, Retention=past) == (400, "InvalidArgument")


def test_a_locked_version_is_removed_by_nobody_but_who_may_bypass_governance(s3: S3Client, lockable: str) -> None:
    version = put(s3, lockable, **locked())
    named: dict[str, Any] = {"Bucket": lockable, "Key": "k", "VersionId": version}
    assert error_code(s3.delete_object, **named) == DENIED
    batch = {"Objects": [{"Key": "k", "VersionId": version}]}
    refused = s3.delete_objects(Bucket=lockable, Delete=batch)["Errors"]
    assert [(entry["Code"], entry["VersionId"]) for entry in refused] == [("AccessDenied", version)]
    marker = s3.delete_object(Bucket=lockable, Key="k")
    assert marker["DeleteMarker"] is True, "a marker hides it and removes nothing"
    assert s3.get_object(**named)["Body"].read() == b"content"
    s3.delete_object(Bucket=lockable, Key="k", VersionId=marker["VersionId"])
    newer = put(s3, lockable, body=b"newer")
    assert s3.get_object(**named)["Body"].read() == b"content", "an overwrite keeps it"
    assert error_code(s3.delete_bucket, Bucket=lockable) == (409, "BucketNotEmpty")
    gone = s3.delete_objects(Bucket=lockable, Delete=batch, BypassGovernanceRetention=True)
    assert ("Errors" in gone, gone["Deleted"][0]["VersionId"]) == (False, version)
    s3.delete_object(Bucket=lockable, Key="k", VersionId=newer)
    s3.delete_bucket(Bucket=lockable)


def test_compliance_is_bypassed_by_nobody_until_it_is_over(s3: S3Client, lockable: str) -> None:
    until = ahead(seconds=3)
    version = put(s3, lockable, **locked("COMPLIANCE", until))
    named: dict[str, Any] = {"Bucket": lockable, "Key": "k", "VersionId": version}
    delete = {**named, "BypassGovernanceRetention": True}
    assert error_code(s3.delete_object, **delete) == DENIED
    for weaker in ({}, retention("GOVERNANCE", ahead(days=3)), retention("COMPLIANCE", until - timedelta(seconds=1))):
        change = {**named, "Retention": weaker, "BypassGovernanceRetention": True}
        assert error_code(s3.put_object_retention, **change) == DENIED, weaker
    over = threading.Event()
    while datetime.now(UTC) <= until:
        over.wait((until - datetime.now(UTC)).total_seconds() + 0.01)
    s3.delete_object(**named)


def test_governance_is_shortened_changed_or_ended_by_bypass_alone(s3: S3Client, lockable: str) -> None:
    put(s3, lockable, **locked("GOVERNANCE", ahead(days=5)))
    at: dict[str, Any] = {"Bucket": lockable, "Key": "k"}
    s3.put_object_retention(**at, Retention=retention("GOVERNANCE", ahead(days=6)))
    for weaker in (retention("GOVERNANCE", ahead(days=5)), retention("COMPLIANCE", ahead(days=7)), {}):
        assert error_code(s3.put_object_retention, **at, Retention=weaker) == DENIED, weaker
    shorter = retention("GOVERNANCE", ahead(days=2))
    s3.put_object_retention(**at, Retention=shorter, BypassGovernanceRetention=True)
    assert s3.get_object_retention(**at)["Retention"] == shorter
    s3.put_object_retention(**at, Retention={}, BypassGovernanceRetention=True)
    assert error_code(s3.get_object_retention, **at) == (404, "NoSuchObjectLockConfiguration")
    s3.put_object_retention(**at, Retention=retention("GOVERNANCE"))
    for_good = retention("COMPLIANCE", ahead(seconds=1))
    s3.put_object_retention(**at, Retention=for_good, BypassGovernanceRetention=True)
    assert s3.get_object_retention(**at)["Retention"] == for_good


def test_a_legal_hold_keeps_a_version_until_it_ends(s3: S3Client, lockable: str) -> None:
    put(s3, lockable)
    assert error_code(s3.get_object_legal_hold, Bucket=lockable, Key="k") == (404, "NoSuchObjectLockConfiguration")
    version = put(s3, lockable, ObjectLockLegalHoldStatus="ON")
    named: dict[str, Any] = {"Bucket": lockable, "Key": "k", "VersionId": version}
    assert s3.get_object_legal_hold(**named)["LegalHold"] == {"Status": "ON"}
    assert s3.head_object(**named)["ObjectLockLegalHoldStatus"] == "ON"
    assert error_code(s3.delete_object, **named, BypassGovernanceRetention=True) == DENIED
    assert error_code(s3.put_object_legal_hold, **named, LegalHold={"Status": "on"}) == (400, "MalformedXML")
    s3.put_object_legal_hold(**named, LegalHold={"Status": "OFF"})
    assert s3.get_object_legal_hold(**named)["LegalHold"] == {"Status": "OFF"}
    s3.delete_object(**named)


@pytest.mark.parametrize("mode", [DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
def test_every_way_to_write_gets_the_default_retention_or_its_own(
    s3: S3Client, make_bucket: MakeBucket, mode: Mode
) -> None:
    bucket = make_bucket(mode)
    enable(s3, bucket, {"Mode": "GOVERNANCE", "Days": 2})
    own = ahead(days=9)

    def by_put(key: str, **lock: Any) -> None:
        s3.put_object(Bucket=bucket, Key=key, Body=b"content", **lock)

    def by_copy(key: str, **lock: Any) -> None:
        s3.copy_object(Bucket=bucket, Key=key, CopySource={"Bucket": bucket, "Key": "source"}, **lock)

    def in_parts(key: str, **lock: Any) -> None:
        upload = s3.create_multipart_upload(Bucket=bucket, Key=key, **lock)["UploadId"]
        at = {"Bucket": bucket, "Key": key, "UploadId": upload}
        part = s3.upload_part(**at, PartNumber=1, Body=noise(5, MIB))
        parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
        s3.complete_multipart_upload(**at, MultipartUpload={"Parts": parts})

    by_put("source")
    writers: list[Callable[..., None]] = [by_put, by_copy, in_parts]
    for number, write in enumerate(writers):
        before = datetime.now(UTC)
        write(f"default-{number}")
        got = s3.get_object_retention(Bucket=bucket, Key=f"default-{number}")["Retention"]
        late = (got["RetainUntilDate"] - before).total_seconds() - 2 * 86_400
        assert got["Mode"] == "GOVERNANCE" and -1 <= late <= 60
        write(f"own-{number}", **locked("COMPLIANCE", own), ObjectLockLegalHoldStatus="ON")
        head = s3.head_object(Bucket=bucket, Key=f"own-{number}")
        told = (head["ObjectLockMode"], head["ObjectLockRetainUntilDate"], head["ObjectLockLegalHoldStatus"])
        assert told == ("COMPLIANCE", own, "ON")
    for number in range(len(writers)):
        key = f"default-{number}"
        version = s3.head_object(Bucket=bucket, Key=key)["VersionId"]
        assert error_code(s3.delete_object, Bucket=bucket, Key=key, VersionId=version) == DENIED


def test_lock_headers_that_make_no_sense_are_refused(s3: S3Client, lockable: str) -> None:
    at: dict[str, Any] = {"Bucket": lockable, "Key": "k", "Body": b"x"}
    for wrong in (
        {"ObjectLockMode": "GOVERNANCE"},
        {"ObjectLockRetainUntilDate": ahead(days=1)},
        {"ObjectLockMode": "abc", "ObjectLockRetainUntilDate": ahead(days=1)},
        {"ObjectLockMode": "COMPLIANCE", "ObjectLockRetainUntilDate": datetime(2020, 1, 1, tzinfo=UTC)},
        {"ObjectLockLegalHoldStatus": "on"},
    ):
        assert error_code(s3.put_object, **at, **wrong) == (400, "InvalidArgument"), wrong


def test_locked_content_comes_with_a_digest(s3: S3Client, lockable: str) -> None:
    configure(s3, lockable, {"Mode": "GOVERNANCE", "Days": 1})
    url = s3.generate_presigned_url("put_object", Params={"Bucket": lockable, "Key": "k", "ContentType": "a/b"})
    request = urllib.request.Request(url, b"content", {"Content-Type": "a/b"}, method="PUT")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code == 400
    assert b"Content-MD5 OR x-amz-checksum-" in caught.value.read()


def test_a_lock_set_while_its_version_is_removed_is_kept_or_comes_too_late(s3: S3Client, lockable: str) -> None:
    def race(number: int) -> None:
        key = f"k{number}"
        version = put(s3, lockable, key)
        named: dict[str, Any] = {"Bucket": lockable, "Key": key, "VersionId": version}
        with ThreadPoolExecutor(2) as pool:
            held = pool.submit(attempt, s3.put_object_legal_hold, **named, LegalHold={"Status": "ON"})
            removed = pool.submit(attempt, s3.delete_object, **named)
        there = attempt(s3.head_object, **named)
        assert (held.result(), removed.result(), there) in {(True, False, True), (False, True, False)}

    for number in range(10):
        race(number)


def attempt(call: Callable[..., Any], **arguments: Any) -> bool:
    """Whether a call was answered well."""
    try:
        call(**arguments)
    except Exception:
        return False
    return True
