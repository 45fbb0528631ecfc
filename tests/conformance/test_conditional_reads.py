"""Conditions of reads: every combination of the four headers has the outcome of RFC 9110 §13.2.2."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.failure import error_code

OTHER = '"00000000000000000000000000000000"'
WORDS = (None, "holds", "fails")
COMBINATIONS = list(product(WORDS, repeat=4))
NAMES = ("IfMatch", "IfUnmodifiedSince", "IfNoneMatch", "IfModifiedSince")


@pytest.fixture(scope="module")
def at(s3: S3Client, make_bucket: MakeBucket) -> dict[str, str]:
    """An object."""
    at = {"Bucket": make_bucket(), "Key": "k"}
    s3.put_object(**at, Body=b"content")
    return at


def conditions(words: tuple[str | None, ...], etag: str, modified: datetime) -> dict[str, Any]:
    """The arguments of a read whose conditions hold or fail as the words say."""
    day = timedelta(days=1)
    values: dict[str, dict[str, Any]] = {
        "IfMatch": {"holds": etag, "fails": OTHER},
        "IfUnmodifiedSince": {"holds": modified, "fails": modified - day},
        "IfNoneMatch": {"holds": OTHER, "fails": etag},
        "IfModifiedSince": {"holds": modified - day, "fails": modified},
    }
    return {name: values[name][word] for name, word in zip(NAMES, words, strict=True) if word is not None}


def expected(words: tuple[str | None, ...]) -> int:
    """What S3 answers: a match outweighs a date, what must not hold is asked after what must."""
    match, unmodified, none_match, modified = words
    if match == "fails" or (match is None and unmodified == "fails"):
        return 412
    if none_match == "fails" or (none_match is None and modified == "fails"):
        return 304
    return 200


def name_of(words: tuple[str | None, ...]) -> str:
    named = [f"{name}-{word}" for name, word in zip(NAMES, words, strict=True) if word is not None]
    return "-".join(named) or "none"


def test_a_date_in_the_future_is_no_condition(s3: S3Client, at: dict[str, str]) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert s3.get_object(**at, IfModifiedSince=tomorrow)["Body"].read() == b"content"
    assert s3.head_object(**at, IfModifiedSince=tomorrow, IfUnmodifiedSince=tomorrow)["ContentLength"] == 7
    to = {"Bucket": at["Bucket"], "Key": "copy", "CopySource": f"{at['Bucket']}/k"}
    s3.copy_object(**to, CopySourceIfModifiedSince=tomorrow)


@pytest.mark.parametrize("words", COMBINATIONS, ids=name_of)
def test_conditions_of_a_read_have_one_outcome(s3: S3Client, at: dict[str, str], words: tuple[str | None, ...]) -> None:
    head = s3.head_object(**at)
    asked = conditions(words, head["ETag"], head["LastModified"])
    if (status := expected(words)) == 200:
        assert s3.get_object(**at, **asked)["Body"].read() == b"content"
    else:
        assert error_code(s3.get_object, **at, **asked)[0] == status
        assert error_code(s3.head_object, **at, **asked)[0] == status


@pytest.mark.parametrize("words", [words for words in COMBINATIONS if words.count(None) == 2], ids=name_of)
def test_conditions_on_the_source_of_a_copy_have_one_outcome(
    s3: S3Client, at: dict[str, str], words: tuple[str | None, ...]
) -> None:
    head = s3.head_object(**at)
    asked = {
        f"CopySource{name}": value for name, value in conditions(words, head["ETag"], head["LastModified"]).items()
    }
    copy = {"Bucket": at["Bucket"], "Key": "copy", "CopySource": f"{at['Bucket']}/k"}
    if expected(words) == 200:
        s3.copy_object(**copy, **asked)
    else:
        assert error_code(s3.copy_object, **copy, **asked) == (412, "PreconditionFailed")


@pytest.mark.parametrize(
    ("value", "status"),
    [("*", 200), ("{}", 200), ('"a", {}', 200), ('"a","b"', 412), ("{bare}", 200)],
    ids=["star", "tag", "list-with", "list-without", "without-quotes"],
)
def test_if_match_reads_lists_stars_and_tags_without_quotes(
    s3: S3Client, at: dict[str, str], value: str, status: int
) -> None:
    etag = s3.head_object(**at)["ETag"]
    value = value.replace("{bare}", etag.strip('"')).replace("{}", etag)
    if status == 200:
        s3.get_object(**at, IfMatch=value)
    else:
        assert error_code(s3.get_object, **at, IfMatch=value)[0] == status


def test_what_was_not_modified_is_told_with_its_validators_and_without_a_body(s3: S3Client, at: dict[str, str]) -> None:
    etag = s3.head_object(**at)["ETag"]
    with pytest.raises(s3.exceptions.ClientError) as caught:
        s3.get_object(**at, IfNoneMatch=etag)
    headers = caught.value.response["ResponseMetadata"]["HTTPHeaders"]
    assert headers["etag"] == etag
    assert headers.get("content-length", "0") == "0"


@pytest.mark.parametrize("absent", ["IfMatch", "IfNoneMatch", "IfModifiedSince", "IfUnmodifiedSince"])
def test_a_condition_on_what_is_not_there_is_404(s3: S3Client, bucket: str, absent: str) -> None:
    value: Any = datetime(2020, 1, 1) if "Since" in absent else OTHER
    assert error_code(s3.get_object, Bucket=bucket, Key="none", **{absent: value}) == (404, "NoSuchKey")
