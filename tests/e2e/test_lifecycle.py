"""Lifecycle: what is refused of a configuration, what answers say of it, and what the job removes on short days."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from outside.clients import S3Client, s3_client
from outside.failure import error_code
from outside.server import Server, until

DAY_S = 0.2
"""How long a day is on the server of this file."""

Rule = dict[str, Any]


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Client]:
    """A server whose days are short; buckets named `sealed…` are encrypted."""
    sealed = {f"buckets.sealed-{number}": {"encryption": "aes256"} for number in range(3)}
    tables: Any = {"lifecycle": {"day": f"{int(DAY_S * 1000)}ms"}, **sealed}
    with Server(tmp_path_factory.mktemp("hasty"), tables) as server:
        yield s3_client(server.endpoint)


def configure(s3: S3Client, bucket: str, *rules: Rule) -> None:
    filled: list[Rule] = [{"Status": "Enabled"} | rule for rule in rules]
    for rule in filled:
        if "Prefix" not in rule:
            rule.setdefault("Filter", {})
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": filled})


def keys(s3: S3Client, bucket: str) -> list[str]:
    return [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]


def versions(s3: S3Client, bucket: str) -> list[str]:
    return [entry["VersionId"] for entry in s3.list_object_versions(Bucket=bucket).get("Versions", [])]


def markers(s3: S3Client, bucket: str) -> int:
    return len(s3.list_object_versions(Bucket=bucket).get("DeleteMarkers", []))


def becomes(what: Any, wanted: Any, sentence: str) -> None:
    until(lambda: what() == wanted, 20, f"{sentence}: {what()} instead of {wanted}", 0.1)


def test_a_configuration_is_told_as_it_was_set_and_can_be_removed(s3: S3Client, bucket: str) -> None:
    rules: list[Rule] = [
        {
            "ID": "everything",
            "Status": "Enabled",
            "Filter": {"And": {"Prefix": "a/", "Tags": [{"Key": "k", "Value": "v"}], "ObjectSizeGreaterThan": 5}},
            "Expiration": {"Days": 3},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 4, "NewerNoncurrentVersions": 2},
            "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}],
        },
        {"ID": "old", "Prefix": "old/", "Status": "Disabled", "Expiration": {"Date": datetime(2030, 1, 1, tzinfo=UTC)}},
        {
            "ID": "uploads",
            "Status": "Enabled",
            "Filter": {"Prefix": ""},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
            "Expiration": {"ExpiredObjectDeleteMarker": True},
        },
    ]
    configure(s3, bucket, *rules)
    told = s3.get_bucket_lifecycle_configuration(Bucket=bucket)
    assert told["Rules"] == rules
    s3.delete_bucket_lifecycle(Bucket=bucket)
    unset = (404, "NoSuchLifecycleConfiguration")
    assert error_code(s3.get_bucket_lifecycle_configuration, Bucket=bucket) == unset
    configure(s3, bucket, {"Expiration": {"Days": 1}})
    assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"][0]["ID"]


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ([{"Expiration": {"Days": 0}}], "InvalidArgument"),
        ([{"Expiration": {"Date": datetime(2030, 1, 1, 1, tzinfo=UTC)}}], "InvalidArgument"),
        ([{"ID": "a" * 256, "Expiration": {"Days": 1}}], "InvalidArgument"),
        ([{"ID": "a", "Expiration": {"Days": 1}}, {"ID": "a", "Expiration": {"Days": 2}}], "InvalidArgument"),
        ([{"NoncurrentVersionExpiration": {"NoncurrentDays": 0}}], "InvalidArgument"),
        ([{"Status": "enabled", "Expiration": {"Days": 1}}], "MalformedXML"),
        ([{"Prefix": "a", "Filter": {}, "Expiration": {"Days": 1}}], "MalformedXML"),
        ([{"Expiration": {"Days": 1, "ExpiredObjectDeleteMarker": True}}], "MalformedXML"),
        ([], "MalformedXML"),
        ([{}], "InvalidRequest"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    s3: S3Client, bucket: str, rules: list[Rule], code: str
) -> None:
    assert error_code(lambda **_: configure(s3, bucket, *rules)) == (400, code)
    unset = (404, "NoSuchLifecycleConfiguration")
    assert error_code(s3.get_bucket_lifecycle_configuration, Bucket=bucket) == unset


def test_answers_say_when_an_object_expires_and_by_which_rule(s3: S3Client, bucket: str) -> None:
    tagged = {"Tag": {"Key": "k", "Value": "v"}}
    rules: list[Rule] = [
        {"ID": "rule one", "Filter": {"Prefix": "p/"}, "Expiration": {"Days": 2}},
        {"ID": "tagged", "Filter": tagged, "Expiration": {"Days": 1}},
        {"ID": "off", "Status": "Disabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}},
        {"ID": "abort", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}},
    ]
    configure(s3, bucket, *rules)
    now = datetime.now(UTC)
    put = s3.put_object(Bucket=bucket, Key="p/k", Body=b"x")
    for answer in (put, s3.head_object(Bucket=bucket, Key="p/k"), s3.get_object(Bucket=bucket, Key="p/k")):
        date, rule = expiration(answer)
        assert rule == "rule%20one"
        assert (date.hour, date.minute, date.second) == (0, 0, 0), "days end at midnight"
        assert timedelta(days=2) <= date - now <= timedelta(days=3, minutes=1)
    s3.put_object(Bucket=bucket, Key="p/tagged", Body=b"x", Tagging="k=v")
    assert expiration(s3.head_object(Bucket=bucket, Key="p/tagged"))[1] == "tagged"
    assert "Expiration" not in s3.put_object(Bucket=bucket, Key="other", Body=b"x")
    copied = s3.copy_object(Bucket=bucket, Key="p/copy", CopySource={"Bucket": bucket, "Key": "other"})
    assert expiration(copied)[1] == "rule%20one"
    created = s3.create_multipart_upload(Bucket=bucket, Key="p/k")
    parts = s3.list_parts(Bucket=bucket, Key="p/k", UploadId=created["UploadId"])
    for told in (created, parts):
        assert told["AbortRuleId"] == "abort"
        assert timedelta(days=1) <= told["AbortDate"] - now <= timedelta(days=2, minutes=1)


def expiration(answer: Any) -> tuple[datetime, str]:
    """Date and rule of `x-amz-expiration`."""
    date, rule = answer["Expiration"].removeprefix('expiry-date="').removesuffix('"').split('", rule-id="')
    return parsedate_to_datetime(date), rule


@pytest.mark.parametrize("bucket", ["plain-0", "sealed-0"])
def test_objects_go_by_age_and_by_filter(hasty: S3Client, bucket: str) -> None:
    hasty.create_bucket(Bucket=bucket)
    bodies = {"days/k": b"", "keep/k": b"", "size/small": b"1", "size/large": b"123456", "tag/no": b"", "date/k": b""}
    for key, body in bodies.items():
        hasty.put_object(Bucket=bucket, Key=key, Body=body)
    hasty.put_object(Bucket=bucket, Key="tag/yes", Body=b"", Tagging="k=v&more=1")
    size = {"And": {"Prefix": "size/", "ObjectSizeGreaterThan": 5}}
    tag = {"And": {"Prefix": "tag/", "Tags": [{"Key": "k", "Value": "v"}]}}
    configure(
        hasty,
        bucket,
        {"ID": "days", "Prefix": "days/", "Expiration": {"Days": 1}},
        {"ID": "size", "Filter": size, "Expiration": {"Days": 1}},
        {"ID": "tag", "Filter": tag, "Expiration": {"Days": 1}},
        {"ID": "date", "Filter": {"Prefix": "date/"}, "Expiration": {"Date": datetime(2015, 1, 1, tzinfo=UTC)}},
        {"ID": "ahead", "Filter": {"Prefix": "keep/"}, "Expiration": {"Date": datetime(2090, 1, 1, tzinfo=UTC)}},
        {"ID": "off", "Status": "Disabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}},
    )
    becomes(lambda: keys(hasty, bucket), ["keep/k", "size/small", "tag/no"], "what is due goes, and nothing else")


@pytest.mark.parametrize("bucket", ["plain-1", "sealed-1"])
def test_where_versions_are_kept_expiry_adds_a_marker_and_old_versions_go(hasty: S3Client, bucket: str) -> None:
    hasty.create_bucket(Bucket=bucket)
    hasty.put_object(Bucket=bucket, Key="null", Body=b"0")
    hasty.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    ids = [hasty.put_object(Bucket=bucket, Key="k", Body=b"%d" % number)["VersionId"] for number in range(6)]
    noncurrent = {"NoncurrentDays": 1, "NewerNoncurrentVersions": 2}
    configure(hasty, bucket, {"ID": "some", "NoncurrentVersionExpiration": noncurrent})
    newest = [*ids[5:2:-1], "null"]
    becomes(lambda: versions(hasty, bucket), newest, "the current one and two more stay")
    assert hasty.get_object(Bucket=bucket, Key="k")["Body"].read() == b"5"
    configure(hasty, bucket, {"ID": "current", "Expiration": {"Days": 1}})
    becomes(lambda: (keys(hasty, bucket), markers(hasty, bucket)), ([], 2), "current versions are hidden")
    assert versions(hasty, bucket) == newest
    everything = {"NoncurrentVersionExpiration": {"NoncurrentDays": 1}}
    configure(hasty, bucket, {"ID": "all", **everything, "Expiration": {"ExpiredObjectDeleteMarker": True}})
    becomes(lambda: (versions(hasty, bucket), markers(hasty, bucket)), ([], 0), "and the markers with the last of them")
    hasty.delete_bucket(Bucket=bucket)


def test_locked_versions_stay_whatever_the_rules_say(hasty: S3Client) -> None:
    bucket = "locked"
    hasty.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    held = hasty.put_object(Bucket=bucket, Key="k", Body=b"held", ObjectLockLegalHoldStatus="ON")["VersionId"]
    tomorrow = {"Mode": "GOVERNANCE", "RetainUntilDate": datetime.now(UTC) + timedelta(days=1)}
    retained = hasty.put_object(Bucket=bucket, Key="k", Body=b"retained")["VersionId"]
    hasty.put_object_retention(Bucket=bucket, Key="k", VersionId=retained, Retention=tomorrow)
    free = hasty.put_object(Bucket=bucket, Key="k", Body=b"free")["VersionId"]
    newest = hasty.put_object(Bucket=bucket, Key="k", Body=b"newest")["VersionId"]
    assert versions(hasty, bucket) == [newest, free, retained, held]
    configure(hasty, bucket, {"ID": "all", "NoncurrentVersionExpiration": {"NoncurrentDays": 1}})
    becomes(lambda: versions(hasty, bucket), [newest, retained, held], "only the free one goes")
    hasty.put_object_legal_hold(Bucket=bucket, Key="k", VersionId=held, LegalHold={"Status": "OFF"})
    becomes(lambda: versions(hasty, bucket), [newest, retained], "and the other one when its hold ends")


def test_uploads_that_nobody_completes_are_aborted(hasty: S3Client) -> None:
    hasty.create_bucket(Bucket="uploads")
    for key in ("a/1", "a/2", "b/1"):
        hasty.create_multipart_upload(Bucket="uploads", Key=key)
    abort = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}
    configure(hasty, "uploads", {"ID": "a", "Filter": {"Prefix": "a/"}, **abort})

    def left() -> list[str]:
        return [upload["Key"] for upload in hasty.list_multipart_uploads(Bucket="uploads").get("Uploads", [])]

    becomes(left, ["b/1"], "those of the rule's prefix are aborted")


def test_more_versions_than_a_page_are_all_looked_at(hasty: S3Client) -> None:
    bucket = "many"
    hasty.create_bucket(Bucket=bucket)
    hasty.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for number in range(30):
        hasty.put_object(Bucket=bucket, Key=f"k{number % 3}", Body=b"")
    for _ in range(3):
        batch = {"Objects": [{"Key": f"gone-{number}"} for number in range(400)], "Quiet": True}
        hasty.delete_objects(Bucket=bucket, Delete=batch)
    rule = {"NoncurrentVersionExpiration": {"NoncurrentDays": 1}, "Expiration": {"ExpiredObjectDeleteMarker": True}}
    configure(hasty, bucket, {"ID": "all", **rule})
    becomes(lambda: (len(versions(hasty, bucket)), markers(hasty, bucket)), (3, 0), "every page is looked through")
