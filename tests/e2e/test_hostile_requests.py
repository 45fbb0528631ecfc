"""Requests that are well formed and mean harm: what is checked is what is done, on every route and under every name."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from e2e.test_post_object import code, form, post
from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client, s3_client
from outside.content import noise
from outside.failure import error_code
from outside.policies import allow, put_policy
from outside.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, until
from outside.sigv4 import STREAMING_UNSIGNED_TRAILER, Header, Scope, authorize, chunked_unsigned, presign
from outside.users import ALT_ID
from outside.wire import Connection, encode, signed

DENIED = (403, "AccessDenied")

WRITES = [
    ("PUT", "/{bucket}/k"),
    ("PUT", "/{bucket}/k?partNumber=1&uploadId={upload}"),
    ("PUT", "/{bucket}/k?tagging"),
    ("PUT", "/{bucket}/k?acl"),
    ("PUT", "/{bucket}/k?retention"),
    ("PUT", "/{bucket}/k?legal-hold"),
    ("PUT", "/{bucket}?policy"),
    ("PUT", "/{bucket}?versioning"),
    ("PUT", "/{bucket}?cors"),
    ("PUT", "/{bucket}?lifecycle"),
    ("PUT", "/{bucket}?encryption"),
    ("PUT", "/{bucket}?acl"),
    ("PUT", "/made-by-a-guess"),
    ("POST", "/{bucket}/k?uploads"),
    ("POST", "/{bucket}/u?uploadId={upload}"),
    ("POST", "/{bucket}?delete"),
    ("DELETE", "/{bucket}/k"),
    ("DELETE", "/{bucket}/u?uploadId={upload}"),
    ("DELETE", "/{bucket}?policy"),
    ("DELETE", "/{bucket}"),
]


def forged(host: str, method: str, target: str) -> dict[str, bytes]:
    """The same request with a signature that nobody made, in every place a signature can stand."""
    # Signed now: a date from when the tests were collected is too old by the time that a slow machine comes here.
    scope = Scope(secret="a guess")
    body = b"x"
    host_header: list[Header] = [("Host", host)]
    in_query = presign(scope, method, target, host_header)
    streamed: list[Header] = [*host_header, ("x-amz-decoded-content-length", "1"), ("Content-Encoding", "aws-chunked")]
    chunks = chunked_unsigned([body], None)
    headers, _ = authorize(scope, method, target, streamed, STREAMING_UNSIGNED_TRAILER)
    only_query = [*streamed, ("x-amz-content-sha256", STREAMING_UNSIGNED_TRAILER), ("Content-Length", str(len(chunks)))]
    return {
        "header": signed(host, method, target, body=body, scope=scope),
        "query": encode(method, in_query, [*host_header, ("Content-Length", "1")], body),
        "streamed": encode(method, target, [*headers, ("Content-Length", str(len(chunks)))], chunks),
        "streamed, query": encode(method, presign(scope, method, target, host_header), only_query, chunks),
    }


def test_a_forged_signature_is_refused_on_every_route_that_writes(
    s3: S3Client, bucket: str, connect: Any, endpoint: str
) -> None:
    # C6: one verifier, whatever the route and wherever the signature stands.
    s3.put_object(Bucket=bucket, Key="k", Body=b"as it was")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="u")["UploadId"]
    host = endpoint.removeprefix("http://")
    for method, route in WRITES:
        target = route.format(bucket=bucket, upload=upload)
        for where, request in forged(host, method, target).items():
            with connect() as connection:
                connection.send(request)
                answer = connection.answer(method)
            assert answer is not None, (method, route, where)
            # A peer with too many failures is told to slow down instead.
            expected = {(403, "SignatureDoesNotMatch"), (403, "AccessDenied"), (503, "SlowDown")}
            assert (answer.status, answer.code) in expected, (method, route, where, answer.body)
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"as it was"
    assert s3.list_multipart_uploads(Bucket=bucket)["Uploads"][0]["UploadId"] == upload
    assert "Parts" not in s3.list_parts(Bucket=bucket, Key="u", UploadId=upload)
    assert error_code(s3.head_bucket, Bucket="made-by-a-guess") == (404, "404")


def test_who_may_list_a_prefix_sees_that_prefix_alone(s3: S3Client, alt: S3Client, bucket: str) -> None:
    # C39, C40
    for key in ("alice/a", "alice/sub/b", "alice-private/c", "bob/d"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    condition = {"StringLike": {"s3:prefix": "alice/*"}}
    put_policy(s3, bucket, allow(bucket, "s3:ListBucket", {"AWS": ALT_ID}, Condition=condition))
    listed = alt.list_objects_v2(Bucket=bucket, Prefix="alice/")
    assert [found["Key"] for found in listed["Contents"]] == ["alice/a", "alice/sub/b"]
    assert "CommonPrefixes" not in listed
    folded = alt.list_objects_v2(Bucket=bucket, Prefix="alice/", Delimiter="/")
    assert [found["Prefix"] for found in folded["CommonPrefixes"]] == ["alice/sub/"]
    for wider in ({}, {"Prefix": ""}, {"Prefix": "alice"}, {"Prefix": "alice-private/"}, {"Delimiter": "/"}):
        assert error_code(alt.list_objects_v2, Bucket=bucket, **wider) == DENIED, wider
        assert error_code(alt.list_objects, Bucket=bucket, **wider) == DENIED, wider


def test_headers_named_like_ours_change_nothing_and_are_not_kept(
    s3: S3Client, bucket: str, connect: Any, endpoint: str
) -> None:
    # C51
    host = endpoint.removeprefix("http://")
    ours: Sequence[Header] = [
        ("x-deltaweir-form", "delta"),
        ("x-deltaweir-stored-size", "1"),
        ("x-deltaweir-base", "0" * 32),
        ("x-amz-replication-status", "REPLICA"),
        ("x-minio-source-mtime", "2020-01-01T00:00:00Z"),
    ]
    body = noise(1, 20_000)
    with connect() as connection:
        connection.send(signed(host, "PUT", f"/{bucket}/k", ours, body))
        answer = connection.answer("PUT")
    assert answer is not None and answer.status == 200
    s3.put_object(Bucket=bucket, Key="plain", Body=noise(2, 20_000))
    got, plain = (s3.get_object(Bucket=bucket, Key=key) for key in ("k", "plain"))
    assert got["Body"].read() == body
    assert got["Metadata"] == {} and "ReplicationStatus" not in got
    names = ("x-deltaweir-form", "x-deltaweir-base")
    sent, usual = (found["ResponseMetadata"]["HTTPHeaders"] for found in (got, plain))
    assert [sent.get(name) for name in names] == [usual.get(name) for name in names]


def test_names_of_the_stores_own_files_are_keys_like_any_other(new_server: NewServer) -> None:
    # C53
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    own = {path.relative_to(server.data).as_posix() for path in server.data.rglob("*") if path.is_file()}
    names = {*own, "+tmp/x", "blobs/+aa/+b/" + "c" * 32, "owner", "journal/1", "keysets/1", "backups/1", "admin-token"}
    before = {path: path.read_bytes() for path in server.data.glob("*") if path.suffix == "" and path.is_file()}
    for name in sorted(names):
        s3.put_object(Bucket="delta-00", Key=name, Body=name.encode())
        s3.copy_object(Bucket="delta-00", Key=f"copy/../{name}", CopySource={"Bucket": "delta-00", "Key": name})
    for name in sorted(names):
        assert s3.get_object(Bucket="delta-00", Key=name)["Body"].read() == name.encode()
        assert s3.get_object(Bucket="delta-00", Key=f"copy/../{name}")["Body"].read() == name.encode()
    assert {path: path.read_bytes() for path in before} == before
    for bucket in (".deltaweir", "+tmp", "_catalog"):
        with Connection(server.port) as connection:
            connection.send(signed(connection.host, "PUT", f"/{bucket}"))
            answer = connection.answer("PUT")
        assert answer is not None and answer.status == 400, bucket


def handmade(
    url: str, bucket: str, conditions: list[Any], fields: dict[str, str], after: bytes = b""
) -> tuple[int, str]:
    """The answer to a form under a policy made by hand; `after` follows the file."""
    now = datetime.now(UTC)
    expires = (now + timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    scope = Scope()
    own = {
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": f"{ACCESS_KEY_ID}/{scope.path}",
        "x-amz-date": scope.amz_date,
    }
    every = [{"bucket": bucket}, *({name: value} for name, value in own.items()), *conditions]
    policy = base64.b64encode(json.dumps({"expiration": expires, "conditions": every}).encode()).decode()
    key = b"AWS4" + SECRET_ACCESS_KEY.encode()
    for step in scope.path.split("/"):
        key = hmac.digest(key, step.encode(), "sha256")
    signature = hmac.digest(key, policy.encode(), "sha256").hex()
    body = form(fields | own | {"policy": policy, "x-amz-signature": signature}, b"four")
    end = body.rindex(b"\r\n--")
    return code(post(url, body[:end] + after + body[end:]))


def test_a_form_does_no_more_than_its_policy_says(s3: S3Client, endpoint: str, bucket: str) -> None:
    # C58, C60, C61, C62
    url = f"{endpoint}/{bucket}"
    user = ["starts-with", "$key", "user/"]
    assert handmade(url, bucket, [], {"key": "any"})[0] == 403, "a policy that says nothing of the key"
    assert handmade(url, bucket, [user], {"key": "user/k"})[0] == 204
    boundary = b"\r\n------deltaweirFormBoundary7MA4YWxk\r\nContent-Disposition: form-data; name="
    late = boundary + b'"key"\r\n\r\nuser/late' + boundary + b'"x-amz-meta-late"\r\n\r\nyes'
    assert handmade(url, bucket, [user], {"key": "user/first"}, late)[0] == 204
    assert "late" not in s3.head_object(Bucket=bucket, Key="user/first")["Metadata"]
    assert handmade(url, bucket, [user], {"key": "user/../admin/k"})[0] == 204
    redirect = "https://example.com/\r\nSet-Cookie: a=b"
    field = ["starts-with", "$success_action_redirect", ""]
    status, _ = handmade(url, bucket, [user, field], {"key": "user/r", "success_action_redirect": redirect})
    assert status in (204, 400)
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert set(keys) - {"user/r"} == {"user/../admin/k", "user/first", "user/k"}, "dots in a key lead nowhere"


def test_the_parser_of_forms_keeps_its_bounds(endpoint: str, bucket: str, s3: S3Client) -> None:
    # C63
    url = f"{endpoint}/{bucket}"
    many = form({f"x-ignore-{number}": "" for number in range(10_000)} | {"key": "k"}, b"x")
    large = form({"key": "k", "x-ignore": "x" * (2 << 20)}, b"x")
    for body in (many, large):
        assert code(post(url, body)) == (400, "MaxPostPreDataLengthExceededError")
    for content_type in (
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=other",
    ):
        assert post(url, form({"key": "k"}, b"x"), content_type)[0] in (400, 412), content_type
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_an_upload_does_not_outlive_its_bucket(s3: S3Client, bucket: str) -> None:
    # C87
    name = f"{bucket}-anew"[:63]
    s3.create_bucket(Bucket=name)
    upload = s3.create_multipart_upload(Bucket=name, Key="k")["UploadId"]
    part = s3.upload_part(Bucket=name, Key="k", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    s3.delete_bucket(Bucket=name)
    s3.create_bucket(Bucket=name)
    done = {"Parts": [{"PartNumber": 1, "ETag": part}]}
    gone = (404, "NoSuchUpload")
    assert error_code(s3.complete_multipart_upload, Bucket=name, Key="k", UploadId=upload, MultipartUpload=done) == gone
    assert error_code(s3.upload_part, Bucket=name, Key="k", UploadId=upload, PartNumber=1, Body=b"x") == gone
    assert s3.list_objects_v2(Bucket=name)["KeyCount"] == 0
    s3.delete_bucket(Bucket=name)


def test_a_digest_alone_gives_no_access_to_content(s3: S3Client, alt: S3Client, bucket: str) -> None:
    # C107: whoever knows the digest of content and does not have it gets nothing.
    secret = noise(7, 100_000)
    s3.put_object(Bucket=bucket, Key="k", Body=secret, ChecksumAlgorithm="SHA256")
    name = f"{bucket}-claims"[:63]
    alt.create_bucket(Bucket=name)
    claims = {"ChecksumSHA256": base64.b64encode(hashlib.sha256(secret).digest()).decode()}
    for body in (b"", secret[:-1], bytes(len(secret))):
        assert error_code(alt.put_object, Bucket=name, Key="mine", Body=body, **claims)[0] == 400
    assert error_code(alt.head_object, Bucket=name, Key="mine") == (404, "404")
    alt.delete_bucket(Bucket=name)


def test_an_error_tells_nothing_of_where_and_how_content_is_stored(new_server: NewServer) -> None:
    # C116, C136
    server = new_server().start()
    s3 = s3_client(server.endpoint, retries={"total_max_attempts": 1})
    s3.create_bucket(Bucket="delta-00")
    s3.put_object(Bucket="delta-00", Key="k", Body=noise(3, 300_000))
    server.stop()
    blobs = [path for path in server.blob_files() if path.stat().st_size > 200_000]
    for path in blobs:
        content = bytearray(path.read_bytes())
        content[1000] ^= 1
        path.unlink()
        path.write_bytes(content)
    server.start()
    with Connection(server.port) as connection:
        connection.send(signed(connection.host, "GET", "/delta-00/k"))
        answer = connection.answer()
    assert answer is not None and (answer.status, answer.code) == (500, "InternalError")
    told = answer.body.decode() + repr(answer.headers)
    for hidden in (str(server.data), SECRET_ACCESS_KEY, *(path.name for path in blobs)):
        assert hidden not in told
    until(lambda: server.metrics().total("deltaweir_integrity_errors_total") > 0, 10, "the damage was met")
