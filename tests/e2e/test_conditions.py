"""If-Match and its kin, on reads, writes and copies."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError

from outside.clients import S3Client
from outside.content import md5
from outside.failure import error_code

ETAG = f'"{md5(b"content")}"'
OTHER = f'"{md5(b"other")}"'
FAILED = (412, "PreconditionFailed")


@pytest.fixture
def at(s3: S3Client, bucket: str) -> dict[str, str]:
    """Bucket and key of an object whose content is `content`."""
    s3.put_object(Bucket=bucket, Key="k", Body=b"content")
    return {"Bucket": bucket, "Key": "k"}


def test_if_match_lets_a_read_through_only_for_the_tag(s3: S3Client, at: dict[str, str]) -> None:
    assert s3.get_object(**at, IfMatch=ETAG)["Body"].read() == b"content"
    assert s3.get_object(**at, IfMatch=f"{OTHER}, {ETAG}")["Body"].read() == b"content"
    assert s3.get_object(**at, IfMatch="*")["Body"].read() == b"content"
    assert error_code(s3.get_object, **at, IfMatch=OTHER) == FAILED
    assert error_code(s3.head_object, **at, IfMatch=OTHER) == (412, "412")


def test_if_none_match_answers_304_for_the_tag(s3: S3Client, at: dict[str, str]) -> None:
    assert s3.get_object(**at, IfNoneMatch=OTHER)["Body"].read() == b"content"
    assert error_code(s3.get_object, **at, IfNoneMatch=ETAG) == (304, "304")
    assert error_code(s3.get_object, **at, IfNoneMatch=f"W/{ETAG}") == (304, "304")
    assert error_code(s3.head_object, **at, IfNoneMatch="*") == (304, "304")


def test_a_304_carries_the_tag(s3: S3Client, at: dict[str, str]) -> None:
    with pytest.raises(ClientError) as caught:
        s3.get_object(**at, IfNoneMatch=ETAG)
    assert caught.value.response["ResponseMetadata"]["HTTPHeaders"]["etag"] == ETAG


def test_dates_decide_by_the_second(s3: S3Client, at: dict[str, str]) -> None:
    modified = s3.head_object(**at)["LastModified"]
    hour = timedelta(hours=1)
    assert s3.get_object(**at, IfModifiedSince=modified - hour)["Body"].read() == b"content"
    assert error_code(s3.get_object, **at, IfModifiedSince=modified) == (304, "304")
    assert s3.get_object(**at, IfUnmodifiedSince=modified)["Body"].read() == b"content"
    assert error_code(s3.get_object, **at, IfUnmodifiedSince=modified - hour) == FAILED


def test_tags_win_over_dates(s3: S3Client, at: dict[str, str]) -> None:
    modified = s3.head_object(**at)["LastModified"]
    hour = timedelta(hours=1)
    assert s3.get_object(**at, IfMatch=ETAG, IfUnmodifiedSince=modified - hour)["Body"].read() == b"content"
    assert error_code(s3.get_object, **at, IfNoneMatch=ETAG, IfModifiedSince=modified - hour) == (304, "304")
    assert s3.get_object(**at, IfNoneMatch=OTHER, IfModifiedSince=modified)["Body"].read() == b"content"


def test_if_none_match_star_writes_only_where_nothing_is(s3: S3Client, at: dict[str, str]) -> None:
    assert error_code(s3.put_object, **at, Body=b"new", IfNoneMatch="*") == FAILED
    assert s3.get_object(**at)["Body"].read() == b"content"
    s3.put_object(Bucket=at["Bucket"], Key="fresh", Body=b"new", IfNoneMatch="*")
    s3.delete_object(Bucket=at["Bucket"], Key="fresh")
    s3.put_object(Bucket=at["Bucket"], Key="fresh", Body=b"again", IfNoneMatch="*")


def test_if_match_writes_only_over_the_tag(s3: S3Client, at: dict[str, str]) -> None:
    assert error_code(s3.put_object, **at, Body=b"new", IfMatch=OTHER) == FAILED
    s3.put_object(**at, Body=b"new", IfMatch=ETAG)
    assert s3.get_object(**at)["Body"].read() == b"new"
    assert error_code(s3.put_object, Bucket=at["Bucket"], Key="none", Body=b"x", IfMatch=ETAG) == (404, "NoSuchKey")


def test_a_conditional_complete_checks_at_the_end(s3: S3Client, at: dict[str, str]) -> None:
    upload = s3.create_multipart_upload(**at)["UploadId"]
    part = s3.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"multipart")
    done = {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}, "UploadId": upload}
    assert error_code(s3.complete_multipart_upload, **at, **done, IfNoneMatch="*") == FAILED
    s3.complete_multipart_upload(**at, **done, IfMatch=ETAG)
    assert s3.get_object(**at)["Body"].read() == b"multipart"


def test_a_copy_looks_at_its_source(s3: S3Client, at: dict[str, str]) -> None:
    modified = s3.head_object(**at)["LastModified"]
    hour = timedelta(hours=1)
    to = {"Bucket": at["Bucket"], "Key": "copy", "CopySource": f"{at['Bucket']}/k"}
    assert error_code(s3.copy_object, **to, CopySourceIfMatch=OTHER) == FAILED
    assert error_code(s3.copy_object, **to, CopySourceIfNoneMatch=ETAG) == FAILED
    assert error_code(s3.copy_object, **to, CopySourceIfModifiedSince=modified) == FAILED
    assert error_code(s3.copy_object, **to, CopySourceIfUnmodifiedSince=modified - hour) == FAILED
    assert error_code(s3.head_object, Bucket=at["Bucket"], Key="copy") == (404, "404")
    s3.copy_object(**to, CopySourceIfMatch=ETAG, CopySourceIfUnmodifiedSince=modified - hour)
    assert s3.get_object(Bucket=at["Bucket"], Key="copy")["Body"].read() == b"content"


def test_of_many_writers_who_want_to_be_first_one_is(s3: S3Client, bucket: str) -> None:
    outcomes: Counter[int] = Counter()
    winners: list[bytes] = []
    lock = threading.Lock()

    def write(number: int) -> None:
        body = f"writer {number}".encode()
        try:
            s3.put_object(Bucket=bucket, Key="race", Body=body, IfNoneMatch="*")
            status = 200
        except ClientError as error:
            status = int(error.response["ResponseMetadata"]["HTTPStatusCode"])
        with lock:
            outcomes[status] += 1
            if status == 200:
                winners.append(body)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes[200] == 1
    assert set(outcomes) <= {200, 409, 412}
    assert s3.get_object(Bucket=bucket, Key="race")["Body"].read() == winners[0]
