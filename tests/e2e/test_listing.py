"""ListObjects, both versions: order, grouping, pages, and keys nobody would choose."""

from __future__ import annotations

from typing import Any

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.content import md5
from outside.failure import error_code
from outside.server import DELTA_SEALED

TREE = ["a", "a/b", "a/b/c", "a/d", "a0", "b//x", "b/x", "foo", "foo/bar", "foo/baz", "foobar", "z/"]

WEIRD = [
    "k" * 1024,
    "/leading",
    "//two",
    "a//b",
    "trailing/",
    ".",
    "..",
    "../up",
    "a/../b",
    "with space",
    " leading space",
    "plus+percent%41&amp;",
    "quotes\"'<>",
    "back\\slash",
    "tab\tnewline\nreturn\r",
    "\x01\x1f\x7f",
    "é",
    "e\u0301",
    "\u202ereversed",
    "𝄞 four bytes 🎼",
    "\uffff",
    "\U0010ffff",
    "~",
    "key.delta",
    "reference.bin",
]
"""All of them are ordinary keys. The two é are different ones: nothing is normalised."""


@pytest.fixture(scope="module")
def tree(s3: S3Client, make_bucket: MakeBucket) -> str:
    """A bucket that holds TREE."""
    bucket = make_bucket()
    for key in reversed(TREE):
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    return bucket


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "sealed"])
def weird(request: pytest.FixtureRequest, s3: S3Client, make_bucket: MakeBucket) -> str:
    """A bucket that holds WEIRD."""
    bucket = make_bucket(DELTA_SEALED) if request.param else make_bucket()
    for key in WEIRD:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    return bucket


def every(s3: S3Client, bucket: str, page: int, version: int = 2, **more: Any) -> tuple[list[str], list[str], int]:
    """Keys, common prefixes and the number of pages, read with `page` entries each."""
    keys: list[str] = []
    prefixes: list[str] = []
    marker: dict[str, str] = {}
    for pages in range(1, 1000):
        if version == 2:
            answer: Any = s3.list_objects_v2(Bucket=bucket, MaxKeys=page, **more, **marker)
            assert answer["KeyCount"] <= page
        else:
            answer = s3.list_objects(Bucket=bucket, MaxKeys=page, **more, **marker)
        keys += [found["Key"] for found in answer.get("Contents", [])]
        prefixes += [found["Prefix"] for found in answer.get("CommonPrefixes", [])]
        if not answer["IsTruncated"]:
            return keys, prefixes, pages
        if version == 2:
            marker = {"ContinuationToken": answer["NextContinuationToken"]}
        else:
            marker = {"Marker": answer.get("NextMarker") or answer["Contents"][-1]["Key"]}
    raise AssertionError("the listing does not end")


