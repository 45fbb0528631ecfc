"""Lifecycle rules: which documents are kept as they are, and which are refused with which code."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from outside.clients import S3Client
from outside.failure import error_code

MIDNIGHT = datetime(2099, 1, 1, tzinfo=UTC)


def rule(**parts: Any) -> dict[str, Any]:
    """A rule for all objects, named `r` and enabled, unless told otherwise."""
    whole = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": ""}} | parts
    return {name: value for name, value in whole.items() if value is not None}


DAYS = {"Days": 1}
GOOD: dict[str, list[dict[str, Any]]] = {
    "days": [rule(Expiration=DAYS)],
    "date": [rule(Expiration={"Date": MIDNIGHT})],
    "marker": [rule(Expiration={"ExpiredObjectDeleteMarker": True})],
    "disabled": [rule(Status="Disabled", Expiration=DAYS)],
    "old prefix": [rule(Filter=None, Prefix="logs/", Expiration=DAYS)],
    "prefix": [rule(Filter={"Prefix": "logs/"}, Expiration=DAYS)],
    "tag": [rule(Filter={"Tag": {"Key": "a", "Value": "b"}}, Expiration=DAYS)],
    "size": [rule(Filter={"ObjectSizeGreaterThan": 10}, Expiration=DAYS)],
    "smaller": [rule(Filter={"ObjectSizeLessThan": 10}, Expiration=DAYS)],
    "and": [rule(Filter={"And": {"Prefix": "a", "Tags": [{"Key": "a", "Value": "b"}]}}, Expiration=DAYS)],
    "sizes": [rule(Filter={"And": {"ObjectSizeGreaterThan": 1, "ObjectSizeLessThan": 9}}, Expiration=DAYS)],
    "noncurrent": [rule(NoncurrentVersionExpiration={"NoncurrentDays": 2})],
    "newer": [rule(NoncurrentVersionExpiration={"NoncurrentDays": 2, "NewerNoncurrentVersions": 3})],
    "abort": [rule(AbortIncompleteMultipartUpload={"DaysAfterInitiation": 2})],
    "transition": [rule(Transitions=[{"Days": 30, "StorageClass": "GLACIER"}])],
    "noncurrent transition": [
        rule(NoncurrentVersionTransitions=[{"NoncurrentDays": 30, "StorageClass": "STANDARD_IA"}])
    ],
    "several": [rule(ID="a", Filter={"Prefix": "a/"}, Expiration=DAYS), rule(ID="b", Expiration={"Days": 2})],
    "longest id": [rule(ID="x" * 255, Expiration=DAYS)],
    "together": [
        rule(
            Expiration=DAYS,
            NoncurrentVersionExpiration={"NoncurrentDays": 2},
            AbortIncompleteMultipartUpload={"DaysAfterInitiation": 2},
        )
    ],
}
BAD: dict[str, tuple[list[dict[str, Any]], tuple[str, ...]]] = {
    "no rules": ([], ("MalformedXML",)),
    "no action": ([rule()], ("InvalidRequest", "MalformedXML")),
    "status": ([rule(Status="enabled", Expiration=DAYS)], ("MalformedXML",)),
    "no status": ([rule(Status="", Expiration=DAYS)], ("MalformedXML",)),
    "day 0": ([rule(Expiration={"Days": 0})], ("InvalidArgument",)),
    "day -1": ([rule(Expiration={"Days": -1})], ("InvalidArgument",)),
    "noon": ([rule(Expiration={"Date": datetime(2099, 1, 1, 12, tzinfo=UTC)})], ("InvalidArgument",)),
    "days and date": ([rule(Expiration={"Days": 1, "Date": MIDNIGHT})], ("MalformedXML",)),
    "days and marker": ([rule(Expiration={"Days": 1, "ExpiredObjectDeleteMarker": True})], ("MalformedXML",)),
    "empty expiration": ([rule(Expiration={})], ("MalformedXML",)),
    "long id": ([rule(ID="x" * 256, Expiration=DAYS)], ("InvalidArgument",)),
    "same id": ([rule(Expiration=DAYS), rule(Filter={"Prefix": "x"}, Expiration=DAYS)], ("InvalidArgument",)),
    "prefix and filter": ([rule(Prefix="a", Expiration=DAYS)], ("MalformedXML",)),
    "neither": ([rule(Filter=None, Expiration=DAYS)], ("MalformedXML",)),
    "noncurrent 0": ([rule(NoncurrentVersionExpiration={"NoncurrentDays": 0})], ("InvalidArgument",)),
    "newer alone": (
        [rule(NoncurrentVersionExpiration={"NewerNoncurrentVersions": 3})],
        ("MalformedXML", "InvalidArgument"),
    ),
    "abort 0": ([rule(AbortIncompleteMultipartUpload={"DaysAfterInitiation": 0})], ("InvalidArgument",)),
    "abort with tag": (
        [rule(Filter={"Tag": {"Key": "a", "Value": "b"}}, AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1})],
        ("InvalidRequest",),
    ),
    "marker with tag": (
        [rule(Filter={"Tag": {"Key": "a", "Value": "b"}}, Expiration={"ExpiredObjectDeleteMarker": True})],
        ("InvalidRequest",),
    ),
    "class": ([rule(Transitions=[{"Days": 30, "StorageClass": "COLD"}])], ("MalformedXML",)),
    "sizes reversed": (
        [rule(Filter={"And": {"ObjectSizeGreaterThan": 9, "ObjectSizeLessThan": 1}}, Expiration=DAYS)],
        ("InvalidRequest",),
    ),
    "tag twice": (
        [rule(Filter={"And": {"Tags": [{"Key": "a", "Value": "b"}] * 2}}, Expiration=DAYS)],
        ("InvalidRequest", "InvalidTag"),
    ),
}


def put(s3: S3Client, bucket: str, rules: list[dict[str, Any]]) -> None:
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})


@pytest.mark.parametrize("rules", GOOD.values(), ids=GOOD)
def test_rules_come_back_as_they_were_set(s3: S3Client, bucket: str, rules: list[dict[str, Any]]) -> None:
    put(s3, bucket, rules)
    assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"] == rules
    s3.delete_bucket_lifecycle(Bucket=bucket)
    code = (404, "NoSuchLifecycleConfiguration")
    assert error_code(s3.get_bucket_lifecycle_configuration, Bucket=bucket) == code


@pytest.mark.parametrize(("rules", "codes"), BAD.values(), ids=BAD)
def test_rules_that_make_no_sense_are_refused(
    s3: S3Client, bucket: str, rules: list[dict[str, Any]], codes: tuple[str, ...]
) -> None:
    status, code = error_code(put, s3=s3, bucket=bucket, rules=rules)
    assert status == 400
    assert code in codes


def test_a_thousand_rules_fit_and_one_more_does_not(s3: S3Client, bucket: str) -> None:
    rules = [rule(ID=str(number), Filter={"Prefix": str(number)}, Expiration=DAYS) for number in range(1001)]
    put(s3, bucket, rules[:1000])
    assert error_code(put, s3=s3, bucket=bucket, rules=rules)[0] == 400


BESIDE = {
    "Prefix": "days/",
    "Tag": {"Key": "k", "Value": "v"},
    "And": {"Prefix": "days", "Tags": [{"Key": "x", "Value": "y"}]},
}
"""Conditions beside an `And`, which boto3 sends as they are."""


@pytest.mark.parametrize(
    ("filtered", "key", "tags", "size", "told"),
    [
        ({"Prefix": "days1/"}, "days1/a", "", 1, True),
        ({"Prefix": "days1/"}, "other/a", "", 1, False),
        ({"Tag": {"Key": "k", "Value": "v"}}, "a", "k=v", 1, True),
        ({"Tag": {"Key": "k", "Value": "v"}}, "a", "k=w", 1, False),
        ({"And": {"Prefix": "a", "Tags": [{"Key": "k", "Value": "v"}]}}, "a", "k=v&x=y", 1, True),
        ({"And": {"Prefix": "b", "Tags": [{"Key": "k", "Value": "v"}]}}, "a", "k=v", 1, False),
        (BESIDE, "days/a", "k=v&x=y", 1, True),
        (BESIDE, "days/a", "k=v", 1, False),
        (BESIDE, "days/a", "x=y", 1, False),
        (BESIDE, "daysa", "k=v&x=y", 1, False),
        ({"ObjectSizeGreaterThan": 5}, "a", "", 6, True),
        ({"ObjectSizeGreaterThan": 5}, "a", "", 5, False),
        ({"ObjectSizeLessThan": 5}, "a", "", 4, True),
        ({"ObjectSizeLessThan": 5}, "a", "", 5, False),
    ],
)
def test_answers_tell_the_rule_an_object_meets(
    s3: S3Client, bucket: str, filtered: dict[str, Any], key: str, tags: str, size: int, told: bool
) -> None:
    put(s3, bucket, [rule(ID="rule1", Filter=filtered, Expiration={"Days": 1})])
    more = {"Tagging": tags} if tags else {}
    answer = s3.put_object(Bucket=bucket, Key=key, Body=b"x" * size, **more)
    head = s3.head_object(Bucket=bucket, Key=key)
    for found in (answer, head):
        assert ('rule-id="rule1"' in found.get("Expiration", "")) == told
