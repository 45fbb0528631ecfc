"""Server-side encryption of single objects: the customer's keys, named keys, and the server's own in a plain bucket."""

from __future__ import annotations

import base64
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import MIB, noise
from outside.failure import error_code
from outside.server import Server, Value

KEY = "0123456789abcdef0123456789abcdef"
OTHER_KEY = KEY[::-1]
PLAIN, SEALED = "plain-bucket", "sealed-bucket"

Keyed = dict[str, Any]


def customer(key: str = KEY) -> Keyed:
    return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key}


def source(key: str = KEY) -> Keyed:
    return {"CopySourceSSECustomerAlgorithm": "AES256", "CopySourceSSECustomerKey": key}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a named key, a bucket that seals and one that does not."""
    tables: Any = {"kms.keys": {"invoices": "keyring"}, f"buckets.{SEALED}": {"encryption": "aes256"}}
    with Server(tmp_path_factory.mktemp("sse"), tables) as server:
        for bucket in (PLAIN, SEALED):
            s3_client(server.endpoint).create_bucket(Bucket=bucket)
        yield server


@pytest.fixture
def s3(server: Server) -> S3Client:
    """boto3 on this module's server."""
    return s3_client(server.endpoint)


def stored(server: Server) -> bytes:
    """Everything in the data directory."""
    return b"".join(path.read_bytes() for path in server.data.rglob("*") if path.is_file())


@pytest.mark.parametrize("bucket", [PLAIN, SEALED])
@pytest.mark.parametrize("size", [0, 1, 1000, 5 * MIB + 13])
def test_content_is_read_back_with_the_customers_key_alone(s3: S3Client, bucket: str, size: int) -> None:
    at: dict[str, Any] = {"Bucket": bucket, "Key": f"c-{size}"}
    content = noise(size, size)
    put = s3.put_object(**at, Body=content, Metadata={"m": "1"}, **customer())
    assert put["SSECustomerAlgorithm"] == "AES256"
    assert put["ETag"] != f'"{hashlib.md5(content).hexdigest()}"'
    got = s3.get_object(**at, **customer())
    assert (got["Body"].read(), got["ETag"], got["Metadata"]) == (content, put["ETag"], {"m": "1"})
    assert s3.head_object(**at, **customer())["ContentLength"] == size
    for ask in (s3.get_object, s3.head_object):
        assert error_code(ask, **at)[0] == 400
        assert error_code(ask, **at, **customer(OTHER_KEY))[0] == 400
    if size > 100:
        for start, end in ((0, 0), (17, 99), (size - 5, size - 1), (size // 2, size - 1)):
            part = s3.get_object(**at, **customer(), Range=f"bytes={start}-{end}")
            assert part["Body"].read() == content[start : end + 1]
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=f"c-{size}")["Contents"]
    assert listed[0]["Size"] == size


def test_nothing_of_the_content_or_the_key_is_stored(server: Server, s3: S3Client) -> None:
    secret = b"a sentence that nobody else has ever written into this store 4711 " * 40
    for number, keyed in enumerate(
        (customer(), {"ServerSideEncryption": "AES256"}, {"ServerSideEncryption": "aws:kms"})
    ):
        s3.put_object(Bucket=PLAIN, Key=f"secret-{number}", Body=secret, **keyed)
    found = stored(server)
    assert secret[:40] not in found and KEY.encode() not in found


def test_content_under_one_key_is_never_a_base_for_another(s3: S3Client) -> None:
    content = noise(77, MIB)
    for number, key in enumerate((KEY, OTHER_KEY, KEY)):
        s3.put_object(Bucket=PLAIN, Key=f"same-{number}", Body=content, **customer(key))
        head = s3.head_object(Bucket=PLAIN, Key=f"same-{number}", **customer(key))
        headers = head["ResponseMetadata"]["HTTPHeaders"]
        assert headers["x-deltaweir-form"] == "raw" and "x-deltaweir-base" not in headers


def test_headers_of_a_customers_key_come_whole(s3: S3Client) -> None:
    at: dict[str, Any] = {"Bucket": PLAIN, "Key": "k", "Body": b"x"}
    assert error_code(s3.put_object, **at, SSECustomerKey=KEY) == (400, "InvalidArgument")
    assert error_code(s3.put_object, **at, **customer("short")) == (400, "InvalidArgument")
    wrong = customer() | {"SSECustomerKeyMD5": "AAAAAAAAAAAAAAAAAAAAAA=="}
    assert error_code(s3.put_object, **at, **wrong) == (400, "InvalidArgument")
    both = customer() | {"ServerSideEncryption": "AES256"}
    assert error_code(s3.put_object, **at, **both) == (400, "InvalidArgument")
    s3.put_object(**at)
    assert error_code(s3.get_object, Bucket=PLAIN, Key="k", **customer()) == (400, "InvalidRequest")


@pytest.mark.parametrize("bucket", [PLAIN, SEALED])
def test_parts_are_read_as_one_object(s3: S3Client, bucket: str) -> None:
    at: dict[str, Any] = {"Bucket": bucket, "Key": "parts"}
    contents = [noise(1, 5 * MIB), noise(2, 5 * MIB + 7), noise(3, 100)]
    upload = {**at, "UploadId": s3.create_multipart_upload(**at, **customer())["UploadId"]}
    assert error_code(s3.upload_part, **upload, PartNumber=1, Body=b"x")[0] == 400
    assert error_code(s3.upload_part, **upload, PartNumber=1, Body=b"x", **customer(OTHER_KEY))[0] == 400
    parts = []
    for number, content in enumerate(contents, 1):
        part = s3.upload_part(**upload, PartNumber=number, Body=content, **customer())
        parts.append({"PartNumber": number, "ETag": part["ETag"]})
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    whole = b"".join(contents)
    assert s3.get_object(**at, **customer())["Body"].read() == whole
    for start, end in ((5 * MIB - 3, 5 * MIB + 3), (10 * MIB, len(whole) - 1), (1, len(whole) - 2)):
        got = s3.get_object(**at, **customer(), Range=f"bytes={start}-{end}")["Body"].read()
        assert got == whole[start : end + 1]
    assert s3.get_object(**at, **customer(), PartNumber=2)["Body"].read() == contents[1]
    assert error_code(s3.get_object, **at, **customer(OTHER_KEY)) == (400, "InvalidRequest")
    assert error_code(s3.get_object, **at, PartNumber=4) == (400, "InvalidPart")


def test_a_copy_names_the_keys_of_both_sides(s3: S3Client) -> None:
    content = noise(9, 200_000)
    s3.put_object(Bucket=PLAIN, Key="from", Body=content, **customer())
    copy: dict[str, Any] = {"CopySource": {"Bucket": PLAIN, "Key": "from"}}
    assert error_code(s3.copy_object, Bucket=PLAIN, Key="to", **copy)[0] == 400
    assert error_code(s3.copy_object, Bucket=PLAIN, Key="to", **copy, **source(OTHER_KEY))[0] == 400
    for bucket, keyed in ((PLAIN, customer(OTHER_KEY)), (SEALED, customer()), (PLAIN, {}), (SEALED, {})):
        s3.copy_object(Bucket=bucket, Key="to", **copy, **source(), **keyed)
        assert s3.get_object(Bucket=bucket, Key="to", **keyed)["Body"].read() == content
    s3.copy_object(Bucket=PLAIN, Key="from", **copy, **source(), **customer(OTHER_KEY))
    assert s3.get_object(Bucket=PLAIN, Key="from", **customer(OTHER_KEY))["Body"].read() == content
    at: dict[str, Any] = {"Bucket": SEALED, "Key": "by-parts"}
    upload = {**at, "UploadId": s3.create_multipart_upload(**at, **customer())["UploadId"]}
    part = s3.upload_part_copy(
        **upload, PartNumber=1, **copy, **source(OTHER_KEY), **customer(), CopySourceRange="bytes=10-99999"
    )
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]}
    s3.complete_multipart_upload(**upload, MultipartUpload=parts)
    assert s3.get_object(**at, **customer())["Body"].read() == content[10:100_000]


