"""Listings: all three ways to list answer alike, for any prefix, delimiter, marker and size of a page."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.failure import error_code
from outside.wire import ask, signed

KEYS = sorted(
    [
        "asdf",
        "b/ar",
        "b/az/xyz",
        "b+/ar",
        "foo",
        "foo/bar",
        "foo/bar/xyzzy",
        "quux ab/thud",
        "quux/thud",
        "x%y",
        "z\u00e9/ß",
    ],
    key=lambda key: key.encode(),
)
Page = tuple[list[str], list[str]]
List = Callable[..., Page]


def v1(s3: S3Client, bucket: str, size: int = 1000, **more: Any) -> Page:
    """Every page of ListObjects."""
    keys: list[str] = []
    prefixes: list[str] = []
    while True:
        page = s3.list_objects(Bucket=bucket, MaxKeys=size, **more)
        keys += [found["Key"] for found in page.get("Contents", [])]
        prefixes += [found["Prefix"] for found in page.get("CommonPrefixes", [])]
        assert len(page.get("Contents", [])) + len(page.get("CommonPrefixes", [])) <= size
        if not page["IsTruncated"]:
            return keys, prefixes
        more["Marker"] = page.get("NextMarker") or page["Contents"][-1]["Key"]


def v2(s3: S3Client, bucket: str, size: int = 1000, **more: Any) -> Page:
    """Every page of ListObjectsV2."""
    keys: list[str] = []
    prefixes: list[str] = []
    if "Marker" in more:
        more["StartAfter"] = more.pop("Marker")
    while True:
        page = s3.list_objects_v2(Bucket=bucket, MaxKeys=size, **more)
        keys += [found["Key"] for found in page.get("Contents", [])]
        prefixes += [found["Prefix"] for found in page.get("CommonPrefixes", [])]
        assert page["KeyCount"] == len(page.get("Contents", [])) + len(page.get("CommonPrefixes", [])) <= size
        if not page["IsTruncated"]:
            assert "NextContinuationToken" not in page
            return keys, prefixes
        more["ContinuationToken"] = page["NextContinuationToken"]


def versions(s3: S3Client, bucket: str, size: int = 1000, **more: Any) -> Page:
    """Every page of ListObjectVersions."""
    keys: list[str] = []
    prefixes: list[str] = []
    if "Marker" in more:
        more["KeyMarker"] = more.pop("Marker")
    while True:
        page = s3.list_object_versions(Bucket=bucket, MaxKeys=size, **more)
        keys += [found["Key"] for found in page.get("Versions", [])]
        prefixes += [found["Prefix"] for found in page.get("CommonPrefixes", [])]
        if not page["IsTruncated"]:
            return keys, prefixes
        more["KeyMarker"] = page["NextKeyMarker"]
        more.pop("VersionIdMarker", None)
        if "NextVersionIdMarker" in page:
            more["VersionIdMarker"] = page["NextVersionIdMarker"]


WAYS: list[List] = [v1, v2, versions]


@pytest.fixture(scope="module")
def tree(s3: S3Client, make_bucket: MakeBucket) -> str:
    """A bucket of KEYS."""
    bucket = make_bucket()
    for key in KEYS:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    return bucket


def model(prefix: str, delimiter: str, marker: str = "") -> Page:
    """What a listing has to say."""
    keys: list[str] = []
    prefixes: list[str] = []
    for key in KEYS:
        if not key.startswith(prefix) or key.encode() <= marker.encode():
            continue
        at = key.find(delimiter, len(prefix)) if delimiter else -1
        if at < 0:
            keys.append(key)
        elif (group := key[: at + len(delimiter)]) not in prefixes and not marker.startswith(group):
            prefixes.append(group)
    return keys, prefixes


PREFIXES = ["", "b", "b/", "foo", "foo/", "quux ", "none", "z\u00e9"]
DELIMITERS = ["", "/", "a", "b/a", "%", " ", "nowhere"]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.__name__))
@pytest.mark.parametrize(("prefix", "delimiter"), list(product(PREFIXES, DELIMITERS)))
def test_a_prefix_and_a_delimiter_group_alike_in_every_listing(
    s3: S3Client, tree: str, way: List, prefix: str, delimiter: str
) -> None:
    asked = {name: value for name, value in (("Prefix", prefix), ("Delimiter", delimiter)) if value}
    for size in (1000, 2):
        assert way(s3, tree, size, **asked) == model(prefix, delimiter)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.__name__))
@pytest.mark.parametrize("marker", ["a", "asdf", "b/ar", "c", "foo/", "foo/zz", "zzz", "\U0010ffff"])
@pytest.mark.parametrize("delimiter", ["", "/"], ids=["flat", "grouped"])
def test_a_listing_begins_after_its_marker(s3: S3Client, tree: str, way: List, marker: str, delimiter: str) -> None:
    asked = {"Delimiter": delimiter} if delimiter else {}
    assert way(s3, tree, Marker=marker, **asked) == model("", delimiter, marker)


@pytest.mark.parametrize("call", ["list_objects", "list_objects_v2", "list_object_versions"])
def test_no_keys_at_all_are_an_untruncated_page(s3: S3Client, tree: str, call: str) -> None:
    page = getattr(s3, call)(Bucket=tree, MaxKeys=0)
    assert page["IsTruncated"] is False
    assert page["MaxKeys"] == 0
    assert "Contents" not in page and "Versions" not in page


@pytest.mark.parametrize("call", ["list_objects", "list_objects_v2", "list_object_versions"])
def test_a_page_is_a_thousand_when_nothing_is_said(s3: S3Client, tree: str, call: str) -> None:
    page = getattr(s3, call)(Bucket=tree)
    assert page["MaxKeys"] == 1000
    assert page["Name"] == tree


@pytest.mark.parametrize("call", ["list_objects", "list_objects_v2", "list_object_versions"])
def test_what_was_asked_is_repeated(s3: S3Client, tree: str, call: str) -> None:
    page = getattr(s3, call)(Bucket=tree, Prefix="quux ", Delimiter="/", MaxKeys=7, EncodingType="url")
    assert (page["Prefix"], page["Delimiter"], page["MaxKeys"], page["EncodingType"]) == ("quux%20", "/", 7, "url")


@pytest.mark.parametrize("size", ["-1", "x", "2147483648", "1.5"])
@pytest.mark.parametrize("kind", ["", "&list-type=2", "&versions"], ids=["v1", "v2", "versions"])
def test_a_size_that_is_no_number_of_keys_is_refused(connect: Any, tree: str, size: str, kind: str) -> None:
    with connect() as connection:
        answer = ask(connect, signed(connection.host, "GET", f"/{tree}?max-keys={size}{kind}"))
    assert (answer.status, answer.code) == (400, "InvalidArgument")


@pytest.mark.parametrize("call", ["list_objects", "list_objects_v2", "list_object_versions", "list_multipart_uploads"])
def test_an_encoding_that_is_not_url_is_refused(connect: Any, tree: str, call: str) -> None:
    kind = {"list_objects": "", "list_objects_v2": "&list-type=2", "list_object_versions": "&versions"}.get(
        call, "&uploads"
    )
    with connect() as connection:
        answer = ask(connect, signed(connection.host, "GET", f"/{tree}?encoding-type=base64{kind}"))
    assert (answer.status, answer.code) == (400, "InvalidArgument")


def test_an_empty_continuation_token_begins_at_the_first_key(s3: S3Client, tree: str) -> None:
    found = s3.list_objects_v2(Bucket=tree, ContinuationToken="")
    assert found["ContinuationToken"] == ""
    assert found["Contents"] == s3.list_objects_v2(Bucket=tree)["Contents"]


@pytest.mark.parametrize("token", ["nonsense", "AAAA%3D%3D"])
def test_a_continuation_token_that_nobody_gave_is_refused(connect: Any, tree: str, token: str) -> None:
    with connect() as connection:
        answer = ask(connect, signed(connection.host, "GET", f"/{tree}?continuation-token={token}&list-type=2"))
    assert (answer.status, answer.code) == (400, "InvalidArgument")


@pytest.mark.parametrize("owner", [True, False])
def test_owners_are_listed_where_they_are_asked_for(s3: S3Client, tree: str, owner: bool) -> None:
    found = s3.list_objects_v2(Bucket=tree, FetchOwner=owner)["Contents"]
    assert all(("Owner" in entry) == owner for entry in found)
    assert all(entry["Owner"]["ID"] for entry in s3.list_objects(Bucket=tree)["Contents"])


def test_everything_a_listing_says_of_a_key_is_what_head_says(s3: S3Client, tree: str) -> None:
    for entry in s3.list_objects_v2(Bucket=tree)["Contents"]:
        head = s3.head_object(Bucket=tree, Key=entry["Key"])
        assert (entry["ETag"], entry["Size"]) == (head["ETag"], head["ContentLength"])
        assert entry["LastModified"].replace(microsecond=0) == head["LastModified"]
        assert entry["StorageClass"] == "STANDARD"


def test_strangers_and_nobody_list_nothing(alt: S3Client, nobody: S3Client, tree: str) -> None:
    for call in ("list_objects", "list_objects_v2", "list_object_versions", "list_multipart_uploads"):
        assert error_code(getattr(alt, call), Bucket=tree) == (403, "AccessDenied")
        assert error_code(getattr(nobody, call), Bucket=tree) == (403, "AccessDenied")


def test_whoever_may_read_a_bucket_lists_it_without_a_signature(s3: S3Client, nobody: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read")
    assert [entry["Key"] for entry in nobody.list_objects_v2(Bucket=bucket)["Contents"]] == ["k"]
    assert [entry["Key"] for entry in nobody.list_objects(Bucket=bucket)["Contents"]] == ["k"]
