"""Who may come and by which name: presigned URLs, virtual hosts, nobody at all."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from urllib.parse import quote

import pytest

from outside.buckets import NewServer
from outside.clients import AwsCli, S3Client, s3_client
from outside.failure import error_code
from outside.server import SECRET_ACCESS_KEY
from outside.sigv4 import EMPTY_SHA256, Scope, authorize, presign
from outside.wire import Connection, ask, encode, signed

Connect = Callable[[], Connection]


def plain(url: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    """A request without a signature of its own, as a browser would send a URL."""
    host, _, target = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.request(method, f"/{target}", body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_presigned_urls_put_get_head_and_delete(endpoint: str, bucket: str, version: str) -> None:
    s3 = s3_client(endpoint, signature_version=version)
    at = {"Bucket": bucket, "Key": "a key/ü+%"}
    assert plain(s3.generate_presigned_url("put_object", at), "PUT", b"by url")[0] == 200
    assert plain(s3.generate_presigned_url("get_object", at)) == (200, b"by url")
    assert plain(s3.generate_presigned_url("head_object", at), "HEAD") == (200, b"")
    deleting = s3.generate_presigned_url("delete_object", at)
    assert plain(deleting, "DELETE")[0] == (204 if version == "s3v4" else 403)
    s3_client(endpoint).delete_object(**at)
    assert plain(s3.generate_presigned_url("get_object", at))[0] == 404


def test_urls_that_clients_presign_by_default_work(s3: S3Client, aws: AwsCli, bucket: str) -> None:
    """boto3 and aws-cli sign them with version 2 in us-east-1, as they come."""
    at = {"Bucket": bucket, "Key": "a key/ü+%"}
    url = s3.generate_presigned_url("put_object", at | {"ContentType": "text/plain", "Metadata": {"a": "1"}})
    assert "AWSAccessKeyId=" in url
    host, _, target = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.request("PUT", f"/{target}", b"by default", {"Content-Type": "text/plain", "x-amz-meta-a": "1"})
    assert connection.getresponse().status == 200
    connection.close()
    assert s3.head_object(**at)["Metadata"] == {"a": "1"}
    overridden = s3.generate_presigned_url("get_object", at | {"ResponseContentType": "image/png"})
    assert plain(overridden) == (200, b"by default")
    assert plain(overridden.replace("image%2Fpng", "text%2Fhtml"))[0] == 403
    assert plain(aws.run("s3", "presign", f"s3://{bucket}/a key/ü+%").stdout.strip()) == (200, b"by default")


@pytest.mark.parametrize("added", ["acl", "tagging", "versionId=null", "x-amz-meta-a=1", "partNumber=1", "attributes"])
def test_nothing_can_be_added_to_a_url_of_version_2(s3: S3Client, bucket: str, added: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    url = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"})
    assert plain(url) == (200, b"x")
    status, body = plain(f"{url}&{added}")
    assert (status, b"SignatureDoesNotMatch" in body) == (403, True)


def test_urls_of_version_2_are_refused_where_the_operator_says_so(new_server: NewServer) -> None:
    server = new_server(server={"presign_v2": False}).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="plain-bucket")
    url = s3.generate_presigned_url("list_objects_v2", {"Bucket": "plain-bucket"})
    assert plain(url)[0] == 400
    v4 = s3_client(server.endpoint, signature_version="s3v4")
    assert plain(v4.generate_presigned_url("list_objects_v2", {"Bucket": "plain-bucket"}))[0] == 200


def test_version_2_in_the_header_is_refused_where_the_operator_says_so(new_server: NewServer) -> None:
    server = new_server(server={"header_v2": False}).start()
    old = s3_client(server.endpoint, signature_version="s3")
    assert error_code(old.create_bucket, Bucket="plain-bucket") == (400, "InvalidRequest")
    s3_client(server.endpoint).create_bucket(Bucket="plain-bucket")
    assert plain(old.generate_presigned_url("list_objects_v2", {"Bucket": "plain-bucket"}))[0] == 200


def test_a_presigned_url_is_for_its_method_alone(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    url = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"})
    assert plain(url, "PUT", b"y")[0] == 403
    assert plain(url, "DELETE")[0] == 403
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"


def test_an_expired_url_is_refused(connect: Connect, bucket: str) -> None:
    from datetime import UTC, datetime, timedelta

    with connect() as connection:
        host = connection.host
    then = Scope(time=datetime.now(UTC) - timedelta(seconds=11))
    target = presign(then, "GET", f"/{bucket}", [("Host", host)], expires="10")
    answer = ask(connect, encode("GET", target, [("Host", host)]))
    assert (answer.status, answer.code) == (403, "AccessDenied")
    assert b"expired" in answer.body.lower()


@pytest.mark.parametrize("host", ["{bucket}.s3.example.com", "{bucket}.S3.EXAMPLE.COM:9000"])
def test_a_bucket_can_be_named_by_the_host(s3: S3Client, connect: Connect, bucket: str, host: str) -> None:
    s3.put_object(Bucket=bucket, Key="a/k", Body=b"virtual")
    name = host.format(bucket=bucket)
    assert ask(connect, signed(name, "GET", "/a/k")).body == b"virtual"
    assert ask(connect, signed(name, "PUT", "/by-host", body=b"put")).status == 200
    assert s3.get_object(Bucket=bucket, Key="by-host")["Body"].read() == b"put"
    listing = ask(connect, signed(name, "GET", "/?list-type=2"))
    assert b"<Key>by-host</Key>" in listing.body


def test_the_domain_itself_is_path_style(s3: S3Client, connect: Connect, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"path")
    assert ask(connect, signed("s3.example.com", "GET", f"/{bucket}/k")).body == b"path"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
def test_nobody_without_a_signature_gets_in(s3: S3Client, endpoint: str, bucket: str, method: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    for path, expected, code in (
        (f"{bucket}/k", 403, b"AccessDenied"),
        (f"{bucket}/none", 403, b"AccessDenied"),
        ("never-made/k", 404, b"NoSuchBucket"),
    ):
        status, body = plain(f"{endpoint}/{path}", method, b"y" if method == "PUT" else None)
        assert status == expected
        assert method == "HEAD" or b"<Code>" + code + b"</Code>" in body
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"


def test_an_unknown_key_and_a_wrong_secret_are_told_apart_as_s3_does(endpoint: str, bucket: str) -> None:
    unknown = s3_client(endpoint, key_id="AKIADOESNOTEXIST0000")
    assert error_code(unknown.list_objects_v2, Bucket=bucket) == (403, "InvalidAccessKeyId")
    wrong = s3_client(endpoint, secret=SECRET_ACCESS_KEY[::-1])
    assert error_code(wrong.list_objects_v2, Bucket=bucket) == (403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("key", ["a/../b", "./a", "..", "a//b", "/lead", "%2e%2e", "a%2Fb", "~tilde", "semi;colon"])
def test_the_key_that_is_signed_is_the_key_that_is_stored(
    s3: S3Client, connect: Connect, bucket: str, key: str
) -> None:
    with connect() as connection:
        host = connection.host
    target = f"/{bucket}/{quote(key, safe='/~')}"
    put = ask(connect, signed(host, "PUT", target, body=key.encode()), "PUT")
    assert put.status == 200, put.body
    (listed,) = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert listed["Key"] == key
    assert ask(connect, signed(host, "GET", target)).body == key.encode()


def test_repeated_and_unsorted_query_parameters_are_signed_as_sent(connect: Connect, bucket: str) -> None:
    with connect() as connection:
        host = connection.host
    target = f"/{bucket}?prefix=a%20b&list-type=2&delimiter=%2F"
    headers, _ = authorize(Scope(), "GET", target, [("Host", host)], EMPTY_SHA256)
    assert ask(connect, encode("GET", target, headers)).status == 200