def test_keys_of_the_server_are_told_and_need_nothing_to_read(s3: S3Client) -> None:
    content = noise(4, 70_000)
    md5 = f'"{hashlib.md5(content).hexdigest()}"'
    cases: list[tuple[str, Keyed, str, str | None]] = [
        (PLAIN, {"ServerSideEncryption": "AES256"}, "AES256", None),
        (SEALED, {"ServerSideEncryption": "AES256"}, "AES256", None),
        (PLAIN, {"ServerSideEncryption": "aws:kms"}, "aws:kms", "aws/s3"),
        (PLAIN, {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "invoices"}, "aws:kms", "invoices"),
        (SEALED, {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "invoices"}, "aws:kms", "invoices"),
    ]
    for bucket, keyed, algorithm, key_id in cases:
        at: dict[str, Any] = {"Bucket": bucket, "Key": "s"}
        answers = [s3.put_object(**at, Body=content, **keyed), s3.head_object(**at), s3.get_object(**at)]
        for answer in answers:
            assert (answer["ServerSideEncryption"], answer.get("SSEKMSKeyId")) == (algorithm, key_id)
        assert answers[2]["Body"].read() == content
        assert (answers[1]["ETag"] == md5) == (algorithm == "AES256")
    unknown = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "nobody"}
    refused = error_code(s3.put_object, Bucket=PLAIN, Key="s", Body=b"x", **unknown)
    assert refused == (400, "KMS.NotFoundException")
    alone = {"SSEKMSKeyId": "invoices"}
    assert error_code(s3.put_object, Bucket=PLAIN, Key="s", Body=b"x", **alone) == (400, "InvalidArgument")


