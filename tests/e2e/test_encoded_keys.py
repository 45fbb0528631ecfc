"""A key is decoded alike wherever a request may name one: what one client deletes is what another one wrote."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote, quote_plus, unquote_plus
from xml.sax.saxutils import escape

import pytest

from outside.clients import S3Client, s3_client
from outside.encoded_keys import encoded_keys
from outside.sigv4 import Scope, presign
from outside.wire import Connection, ask, encode, signed

Connect = Callable[[], Connection]

TABLE = encoded_keys()
KEYS = sorted({key for _, key in TABLE})


@pytest.fixture
def filled(s3: S3Client, bucket: str) -> str:
    """A bucket with every key of the table and their neighbours under a wrong decoding; each holds its name."""
    for key in {*KEYS, *(raw for raw, _ in TABLE)}:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    return bucket


@pytest.mark.direct  # nginx refuses a path that climbs above its root, with a page of its own
def test_a_path_names_the_key_in_path_style_and_virtual_host_style(connect: Connect, filled: str) -> None:
    with connect() as connection:
        host = connection.host
    for raw, key in TABLE:
        path = quote(key, safe="/~")  # SigV4 signs the key itself, whatever way the path spells it
        for name, prefix in ((host, f"/{filled}/"), (f"{filled}.s3.example.com", "/")):
            request = signed(name, "GET", prefix + path)
            sent = request.replace(f"GET {prefix}{path} ".encode(), f"GET {prefix}{raw} ".encode(), 1)
            assert ask(connect, sent).body == key.encode(), raw


def test_a_presigned_path_names_the_key(connect: Connect, filled: str) -> None:
    with connect() as connection:
        host = connection.host
    for raw, key in TABLE:
        path = f"/{filled}/{quote(key, safe='/~')}"
        target = presign(Scope(time=datetime.now(UTC)), "GET", path, [("Host", host)])
        sent = target.replace(path, f"/{filled}/{raw}", 1)
        assert ask(connect, encode("GET", sent, [("Host", host)])).body == key.encode(), raw


def test_a_query_names_prefixes_and_markers(connect: Connect, filled: str) -> None:
    with connect() as connection:
        host = connection.host
    listed = sorted({*KEYS, *(raw for raw, _ in TABLE)}, key=str.encode)
    for raw, key in TABLE:
        target = f"/{filled}?encoding-type=url&list-type=2&prefix={raw}"
        body = ask(connect, signed(host, "GET", target)).body.decode()
        assert f"<Prefix>{escape(quote(key, safe='/~'))}</Prefix>" in body, raw
        for marker in ("start-after", "marker"):
            version = "&list-type=2" if marker == "start-after" else ""
            target = f"/{filled}?encoding-type=url&{marker}={raw}&max-keys=1{version}"
            found = ask(connect, signed(host, "GET", target)).body.decode()
            after = [later for later in listed if later.encode() > key.encode()][:1]
            keys = [unquote_plus(part.split("</Key>")[0]) for part in found.split("<Key>")[1:]]
            assert keys == after, (marker, raw)


def test_a_copy_source_names_the_key(connect: Connect, s3: S3Client, filled: str) -> None:
    with connect() as connection:
        host = connection.host
    for raw, key in TABLE:
        for source in (f"{filled}/{raw}", f"/{filled}/{raw}", f"%2F{filled}%2F{raw}"):
            headers = [("x-amz-copy-source", source)]
            copied = ask(connect, signed(host, "PUT", f"/{filled}/copied-to", headers), "PUT")
            assert copied.status == 200, (source, copied.body)
            assert s3.get_object(Bucket=filled, Key="copied-to")["Body"].read() == key.encode(), source


def test_a_move_as_s5cmd_sends_it_moves_what_it_names_and_nothing_else(
    connect: Connect, s3: S3Client, bucket: str
) -> None:
    """s5cmd writes a space of a copy source as `+`, copies, and deletes the source by its plain name."""
    with connect() as connection:
        host = connection.host
    s3.put_object(Bucket=bucket, Key="my file", Body=b"the one")
    s3.put_object(Bucket=bucket, Key="my+file", Body=b"another")
    headers = [("x-amz-copy-source", f"{bucket}/{quote_plus('my file')}")]
    assert ask(connect, signed(host, "PUT", f"/{bucket}/moved", headers), "PUT").status == 200
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "my file"}]})
    listed = {found["Key"]: found["Key"] for found in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    assert sorted(listed) == ["moved", "my+file"]
    assert s3.get_object(Bucket=bucket, Key="moved")["Body"].read() == b"the one"
    assert s3.get_object(Bucket=bucket, Key="my+file")["Body"].read() == b"another"


def test_a_part_copied_as_s5cmd_names_it_is_of_that_source(connect: Connect, s3: S3Client, bucket: str) -> None:
    with connect() as connection:
        host = connection.host
    s3.put_object(Bucket=bucket, Key="my file", Body=b"the one")
    s3.put_object(Bucket=bucket, Key="my+file", Body=b"another")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="whole")["UploadId"]
    headers = [("x-amz-copy-source", f"{bucket}/my+file")]
    target = f"/{bucket}/whole?partNumber=1&uploadId={upload}"
    assert ask(connect, signed(host, "PUT", target, headers), "PUT").status == 200
    (part,) = s3.list_parts(Bucket=bucket, Key="whole", UploadId=upload)["Parts"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(Bucket=bucket, Key="whole", UploadId=upload, MultipartUpload=parts)
    assert s3.get_object(Bucket=bucket, Key="whole")["Body"].read() == b"the one"


def test_a_document_names_keys_as_they_are(s3: S3Client, filled: str) -> None:
    """XML is not percent-encoded: `a+b` and `a%20b` in a Delete are those very keys."""
    for raw, key in TABLE:
        if raw == key:
            continue
        s3.delete_objects(Bucket=filled, Delete={"Objects": [{"Key": raw}]})
        if raw not in KEYS:
            assert raw not in {found["Key"] for found in s3.list_objects_v2(Bucket=filled)["Contents"]}
    left = {found["Key"] for found in s3.list_objects_v2(Bucket=filled)["Contents"]}
    assert left == {key for key in KEYS if key not in {raw for raw, named in TABLE if raw != named}}


def test_a_browsers_plus_is_a_space(endpoint: str, s3: S3Client, bucket: str) -> None:
    """A URL that S3's console shows has a `+` for a space. A signature covers the key, so the URL still holds."""
    s3.put_object(Bucket=bucket, Key="has space.txt", Body=b"spaced")
    v4 = s3_client(endpoint, signature_version="s3v4")
    url = v4.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "has space.txt"})
    assert "has%20space.txt" in url
    host, _, target = url.replace("has%20space.txt", "has+space.txt").removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.request("GET", f"/{target}")
    assert connection.getresponse().read() == b"spaced"
    connection.close()
