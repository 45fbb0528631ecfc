"""PUT, GET, HEAD, DELETE of whole objects, of every size that is an edge somewhere."""

from __future__ import annotations

import http.client
import time

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.content import KIB, MIB, md5, noise, release, text
from outside.failure import error_code
from outside.server import MODES, Mode

EDGES = [
    0,
    1,
    4 * KIB - 1,
    4 * KIB,
    4 * KIB + 1,
    64 * KIB - 1,
    64 * KIB,
    64 * KIB + 1,
    4 * MIB - 1,
    4 * MIB,
    4 * MIB + 1,
]
"""Around what is kept inline, a chunk and a segment."""


@pytest.fixture(scope="module")
def buckets(make_bucket: MakeBucket) -> dict[str, str]:
    """One bucket of each mode."""
    return {mode.name: make_bucket(mode) for mode in MODES}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("size", [*EDGES, 9 * MIB + 17])
def test_what_was_put_comes_back(s3: S3Client, buckets: dict[str, str], mode: Mode, size: int) -> None:
    bucket, key = buckets[mode.name], f"size-{size}"
    for content in (text(size, size), noise(size, size), release(size, size, 1)):
        put = s3.put_object(Bucket=bucket, Key=key, Body=content)
        assert put["ETag"] == f'"{md5(content)}"'
        head = s3.head_object(Bucket=bucket, Key=key)
        got = s3.get_object(Bucket=bucket, Key=key)
        assert got["Body"].read() == content
        assert (head["ContentLength"], head["ETag"]) == (got["ContentLength"], got["ETag"]) == (size, put["ETag"])


def test_an_overwritten_object_is_the_new_one_everywhere(s3: S3Client, bucket: str) -> None:
    for content in (b"first", b"the second, longer", b""):
        s3.put_object(Bucket=bucket, Key="k", Body=content)
        assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == content
        (listed,) = s3.list_objects_v2(Bucket=bucket)["Contents"]
        assert (listed["Size"], listed["ETag"]) == (len(content), f'"{md5(content)}"')


def test_last_modified_never_goes_back_and_is_the_same_in_list_head_and_get(s3: S3Client, bucket: str) -> None:
    before = None
    for content in (b"1", b"2", b"3"):
        s3.put_object(Bucket=bucket, Key="k", Body=content)
        head = s3.head_object(Bucket=bucket, Key="k")["LastModified"]
        got = s3.get_object(Bucket=bucket, Key="k")["LastModified"]
        listed = s3.list_objects_v2(Bucket=bucket)["Contents"][0]["LastModified"]
        assert head == got == listed.replace(microsecond=0)
        assert before is None or listed >= before
        assert abs(time.time() - listed.timestamp()) < 60
        before = listed


def test_a_deleted_object_is_gone_and_deleting_it_again_succeeds(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    for _ in range(2):
        assert s3.delete_object(Bucket=bucket, Key="k")["ResponseMetadata"]["HTTPStatusCode"] == 204
        assert error_code(s3.get_object, Bucket=bucket, Key="k") == (404, "NoSuchKey")
        assert error_code(s3.head_object, Bucket=bucket, Key="k") == (404, "404")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_base_can_be_deleted_and_its_deltas_still_read(s3: S3Client, bucket: str) -> None:
    releases = [release(5, 6 * MIB, version) for version in range(4)]
    for version, content in enumerate(releases):
        s3.put_object(Bucket=bucket, Key=f"app-1.{version}.bin", Body=content)
    for version in (0, 2):
        s3.delete_object(Bucket=bucket, Key=f"app-1.{version}.bin")
    for version in (1, 3):
        assert s3.get_object(Bucket=bucket, Key=f"app-1.{version}.bin")["Body"].read() == releases[version]


def test_a_body_without_end_marker_of_unknown_length_is_stored_when_chunked_by_aws(s3: S3Client, bucket: str) -> None:
    """boto3 sends trailing checksums aws-chunked when it is given a stream."""
    content = noise(3, 3 * MIB)
    s3.put_object(Bucket=bucket, Key="k", Body=content, ChecksumAlgorithm="CRC32C")
    got = s3.get_object(Bucket=bucket, Key="k")
    assert got["Body"].read() == content
    assert "aws-chunked" not in got.get("ContentEncoding", "")


def test_many_requests_share_one_connection(s3: S3Client, bucket: str, endpoint: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"again and again")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=20)
    sockets = set()
    for _ in range(20):
        connection.request("GET", url.removeprefix(endpoint))
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"again and again")
        assert connection.sock is not None, "the server closed the connection"
        sockets.add(connection.sock.getsockname())
    connection.close()
    assert len(sockets) == 1


def test_every_answer_has_a_request_id_and_errors_repeat_it(s3: S3Client, bucket: str) -> None:
    from botocore.exceptions import ClientError

    ok = s3.list_objects_v2(Bucket=bucket)["ResponseMetadata"]
    assert ok["HTTPHeaders"]["x-amz-request-id"]
    with pytest.raises(ClientError) as caught:
        s3.get_object(Bucket=bucket, Key="missing")
    meta = caught.value.response["ResponseMetadata"]
    assert meta["RequestId"] == meta["HTTPHeaders"]["x-amz-request-id"] != ok["HTTPHeaders"]["x-amz-request-id"]
