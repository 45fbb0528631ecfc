"""Object lock: documents that make sense and those that do not, and what a lock keeps from being done."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outside.clients import S3Client
from outside.failure import error_code

LATER = datetime(2099, 1, 1, tzinfo=UTC)
EARLIER = datetime(2098, 1, 1, tzinfo=UTC)
COUNT = iter(range(10_000))


@pytest.fixture
def locked(s3: S3Client) -> str:
    """A bucket with object lock."""
    name = f"conformance-lock-{next(COUNT)}"
    s3.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return name


def put(s3: S3Client, bucket: str, **more: Any) -> str:
    return str(s3.put_object(Bucket=bucket, Key="k", Body=b"locked", **more)["VersionId"])


def rule(mode: str, **period: int) -> dict[str, Any]:
    return {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": mode} | period}}


WRONG: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    (rule("GOVERNANCE", Days=1, Years=1), ("MalformedXML",)),
    (rule("GOVERNANCE"), ("MalformedXML",)),
    (rule("GOVERNANCE", Days=0), ("InvalidRetentionPeriod",)),
    (rule("GOVERNANCE", Days=-1), ("InvalidRetentionPeriod",)),
    (rule("GOVERNANCE", Days=36501), ("InvalidRetentionPeriod",)),
    (rule("GOVERNANCE", Years=-1), ("InvalidRetentionPeriod",)),
    (rule("GOVERNANCE", Years=101), ("InvalidRetentionPeriod",)),
    (rule("abc", Years=1), ("MalformedXML",)),
    (rule("governance", Years=1), ("MalformedXML",)),
    (rule("GOVERNANCE", Years=1) | {"ObjectLockEnabled": "Disabled"}, ("MalformedXML",)),
]


@pytest.mark.parametrize(("document", "codes"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_a_default_that_makes_no_sense_is_refused(
    s3: S3Client, locked: str, document: dict[str, Any], codes: tuple[str, ...]
) -> None:
    status, code = error_code(s3.put_object_lock_configuration, Bucket=locked, ObjectLockConfiguration=document)
    assert status == 400
    assert code in codes
    told = s3.get_object_lock_configuration(Bucket=locked)["ObjectLockConfiguration"]
    assert told == {"ObjectLockEnabled": "Enabled"}


@pytest.mark.parametrize("mode", ["GOVERNANCE", "COMPLIANCE"])
@pytest.mark.parametrize("period", [{"Days": 1}, {"Days": 36500}, {"Years": 1}, {"Years": 100}], ids=str)
def test_a_default_is_told_as_it_was_set(s3: S3Client, locked: str, mode: str, period: dict[str, int]) -> None:
    document = rule(mode, **period)
    s3.put_object_lock_configuration(Bucket=locked, ObjectLockConfiguration=document)
    assert s3.get_object_lock_configuration(Bucket=locked)["ObjectLockConfiguration"] == document


def test_an_older_bucket_without_versions_gets_no_lock(s3: S3Client, bucket: str) -> None:
    document = rule("GOVERNANCE", Days=1)
    asked = {"Bucket": bucket, "ObjectLockConfiguration": document}
    assert error_code(s3.put_object_lock_configuration, **asked) == (409, "InvalidBucketState")
    code = (404, "ObjectLockConfigurationNotFoundError")
    assert error_code(s3.get_object_lock_configuration, Bucket=bucket) == code


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("put_object_retention", {"Retention": {"Mode": "GOVERNANCE", "RetainUntilDate": LATER}}),
    ("put_object_legal_hold", {"LegalHold": {"Status": "ON"}}),
    ("get_object_retention", {}),
    ("get_object_legal_hold", {}),
]


@pytest.mark.parametrize(("call", "more"), CALLS, ids=[call for call, _ in CALLS])
def test_without_object_lock_there_is_nothing_to_ask(
    s3: S3Client, bucket: str, call: str, more: dict[str, Any]
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert error_code(getattr(s3, call), Bucket=bucket, Key="k", **more) == (400, "InvalidRequest")


@pytest.mark.parametrize(("call", "more"), CALLS, ids=[call for call, _ in CALLS])
def test_an_object_that_is_not_there_has_no_lock(s3: S3Client, locked: str, call: str, more: dict[str, Any]) -> None:
    assert error_code(getattr(s3, call), Bucket=locked, Key="none", **more) == (404, "NoSuchKey")


@pytest.mark.parametrize("mode", ["abc", "governance", ""])
def test_a_retention_has_a_mode(s3: S3Client, locked: str, mode: str) -> None:
    put(s3, locked)
    asked = {"Retention": {"Mode": mode, "RetainUntilDate": LATER}}
    assert error_code(s3.put_object_retention, Bucket=locked, Key="k", **asked) == (400, "MalformedXML")


def test_a_retention_ends_in_the_future(s3: S3Client, locked: str) -> None:
    put(s3, locked)
    asked = {"Retention": {"Mode": "GOVERNANCE", "RetainUntilDate": datetime(2020, 1, 1, tzinfo=UTC)}}
    assert error_code(s3.put_object_retention, Bucket=locked, Key="k", **asked) == (400, "InvalidArgument")


@pytest.mark.parametrize("status", ["abc", "on", ""])
def test_a_legal_hold_is_on_or_off(s3: S3Client, locked: str, status: str) -> None:
    put(s3, locked)
    code = error_code(s3.put_object_legal_hold, Bucket=locked, Key="k", LegalHold={"Status": status})
    assert code == (400, "MalformedXML")


@pytest.mark.parametrize("mode", ["GOVERNANCE", "COMPLIANCE"])
@pytest.mark.parametrize("bypass", [False, True], ids=["plain", "bypassing"])
@pytest.mark.parametrize("change", ["shorten", "prolong", "delete", "batch", "other-mode"])
def test_a_retention_is_prolonged_by_all_and_ended_by_bypass_of_governance_alone(
    s3: S3Client, locked: str, mode: str, bypass: bool, change: str
) -> None:
    version = put(s3, locked, ObjectLockMode=mode, ObjectLockRetainUntilDate=EARLIER)
    at: dict[str, Any] = {"Bucket": locked, "Key": "k"}
    more: dict[str, Any] = {"BypassGovernanceRetention": True} if bypass else {}
    allowed = change == "prolong" or (mode == "GOVERNANCE" and bypass)
    other = "COMPLIANCE" if mode == "GOVERNANCE" else "GOVERNANCE"
    until = {"shorten": EARLIER - timedelta(days=1), "prolong": LATER}.get(change, EARLIER)
    if change == "batch":
        objects = {"Objects": [{"Key": "k", "VersionId": version}]}
        done = s3.delete_objects(Bucket=locked, Delete=objects, **more)
        assert [error["Code"] for error in done.get("Errors", [])] == ([] if allowed else ["AccessDenied"])
        return
    call = s3.delete_object
    if change != "delete":
        call = s3.put_object_retention
        more["Retention"] = {"Mode": other if change == "other-mode" else mode, "RetainUntilDate": until}
    if allowed:
        call(**at, VersionId=version, **more)
    else:
        assert error_code(call, **at, VersionId=version, **more) == (403, "AccessDenied")


@pytest.mark.parametrize("bypass", [False, True], ids=["plain", "bypassing"])
def test_a_legal_hold_stands_beside_a_retention(s3: S3Client, locked: str, bypass: bool) -> None:
    version = put(s3, locked, ObjectLockLegalHoldStatus="ON")
    at: dict[str, Any] = {"Bucket": locked, "Key": "k", "VersionId": version}
    more = {"BypassGovernanceRetention": True} if bypass else {}
    assert error_code(s3.delete_object, **at, **more) == (403, "AccessDenied")
    s3.put_object_legal_hold(**at, LegalHold={"Status": "OFF"})
    s3.delete_object(**at)


def test_a_lock_lets_the_key_be_overwritten_and_deleted_without_a_version(s3: S3Client, locked: str) -> None:
    version = put(s3, locked, ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=LATER)
    put(s3, locked)
    assert s3.delete_object(Bucket=locked, Key="k")["DeleteMarker"]
    assert s3.get_object(Bucket=locked, Key="k", VersionId=version)["Body"].read() == b"locked"


def test_a_marker_over_a_locked_version_can_be_removed(s3: S3Client, locked: str) -> None:
    put(s3, locked, ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=LATER)
    marker = s3.delete_object(Bucket=locked, Key="k")["VersionId"]
    s3.delete_object(Bucket=locked, Key="k", VersionId=marker)
    assert s3.get_object(Bucket=locked, Key="k")["Body"].read() == b"locked"


@pytest.mark.parametrize("how", ["get_object", "head_object"])
def test_reads_tell_the_lock(s3: S3Client, locked: str, how: str) -> None:
    more = {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": LATER, "ObjectLockLegalHoldStatus": "ON"}
    put(s3, locked, **more)
    told = getattr(s3, how)(Bucket=locked, Key="k")
    assert {name: told[name] for name in more} == more


def test_a_bucket_with_a_lock_stays_versioned(s3: S3Client, locked: str) -> None:
    assert s3.get_bucket_versioning(Bucket=locked)["Status"] == "Enabled"
    asked = {"Bucket": locked, "VersioningConfiguration": {"Status": "Suspended"}}
    assert error_code(s3.put_bucket_versioning, **asked) == (409, "InvalidBucketState")
