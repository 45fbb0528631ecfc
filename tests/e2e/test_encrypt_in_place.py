"""Old objects of a bucket that does not seal are encrypted where they are, by its default encryption."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outside.beside import again_and_again
from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import MIB, noise, release
from outside.reencryption import ALONE, SLOWLY, assert_whole, kill_half_way, put_all_kinds, rebuild_half_way
from outside.server import Server, Value, until
from outside.storage import assert_accounts_balance

BUCKET = "delta-00"
CANARY = b"canary-90c2-plaintext"
SWIFTLY: dict[str, Value] = {"interval": "1h", "grace": "0s"}
KMS: dict[str, Value] = {"invoices": "keyring"}

Found = dict[tuple[str, str], dict[str, Any]]


def by_default(s3: S3Client, algorithm: str = "AES256", key: str | None = None, bucket_key: bool = False) -> None:
    """Sets the bucket's default encryption."""
    rule: Any = {"SSEAlgorithm": algorithm} | ({"KMSMasterKeyID": key} if key else {})
    rules = [{"ApplyServerSideEncryptionByDefault": rule, "BucketKeyEnabled": bucket_key}]
    s3.put_bucket_encryption(Bucket=BUCKET, ServerSideEncryptionConfiguration={"Rules": rules})


def canaried(seed: int, size: int) -> bytes:
    """Noise in which every 4 KiB holds the canary: it is stored as it is, and any piece of it would show."""
    body = noise(seed, size)
    return b"".join(CANARY + body[at : at + 4075] for at in range(0, size, 4096))[:size]


def filled(s3: S3Client) -> None:
    """Versions, deltas, copies, parts, small and empty objects, with everything that is said of objects."""
    s3.create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
    described: Any = {"Metadata": {"of": "it"}, "Tagging": "t=1", "ContentType": "text/x", "CacheControl": "no-cache"}
    for number in range(3):
        s3.put_object(Bucket=BUCKET, Key="release", Body=CANARY + release(3, 400_000, number), **described)
    s3.put_object(Bucket=BUCKET, Key="raw", Body=canaried(1, MIB), ChecksumAlgorithm="SHA256")
    s3.copy_object(Bucket=BUCKET, Key="raw-copy", CopySource={"Bucket": BUCKET, "Key": "raw"}, MetadataDirective="COPY")
    ids: Any = {"Bucket": BUCKET, "Key": "of-ranges"}
    upload = s3.create_multipart_upload(**ids)["UploadId"]
    ranged: Any = {"CopySource": {"Bucket": BUCKET, "Key": "raw"}, "CopySourceRange": "bytes=1000-300999"}
    part = s3.upload_part_copy(**ids, UploadId=upload, PartNumber=1, **ranged)["CopyPartResult"]
    only: Any = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(**ids, UploadId=upload, MultipartUpload=only)
    s3.put_object(Bucket=BUCKET, Key="small", Body=noise(3, 900), StorageClass="STANDARD_IA")
    s3.put_object(Bucket=BUCKET, Key="empty", Body=b"", Metadata={"of": "nothing"})
    hold: Any = {"ObjectLockLegalHoldStatus": "ON", "ChecksumAlgorithm": "CRC32"}
    s3.put_object(Bucket=BUCKET, Key="locked", Body=canaried(5, 100_000), **hold)
    ids = {"Bucket": BUCKET, "Key": "parts"}
    upload = s3.create_multipart_upload(**ids, ChecksumAlgorithm="CRC32", Metadata={"of": "parts"})["UploadId"]
    parts: list[Any] = []
    for number, body in enumerate((canaried(7, 5 * MIB), canaried(8, 5 * MIB + 3), canaried(9, 77)), 1):
        made = s3.upload_part(**ids, UploadId=upload, PartNumber=number, Body=body, ChecksumAlgorithm="CRC32")
        parts.append({"PartNumber": number, "ETag": made["ETag"], "ChecksumCRC32": made["ChecksumCRC32"]})
    s3.complete_multipart_upload(**ids, UploadId=upload, MultipartUpload={"Parts": parts})
    s3.put_object(Bucket=BUCKET, Key="deleted", Body=canaried(11, 50_000))
    s3.delete_object(Bucket=BUCKET, Key="deleted")