def grouped(keys: list[str], prefix: str, delimiter: str) -> tuple[list[str], list[str]]:
    """What S3 says a listing gives."""
    plain: list[str] = []
    groups: list[str] = []
    for key in sorted(keys, key=lambda key: key.encode()):
        if not key.startswith(prefix):
            continue
        head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
        if not found:
            plain.append(key)
        elif prefix + head + delimiter not in groups:
            groups.append(prefix + head + delimiter)
    return plain, groups


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("page", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("prefix", "delimiter"),
    [
        ("", ""),
        ("", "/"),
        ("a", "/"),
        ("a/", "/"),
        ("foo", "/"),
        ("foo/", ""),
        ("b/", "/"),
        ("", "oo"),
        ("none", "/"),
        ("z/", "/"),
    ],
)
def test_a_listing_is_what_s3_says_it_is(
    s3: S3Client, tree: str, version: int, page: int, prefix: str, delimiter: str
) -> None:
    keys, groups, pages = every(s3, tree, page, version, Prefix=prefix, Delimiter=delimiter)
    assert (keys, groups) == grouped(TREE, prefix, delimiter)
    assert pages == max(1, -(-(len(keys) + len(groups)) // page))


def test_start_after_and_marker_skip_up_to_and_with_the_key(s3: S3Client, tree: str) -> None:
    after = [found["Key"] for found in s3.list_objects_v2(Bucket=tree, StartAfter="b//x")["Contents"]]
    assert after == TREE[TREE.index("b/x") :]
    between = [found["Key"] for found in s3.list_objects_v2(Bucket=tree, StartAfter="b")["Contents"]]
    assert between == TREE[TREE.index("b//x") :]
    assert [found["Key"] for found in s3.list_objects(Bucket=tree, Marker="foobar")["Contents"]] == ["z/"]


def test_zero_keys_and_owners_on_request(s3: S3Client, tree: str) -> None:
    nothing = s3.list_objects_v2(Bucket=tree, MaxKeys=0)
    assert (nothing["KeyCount"], nothing["IsTruncated"]) == (0, False)
    assert "Owner" not in s3.list_objects_v2(Bucket=tree, MaxKeys=1)["Contents"][0]
    assert s3.list_objects_v2(Bucket=tree, MaxKeys=1, FetchOwner=True)["Contents"][0]["Owner"]["ID"]
    assert s3.list_objects(Bucket=tree, MaxKeys=1)["Contents"][0]["Owner"]["ID"]


def test_more_than_a_thousand_are_answered_by_a_thousand(s3: S3Client, tree: str) -> None:
    assert s3.list_objects_v2(Bucket=tree, MaxKeys=5000)["MaxKeys"] == 1000


def test_bad_parameters_are_named(s3: S3Client, tree: str) -> None:
    assert error_code(s3.list_objects_v2, Bucket=tree, MaxKeys=-1) == (400, "InvalidArgument")
    assert error_code(s3.list_objects_v2, Bucket=tree, ContinuationToken="made up") == (400, "InvalidArgument")
    assert error_code(s3.list_objects_v2, Bucket=tree, EncodingType="rot13") == (400, "InvalidArgument")


def test_weird_keys_are_listed_in_byte_order_and_read(s3: S3Client, weird: str) -> None:
    listed = s3.list_objects_v2(Bucket=weird)["Contents"]
    assert [found["Key"] for found in listed] == sorted(WEIRD, key=lambda key: key.encode())
    for found in listed:
        body = found["Key"].encode()
        assert (found["Size"], found["ETag"]) == (len(body), f'"{md5(body)}"')
        assert s3.get_object(Bucket=weird, Key=found["Key"])["Body"].read() == body
        assert s3.head_object(Bucket=weird, Key=found["Key"])["ContentLength"] == len(body)


@pytest.mark.parametrize("page", [1, 4])
def test_weird_keys_survive_paging_and_grouping(s3: S3Client, weird: str, page: int) -> None:
    assert every(s3, weird, page)[0] == sorted(WEIRD, key=lambda key: key.encode())
    keys, groups, _ = every(s3, weird, page, Delimiter="/")
    assert (keys, groups) == grouped(WEIRD, "", "/")


def test_url_encoding_encodes_keys_prefixes_and_markers(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="a b/ü+1", Body=b"")
    raw = s3.list_objects_v2(
        Bucket=bucket, EncodingType="url", Prefix="a b/", StartAfter="a a"
    )  # boto3 decodes only its own
    assert raw["Contents"][0]["Key"] in ("a+b/%C3%BC%2B1", "a%20b/%C3%BC%2B1")
    assert raw["EncodingType"] == "url"
    assert raw["Prefix"] in ("a+b/", "a%20b/")


def test_a_key_deleted_between_pages_does_not_disturb_the_rest(s3: S3Client, bucket: str) -> None:
    for number in range(6):
        s3.put_object(Bucket=bucket, Key=f"k{number}", Body=b"")
    first = s3.list_objects_v2(Bucket=bucket, MaxKeys=3)
    s3.delete_object(Bucket=bucket, Key="k2")
    s3.delete_object(Bucket=bucket, Key="k3")
    rest = s3.list_objects_v2(Bucket=bucket, ContinuationToken=first["NextContinuationToken"])
    assert [found["Key"] for found in rest["Contents"]] == ["k4", "k5"]


def test_prefixes_with_very_many_keys_are_one_entry_each(s3: S3Client, bucket: str) -> None:
    for group in range(3):
        for number in range(40):
            s3.put_object(Bucket=bucket, Key=f"{group}/{number:03}", Body=b"")
    page = s3.list_objects_v2(Bucket=bucket, Delimiter="/", MaxKeys=2)
    assert [found["Prefix"] for found in page["CommonPrefixes"]] == ["0/", "1/"]
    rest = s3.list_objects_v2(Bucket=bucket, Delimiter="/", ContinuationToken=page["NextContinuationToken"])
    assert [found["Prefix"] for found in rest["CommonPrefixes"]] == ["2/"]
