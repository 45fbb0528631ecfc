"""Copies: which sources there are, what a copy takes along and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.content import MIB, md5, noise
from outside.failure import error_code
from outside.wire import ask, signed

MORE = {
    "ContentType": "text/x-copied",
    "CacheControl": "no-store",
    "ContentDisposition": "attachment",
    "ContentEncoding": "zstd",
    "ContentLanguage": "de",
}


@pytest.fixture
def source(s3: S3Client, bucket: str) -> str:
    """A bucket with `from`."""
    s3.put_object(Bucket=bucket, Key="from", Body=b"content", Metadata={"a": "1"}, Tagging="t=1", **MORE)
    return bucket


@pytest.mark.parametrize("field", sorted(MORE))
def test_a_copy_has_the_content_headers_of_its_source(s3: S3Client, source: str, field: str) -> None:
    s3.copy_object(Bucket=source, Key="to", CopySource=f"{source}/from")
    assert s3.head_object(Bucket=source, Key="to")[field] == MORE[field]


@pytest.mark.parametrize("field", sorted(MORE))
def test_a_copy_that_replaces_has_the_content_headers_of_its_request(s3: S3Client, source: str, field: str) -> None:
    more = {field: "text/new", "MetadataDirective": "REPLACE"}
    s3.copy_object(Bucket=source, Key="to", CopySource=f"{source}/from", **more)
    head = s3.head_object(Bucket=source, Key="to")
    assert head[field] == "text/new"
    assert head["Metadata"] == {}
    assert {name for name in MORE if name in head} - {"ContentType"} == {field} - {"ContentType"}


@pytest.mark.parametrize("form", ["{}/from", "/{}/from", "{}%2Ffrom", "%2F{}%2Ffrom", "{}/%66rom"])
def test_a_source_is_named_with_and_without_a_slash_and_encoded(connect: Any, source: str, form: str) -> None:
    with connect() as connection:
        headers = [("x-amz-copy-source", form.format(source))]
        answer = ask(connect, signed(connection.host, "PUT", f"/{source}/to", headers), "PUT")
    assert answer.status == 200


@pytest.mark.parametrize("wrong", ["", "/", "nokey", "nokey/", "//from"])
def test_a_source_without_a_bucket_or_a_key_is_refused(connect: Any, source: str, wrong: str) -> None:
    with connect() as connection:
        headers = [("x-amz-copy-source", wrong)]
        answer = ask(connect, signed(connection.host, "PUT", f"/{source}/to", headers), "PUT")
    assert answer.status == 400
    assert answer.code in ("InvalidArgument", "InvalidRequest", "InvalidBucketName")


@pytest.mark.parametrize("size", [0, 1, 4096])
def test_any_size_is_copied(s3: S3Client, bucket: str, size: int) -> None:
    s3.put_object(Bucket=bucket, Key="from", Body=b"x" * size)
    s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/from")
    assert s3.get_object(Bucket=bucket, Key="to")["Body"].read() == b"x" * size


@pytest.mark.parametrize("directive", ["COPY", None])
def test_an_object_is_not_copied_onto_itself_unchanged(s3: S3Client, source: str, directive: str | None) -> None:
    more = {"MetadataDirective": directive} if directive else {}
    itself = {"Bucket": source, "Key": "from", "CopySource": f"{source}/from"}
    assert error_code(s3.copy_object, **itself, **more) == (400, "InvalidRequest")


def test_what_a_copy_onto_itself_does_not_name_is_no_change(s3: S3Client, bucket: str) -> None:
    kept: dict[str, Any] = {"StorageClass": "STANDARD_IA", "WebsiteRedirectLocation": "/there"}
    s3.put_object(Bucket=bucket, Key="k", Body=b"content", **kept)
    itself = {"Bucket": bucket, "Key": "k", "CopySource": f"{bucket}/k"}
    assert error_code(s3.copy_object, **itself) == (400, "InvalidRequest")
    head = s3.head_object(Bucket=bucket, Key="k")
    assert {name: head[name] for name in kept} == kept
    for name, value in kept.items():
        s3.copy_object(**itself, **{name: value})
        assert s3.head_object(Bucket=bucket, Key="k")[name] == value


CHANGES: list[dict[str, Any]] = [
    {"MetadataDirective": "REPLACE"},
    {"StorageClass": "STANDARD_IA"},
    {"StorageClass": "STANDARD"},
    {"ServerSideEncryption": "AES256"},
    {"TaggingDirective": "REPLACE", "Tagging": "new=1", "MetadataDirective": "REPLACE"},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: "-".join(change))
def test_an_object_is_copied_onto_itself_to_change_it(s3: S3Client, source: str, change: dict[str, Any]) -> None:
    s3.copy_object(Bucket=source, Key="from", CopySource=f"{source}/from", **change)
    assert s3.get_object(Bucket=source, Key="from")["Body"].read() == b"content"


@pytest.mark.parametrize("name", ["x-amz-metadata-directive", "x-amz-tagging-directive"])
@pytest.mark.parametrize("value", ["copy", "MERGE", ""])
def test_a_directive_is_copy_or_replace(connect: Any, source: str, name: str, value: str) -> None:
    with connect() as connection:
        headers = [("x-amz-copy-source", f"{source}/from"), (name, value)]
        answer = ask(connect, signed(connection.host, "PUT", f"/{source}/to", headers), "PUT")
    assert (answer.status, answer.code) == (400, "InvalidArgument")


def test_tags_are_copied_or_replaced(s3: S3Client, source: str) -> None:
    s3.copy_object(Bucket=source, Key="to", CopySource=f"{source}/from")
    assert s3.get_object_tagging(Bucket=source, Key="to")["TagSet"] == [{"Key": "t", "Value": "1"}]
    replace = {"TaggingDirective": "REPLACE", "Tagging": "u=2"}
    s3.copy_object(Bucket=source, Key="to", CopySource=f"{source}/from", **replace)
    assert s3.get_object_tagging(Bucket=source, Key="to")["TagSet"] == [{"Key": "u", "Value": "2"}]


def test_metadata_that_replaces_has_the_limits_of_a_put(s3: S3Client, source: str) -> None:
    to = {"Bucket": source, "Key": "to", "CopySource": f"{source}/from", "MetadataDirective": "REPLACE"}
    assert error_code(s3.copy_object, **to, Metadata={"a": "b" * 2048}) == (400, "MetadataTooLarge")
    s3.copy_object(**to, Metadata={"a": "b" * 2047})


@pytest.mark.parametrize("acl", ["private", "public-read", "public-read-write", "authenticated-read"])
def test_a_copy_has_the_acl_of_its_request(s3: S3Client, nobody: S3Client, source: str, acl: str) -> None:
    s3.put_object_acl(Bucket=source, Key="from", ACL="public-read")
    s3.copy_object(Bucket=source, Key="to", CopySource=f"{source}/from", ACL=acl)
    if acl.startswith("public-"):
        assert nobody.get_object(Bucket=source, Key="to")["Body"].read() == b"content"
    else:
        assert error_code(nobody.get_object, Bucket=source, Key="to") == (403, "AccessDenied")


def test_a_stranger_copies_what_it_may_read_to_where_it_may_write(
    s3: S3Client, alt: S3Client, source: str, make_bucket: MakeBucket
) -> None:
    alt.create_bucket(Bucket="of-alt-for-copies")
    to = {"Bucket": "of-alt-for-copies", "Key": "to", "CopySource": f"{source}/from"}
    assert error_code(alt.copy_object, **to) == (403, "AccessDenied")
    s3.put_object_acl(Bucket=source, Key="from", ACL="public-read")
    s3.put_bucket_acl(Bucket=source, ACL="public-read")
    alt.copy_object(**to)
    assert alt.get_object(Bucket=to["Bucket"], Key="to")["Body"].read() == b"content"
    assert error_code(alt.copy_object, **(to | {"Bucket": make_bucket()})) == (403, "AccessDenied")
    alt.delete_object(Bucket=to["Bucket"], Key="to")
    alt.delete_bucket(Bucket=to["Bucket"])


def test_a_copy_tells_its_etag_and_its_time(s3: S3Client, source: str) -> None:
    result = s3.copy_object(Bucket=source, Key="to", CopySource=f"{source}/from")["CopyObjectResult"]
    head = s3.head_object(Bucket=source, Key="to")
    assert result["ETag"] == head["ETag"]
    assert result["LastModified"].replace(microsecond=0) == head["LastModified"]


@pytest.mark.parametrize("algorithm", ["CRC64NVME", "SHA256"], ids=["full object", "composite"])
def test_a_copy_of_an_upload_in_parts_is_one_object_with_the_md5_of_its_content(
    s3: S3Client, bucket: str, algorithm: Any
) -> None:
    pieces = [noise(7, 5 * MIB), b"the last part"]
    at = {"Bucket": bucket, "Key": "from"}
    at["UploadId"] = s3.create_multipart_upload(**at, ChecksumAlgorithm=algorithm, Metadata={"m": "1"})["UploadId"]
    told = f"Checksum{algorithm}"
    parts = []
    for number, piece in enumerate(pieces, 1):
        part: Any = s3.upload_part(**at, PartNumber=number, Body=piece, ChecksumAlgorithm=algorithm)
        parts.append({"PartNumber": number, "ETag": part["ETag"], told: part[told]})
    s3.complete_multipart_upload(**at, MultipartUpload={"Parts": parts})
    content = b"".join(pieces)
    alone: Any = s3.put_object(Bucket=bucket, Key="alone", Body=content, ChecksumAlgorithm=algorithm)
    s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/from")
    head: Any = s3.head_object(Bucket=bucket, Key="to", PartNumber=1, ChecksumMode="ENABLED")
    assert (head["ETag"], head[told]) == (f'"{md5(content)}"', alone[told])
    assert (head["ContentLength"], head["Metadata"], "PartsCount" in head) == (len(content), {"m": "1"}, False)
    assert s3.get_object(Bucket=bucket, Key="to")["Body"].read() == content


@pytest.mark.parametrize("version", ["x", "null", "0" * 32])
def test_a_version_of_the_source_that_is_not_there_is_refused(s3: S3Client, source: str, version: str) -> None:
    s3.put_bucket_versioning(Bucket=source, VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket=source, Key="new", Body=b"x")
    to = {"Bucket": source, "Key": "to", "CopySource": f"{source}/new?versionId={version}"}
    assert error_code(s3.copy_object, **to) in [(400, "InvalidArgument"), (404, "NoSuchVersion")]


def test_a_delete_marker_is_not_copied(s3: S3Client, source: str) -> None:
    s3.put_bucket_versioning(Bucket=source, VersioningConfiguration={"Status": "Enabled"})
    marker = s3.delete_object(Bucket=source, Key="from")["VersionId"]
    to = {"Bucket": source, "Key": "to"}
    assert error_code(s3.copy_object, **to, CopySource=f"{source}/from") == (404, "NoSuchKey")
    assert error_code(s3.copy_object, **to, CopySource=f"{source}/from?versionId={marker}") == (400, "InvalidRequest")


@pytest.mark.parametrize("body", [b"x", b"<a/>"])
def test_a_copy_has_no_body(connect: Any, source: str, body: bytes) -> None:
    with connect() as connection:
        headers = [("x-amz-copy-source", f"{source}/from")]
        answer = ask(connect, signed(connection.host, "PUT", f"/{source}/to", headers, body), "PUT")
    assert answer.status in (200, 400)


def test_upper_case_metadata_names_are_told_in_lower_case(s3: S3Client, source: str) -> None:
    replace = {"MetadataDirective": "REPLACE", "Metadata": {"CamelCase": "Value"}}
    s3.copy_object(Bucket=source, Key="to", CopySource=f"{source}/from", **replace)
    assert s3.head_object(Bucket=source, Key="to")["Metadata"] == {"camelcase": "Value"}