def told(answer: Any) -> dict[str, Any]:
    """What a client sees of an object, but for its encryption and for the request."""
    headers = answer.pop("ResponseMetadata")["HTTPHeaders"]
    other = ("x-amz-server-side", "x-amz-request", "x-amz-id", "x-deltaweir", "date", "connection", "server")
    return {name: value for name, value in headers.items() if not name.startswith(other)}


def found(s3: S3Client) -> Found:
    """Every version of the bucket, as clients see it."""
    seen: Found = {}
    for version in s3.list_object_versions(Bucket=BUCKET)["Versions"]:
        at: Any = {"Bucket": BUCKET, "Key": version["Key"], "VersionId": version["VersionId"]}
        got = s3.get_object(**at, ChecksumMode="ENABLED")
        body = got["Body"].read()
        everything: Any = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
        attributes = s3.get_object_attributes(**at, ObjectAttributes=everything)
        told(attributes)
        one: dict[str, Any] = {
            "listed": version,
            "body": body,
            "headers": told(got),
            "head": told(s3.head_object(**at, ChecksumMode="ENABLED")),
            "attributes": attributes,
            "tags": s3.get_object_tagging(**at)["TagSet"],
            "range": s3.get_object(**at, Range="bytes=0-99")["Body"].read() if body else b"",
        }
        if version["Key"] == "parts":
            one["parts"] = [s3.get_object(**at, PartNumber=number)["Body"].read() for number in (1, 2, 3)]
        seen[version["Key"], version["VersionId"]] = one
    return seen


def assert_same(before: Found, after: Found) -> None:
    assert list(before) == list(after)
    for name, one in before.items():
        for part, value in one.items():
            assert after[name][part] == value, (name, part)


def encryptions(s3: S3Client) -> set[tuple[str | None, str | None, bool | None]]:
    """How the versions of the bucket say that they are encrypted."""
    said = set()
    for version in s3.list_object_versions(Bucket=BUCKET)["Versions"]:
        head = s3.head_object(Bucket=BUCKET, Key=version["Key"], VersionId=version["VersionId"])
        said.add((head.get("ServerSideEncryption"), head.get("SSEKMSKeyId"), head.get("BucketKeyEnabled")))
    return said


def files_with(folder: Path, needle: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()]


def assert_offered(server: Server, default: str) -> None:
    """Whoever looks at the bucket or at an old object is told of its default, and of what encrypts the old ones."""
    assert f" default encryption={default}" in server.run("buckets", "list").stdout
    command = f"`deltaweir keys reencrypt {BUCKET}` encrypts it"
    assert command in server.run("explain", f"s3://{BUCKET}/raw").stdout
    until(lambda: f"`deltaweir keys reencrypt {BUCKET}`" in server.tail(500), 20, "the log has a line of it")


@pytest.mark.parametrize(
    ("algorithm", "key", "bucket_key"),
    [("AES256", None, False), ("aws:kms", "invoices", True), ("aws:kms", None, False)],
)
def test_every_object_is_encrypted_where_it_is_and_looks_as_before(
    new_server: NewServer, algorithm: str, key: str | None, bucket_key: bool
) -> None:
    server = new_server(convert=ALONE, gc=SWIFTLY, **{"kms.keys": KMS}).start()
    s3 = s3_client(server.endpoint)
    filled(s3)
    before = found(s3)
    assert encryptions(s3) == {(None, None, None)}
    by_default(s3, algorithm, key, bucket_key)
    assert_offered(server, f"{algorithm} {key or 'aws/s3'}" if algorithm == "aws:kms" else algorithm)
    report = server.json("keys", "reencrypt", BUCKET)
    assert (report["objects"], report["encrypted"], report["left"]) == (len(before), len(before), 0), report
    server.drop_caches()
    assert_same(before, found(s3))
    named = (key or "aws/s3") if algorithm == "aws:kms" else None
    assert encryptions(s3) == {(algorithm, named, bucket_key or None)}
    explained = server.run("explain", f"s3://{BUCKET}/raw").stdout
    assert f"encrypted   {algorithm}" in explained
    assert "reencrypt" not in explained
    assert server.json("keys", "reencrypt", BUCKET)["already"] == len(before)
    server.restart()
    assert_same(before, found(s3_client(server.endpoint)))
    assert_accounts_balance(server)