def test_a_bucket_has_a_default_that_can_be_set_and_removed(s3: S3Client) -> None:
    bucket = "defaults"
    s3.create_bucket(Bucket=bucket)
    unset = (404, "ServerSideEncryptionConfigurationNotFoundError")
    assert error_code(s3.get_bucket_encryption, Bucket=bucket) == unset
    for rule, told in (
        ({"SSEAlgorithm": "AES256"}, ("AES256", None)),
        ({"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "invoices"}, ("aws:kms", "invoices")),
    ):
        rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": rule, "BucketKeyEnabled": False}]}
        s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=rules)
        kept = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]
        assert kept == rules
        s3.put_object(Bucket=bucket, Key="k", Body=b"content")
        head = s3.head_object(Bucket=bucket, Key="k")
        assert (head["ServerSideEncryption"], head.get("SSEKMSKeyId")) == told
        upload = s3.create_multipart_upload(Bucket=bucket, Key="m")
        assert upload["ServerSideEncryption"] == told[0]
    s3.delete_bucket_encryption(Bucket=bucket)
    assert error_code(s3.get_bucket_encryption, Bucket=bucket) == unset
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"content"
    assert "ServerSideEncryption" not in s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    wrong = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "rot13"}}]}
    refused = error_code(s3.put_bucket_encryption, Bucket=bucket, ServerSideEncryptionConfiguration=wrong)
    assert refused == (400, "MalformedXML")


def test_a_read_that_asks_for_encryption_is_refused(s3: S3Client) -> None:
    s3.put_object(Bucket=PLAIN, Key="k", Body=b"x")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": PLAIN, "Key": "k"})
    request = urllib.request.Request(url, headers={"x-amz-server-side-encryption": "AES256"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code in (400, 403), "not signed, or not accepted"


def test_what_was_encrypted_is_read_after_a_restart(server: Server) -> None:
    s3 = s3_client(server.endpoint)
    keyed: Keyed = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "invoices"}
    s3.put_object(Bucket=PLAIN, Key="kms", Body=b"by a named key", **keyed)
    s3.put_object(Bucket=PLAIN, Key="sse-c", Body=b"by a customer's", **customer())
    server.restart()
    assert s3.get_object(Bucket=PLAIN, Key="kms")["Body"].read() == b"by a named key"
    assert s3.get_object(Bucket=PLAIN, Key="sse-c", **customer())["Body"].read() == b"by a customer's"


def test_another_key_of_the_server_is_an_error_and_never_other_bytes(new_server: NewServer) -> None:
    """In a store that seals nothing, which starts under another key."""
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="lone")
    for number, algorithm in enumerate(("AES256", "aws:kms")):
        keyed: Keyed = {"ServerSideEncryption": algorithm}
        s3.put_object(Bucket="lone", Key=str(number), Body=b"content", **keyed)
    keyring = server.data / "keyring.json"
    kept = keyring.read_bytes()
    assert server.stop() == 0
    keyring.unlink()
    server.start()
    for number in range(2):
        assert error_code(s3_client(server.endpoint).get_object, Bucket="lone", Key=str(number))[0] == 500
    assert server.stop() == 0
    keyring.write_bytes(kept)
    server.start()
    for number in range(2):
        assert s3_client(server.endpoint).get_object(Bucket="lone", Key=str(number))["Body"].read() == b"content"


def test_a_name_with_secrets_of_its_own_needs_no_keyring_and_reads_what_its_former_secret_encrypted(
    new_server: NewServer, tmp_path: Path
) -> None:
    """And what the keyring's key of that name encrypted before it had one."""
    for name in ("first", "second"):
        (tmp_path / name).write_text(base64.b64encode(os.urandom(32)).decode() + "\n")
        (tmp_path / name).chmod(0o600)
    own = {name: f"file:{tmp_path / name}" for name in ("first", "second")}

    derived: dict[str, dict[str, Value]] = {"kms.keys": {"payroll": "keyring"}}
    server: Server = new_server(**derived).start()

    def restart(*sources: str) -> None:
        server.tables["kms.keys"] = {"payroll": list(sources) if len(sources) > 1 else sources[0]}
        server.restart()

    def content(key: str) -> bytes:
        return bytes(s3_client(server.endpoint).get_object(Bucket=PLAIN, Key=key)["Body"].read())

    def put(key: str) -> None:
        keyed: Keyed = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "payroll"}
        s3_client(server.endpoint).put_object(Bucket=PLAIN, Key=key, Body=key.encode() * 99, **keyed)

    s3_client(server.endpoint).create_bucket(Bucket=PLAIN)
    put("keyring")
    restart(own["first"])
    put("first")
    assert content("keyring") == b"keyring" * 99
    restart(own["second"], own["first"])
    put("second")
    for key in ("keyring", "first", "second"):
        assert content(key) == key.encode() * 99
    # Each secret is needed for its own, and only for that.
    restart(own["second"])
    assert content("second") == b"second" * 99
    assert error_code(s3_client(server.endpoint).get_object, Bucket=PLAIN, Key="first")[0] == 500
    assert server.stop() == 0
    (server.data / "keyring.json").unlink()
    server.start()
    assert content("second") == b"second" * 99
    assert error_code(s3_client(server.endpoint).get_object, Bucket=PLAIN, Key="keyring")[0] == 500
    shown = server.run("config", "show").stdout
    assert str(tmp_path / "second") in shown and (tmp_path / "second").read_text().strip() not in shown
