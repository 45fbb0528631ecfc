"""Uploads in parts: numbers, lists, markers and ranges that clients get wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from outside.clients import S3Client
from outside.content import MIB, md5, multipart_etag, noise
from outside.failure import error_code
from outside.wire import ask, signed

BIG = noise(5, 5 * MIB)


@pytest.fixture
def at(s3: S3Client, bucket: str) -> dict[str, str]:
    """An open upload of `k`."""
    at = {"Bucket": bucket, "Key": "k"}
    return at | {"UploadId": s3.create_multipart_upload(**at)["UploadId"]}


def complete(s3: S3Client, at: dict[str, str], *parts: tuple[int, str], **more: Any) -> Any:
    listed = [{"PartNumber": number, "ETag": etag} for number, etag in parts]
    return s3.complete_multipart_upload(**at, MultipartUpload={"Parts": listed}, **more)


@pytest.mark.parametrize("number", ["0", "-1", "10001", "x", "", "1.5", "99999999999999999999"])
def test_a_part_number_is_1_to_10000(connect: Any, at: dict[str, str], number: str) -> None:
    target = f"/{at['Bucket']}/k?partNumber={number}&uploadId={at['UploadId']}"
    with connect() as connection:
        answer = ask(connect, signed(connection.host, "PUT", target, body=b"x"), "PUT")
    assert (answer.status, answer.code) == (400, "InvalidArgument")


@pytest.mark.parametrize("number", [1, 2, 9999, 10000])
def test_any_part_number_within_the_bounds_makes_an_object(s3: S3Client, at: dict[str, str], number: int) -> None:
    etag = s3.upload_part(**at, PartNumber=number, Body=b"part")["ETag"]
    done = complete(s3, at, (number, etag))
    assert done["ETag"] == f'"{multipart_etag([b"part"])}"'
    assert (done["Bucket"], done["Key"]) == (at["Bucket"], "k")
    assert done["Location"].endswith(f"/{at['Bucket']}/k")


MORE: dict[str, dict[str, Any]] = {
    "upload_part": {"PartNumber": 1, "Body": b"x"},
    "complete_multipart_upload": {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": '"x"'}]}},
}
UPLOAD_IDS = ["x", "0" * 32, "../../etc", "a" * 1024]


@pytest.mark.parametrize("wrong", UPLOAD_IDS)
@pytest.mark.parametrize("call", ["upload_part", "list_parts", "abort_multipart_upload", "complete_multipart_upload"])
def test_an_upload_that_is_not_there_is_said_not_to_be(s3: S3Client, at: dict[str, str], call: str, wrong: str) -> None:
    more = MORE.get(call, {})
    asked = at | {"UploadId": wrong} | more
    assert error_code(getattr(s3, call), **asked) == (404, "NoSuchUpload")


@pytest.mark.parametrize("call", ["upload_part", "list_parts", "abort_multipart_upload", "complete_multipart_upload"])
def test_an_upload_belongs_to_its_key(s3: S3Client, at: dict[str, str], call: str) -> None:
    more = MORE.get(call, {})
    assert error_code(getattr(s3, call), **(at | {"Key": "other"} | more)) == (404, "NoSuchUpload")


LISTS = [
    ("", "MalformedXML"),
    ("<CompleteMultipartUpload/>", "MalformedXML"),
    ("<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>", "MalformedXML"),
    ("<CompleteMultipartUpload><Part><ETag>e</ETag></Part></CompleteMultipartUpload>", "MalformedXML"),
    ("<Other><Part><PartNumber>1</PartNumber><ETag>e</ETag></Part></Other>", "MalformedXML"),
    ("<CompleteMultipartUpload><Part>", "MalformedXML"),
    ("no xml", "MalformedXML"),
]


@pytest.mark.parametrize(("document", "code"), LISTS, ids=[str(number) for number in range(len(LISTS))])
def test_a_list_of_parts_that_is_none_is_refused(connect: Any, at: dict[str, str], document: str, code: str) -> None:
    target = f"/{at['Bucket']}/k?uploadId={at['UploadId']}"
    with connect() as connection:
        answer = ask(connect, signed(connection.host, "POST", target, body=document.encode()), "POST")
    assert (answer.status, answer.code) == (400, code)


def test_an_upload_without_parts_makes_no_object(s3: S3Client, at: dict[str, str]) -> None:
    assert error_code(complete, s3=s3, at=at) == (400, "MalformedXML")
    assert error_code(s3.head_object, Bucket=at["Bucket"], Key="k") == (404, "404")


@pytest.mark.parametrize("etag", ['"wrong"', '"ffffffffffffffffffffffffffffffff"', "", "*"])
def test_a_part_is_named_by_its_etag(s3: S3Client, at: dict[str, str], etag: str) -> None:
    s3.upload_part(**at, PartNumber=1, Body=b"x")
    with pytest.raises(s3.exceptions.ClientError) as caught:
        complete(s3, at, (1, etag))
    assert caught.value.response["Error"]["Code"] in ("InvalidPart", "MalformedXML")


def test_an_etag_of_a_part_needs_no_quotes(s3: S3Client, at: dict[str, str]) -> None:
    etag = s3.upload_part(**at, PartNumber=1, Body=b"x")["ETag"]
    assert complete(s3, at, (1, etag.strip('"')))["ETag"]


def test_the_last_part_alone_may_be_small(s3: S3Client, at: dict[str, str]) -> None:
    first = s3.upload_part(**at, PartNumber=1, Body=BIG)["ETag"]
    last = s3.upload_part(**at, PartNumber=2, Body=b"")["ETag"]
    complete(s3, at, (1, first), (2, last))
    assert s3.head_object(Bucket=at["Bucket"], Key="k")["ContentLength"] == len(BIG)


def test_an_empty_part_is_an_empty_object(s3: S3Client, at: dict[str, str]) -> None:
    etag = s3.upload_part(**at, PartNumber=1, Body=b"")["ETag"]
    complete(s3, at, (1, etag))
    assert s3.get_object(Bucket=at["Bucket"], Key="k")["Body"].read() == b""


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_parts_are_paged(s3: S3Client, at: dict[str, str], size: int) -> None:
    numbers = [1, 4, 9, 16, 25]
    for number in numbers:
        s3.upload_part(**at, PartNumber=number, Body=b"x" * number)
    found: list[int] = []
    marker = 0
    while True:
        page = s3.list_parts(**at, MaxParts=size, PartNumberMarker=marker)
        assert (page["MaxParts"], page["PartNumberMarker"]) == (size, marker)
        found += [part["PartNumber"] for part in page["Parts"]]
        if not page["IsTruncated"]:
            break
        marker = page["NextPartNumberMarker"]
    assert found == numbers


@pytest.mark.parametrize("parameter", ["max-parts=-1", "max-parts=x", "part-number-marker=-1", "part-number-marker=x"])
def test_a_page_of_parts_has_numbers(connect: Any, at: dict[str, str], parameter: str) -> None:
    with connect() as connection:
        target = f"/{at['Bucket']}/k?{parameter}&uploadId={at['UploadId']}"
        answer = ask(connect, signed(connection.host, "GET", target))
    assert (answer.status, answer.code) == (400, "InvalidArgument")


RANGES = [
    "0-2",
    "bytes=0",
    "bytes=hello-world",
    "bytes=0-bar",
    "bytes=hello-",
    "bytes=0-2,3-5",
    "bytes=2-0",
    "bytes=-5",
]


@pytest.mark.parametrize("wrong", RANGES)
def test_a_range_to_copy_has_a_first_and_a_last_byte(s3: S3Client, at: dict[str, str], wrong: str) -> None:
    s3.put_object(Bucket=at["Bucket"], Key="source", Body=b"0123456789")
    copy = at | {"PartNumber": 1, "CopySource": f"{at['Bucket']}/source", "CopySourceRange": wrong}
    assert error_code(s3.upload_part_copy, **copy) == (400, "InvalidArgument")


@pytest.mark.parametrize("beyond", ["bytes=0-10", "bytes=10-12", "bytes=100-200"])
def test_a_range_to_copy_lies_inside_its_source(s3: S3Client, at: dict[str, str], beyond: str) -> None:
    s3.put_object(Bucket=at["Bucket"], Key="source", Body=b"0123456789")
    copy = at | {"PartNumber": 1, "CopySource": f"{at['Bucket']}/source", "CopySourceRange": beyond}
    assert error_code(s3.upload_part_copy, **copy) == (400, "InvalidArgument")


@pytest.mark.parametrize("part", ["bytes=0-0", "bytes=9-9", "bytes=0-9", "bytes=3-7"])
def test_a_range_is_copied_as_it_is(s3: S3Client, at: dict[str, str], part: str) -> None:
    s3.put_object(Bucket=at["Bucket"], Key="source", Body=b"0123456789")
    copy = at | {"PartNumber": 1, "CopySource": f"{at['Bucket']}/source", "CopySourceRange": part}
    etag = s3.upload_part_copy(**copy)["CopyPartResult"]["ETag"]
    first, last = (int(number) for number in part.removeprefix("bytes=").split("-"))
    wanted = b"0123456789"[first : last + 1]
    assert etag == f'"{md5(wanted)}"'
    complete(s3, at, (1, etag))
    assert s3.get_object(Bucket=at["Bucket"], Key="k")["Body"].read() == wanted


@pytest.mark.parametrize("key", [" ", "_", "__", "?versionId", "a b", "ü/%2F"])
def test_a_part_is_copied_from_any_key(s3: S3Client, at: dict[str, str], key: str) -> None:
    s3.put_object(Bucket=at["Bucket"], Key=key, Body=b"special")
    copied = s3.upload_part_copy(**at, PartNumber=1, CopySource={"Bucket": at["Bucket"], "Key": key})
    complete(s3, at, (1, copied["CopyPartResult"]["ETag"]))
    assert s3.get_object(Bucket=at["Bucket"], Key="k")["Body"].read() == b"special"


def test_a_part_is_read_by_its_number_with_its_checksum(s3: S3Client, bucket: str) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    upload = s3.create_multipart_upload(**at)["UploadId"]
    parts = []
    for number, body in ((1, BIG), (2, b"tail")):
        etag = s3.upload_part(**at, UploadId=upload, PartNumber=number, Body=body)["ETag"]
        parts.append((number, etag))
    complete(s3, at | {"UploadId": upload}, *parts)
    for number, body in ((1, BIG), (2, b"tail")):
        got = s3.get_object(**at, PartNumber=number, ChecksumMode="ENABLED")
        assert got["Body"].read() == body
        assert got["PartsCount"] == 2
    assert error_code(s3.get_object, **at, PartNumber=3) == (400, "InvalidPart")


@pytest.mark.parametrize("number", ["0", "-1", "x", "10001"])
def test_a_part_to_read_has_a_number(connect: Any, s3: S3Client, bucket: str, number: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    with connect() as connection:
        for method, key in (("GET", "k"), ("GET", "none"), ("HEAD", "k"), ("HEAD", "none")):
            answer = ask(connect, signed(connection.host, method, f"/{bucket}/{key}?partNumber={number}"), method)
            code = "InvalidArgument" if method == "GET" else None
            assert (answer.status, answer.code) == (400, code), (method, key)


def test_a_range_and_a_part_number_exclude_each_other(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert error_code(s3.get_object, Bucket=bucket, Key="k", PartNumber=1, Range="bytes=0-0") == (400, "InvalidRequest")


def test_an_upload_shows_who_began_it_when_and_how(s3: S3Client, bucket: str) -> None:
    made = s3.create_multipart_upload(Bucket=bucket, Key="k", StorageClass="STANDARD_IA")
    (found,) = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert (found["UploadId"], found["Key"], found["StorageClass"]) == (made["UploadId"], "k", "STANDARD_IA")
    assert found["Initiator"]["ID"] and found["Owner"]["ID"] and found["Initiated"]
    parts = s3.list_parts(Bucket=bucket, Key="k", UploadId=made["UploadId"])
    assert parts["StorageClass"] == "STANDARD_IA"


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("delimiter", ["", "/"], ids=["flat", "grouped"])
def test_uploads_are_paged_and_grouped(s3: S3Client, bucket: str, size: int, delimiter: str) -> None:
    keys = ["a", "b/1", "b/2", "c", "c", "d/1"]
    for key in keys:
        s3.create_multipart_upload(Bucket=bucket, Key=key)
    found: list[str] = []
    groups: list[str] = []
    more: dict[str, Any] = {"Delimiter": delimiter} if delimiter else {}
    while True:
        page = s3.list_multipart_uploads(Bucket=bucket, MaxUploads=size, **more)
        found += [upload["Key"] for upload in page.get("Uploads", [])]
        groups += [group["Prefix"] for group in page.get("CommonPrefixes", [])]
        if not page["IsTruncated"]:
            break
        more |= {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page.get("NextUploadIdMarker", "")}
    assert found == ([key for key in keys if "/" not in key] if delimiter else keys)
    assert groups == (["b/", "d/"] if delimiter else [])


def test_a_stranger_touches_no_upload(alt: S3Client, at: dict[str, str]) -> None:
    assert error_code(alt.upload_part, **at, PartNumber=1, Body=b"x") == (403, "AccessDenied")
    assert error_code(alt.list_parts, **at) == (403, "AccessDenied")
    assert error_code(alt.abort_multipart_upload, **at) == (403, "AccessDenied")
    assert error_code(complete, s3=alt, at=at) == (403, "AccessDenied")


def test_an_upload_is_aborted_only_if_it_began_when_the_client_says(s3: S3Client, bucket: str) -> None:
    at: Any = {"Bucket": bucket, "Key": "k"}
    upload = s3.create_multipart_upload(**at)["UploadId"]
    began = s3.list_multipart_uploads(Bucket=bucket)["Uploads"][0]["Initiated"]
    at["UploadId"] = upload
    early = began - timedelta(seconds=1)
    refused = (412, "PreconditionFailed")
    assert error_code(s3.abort_multipart_upload, **at, IfMatchInitiatedTime=early) == refused
    assert len(s3.list_multipart_uploads(Bucket=bucket)["Uploads"]) == 1
    s3.abort_multipart_upload(**at, IfMatchInitiatedTime=began)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    s3.abort_multipart_upload(**at, IfMatchInitiatedTime=began)
    assert error_code(s3.abort_multipart_upload, **at) == (404, "NoSuchUpload")