def test_no_plain_byte_stays_in_the_store(new_server: NewServer) -> None:
    server = new_server(convert=ALONE, gc=SWIFTLY).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    contents = {f"raw-{n}": canaried(n, 600_000) for n in range(3)}
    contents |= {f"release-{n}": CANARY + release(3, 300_000, n) for n in range(4)}
    for name, body in contents.items():
        s3.put_object(Bucket=BUCKET, Key=name, Body=body)
    s3.copy_object(Bucket=BUCKET, Key="copy", CopySource={"Bucket": BUCKET, "Key": "raw-0"})
    contents["copy"] = contents["raw-0"]
    server.run("journal")
    assert files_with(server.blobs / "blobs", CANARY), "the search would prove nothing"
    server.restart()
    by_default(s3)
    assert server.json("keys", "reencrypt", BUCKET)["left"] == 0
    server.run("journal")
    server.run("gc", "--now")
    assert files_with(server.blobs / "blobs", CANARY) == []
    assert files_with(server.folder, CANARY) == []
    for name, body in contents.items():
        assert s3.get_object(Bucket=BUCKET, Key=name)["Body"].read() == body, name


def documents(server: Server) -> set[Path]:
    """Journal and backups."""
    kinds = ("journal", "backup", "backup-part")
    return {path for kind in kinds for path in (server.blobs / kind).rglob("*") if path.is_file()}


def assert_nothing_plain(server: Server) -> None:
    """No file of the server has the canary, as it is or as the catalog's journal writes it, at any offset."""
    written = [base64.b64encode(bytes(offset) + CANARY)[4 * (offset > 0) : 24] for offset in range(3)]
    for needle in [CANARY, *written]:
        assert files_with(server.folder, needle) == [], needle


def test_no_plain_byte_of_a_small_object_stays_in_the_catalog_its_log_or_the_store(new_server: NewServer) -> None:
    """Content up to 4 KiB lies in rows: of the catalog, of its journal, of what was shipped, and of backups."""
    never: dict[str, Value] = {"retention": "0s", "journal_seconds": 3600}
    server = new_server(convert=ALONE, gc=SWIFTLY, backup=never).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    sizes = [40, 100, 300, 900, 2000, 4000]
    contents = {f"small-{n:03}": canaried(n, sizes[n % 6]) for n in range(200)}
    for name, body in contents.items():
        s3.put_object(Bucket=BUCKET, Key=name, Body=body)
    # Some are overwritten or deleted before anybody thinks of encryption.
    for name in [name for n, name in enumerate(contents) if n % 5 == 0]:
        s3.delete_object(Bucket=BUCKET, Key=name)
        del contents[name]
    for n, name in enumerate(contents):
        if n % 4 == 0:
            contents[name] = canaried(1000 + n, sizes[n % 5])
            s3.put_object(Bucket=BUCKET, Key=name, Body=contents[name])
    server.run("backup")
    server.run("gc", "--now")
    before = documents(server)
    assert before and files_with(server.data, CANARY), "the search would prove nothing"
    by_default(s3)
    assert server.json("keys", "reencrypt", BUCKET)["left"] == 0
    # Another process remembers what is to be overwritten once the old rows are purged.
    server.restart()
    server.run("gc", "--now")
    # What a backup needs stays until the one after it is made.
    for _ in range(2):
        server.run("backup")
    assert_nothing_plain(server)
    assert before & documents(server) == set(), "what was written then is compressed"
    for name, body in contents.items():
        assert s3.get_object(Bucket=BUCKET, Key=name)["Body"].read() == body, name
    assert_accounts_balance(server)
    server.restart()
    assert_nothing_plain(server)


@pytest.fixture
def half_done(new_server: NewServer) -> Iterator[tuple[Server, dict[str, bytes]]]:
    """A server that was killed while it encrypted a bucket, and what the bucket holds."""
    server = new_server(convert=SLOWLY).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    stored = put_all_kinds(s3, BUCKET)
    by_default(s3)
    server.run("journal")
    kill_half_way(server, BUCKET)
    yield server, stored


def test_a_rebuild_takes_no_copy_of_a_killed_run_for_a_lost_version(
    half_done: tuple[Server, dict[str, bytes]],
) -> None:
    """What the run had encrypted is not in the shipped journal: its blobs are in no row of the rebuilt catalog."""
    server, stored = half_done
    server.lose_catalog()
    recovered = server.json("rebuild")["recovered"]
    assert (recovered["versions"], recovered["unreadable"]) == ([], []), recovered
    server.start()
    assert_whole(server, BUCKET, stored)


def test_a_killed_run_goes_on_while_others_write_and_a_rebuild_of_it_reads_everything(
    half_done: tuple[Server, dict[str, bytes]],
) -> None:
    server, stored = half_done
    server.start()
    assert len(encryptions(s3_client(server.endpoint))) == 2, "one part of the bucket is encrypted"
    assert_whole(server, BUCKET, stored)

    # The catalog is lost in this state.
    rebuild_half_way(server)
    assert len(encryptions(s3_client(server.endpoint))) == 2
    assert_whole(server, BUCKET, stored)

    # Anew from there, while others write, delete and tag.
    s3 = s3_client(server.endpoint)

    def write(number: int) -> None:
        name = f"noise-{number % 6:02}"
        body = noise(1000 + number, 50_000)
        s3.put_object(Bucket=BUCKET, Key=name, Body=body, Metadata={"of": name})
        assert s3.get_object(Bucket=BUCKET, Key=name)["Body"].read() == body
        stored[name] = body
        tags: Any = {"TagSet": [{"Key": "n", "Value": str(number)}]}
        s3.put_object_tagging(Bucket=BUCKET, Key="release-05", Tagging=tags)

    with again_and_again(write):
        report = server.json("keys", "reencrypt", BUCKET)
    assert report["left"] == 0, report
    assert encryptions(s3) == {("AES256", None, None)}
    assert s3.get_object_tagging(Bucket=BUCKET, Key="release-05")["TagSet"], "the last tag stays"
    assert_whole(server, BUCKET, stored)


def test_a_bucket_that_nothing_encrypts_is_refused_and_so_is_a_key_that_is_not_there(new_server: NewServer) -> None:
    server = new_server(convert=ALONE).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"plain")
    refused = server.run("keys", "reencrypt", BUCKET, check=False)
    assert refused.returncode != 0
    assert "PutBucketEncryption" in refused.stderr
    assert 'encryption = "aes256"' in refused.stderr
    by_default(s3, "aws:kms", "nowhere")
    refused = server.run("keys", "reencrypt", BUCKET, check=False)
    assert refused.returncode != 0
    assert "[kms.keys]" in refused.stderr
    assert s3.get_object(Bucket=BUCKET, Key="k")["Body"].read() == b"plain"


def test_customers_keys_stay_and_uploads_from_before_are_told(new_server: NewServer) -> None:
    server = new_server(convert=ALONE).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    theirs: Any = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "0123456789abcdef0123456789abcdef"}
    s3.put_object(Bucket=BUCKET, Key="theirs", Body=b"of a customer", **theirs)
    ids: Any = {"Bucket": BUCKET, "Key": "late"}
    upload = s3.create_multipart_upload(**ids)["UploadId"]
    part = s3.upload_part(**ids, UploadId=upload, PartNumber=1, Body=b"late")
    by_default(s3)
    report = server.json("keys", "reencrypt", BUCKET)
    assert (report["encrypted"], report["already"], report["uploads"]) == (0, 1, 1), report
    assert s3.get_object(Bucket=BUCKET, Key="theirs", **theirs)["Body"].read() == b"of a customer"
    parts: Any = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(**ids, UploadId=upload, MultipartUpload=parts)
    assert "ServerSideEncryption" not in s3.head_object(**ids)
    report = server.json("keys", "reencrypt", BUCKET)
    assert (report["encrypted"], report["uploads"]) == (1, 0), report
    assert s3.head_object(**ids)["ServerSideEncryption"] == "AES256"
    assert s3.get_object(**ids)["Body"].read() == b"late"


def test_blobs_alone_tell_what_is_encrypted_and_what_is_not_yet(half_done: tuple[Server, dict[str, bytes]]) -> None:
    server, stored = half_done
    server.lose_catalog()
    server.lose_journal_and_backups()
    assert server.json("rebuild", "--in-place")["recovered"]["unreadable"] == []
    server.start()
    s3 = s3_client(server.endpoint)
    seen = {item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET)["Contents"]}
    large = {name for name, content in stored.items() if len(content) > 4096}
    assert {name.removeprefix("deltaweir-recovered/") for name in seen} == large, "small ones lay in rows"
    for name in seen:
        got = s3.get_object(Bucket=BUCKET, Key=name)
        assert got["Body"].read() == stored[name.removeprefix("deltaweir-recovered/")], name
